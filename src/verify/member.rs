//! Single members of a JSON body, read without building a tree of it.
//!
//! Of duplicate members the last one counts, as in the receivers' parsers, so that what is judged
//! is what they will see.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The whole body; `None` when it is not JSON.
pub(super) fn document(body: &[u8]) -> Option<&RawValue> {
    std::str::from_utf8(body).ok().and_then(|text| serde_json::from_str(text).ok())
}

/// What stands at `path`, names of members one inside the other; `None` when nothing does.
pub(super) fn at<'b>(mut value: &'b RawValue, path: &[impl AsRef<str>]) -> Option<&'b RawValue> {
    for name in path {
        value = member(value, name.as_ref())?;
    }
    Some(value)
}

/// A string's text, a number or truth value as written, nothing for null; `None` for an object or
/// an array.
pub(super) fn scalar(value: &RawValue) -> Option<Cow<'_, str>> {
    let text = value.get();
    match text.as_bytes().first()? {
        b'"' => serde_json::from_str::<String>(text).ok().map(Cow::Owned),
        b'{' | b'[' => None,
        b'n' => Some(Cow::Borrowed("")),
        _ => Some(Cow::Borrowed(text)),
    }
}

/// The elements of an array; `None` when it is none, or has more than `max`.
pub(super) fn elements(value: &RawValue, max: usize) -> Option<Vec<&RawValue>> {
    let mut reader = serde_json::Deserializer::from_str(value.get());
    reader.deserialize_seq(Elements(max)).ok()
}

/// One step into a document.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step<'n> {
    /// The member of this name.
    Member(&'n str),
    /// The element of this number.
    Index(usize),
}

/// The text of `value` with `new`, itself JSON, at `path`: in place of what stands there, else as a new member. Every other byte
/// stays. `None` where the path leads through something that is no object, or an element that is not there.
pub(super) fn with(value: &RawValue, path: &[Step<'_>], new: &str) -> Option<String> {
    let Some((step, rest)) = path.split_first() else { return Some(new.to_owned()) };
    let text = value.get();
    let child = match step {
        Step::Member(name) => member(value, name),
        Step::Index(number) => Some(*elements(value, number.checked_add(1_000)?)?.get(*number)?),
    };
    if let Some(child) = child {
        // It is a part of the same text.
        let at = child.get().as_ptr().addr().checked_sub(text.as_ptr().addr())?;
        let (before, after) = (text.get(..at)?, text.get(at + child.get().len()..)?);
        return Some(format!("{before}{}{after}", with(child, rest, new)?));
    }
    let Step::Member(name) = step else { return None };
    let members = text.strip_prefix('{')?;
    let comma = if members.trim_start().starts_with('}') { "" } else { "," };
    let empty: &RawValue = serde_json::from_str("{}").ok()?;
    let inner = if rest.is_empty() { new.to_owned() } else { with(empty, rest, new)? };
    Some(format!("{{{}:{inner}{comma}{members}", serde_json::Value::from(*name)))
}

fn member<'b>(value: &'b RawValue, name: &str) -> Option<&'b RawValue> {
    if !value.get().starts_with('{') {
        return None;
    }
    Member(name).deserialize(&mut serde_json::Deserializer::from_str(value.get())).ok().flatten()
}

/// Finds the last member of this name.
struct Member<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(same) = map.next_key_seed(Is(self.0))? {
            if same {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Compares a key with this name.
struct Is<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

/// Collects at most so many elements.
struct Elements(usize);

impl<'de> Visitor<'de> for Elements {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of at most {} elements", self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(element) = seq.next_element()? {
            if found.len() == self.0 {
                return Err(A::Error::invalid_length(found.len() + 1, &self));
            }
            found.push(element);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_put_in_and_every_other_byte_stays() {
        let put = |text: &str, path: &[Step<'_>]| with(document(text.as_bytes()).unwrap(), path, "7");
        let (a, b) = (Step::Member("a"), Step::Member("b"));
        assert_eq!(
            put(r#"{ "x":1.0, "a" : [2], "y":"\u00e9" }"#, &[a]).unwrap(),
            r#"{ "x":1.0, "a" : 7, "y":"\u00e9" }"#
        );
        assert_eq!(put(r#"{"a":{"c":1}}"#, &[a, b]).unwrap(), r#"{"a":{"b":7,"c":1}}"#);
        assert_eq!(put("{ }", &[a, b]).unwrap(), r#"{"a":{"b":7} }"#);
        assert_eq!(put(r#"{"a":[{}, {"b":1}]}"#, &[a, Step::Index(1), b]).unwrap(), r#"{"a":[{}, {"b":7}]}"#);
        assert_eq!(put(r#"{"a":[]}"#, &[a, Step::Index(0), b]), None);
        assert_eq!(put(r#"{"a":1}"#, &[a, b]), None);
        assert_eq!(put("[]", &[a]), None);
    }

    fn read(body: &str, path: &[&str]) -> Option<String> {
        let value = at(document(body.as_bytes())?, path)?;
        scalar(value).map(Cow::into_owned)
    }

    #[test]
    fn a_scalar_is_its_text() {
        let body = r#"{"a":{"s":"\u00e9\"","n":12345678901234567890.10,"t":true,"z":null,"o":{},"l":[]},"a ":1}"#;
        for (name, text) in [("s", Some("é\"")), ("n", Some("12345678901234567890.10")), ("t", Some("true"))] {
            assert_eq!(read(body, &["a", name]).as_deref(), text);
        }
        assert_eq!(read(body, &["a", "z"]).as_deref(), Some(""));
        for path in [&["a", "o"][..], &["a", "l"], &["a", "none"], &["a", "s", "x"], &["b"], &[]] {
            assert_eq!(read(body, path), None, "{path:?}");
        }
        assert_eq!(read(r#"{"a":1,"\u0061":2}"#, &["a"]).as_deref(), Some("2"), "the last one");
    }

    #[test]
    fn the_number_of_elements_is_bounded() {
        let count = |body: &str, max| elements(document(body.as_bytes()).unwrap(), max).map(|all| all.len());
        assert_eq!(count("[1, {}, [2]]", 3), Some(3));
        assert_eq!(count("[1, {}, [2]]", 2), None);
        assert_eq!(count("[]", 2), Some(0));
        assert_eq!(count("{}", 2), None);
    }
}
