//! An object of the export whose fields are taken one by one; what nobody took is told, so that nothing gets lost unseen.

use serde_json::{Map, Value};

use super::super::page::plain;

/// Characters of a value that a comment shows.
const SHOWN_MAX: usize = 400;

/// An object, and what is left of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// The fields of an object; `None` for any other value.
    pub(super) fn of(value: Value) -> Option<Self> {
        match value {
            Value::Object(fields) => Some(Self(fields)),
            _ => None,
        }
    }

    /// Whether there is a field with a value.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }

    /// A text, which stays.
    pub(super) fn peek(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// The whole object again.
    pub(super) fn whole_object(self) -> Value {
        Value::Object(self.0)
    }

    /// Takes a text that says something; another value stays, and is told with what is left.
    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        self.take_if(name, |value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned))
    }

    /// Takes a whole number from 0 on.
    pub(super) fn whole(&mut self, name: &str) -> Option<u64> {
        // Whole numbers come as 5.0 from some programs.
        let whole = |value: &Value| {
            value
                .as_u64()
                .or_else(|| value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..1e15).contains(n)).map(|n| n as u64))
        };
        self.take_if(name, whole)
    }

    /// Takes yes or no.
    pub(super) fn truth(&mut self, name: &str) -> Option<bool> {
        self.take_if(name, Value::as_bool)
    }

    /// Takes an object.
    pub(super) fn object(&mut self, name: &str) -> Option<Self> {
        self.take_if(name, |value| Self::of(value.clone()))
    }

    /// Takes a list.
    pub(super) fn list(&mut self, name: &str) -> Option<Vec<Value>> {
        self.take_if(name, |value| value.as_array().cloned())
    }

    /// Takes any value.
    pub(super) fn any(&mut self, name: &str) -> Option<Value> {
        self.take_if(name, |value| (!value.is_null()).then(|| value.clone()))
    }

    /// Takes what means nothing elsewhere: ids, times of changes.
    pub(super) fn drop(&mut self, names: &[&str]) {
        for name in names {
            self.0.remove(*name);
        }
    }

    /// What nobody took and says something, each as `name: value`.
    pub(super) fn left(&self) -> Vec<String> {
        let says = |value: &Value| match value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            Value::Bool(_) | Value::Number(_) => true,
        };
        let left = self.0.iter().filter(|(_, value)| says(value));
        left.map(|(name, value)| format!("{}: {}", plain(name), shown(name, value))).collect()
    }

    fn take_if<T>(&mut self, name: &str, read: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
        let taken = self.0.get(name).and_then(read)?;
        self.0.remove(name);
        Some(taken)
    }
}

/// A value of the export in a comment: on one line, of a bounded length, secrets masked.
pub(super) fn shown(name: &str, value: &Value) -> String {
    let text = plain(&masked(name, value).to_string());
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}… ({} characters)", text.get(..end).unwrap_or_default(), text.chars().count()),
        None => text,
    }
}

/// Whatever may be a secret by its name, or by the name of what it stands in.
fn masked(name: &str, value: &Value) -> Value {
    const SECRET: [&str; 8] = ["secret", "password", "token", "_key", "auth", "configs", "env", "credential"];
    let name = name.to_ascii_lowercase();
    // A transformation's code may have secrets in it, too.
    let secret = name == "code" || SECRET.iter().any(|word| name.contains(word));
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(inner, value)| (inner.clone(), masked(if secret { "secret" } else { inner }, value)))
            .collect(),
        Value::Array(items) => items.iter().map(|item| masked(&name, item)).collect(),
        Value::String(_) if secret => Value::from("***"),
        value => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_nobody_took_is_told_and_secrets_are_not() {
        let mut fields = Fields::of(json!({
            "name": "a", "id": "x", "empty": null, "none": [],
            "auth": { "client": "hush", "n": 1 }, "new": { "thing": [1, "hush-not"], "api_key": "hush" }, "odd": 1.5
        }))
        .unwrap();
        fields.drop(&["id"]);
        assert_eq!((fields.text("name"), fields.whole("odd")), (Some("a".to_owned()), None));
        let left = fields.left().join("\n");
        assert_eq!(
            left,
            "auth: {\"client\":\"***\",\"n\":1}\nnew: {\"api_key\":\"***\",\"thing\":[1,\"hush-not\"]}\nodd: 1.5"
        );
    }

    #[test]
    fn whole_numbers_may_be_written_with_a_fraction_of_nothing() {
        let mut fields = Fields::of(json!({ "a": 5.0, "b": -1, "c": 0.5 })).unwrap();
        assert_eq!((fields.whole("a"), fields.whole("b"), fields.whole("c")), (Some(5), None, None));
    }
}
