//! JSON Schema as far as ours use it: what of a value a schema does not take.

use serde_json::Value;

/// What of `value` the schema does not take; empty when it is valid. Covers the keywords that our schemas use and fails on any
/// other. `root` is what references begin at.
pub(crate) fn faults_in(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (keyword, says) in schema.as_object().unwrap() {
        let holds = match keyword.as_str() {
            "$schema" | "$comment" | "title" | "description" | "default" | "examples" | "example" | "format" => true,
            "$ref" => {
                let pointer = says.as_str().unwrap().trim_start_matches('#');
                faults.extend(faults_in(root, root.pointer(pointer).unwrap(), value, at));
                true
            }
            "allOf" => {
                for one in says.as_array().unwrap() {
                    faults.extend(faults_in(root, one, value, at));
                }
                true
            }
            "oneOf" => {
                says.as_array().unwrap().iter().filter(|one| faults_in(root, one, value, at).is_empty()).count() == 1
            }
            "maxLength" => value.as_str().is_none_or(|s| s.len() as u64 <= says.as_u64().unwrap()),
            "prefixItems" => {
                for (one, item) in says.as_array().unwrap().iter().zip(value.as_array().into_iter().flatten()) {
                    faults.extend(faults_in(root, one, item, at));
                }
                true
            }
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
            "propertyNames" => {
                for name in value.as_object().into_iter().flat_map(|object| object.keys()) {
                    faults.extend(faults_in(root, says, &Value::String(name.clone()), at));
                }
                true
            }
            "not" => !faults_in(root, says, value, at).is_empty(),
            "anyOf" => says.as_array().unwrap().iter().any(|one| faults_in(root, one, value, at).is_empty()),
            "items" if says == &Value::Bool(false) => true,
            "items" => {
                for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                    faults.extend(faults_in(root, says, item, &format!("{at}[{i}]")));
                }
                true
            }
            "properties" => {
                for (name, member) in value.as_object().into_iter().flatten() {
                    let of = says.get(name);
                    faults
                        .extend(of.map(|of| faults_in(root, of, member, &format!("{at}.{name}"))).unwrap_or_default());
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
                        says => faults.extend(faults_in(root, says, member, &format!("{at}.{name}"))),
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
