//! The table of fields as a JSON Schema (draft 2020-12), for editors that check the file while it is written.
//!
//! It says less than `check`: any text may hold `${NAME}`, and what depends on several fields is not in it.

use serde_json::{Map as Object, Value as Json, json};

use super::fields::{Default, Field, Kind, Map, ROOT};
use super::raw::{self, Is, Node};
use super::words::expected;

/// The schema of `gateway.yaml`.
#[must_use]
pub fn schema() -> Json {
    let mut schema = map(&ROOT);
    if let Some(top) = schema.as_object_mut() {
        top.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        top.insert("title".to_owned(), json!("Fairlane configuration"));
    }
    schema
}

fn map(map: &'static Map) -> Json {
    let properties: Object<String, Json> =
        map.fields.iter().map(|field| (field.name.to_owned(), property(field))).collect();
    let required: Vec<&str> =
        map.fields.iter().filter(|f| matches!(f.default, Default::Required)).map(|f| f.name).collect();
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if let (false, Some(schema)) = (required.is_empty(), schema.as_object_mut()) {
        schema.insert("required".to_owned(), json!(required));
    }
    schema
}

fn property(field: &'static Field) -> Json {
    let of = kind(&field.kind);
    let may_be_null = matches!(field.default, Default::Is("null") | Default::Parts | Default::OrNull(_));
    let mut schema = if may_be_null { json!({ "anyOf": [of, { "type": "null" }] }) } else { of };
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("description".to_owned(), json!(field.doc));
        if let Default::Is(text) | Default::OrNull(text) = field.default {
            let node = raw::parse(text, "default").ok();
            schema.insert("default".to_owned(), node.map_or(Json::Null, |node| plain(&node, &field.kind)));
        }
    }
    schema
}

/// A default as JSON: numbers and booleans as such, all else as text.
fn plain(node: &Node, kind: &Kind) -> Json {
    match (&node.is, kind) {
        (Is::Null, _) => Json::Null,
        (Is::List(items), Kind::List(of, _)) => items.iter().map(|item| plain(item, of)).collect(),
        (Is::List(_), _) => json!([]),
        (Is::Map(_), _) => json!({}),
        (Is::Scalar(text), Kind::Bool | Kind::Int(..) | Kind::Number(..)) => {
            text.parse().unwrap_or_else(|_| json!(text))
        }
        (Is::Scalar(text), _) => json!(text),
    }
}

fn kind(kind: &'static Kind) -> Json {
    match kind {
        Kind::Map(fields) => match fields.short.and_then(|name| fields.field(name)) {
            Some(short) => json!({ "anyOf": [self::kind(&short.kind), map(fields)] }),
            None => map(fields),
        },
        Kind::List(of, least) => json!({ "type": "array", "items": self::kind(of), "minItems": least }),
        Kind::Dict { value, .. } => json!({ "type": "object", "additionalProperties": self::kind(value) }),
        Kind::Bool => or_variable(json!({ "type": "boolean" })),
        Kind::Int(min, max) => or_variable(json!({ "type": "integer", "minimum": min, "maximum": max })),
        Kind::Number(min, max) => or_variable(json!({ "type": "number", "minimum": min, "maximum": max })),
        Kind::Duration(..) => pattern(r"^([0-9]+(w|d|h|m|s|ms|us))+$|\$\{"),
        Kind::Size(..) => json!({ "anyOf": [
            { "type": "integer", "minimum": 0 },
            { "type": "string", "pattern": r"^[0-9]+(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?$|\$\{" },
        ]}),
        Kind::Rate => pattern(r"^[1-9][0-9]*/[smhd]$|\$\{"),
        Kind::Choice(words) => or_variable(json!({ "enum": words })),
        // Text that looks like a number or a boolean is taken as it stands, quotes or not.
        Kind::Text(_) | Kind::Secret(_) => {
            json!({ "type": ["string", "number", "boolean"], "$comment": expected(kind) })
        }
        Kind::Provider => {
            json!({ "type": "string", "$comment": expected(kind), "examples": super::providers::names() })
        }
        Kind::Key | Kind::Order => key(),
    }
}

fn pattern(pattern: &str) -> Json {
    json!({ "type": "string", "pattern": pattern })
}

/// Any value may come from a variable.
fn or_variable(schema: Json) -> Json {
    json!({ "anyOf": [schema, pattern(r"\$\{")] })
}

/// A key rule, two levels of lists deep as far as the schema goes.
fn key() -> Json {
    let expression = json!({ "type": "string", "minLength": 1 });
    let many = |of: &Json| {
        json!([
            of,
            { "type": "array", "items": of, "minItems": 1 },
            {
                "type": "object",
                "properties": { "join": { "type": "array", "items": of, "minItems": 1 } },
                "required": ["join"],
                "additionalProperties": false,
            },
        ])
    };
    let inner = json!({ "anyOf": many(&expression) });
    json!({ "anyOf": many(&inner) })
}

/// Every field's path, as problems write it, with `[]` for any item.
#[must_use]
pub fn paths() -> Vec<String> {
    let mut all = Vec::new();
    collect(&ROOT, "", &mut all);
    all
}

fn collect(map: &'static Map, path: &str, all: &mut Vec<String>) {
    for field in map.fields {
        let path = if path.is_empty() { field.name.to_owned() } else { format!("{path}.{}", field.name) };
        all.push(path.clone());
        match &field.kind {
            Kind::Map(map) => collect(map, &path, all),
            Kind::List(Kind::Map(map), _) => collect(map, &format!("{path}[]"), all),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::problem::Place;
    use super::super::{check, effective};
    use super::*;

    /// What the schema, the checker and the effective configuration call a default is one thing: written again and read
    /// again it is the same value.
    #[test]
    fn every_default_is_a_value_of_its_field() {
        fn walk(map: &'static Map) {
            for field in map.fields {
                let value = check::default(field, Place::START).value;
                if let (Default::Is(text), kind) = (&field.default, &field.kind)
                    && *text != "null"
                    && !matches!(kind, Kind::Secret(_))
                {
                    assert_eq!(check::written_default(&effective::line(&value), kind), value, "{}", field.name);
                }
                if let Kind::Map(map) | Kind::List(Kind::Map(map), _) = &field.kind {
                    walk(map);
                }
            }
        }
        walk(&ROOT);
    }
}
