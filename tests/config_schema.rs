//! The JSON Schema and the checker say the same, as far as the schema goes; `docs/configuration.md` is the same table as a page.
//!
//! After a change of the table write the page again, and read the difference:
//!
//! ```sh
//! UPDATE_EXPECTED=1 cargo test --test config_schema
//! ```

#![cfg(test)]

#[path = "support/schema.rs"]
mod schema;

use std::io;
use std::path::Path;

use fairlane::cli::check;
use fairlane::config;
use serde_json::{Value, json};

fn faults(schema: &Value, value: &Value, at: &str) -> Vec<String> {
    schema::faults_in(schema, schema, value, at)
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
