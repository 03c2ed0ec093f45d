//! What `fairlane explain` says beforehand is what a gateway does, through the real binary.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::{Request, gateway, get, post};

const YAML: &str = r#"
upstream: http://127.0.0.1:9
listen: { limits: { body: 1KiB } }
groups: { overrides: [{ match: "plus-*", weight: 4, concurrency: 32, rate: 10/s }] }
sources:
  - path: /webhooks/shopify
    verify: { provider: shopify, secret: "hush-a-test-secret" }
    answers: { bad_signature: 403 }
  - path: /open/{account}
    verify: { provider: none }
    key: body.tenant
    within: path.account
    ack: { status: 202, body: ok }
  - path: /token
    verify: { token: { header: X-Api-Key }, secret: "hush-a-test-token" }
"#;

fn explain(config: &Path, text: &[u8], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    command.arg("explain").arg("-").arg("-c").arg(config).args(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text).unwrap();
    child.wait_with_output().unwrap()
}

fn explained(config: &Path, request: &Request) -> (Option<i32>, Value) {
    let output = explain(config, &request.bytes(), &["--json"]);
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn what_it_says_is_what_the_gateway_does() {
    let gateway = gateway(YAML).start();
    let forged = post("/webhooks/shopify", b"{}").shopify("a.myshopify.com").without("X-Shopify-Hmac-Sha256");
    let requests = [
        post("/webhooks/shopify", b"{}").shopify("Plus-A.myshopify.com"),
        forged.header("X-Shopify-Hmac-Sha256", "AAAA"),
        post("/webhooks/shopify", b"{}"),
        post("/webhooks/shopif", b"{}"),
        post("/open/7/", br#"{"tenant":"t 1"}"#),
        post("/open/7?x=y", b"{}").header("Fairlane-Group", "forged"),
        post("/open/7", b"nothing"),
        post("/open/7", &[b'x'; 1025]),
        post("/open/a%2fb", b"{}"),
        get("/open/7"),
        post("/token", b"{}").header("X-Api-Key", "hush-a-test-token"),
        post("/token", b"{}").header("X-Api-Key", "hush-another-token"),
    ];
    let mut seen = Vec::new();
    for request in &requests {
        let (code, told) = explained(&gateway.config(), request);
        let answer = gateway.client().send(request);
        let accepted = (200..300).contains(&answer.status);
        let name = String::from_utf8_lossy(&request.head()).lines().next().unwrap_or_default().to_owned();
        assert_eq!(told["accepted"], accepted, "{name}: {told:#}");
        assert_eq!(code, Some(i32::from(!accepted)), "{name}");
        let status = if accepted { &told["ack"] } else { &told["refusal"]["status"] };
        assert_eq!(*status, answer.status, "{name}: {told:#}");
        if let Some(id) = answer.header("fairlane-event-id") {
            let event = gateway.json(&format!("/api/v1/events/{id}"));
            assert_eq!(told["group"], event["group"], "{name}");
            let group =
                gateway.json(&format!("/api/v1/group?name={}", told["group"].as_str().unwrap().replace('%', "%25")));
            assert_eq!(told["treatment"]["concurrency"], group["concurrency"], "{name}");
            assert_eq!(told["treatment"]["weight"], group["weight"], "{name}");
            assert_eq!(told["within"], event["within"], "{name}");
            assert_eq!(told["key"]["rule"], event["key_source"]["rule"], "{name}");
            assert_eq!(told["key"]["missing"], event["key_source"]["missing"], "{name}");
            assert_eq!(told["type"], event["type"], "{name}");
            assert_eq!(told["provider_event_id"], event["provider_event_id"], "{name}");
        } else {
            let newest = gateway.json("/api/v1/rejections?limit=1");
            assert_eq!(told["refusal"]["reason"], newest["rejections"][0]["reason"], "{name}");
        }
        seen.push(answer.status);
    }
    assert_eq!(seen, [200, 403, 403, 404, 202, 202, 202, 413, 400, 405, 200, 401]);
}

#[test]
fn it_says_how_the_group_is_treated_which_paths_are_near_and_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("gateway.yaml");
    std::fs::write(&config, YAML).unwrap();
    let good = post("/webhooks/shopify", b"{}").shopify("plus-a.myshopify.com");
    let text = String::from_utf8(explain(&config, &good.bytes(), &[]).stdout).unwrap();
    for told in
        ["groups.overrides[0] (plus-*)", "weight 4", "32 of 64 slots", "10 attempts in 1 s", "It would be accepted"]
    {
        assert!(text.contains(told), "{told}: {text}");
    }
    // A group without a cap of its own has the engine's, not all slots.
    let other = post("/webhooks/shopify", b"{}").shopify("other.myshopify.com");
    let text = String::from_utf8(explain(&config, &other.bytes(), &[]).stdout).unwrap();
    assert!(text.contains("at most 8 of 64 slots, by groups.defaults"), "{text}");
    let (_, told) = explained(&config, &post("/webhook/shopify", b"{}"));
    assert_eq!(told["near"][0], "/webhooks/shopify");
    let token = post("/token", b"{}").header("X-Api-Key", "hush-a-test-token").header("Cookie", "hush");
    for arguments in [&["--json"][..], &[]] {
        let output = explain(&config, &token.bytes(), arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && !text.contains("hush"), "{text}");
    }
}

#[test]
fn an_old_capture_is_judged_by_the_time_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("gateway.yaml");
    let yaml = "upstream: http://127.0.0.1:9\nsources: [{ path: /stripe, verify: { provider: stripe, secret: \"whsec_hush-a-test-secret\" } }]\n";
    std::fs::write(&config, yaml).unwrap();
    let body = br#"{"id":"evt_1","type":"charge.succeeded","account":"acct_1"}"#;
    let signature = support::hex(&support::hmac_sha256("whsec_hush-a-test-secret", &[b"1700000000.", body]));
    let curl = format!(
        "curl https://hooks.example/stripe -H 'Content-Type: application/json' \\\n -H 'Stripe-Signature: t=1700000000,v1={signature}' --data-raw '{}'",
        String::from_utf8_lossy(body)
    );
    let old = explain(&config, curl.as_bytes(), &[]);
    let text = String::from_utf8(old.stdout).unwrap();
    assert_eq!(old.status.code(), Some(1), "{text}");
    assert!(text.contains("--at 2023-11-14T22:13:20Z"), "{text}");
    let then = explain(&config, curl.as_bytes(), &["--at", "2023-11-14T22:13:20Z"]);
    let text = String::from_utf8(then.stdout).unwrap();
    assert!(then.status.success() && text.contains("group acct_1"), "{text}");
    // A HAR brings its own time, and --now does without it.
    let har = serde_json::json!({ "log": { "entries": [{ "startedDateTime": "2023-11-14T22:13:25Z", "request": {
        "method": "POST", "url": "https://hooks.example/stripe",
        "headers": [{ "name": "Stripe-Signature", "value": format!("t=1700000000,v1={signature}") }],
        "postData": { "text": String::from_utf8_lossy(body) } } }] } });
    assert!(explain(&config, har.to_string().as_bytes(), &[]).status.success());
    assert_eq!(explain(&config, har.to_string().as_bytes(), &["--now"]).status.code(), Some(1));
}

