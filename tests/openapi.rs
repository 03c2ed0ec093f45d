//! The API's description is true: what a real gateway answers is what it says.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

#[cfg(test)]
#[path = "support/schema.rs"]
mod schema;
mod support;

use serde_json::Value;
use support::upstream::{answer, upstream};
use support::{Client, Gateway, Response, gateway, get, post};

/// What of an answer is not as described; empty when all is.
fn faults(document: &Value, method: &str, path: &str, response: &Response) -> Vec<String> {
    let status = response.status.to_string();
    let Some(described) = document["paths"][path][method]["responses"].get(&status) else {
        return vec![format!("{method} {path}: {status} is not described: {}", response.text())];
    };
    let kind = response.header("content-type").unwrap_or_default().split(';').next().unwrap_or_default();
    let Some(content) = described["content"].get(kind) else {
        return vec![format!("{method} {path}: {status} as {kind:?} is not described")];
    };
    if kind != "application/json" {
        return Vec::new();
    }
    let value: Value = serde_json::from_slice(&response.body).unwrap();
    schema::faults_in(document, &content["schema"], &value, &format!("{method} {path} {status}"))
}

/// A call without a token, or from another site.
fn without_token(gateway: &Gateway, path: &str) -> Response {
    Client::to(gateway.admin).send(&get(path))
}

