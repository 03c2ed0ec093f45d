//! The JSON Schema and the checker say the same, as far as the schema goes; `docs/configuration.md` is the same table as a page.
//!
//! After a change of the table write the page again, and read the difference:
//!
//! ```sh
//! UPDATE_EXPECTED=1 cargo test --test config_schema
//! ```

#![cfg(test)]

use std::io;
use std::path::Path;

use fairlane::cli::check;
use fairlane::config;
use serde_json::{Value, json};

/// What of `value` the schema does not take; empty when it is valid. Covers the keywords that our schema uses and fails on any
/// other.
fn faults(schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (keyword, says) in schema.as_object().unwrap() {
        let holds = match keyword.as_str() {
            "$schema" | "$comment" | "title" | "description" | "default" | "examples" => true,
            "type" => {
                let types: Vec<&str> = says.as_array().map_or_else(
                    || says.as_str().into_iter().collect(),
                    |a| a.iter().filter_map(Value::as_str).collect(),
                );
                types.contains(&kind(value)) || (kind(value) == "integer" && types.contains(&"number"))
            }
            "enum" => says.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_none_or(|n| n >= says.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|n| n <= says.as_f64().unwrap()),
            "minLength" => value.as_str().is_none_or(|s| s.len() as u64 >= says.as_u64().unwrap()),
            "minItems" => value.as_array().is_none_or(|a| a.len() as u64 >= says.as_u64().unwrap()),
            "pattern" => value.as_str().is_none_or(|s| regex::Regex::new(says.as_str().unwrap()).unwrap().is_match(s)),
            "required" => {
                let has = |name: &Value| value.get(name.as_str().unwrap()).is_some();
                !value.is_object() || says.as_array().unwrap().iter().all(has)
            }
            "anyOf" => says.as_array().unwrap().iter().any(|one| self::faults(one, value, at).is_empty()),
            "items" => {
                for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                    faults.extend(self::faults(says, item, &format!("{at}[{i}]")));
                }
                true
            }
            "properties" => {
                for (name, member) in value.as_object().into_iter().flatten() {
                    let of = says.get(name);
                    faults.extend(of.map(|of| self::faults(of, member, &format!("{at}.{name}"))).unwrap_or_default());
                }
                true
            }
            "additionalProperties" => {
                let known = schema.get("properties").and_then(Value::as_object);
                for (name, member) in value.as_object().into_iter().flatten() {
                    if known.is_some_and(|known| known.contains_key(name)) {
                        continue;
                    }
                    match says {
                        Value::Bool(false) => faults.push(format!("{at}.{name}: additionalProperties")),
                        says => faults.extend(self::faults(says, member, &format!("{at}.{name}"))),
                    }
                }
                true
            }
            other => panic!("the schema uses {other}, which this test does not know"),
        };
        if !holds {
            faults.push(format!("{at}: {keyword} {says}"));
        }
    }
    faults
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_u64() || n.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn yaml(text: &str) -> Value {
    // As YAML 1.2 has it, and editors: `yes` is text.
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { strict_booleans: true }).unwrap()
}

fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

fn is_accepted(text: &str) -> bool {
    let none = |_: &Path| Err(io::ErrorKind::NotFound.into());
    config::load(text, "f", &|_| Some("0123456789abcdef".to_owned()), &none).is_ok()
}

#[test]
fn what_the_checker_accepts_the_schema_does() {
    let schema = config::schema();
    for name in [
        "gateway.yaml",
        "tests/config/ok-minimal.yaml",
        "tests/config/ok-full.yaml",
        "tests/config/ok-shopify.yaml",
        "tests/config/ok-many.yaml",
    ] {
        assert_eq!(faults(&schema, &yaml(&file(name)), ""), [""; 0], "{name}");
    }
    let effective = config::load(&file("gateway.yaml"), "f", &|_| None, &|_| Err(io::ErrorKind::NotFound.into()))
        .unwrap()
        .effective;
    assert_eq!(faults(&schema, &yaml(&effective), ""), [""; 0]);
}

#[test]
fn what_the_schema_refuses_the_checker_does() {
    let schema = config::schema();
    for name in [
        "unknown-key",
        "wrong-types",
        "numbers-and-ranges",
        "empty",
        "no-sources",
        "verify-missing",
        "tls-incomplete",
        "nothing-stands-here",
    ] {
        let text = file(&format!("tests/config/{name}.yaml"));
        let value = if text.is_empty() { json!({}) } else { yaml(&text) };
        assert!(!faults(&schema, &value, "").is_empty(), "{name} is valid by the schema");
    }
}

/// One value at a time, in and out of every form that the schema has a pattern or a bound for.
#[test]
fn both_judge_single_values_alike() {
    let schema = config::schema();
    let fields = [
        "upstream: { timeout: V }",
        "listen: { limits: { buffered: V } }",
        "upstream: { rate: V }",
        "upstream: { concurrency: V }",
        "listen: { h2c: V }",
        "groups: { charge: V }",
        "groups: { defaults: { weight: V } }",
        "store: { embedded: V }",
    ];
    let values = [
        "10s",
        "1m30s",
        "500ms",
        "10",
        "10 s",
        "1.5s",
        "2MiB",
        "2097152",
        "2MB",
        "2 MiB",
        "2mib",
        "500/s",
        "1/d",
        "0/s",
        "500/ms",
        "true",
        "yes",
        "time",
        "0",
        "0.5",
        "100",
        "1001",
        "-1",
        "text",
        "null",
        "[]",
        "{}",
        "2000000000000000",
    ];
    // Bounds of durations and sizes are the checker's alone.
    let beyond_schema = [
        ("timeout", "2w"),
        ("buffered", "10"),
        ("buffered", "100"),
        ("buffered", "0"),
        ("buffered", "1001"),
        ("buffered", "2000000000000000"),
        ("buffered", "2097152"),
        ("buffered", "2MiB"),
        ("buffered", "2MB"),
    ];
    for field in fields {
        for value in values {
            if beyond_schema.iter().any(|(name, text)| field.contains(name) && value == *text) {
                continue;
            }
            let text = format!("{}\nsources: [{{ path: /a, verify: none }}]", field.replace('V', value));
            let by_schema = faults(&schema, &yaml(&text), "").is_empty();
            assert_eq!(by_schema, is_accepted(&text), "{text}\n{:?}", faults(&schema, &yaml(&text), ""));
        }
    }
}

#[test]
fn the_command_prints_it() {
    let mut out = Vec::new();
    assert_eq!(check::schema(&mut out).unwrap(), check::OK);
    let schema: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["properties"]["upstream"]["anyOf"][0]["anyOf"][1]["properties"]["concurrency"]["default"], 64);
    assert_eq!(schema["required"], json!(["sources"]));
}

#[test]
fn the_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&path, config::page()).unwrap();
    }
    let now = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        now == config::page(),
        "docs/configuration.md is old: UPDATE_EXPECTED=1 cargo test --test config_schema writes it again"
    );
}