#[test]
fn a_wrong_signature_is_told_what_it_would_fit_and_only_its_own_secret_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("gateway.yaml");
    let others = "  - path: /clerk\n    verify: { provider: clerk, secret: \"${NOT_SET_CLERK}\" }\n  - path: /box\n    verify: { provider: box, secrets: [\"${NOT_SET_BOX}\"] }\n";
    std::fs::write(&config, format!("{YAML}{others}")).unwrap();
    let good = post("/webhooks/shopify", b"{}").shopify("a.myshopify.com");
    let (code, told) = explained(&config, &good);
    assert_eq!((code, &told["near_miss"]), (Some(0), &Value::Null));
    let text = String::from_utf8(good.bytes()).unwrap();
    let text = text.replace("Content-Length: 2", "Content-Length: 3") + "\n";
    let output = explain(&config, text.as_bytes(), &["--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(told["near_miss"].as_str().unwrap().contains("without its final line end"), "{told:#}");
    let words = String::from_utf8(explain(&config, text.as_bytes(), &[]).stdout).unwrap();
    assert!(words.contains("near miss") && !words.contains("hush"), "{words}");
    let output = explain(&config, &post("/box", b"{}").bytes(), &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("NOT_SET_BOX") && !said.contains("NOT_SET_CLERK"), "{said}");
}

#[test]
fn what_cannot_be_read_or_judged_has_its_own_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("gateway.yaml");
    std::fs::write(&config, YAML).unwrap();
    for (text, code, why) in
        [(&b"hello"[..], 64, "none of a raw request"), (b"curl http://a -d \"$BODY\"", 64, "fill $BODY in")]
    {
        let output = explain(&config, text, &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(explain(&dir.path().join("none"), b"GET / HTTP/1.1\n\n", &[]).status.code(), Some(78));
}