#[test]
fn what_a_gateway_answers_is_what_the_description_says() {
    let receiver = upstream(|request| answer(if request.group() == "broken" { 500 } else { 200 }));
    let yaml = format!(
        "upstream: {}\nsources:\n  - path: /any/*\n    verify: {{ provider: none }}\n    key: headers.x-key\n  \
         - path: /signed\n    verify: {{ provider: shopify, secret: a-secret-of-a-test }}\n",
        receiver.url()
    );
    let gateway = gateway(&yaml).start();
    let send = |key: &str| {
        let response = gateway.client().send(&post("/any/x", b"{\"a\":1}").header("X-Key", key));
        response.header("fairlane-event-id").unwrap().to_owned()
    };
    let (delivered, retrying) = (send("quiet"), send("broken"));
    gateway.wait_for_status(&delivered, "delivered");
    gateway.wait_for_status(&retrying, "retrying");
    assert_eq!(gateway.client().send(&post("/signed", b"{}")).status, 401);
    assert_eq!(gateway.change("PATCH", "/api/v1/group?name=quiet", r#"{"weight":2,"rate":"5/s"}"#).status, 200);
    let document = gateway.json("/api/v1/openapi.json");

    let mut faulty = Vec::new();
    let mut seen = |method: &str, path: &str, response: Response| {
        faulty.extend(faults(&document, method, path, &response));
    };
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/api/v1/openapi.json",
        "/api/v1/status",
        "/api/v1/nodes",
        "/api/v1/sources",
        "/api/v1/events",
        "/api/v1/rejections",
        "/api/v1/groups",
        "/api/v1/overrides",
        "/api/v1/upstream",
        "/api/v1/alerts",
        "/api/v1/jobs",
        "/api/v1/replays",
        "/api/v1/config",
        "/api/v1/audit",
        "/api/v1/events/export",
    ] {
        seen("get", path, gateway.get(path));
        if !matches!(path, "/healthz" | "/readyz" | "/metrics") {
            seen("get", path, without_token(&gateway, path));
        }
    }
    let unknown = "evt_0190b5a0-7c1e-7a53-8f6e-0123456789ab";
    for id in [delivered.as_str(), retrying.as_str(), unknown, "nonsense"] {
        seen("get", "/api/v1/events/{id}", gateway.get(&format!("/api/v1/events/{id}")));
        seen("get", "/api/v1/events/{id}/body", gateway.get(&format!("/api/v1/events/{id}/body")));
        seen("get", "/api/v1/events/{id}/attempts", gateway.get(&format!("/api/v1/events/{id}/attempts")));
        for end in ["release", "replay", "skip", "discard"] {
            let path = format!("/api/v1/events/{{id}}/{end}");
            seen("post", &path, gateway.change("POST", &path.replace("{id}", id), "{}"));
        }
    }
    for name in ["quiet", "broken", "never-seen", "a%20b"] {
        let path = format!("/api/v1/group?name={name}");
        seen("get", "/api/v1/group", gateway.get(&path));
        for body in ["{\"paused\":true}", "{}", "nonsense", &"x".repeat(70_000)] {
            seen("patch", "/api/v1/group", gateway.change("PATCH", &path, body));
        }
        seen("delete", "/api/v1/group", gateway.change("DELETE", &path, ""));
        for body in ["{\"expires\":\"30d\"}", "{\"expires\":\"never\"}", "nonsense"] {
            seen(
                "post",
                "/api/v1/group/link",
                gateway.change("POST", &format!("/api/v1/group/link?name={name}"), body),
            );
        }
        for body in ["{\"shard\":7}", "{}", "nonsense"] {
            seen("post", "/api/v1/group/pin", gateway.change("POST", &format!("/api/v1/group/pin?name={name}"), body));
        }
        seen("delete", "/api/v1/group/pin", gateway.change("DELETE", &format!("/api/v1/group/pin?name={name}"), ""));
        seen("post", "/api/v1/group/cancel", gateway.change("POST", &format!("/api/v1/group/cancel?name={name}"), ""));
    }
    for end in ["divert", "discard"] {
        let path = format!("/api/v1/group/{end}");
        for body in ["{\"plan\":true}", "{}", "nonsense"] {
            seen("post", &path, gateway.change("POST", &format!("{path}?name=quiet"), body));
        }
    }
    for id in ["1", "999", "nonsense"] {
        seen("get", "/api/v1/jobs/{id}", gateway.get(&format!("/api/v1/jobs/{id}")));
        seen("delete", "/api/v1/jobs/{id}", gateway.change("DELETE", &format!("/api/v1/jobs/{id}"), ""));
    }
    for body in ["{\"plan\":true,\"status\":[\"delivered\"]}", "{\"status\":\"queued\"}", "nonsense", ""] {
        seen("post", "/api/v1/replays", gateway.change("POST", "/api/v1/replays", body));
    }
    // One more than may be under way.
    assert_eq!(gateway.change("PATCH", "/api/v1/group?name=quiet", r#"{"paused":true}"#).status, 200);
    for _ in 0..5 {
        seen("post", "/api/v1/replays", gateway.change("POST", "/api/v1/replays", "{\"status\":\"delivered\"}"));
    }
    for id in ["replay-1", "replay-999", "nonsense"] {
        let path = format!("/api/v1/replays/{id}");
        seen("get", "/api/v1/replays/{id}", gateway.get(&path));
        for body in ["{\"paused\":true}", "{}", "[true]"] {
            seen("patch", "/api/v1/replays/{id}", gateway.change("PATCH", &path, body));
        }
        for _ in 0..2 {
            seen("delete", "/api/v1/replays/{id}", gateway.change("DELETE", &path, ""));
        }
    }
    for query in ["limit=0", "status=lost", "since=noon", "cursor=-1"] {
        seen("get", "/api/v1/events/export", gateway.get(&format!("/api/v1/events/export?{query}")));
        seen("get", "/api/v1/events", gateway.get(&format!("/api/v1/events?{query}")));
    }
    seen("patch", "/api/v1/upstream", gateway.change("PATCH", "/api/v1/upstream", "{\"concurrency\":8}"));
    seen("delete", "/api/v1/upstream", gateway.change("DELETE", "/api/v1/upstream", ""));
    seen("post", "/api/v1/alerts/test", gateway.change("POST", "/api/v1/alerts/test", "{}"));
    assert!(faulty.is_empty(), "{} faults:\n{}", faulty.len(), faulty.join("\n"));
}

#[test]
fn an_answer_that_is_not_as_described_is_found() {
    let document = serde_json::json!({ "paths": { "/a": { "get": { "responses": { "200": { "content": { "application/json": {
        "schema": { "type": "object", "required": ["b"], "properties": { "b": { "type": "string" } } } } } } } } } } });
    let response = |status, body: &str| Response {
        status,
        headers: vec![("Content-Type".to_owned(), "application/json".to_owned())],
        body: body.as_bytes().to_vec(),
    };
    assert_eq!(faults(&document, "get", "/a", &response(200, "{\"b\":\"c\"}")), Vec::<String>::new());
    for (status, body) in [(200, "{\"b\":1}"), (200, "{}"), (404, "{}")] {
        assert_eq!(faults(&document, "get", "/a", &response(status, body)).len(), 1, "{status} {body}");
    }
}
