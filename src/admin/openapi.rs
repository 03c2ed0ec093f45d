//! `/api/v1/openapi.json`: the API's own description, made of the table in [`super::routes`] and of what every call may answer besides.

use std::sync::LazyLock;

use axum::Json;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use utoipa::OpenApi as _;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Content, HttpMethod, OpenApi, Ref, RefOr, ResponseBuilder, Server};

use super::problem::Refusal;
use super::routes::Described;

/// The scheme's name in the document.
const BEARER: &str = "token";

/// Changes of which at least one of these fields has to be given, and not as null.
const SOMETHING: [(&str, &[&str]); 2] = [
    ("GroupPatch", &["paused", "weight", "concurrency", "rate"]),
    ("UpstreamPatch", &["paused", "concurrency", "rate"]),
];

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let mut document = serde_json::to_value(described()).expect("invariant: a description is maps, lists and texts");
    for (name, fields) in SOMETHING {
        // The macros have no words for this.
        let given =
            |field: &&str| json!({ "required": [field], "properties": { *field: { "not": { "type": "null" } } } });
        let any: Vec<Value> = fields.iter().map(given).collect();
        if let Some(schema) =
            document.pointer_mut(&format!("/components/schemas/{name}")).and_then(Value::as_object_mut)
        {
            schema.insert("anyOf".to_owned(), Value::Array(any));
        }
    }
    document
});

/// This description.
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "node",
    responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub(super) async fn document() -> impl IntoResponse {
    Json(&*DOCUMENT)
}

/// The whole description.
pub(super) fn described() -> OpenApi {
    let mut document = Described::openapi();
    document.info.title = "Fairlane admin API".to_owned();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    document.info.description = Some("What an operator sees and changes; docs/api.md says more.".to_owned());
    document.servers = Some(vec![Server::new("/")]);
    let components = document.components.get_or_insert_default();
    components.add_security_scheme(BEARER, SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    let (name, schema) = (<Refusal as utoipa::ToSchema>::name(), <Refusal as utoipa::PartialSchema>::schema());
    components.schemas.insert(name.into_owned(), schema);
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in [
            (HttpMethod::Get, &mut item.get),
            (HttpMethod::Post, &mut item.post),
            (HttpMethod::Patch, &mut item.patch),
            (HttpMethod::Delete, &mut item.delete),
        ] {
            if let Some(operation) = operation {
                refusals(path, &method, operation);
            }
        }
    }
    document
}

/// The statuses of ended events as a text with commas, a list of such texts, or null.
pub(super) fn ended_statuses() -> Schema {
    let text = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some("^(dead|delivered|discarded)(,(dead|delivered|discarded))*$"))
        .build();
    let list = ArrayBuilder::new().items(text.clone()).min_items(Some(1));
    let null = ObjectBuilder::new().schema_type(Type::Null);
    let any = OneOfBuilder::new().item(text).item(list).item(null);
    Schema::OneOf(any.description(Some("`dead` when left out.")).build())
}

/// Adds what a call may answer besides what it is for.
fn refusals(path: &str, method: &HttpMethod, operation: &mut Operation) {
    // Probes are answered whoever asks.
    if matches!(path, "/healthz" | "/readyz") {
        return;
    }
    let token = SecurityRequirement::new(BEARER, Vec::<String>::new());
    // Metrics are open unless `admin.open_metrics` is false.
    let open = (path == "/metrics").then(SecurityRequirement::default);
    operation.security = Some(open.into_iter().chain([token]).collect());
    let changes = !matches!(method, HttpMethod::Get);
    let takes = operation.parameters.as_ref().is_some_and(|parameters| !parameters.is_empty());
    let mut add = |status: &str, what: &str, applies: bool| {
        if applies {
            let content = Content::new(Some(Ref::from_schema_name(<Refusal as utoipa::ToSchema>::name())));
            let answer = ResponseBuilder::new().description(what).content("application/json", content).build();
            operation.responses.responses.entry(status.to_owned()).or_insert(RefOr::T(answer));
        }
    };
    let has_body = operation.request_body.is_some();
    add("400", "A parameter or the body cannot be read; nothing was changed", takes || has_body || changes);
    add("401", "No token, or a wrong one", true);
    add("403", "A page of another site asks", true);
    add("413", "The body is longer than any change", has_body);
    add("415", "A change that is not declared as JSON", changes);
    add("421", "The Host is not one of the gateway's", true);
    add("503", "The gateway cannot answer now; asking again is safe", path.starts_with("/api/"));
}

#[cfg(test)]
mod tests {
    use super::super::routes::CALLS;
    use super::*;

    #[test]
    fn each_call_is_described_at_its_own_path_and_nothing_else_is() {
        let document = serde_json::to_value(described()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let mut described: Vec<(&str, &str)> = paths
            .iter()
            .flat_map(|(path, item)| item.as_object().unwrap().keys().map(|method| (method.as_str(), path.as_str())))
            .collect();
        let mut calls = CALLS.to_vec();
        described.sort_unstable();
        calls.sort_unstable();
        assert_eq!(described, calls);
    }

    #[test]
    fn each_call_says_what_it_is_for_and_how_it_refuses() {
        let document = serde_json::to_value(described()).unwrap();
        for (method, path) in CALLS {
            let call = &document["paths"][path][method];
            assert!(call["summary"].as_str().is_some_and(|text| !text.is_empty()), "{method} {path} has no summary");
            assert!(call["responses"]["200"].is_object(), "{method} {path}");
            for parameter in call["parameters"].as_array().into_iter().flatten() {
                assert!(parameter["description"].is_string(), "{method} {path}: {parameter}");
            }
            let open = matches!(*path, "/healthz" | "/readyz");
            assert_eq!(call["responses"]["401"].is_object(), !open, "{method} {path}");
            assert_eq!(call["responses"]["415"].is_object(), *method != "get", "{method} {path}");
        }
    }

    #[test]
    fn a_change_has_to_change_something() {
        for (name, fields) in SOMETHING {
            let schema = &DOCUMENT["components"]["schemas"][name];
            for field in fields {
                assert!(schema["properties"][field].is_object(), "{name} has no {field}");
            }
            assert_eq!(schema["anyOf"].as_array().map(Vec::len), Some(fields.len()), "{name}");
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let text = serde_json::to_string(&described()).unwrap();
        let document = serde_json::to_value(described()).unwrap();
        let mut count = 0;
        for reference in text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
            count += 1;
            assert!(document.pointer(reference).is_some(), "{reference}");
        }
        assert!(count > 20, "{count}");
    }
}
