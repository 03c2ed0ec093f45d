//! End to end, through the real binary: what a sender sends, what it is answered, and what is there afterwards.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::time::Duration;

use support::{Client, SHOPIFY, gateway, get, hex, hmac_sha256, post};

const ORDER: &[u8] = br#"{"id":820982911946154508,"email":"jon@example.com","total_price":"403.00"}"#;

const FORGED: &[u8] = br#"{"id":1,"note":"a forged body that must not reach the disk"}"#;

#[test]
fn a_signed_webhook_is_stored_under_its_group_and_a_forged_one_leaves_nothing() {
    let gateway = gateway(SHOPIFY).start();
    let mut client = gateway.client();

    let good = client.send(&post("/webhooks/shopify", ORDER).shopify("quiet-store.myshopify.com"));
    assert_eq!((good.status, good.text().as_str()), (200, ""));
    let id = good.header("fairlane-event-id").unwrap().to_owned();
    assert!(id.starts_with("evt_"), "{id}");

    let tampered = post("/webhooks/shopify", ORDER).shopify("quiet-store.myshopify.com");
    let forged = post("/webhooks/shopify", FORGED).header("X-Shopify-Hmac-Sha256", "AAAA");
    let unsigned = post("/webhooks/shopify", ORDER).header("X-Shopify-Shop-Domain", "quiet-store.myshopify.com");
    let broken = tampered
        .without("X-Shopify-Hmac-Sha256")
        .header("X-Shopify-Hmac-Sha256", "MjI0ZDFlZTA1NmU0NDQ5ZmI5MmFhZjA3MDFmNTYwYjU=");
    for request in [forged, unsigned, broken] {
        let refused = client.send(&request);
        assert_eq!(refused.status, 401, "{}", refused.text());
        assert!(refused.text().contains("nothing was stored"), "{}", refused.text());
    }
    let log = std::fs::read_dir(gateway.dir().join("data/log"))
        .unwrap()
        .map(|file| std::fs::read(file.unwrap().path()).unwrap());
    let log: Vec<u8> = log.flatten().collect();
    let holds = |bytes: &[u8]| memchr::memmem::find(&log, bytes).is_some();
    assert!(holds(ORDER) && !holds(FORGED), "a forged request reached the disk");

    let events = gateway.events("");
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["id"], id.as_str());
    assert_eq!(events[0]["group"], "quiet-store.myshopify.com");
    // Nothing listens where it is to be delivered.
    assert!(["queued", "in_flight", "retrying"].contains(&events[0]["status"].as_str().unwrap()), "{events:?}");
    assert_eq!(events[0]["type"], "orders/create");
    assert_eq!(events[0]["provider_event_id"], "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043");
    assert_eq!(events[0]["key_source"]["signed"], false, "Shopify's signature does not cover the shop");
    assert_eq!(gateway.get(&format!("/api/v1/events/{id}/body")).body, ORDER);

    let rejections = gateway.json("/api/v1/rejections");
    let reasons: Vec<_> = rejections["rejections"].as_array().unwrap().iter().map(|r| r["reason"].clone()).collect();
    assert_eq!(reasons.len(), 3, "{rejections:#}");
    assert!(!rejections.to_string().contains(support::SHOPIFY_SECRET));
    assert_eq!(gateway.metric(r#"fairlane_events_accepted_total{source="/webhooks/shopify"}"#), Some(1.0));
}

#[test]
fn each_provider_gets_its_natural_key() {
    let gateway = gateway(
        r#"
upstream: http://127.0.0.1:9
sources:
  - { path: /stripe, verify: { provider: stripe, secret: whsec_a_test } }
  - { path: /github, verify: { provider: github, secret: gh-test } }
  - { path: /slack, verify: { provider: slack, secret: slack-test } }
"#,
    )
    .start();
    let mut client = gateway.client();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs().to_string();
    let mut accepted = |request: &support::Request| {
        let response = client.send(request);
        assert_eq!(response.status, 200, "{}", response.text());
        response.header("fairlane-event-id").unwrap().to_owned()
    };
    let stripe = |body: &[u8]| {
        let signature = hex(&hmac_sha256("whsec_a_test", &[now.as_bytes(), b".", body]));
        post("/stripe", body).header("Stripe-Signature", format!("t={now},v1={signature}"))
    };
    let github = |body: &[u8], kind: &str| {
        let signature = hex(&hmac_sha256("gh-test", &[body]));
        post("/github", body)
            .header("X-Hub-Signature-256", format!("sha256={signature}"))
            .header("X-GitHub-Event", "push")
            .header("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
            .header("Content-Type", kind)
    };
    let slack = |body: &[u8]| {
        let signature = hex(&hmac_sha256("slack-test", &[b"v0:", now.as_bytes(), b":", body]));
        post("/slack", body)
            .header("X-Slack-Request-Timestamp", &now)
            .header("X-Slack-Signature", format!("v0={signature}"))
            .header("Content-Type", "application/x-www-form-urlencoded")
    };
    let connect = accepted(&stripe(br#"{"id":"evt_1","type":"invoice.paid","account":"acct_1032D82"}"#));
    let platform = accepted(&stripe(br#"{"id":"evt_2","type":"invoice.paid"}"#));
    let app = accepted(&github(br#"{"ref":"refs/heads/main","installation":{"id":77}}"#, "application/json"));
    let form = b"payload=%7B%22installation%22%3A%7B%22id%22%3A78%7D%7D";
    let form = accepted(&github(form, "application/x-www-form-urlencoded"));
    let command = accepted(&slack(b"token=x&team_id=T0001&command=%2Fweather"));
    let interaction =
        accepted(&slack(b"payload=%7B%22type%22%3A%22block_actions%22%2C%22team%22%3A%7B%22id%22%3A%22T0002%22%7D%7D"));

    let group = |id: &str| gateway.json(&format!("/api/v1/events/{id}"))["group"].as_str().unwrap().to_owned();
    assert_eq!(group(&connect), "acct_1032D82");
    assert_eq!(group(&platform), "~platform");
    assert_eq!(group(&app), "github~77");
    assert_eq!(group(&form), "github~78");
    assert_eq!(group(&command), "T0001");
    assert_eq!(group(&interaction), "T0002");
}

const ANY: &str = r#"
upstream: http://127.0.0.1:9
sources:
  - path: /any
    verify: { provider: none }
    key: [headers.x-key, body.field]
  - path: /hooks/{store}/x
    verify: { provider: none }
    key: path.store
"#;

#[test]
fn any_body_is_kept_byte_for_byte() {
    let gateway = gateway(ANY).start();
    let mut client = gateway.client();
    let large: Vec<u8> = (0..20_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let bodies: [(&str, &[u8]); 7] = [
        ("application/json", br#"{"a":  1,"a":1.10}"#),
        ("application/x-www-form-urlencoded", b"field=caf%C3%A9+x&y=%00"),
        (
            "multipart/form-data; boundary=b",
            b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\xff\r\n--b--\r\n",
        ),
        ("application/xml", b"<?xml version=\"1.0\"?>\r\n<a/>"),
        ("text/plain", b""),
        ("application/octet-stream", b"\x00\xff\xfe invalid utf-8 \xc3\x28"),
        ("application/octet-stream", &large),
    ];
    for (kind, body) in bodies {
        for request in [post("/any", body), post("/any", body).chunked(65_521)] {
            let response = client.send(&request.header("Content-Type", kind));
            assert_eq!(response.status, 200, "{kind}: {}", response.text());
            let id = response.header("fairlane-event-id").unwrap();
            let stored = gateway.get(&format!("/api/v1/events/{id}/body"));
            assert!(stored.body == body, "{kind}, {} bytes: the stored body differs", body.len());
        }
    }
}

#[test]
fn a_key_keeps_its_written_form_everywhere() {
    let gateway = gateway(ANY).start();
    let mut client = gateway.client();
    let body = |key: &str| serde_json::json!({ "field": key }).to_string().into_bytes();
    let percent = "%".repeat(256);
    let keys = [
        ("a\r\nX: y", "a%0D%0AX:%20y".to_owned()),
        ("café", "caf%C3%A9".to_owned()),
        ("\u{1b}[2J", "%1B%5B2J".to_owned()),
        ("\u{1f}", "%1F".to_owned()),
        ("~fallback", "%7Efallback".to_owned()),
        (percent.as_str(), "%25".repeat(256)),
    ];
    for (key, written) in &keys {
        let id = client.send(&post("/any", &body(key))).header("fairlane-event-id").unwrap().to_owned();
        let event = gateway.json(&format!("/api/v1/events/{id}"));
        assert_eq!(event["group"], written.as_str(), "{key:?}");
        let query = written.replace('%', "%25");
        let listed = gateway.events(&format!("group={query}"));
        assert_eq!(listed.len(), 1, "{key:?}: {listed:?}");
        assert_eq!(listed[0]["id"], id.as_str());
    }
    let too_long = "x".repeat(257);
    for (sent, reason) in [(body(&too_long), "too_long"), (b"{".to_vec(), "not_json"), (b"{}".to_vec(), "absent")] {
        let id = client.send(&post("/any", &sent)).header("fairlane-event-id").unwrap().to_owned();
        let event = gateway.json(&format!("/api/v1/events/{id}"));
        assert_eq!((&event["group"], &event["key_source"]["missing"]), (&"~fallback".into(), &reason.into()));
        let metric = format!(r#"fairlane_fallback_events_total{{source="/any",reason="{reason}"}}"#);
        assert_eq!(gateway.metric(&metric), Some(1.0), "{reason}");
    }
}

#[test]
fn paths_and_methods_are_judged_before_anything_else() {
    let gateway = gateway(ANY).start();
    for (request, status) in [
        (post("/any", b"{}"), 200),
        (post("/any/", b"{}"), 200),
        (post("/any?x=1", b"{}"), 200),
        (post("/hooks/a%20b/x", b"{}"), 200),
        (post("/nowhere", b"{}"), 404),
        (get("/any"), 405),
        (post("/any", b"{}").method("DELETE"), 405),
        (post("/any/../any", b"{}"), 400),
        (post("//any", b"{}"), 400),
        (post("/any%2fx", b"{}"), 400),
        (post("/any%00", b"{}"), 400),
        (post("/any%zz", b"{}"), 400),
        (post("/hooks/%2e%2e/x", b"{}"), 400),
        (post("/any", b"{}").header("Host", "other.test"), 400),
        (post("/any", b"{}").without("Host"), 400),
        (post("/any", b"{}").header("Content-Length", "7"), 400),
        (post("/any", b"{}").header("X-Long", "x".repeat(70_000)), 431),
    ] {
        let response = gateway.client().send(&request);
        let head = String::from_utf8_lossy(&request.head()).chars().take(200).collect::<String>();
        assert_eq!(response.status, status, "{head:?}: {}", response.text());
        if status == 405 {
            assert_eq!(response.header("allow"), Some("POST"));
        }
    }
    let id = gateway.client().send(&post("/hooks/a%20b/x", b"{}")).header("fairlane-event-id").unwrap().to_owned();
    assert_eq!(gateway.json(&format!("/api/v1/events/{id}"))["group"], "a%20b");
}

#[test]
fn a_body_over_the_limit_is_413_however_it_comes() {
    let gateway = gateway(&format!("listen: {{ limits: {{ body: 10KiB }} }}\n{ANY}")).start();
    let fits = vec![b'x'; 10 * 1024];
    let over = vec![b'x'; 10 * 1024 + 1];
    for (request, status) in [
        (post("/any", &fits), 200),
        (post("/any", &fits).chunked(1000), 200),
        (post("/any", &over), 413),
        (post("/any", &over).chunked(1000), 413),
    ] {
        let mut client = gateway.client();
        let response = client.send(&request);
        assert_eq!(response.status, status, "{}", response.text());
        assert_eq!(status == 413, response.header("connection") == Some("close"));
    }
    assert_eq!(gateway.events("").len(), 2, "what was refused was stored");
    // Declared and never sent: refused at once, without waiting for it.
    let mut client = gateway.client();
    client.write(b"POST /any HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n").unwrap();
    assert_eq!(client.receive().unwrap().status, 413);
    assert_eq!(gateway.events("").len(), 2);
}

#[test]
fn slow_senders_are_ended_each_in_its_way() {
    let limits = "listen: { limits: { header_timeout: 500ms, body_timeout: 700ms, idle_timeout: 900ms } }\n";
    let gateway = gateway(&format!("{limits}{ANY}")).start();
    let mut silent = gateway.client();
    let mut slow_head = gateway.client();
    slow_head.write(b"POST /any HTT").unwrap();
    let mut slow_body = gateway.client();
    slow_body.write(b"POST /any HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345").unwrap();
    let mut idle = gateway.client();
    assert_eq!(idle.send(&post("/any", b"{}")).status, 200);
    let mut second_head = gateway.client();
    assert_eq!(second_head.send(&post("/any", b"{}")).status, 200);
    second_head.write(b"POST").unwrap();

    assert_eq!(slow_body.receive().map(|r| r.status), Some(408));
    assert!(slow_body.is_closed());
    assert!(silent.is_closed() && slow_head.is_closed() && idle.is_closed() && second_head.is_closed());
    assert_eq!(gateway.client().send(&post("/any", b"{}")).status, 200);
}

#[test]
fn connections_have_a_limit_for_all_and_one_for_each_stranger() {
    let gateway = gateway(&format!("listen: {{ limits: {{ connections: 6, connections_per_ip: 3 }} }}\n{ANY}")).start();
    // Those that sent a genuine request do not count against their address.
    let mut known: Vec<Client> = (0..3).map(|_| gateway.client()).collect();
    for client in &mut known {
        assert_eq!(client.send(&post("/any", b"{}")).status, 200);
    }
    let mut strangers: Vec<Client> = (0..3).map(|_| gateway.client()).collect();
    for stranger in &mut strangers {
        // Answered, so that it is surely counted, and still a stranger.
        assert_eq!(stranger.send(&post("/nowhere", b"{}")).status, 404);
    }
    assert!(gateway.client().try_send(&post("/any", b"{}")).is_none(), "a seventh connection was served");
    drop(known.pop());
    while gateway.metric("fairlane_connections") != Some(5.0) {
        std::thread::yield_now();
    }
    assert!(gateway.client().try_send(&post("/any", b"{}")).is_none(), "a fourth stranger was served");
}

#[test]
fn bodies_that_would_not_fit_memory_are_refused_and_small_ones_pass() {
    let gateway = gateway(&format!("listen: {{ limits: {{ buffered: 1MiB, body: 1MiB }} }}\n{ANY}")).start();
    let mut hog = gateway.client();
    let body = vec![b'x'; 1000 * 1024];
    let request = post("/any", &body);
    hog.write(&request.head()).unwrap();
    hog.write(&body[..950 * 1024]).unwrap();
    while gateway.metric("fairlane_buffered_bytes").is_none_or(|bytes| bytes < 900.0 * 1024.0) {
        std::thread::yield_now();
    }
    let refused = gateway.client().send(&post("/any", &vec![b'y'; 100 * 1024]));
    assert_eq!(refused.status, 503, "{}", refused.text());
    let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((5..=15).contains(&after), "{after}");
    assert_eq!(gateway.client().send(&post("/any", b"{}")).status, 200);
    hog.write(&body[950 * 1024..]).unwrap();
    assert_eq!(hog.receive().unwrap().status, 200);
    assert_eq!(gateway.metric("fairlane_buffered_bytes"), Some(0.0));
}

#[test]
fn a_source_answers_as_it_is_told() {
    let gateway = gateway(
        r#"
upstream: http://127.0.0.1:9
sources:
  - path: /a
    methods: [POST, PUT]
    verify: { token: { header: X-Token }, secret: open-sesame }
    ack: { status: 202, body: "[accepted]", headers: { X-Served-By: us } }
    answers: { bad_signature: 403 }
"#,
    )
    .start();
    let mut client = gateway.client();
    let good = client.send(&post("/a", b"x").method("PUT").header("X-Token", "open-sesame"));
    assert_eq!((good.status, good.text().as_str(), good.header("x-served-by")), (202, "[accepted]", Some("us")));
    assert_eq!(client.send(&post("/a", b"x").header("X-Token", "open-sesam")).status, 403);
    assert_eq!(gateway.events("")[0]["group"], "~fallback");
}

#[test]
fn the_admin_side_is_guarded() {
    let gateway = gateway(SHOPIFY).start();
    let mut client = Client::to(gateway.admin);
    let token = format!("Bearer {}", gateway.token());
    for (request, status) in [
        (get("/healthz").without("Host").header("Host", "evil.example"), 200),
        (get("/readyz"), 200),
        (get("/metrics"), 200),
        (get("/metrics").without("Host").header("Host", "evil.example"), 421),
        (get("/api/v1/status"), 401),
        (get("/api/v1/status").header("Authorization", "Bearer wrong"), 401),
        (get("/api/v1/status").header("Authorization", &token), 200),
        (get("/api/v1/status").header("Authorization", &token).header("Origin", "http://evil.example"), 403),
        (get("/api/v1/status").header("Authorization", &token).header("Sec-Fetch-Site", "cross-site"), 403),
        (get("/api/v1/events?status=waiting").header("Authorization", &token), 400),
        (get("/api/v1/nothing").header("Authorization", &token), 404),
        (
            post("/api/v1/status", b"{}").without("Host").header("Host", "localhost").header("Authorization", &token),
            415,
        ),
    ] {
        let response = client.send(&request);
        assert_eq!(response.status, status, "{:?}: {}", String::from_utf8_lossy(&request.head()), response.text());
    }
    let mode = |path: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(gateway.dir().join(path)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode("data"), mode("data/admin-token")), (0o700, 0o600));
    let sources = gateway.json("/api/v1/sources");
    assert_eq!(sources["sources"][0]["path"], "/webhooks/shopify");
    assert_eq!(sources["sources"][0]["key_signed"], false);
}

#[test]
fn a_change_that_cannot_be_made_is_refused_in_words() {
    let gateway = gateway(ANY).start();
    let long = " ".repeat(70_000);
    for (path, body, status, why) in [
        ("/api/v1/group?name=a", r#"{"paused":true,"expires":"0s"}"#, 400, "lies ahead"),
        ("/api/v1/upstream", r#"{"paused":true,"expires":"4294967295d"}"#, 400, "use never"),
        ("/api/v1/group?name=%2561bc", r#"{"paused":true}"#, 400, "write abc"),
        ("/api/v1/group?name=a", long.as_str(), 413, "longer than 65536 bytes"),
        ("/api/v1/upstream", long.as_str(), 413, "longer than 65536 bytes"),
    ] {
        let refused = gateway.change("PATCH", path, body);
        assert_eq!(refused.status, status, "{path}: {}", refused.text());
        let problem: serde_json::Value = serde_json::from_slice(&refused.body).unwrap();
        assert!(problem["error"].as_str().unwrap().contains(why) && problem["hint"].is_string(), "{problem}");
    }
    assert_eq!(gateway.json("/api/v1/overrides")["overrides"].as_array().unwrap().len(), 0);
}

#[test]
fn a_second_process_on_the_same_data_is_refused_with_the_reason() {
    let gateway = gateway(SHOPIFY).start();
    let data = gateway.dir().join("data");
    let second = support::gateway(SHOPIFY).with(&["--data", data.to_str().unwrap()]).try_start();
    let (status, error) = second.err().expect("a second process opened the same store");
    assert_eq!(status.code(), Some(1));
    assert!(error.contains("in use") && error.contains("data"), "{error}");
}

#[test]
fn what_was_stored_is_there_after_a_restart() {
    let first = gateway(SHOPIFY).start();
    let id = first.client().send(&post("/webhooks/shopify", ORDER).shopify("a.myshopify.com"));
    let id = id.header("fairlane-event-id").unwrap().to_owned();
    let token = first.token();
    let (status, dir) = first.stop();
    assert!(status.success(), "{status}");
    let second = gateway(SHOPIFY).again_in(dir).start();
    assert_eq!(second.token(), token);
    assert_eq!(second.json(&format!("/api/v1/events/{id}"))["group"], "a.myshopify.com");
    assert_eq!(second.get(&format!("/api/v1/events/{id}/body")).body, ORDER);
}

#[test]
fn a_changed_file_is_applied_live_and_a_bad_one_not_at_all() {
    let gateway = gateway(SHOPIFY).start();
    let mut client = gateway.client();
    assert_eq!(client.send(&post("/new", b"{}")).status, 404);
    std::fs::write(gateway.config(), format!("{SHOPIFY}  - {{ path: /new, verify: {{ provider: none }} }}\n")).unwrap();
    wait_until(|| client.send(&post("/new", b"{}")).status == 200);

    std::fs::write(gateway.config(), "upstream: http://127.0.0.1:9\nsources: [{ path: /x, verfy: {} }]\n").unwrap();
    wait_until(|| gateway.metric("fairlane_config_ok") == Some(0.0));
    assert_eq!(client.send(&post("/new", b"{}")).status, 200, "what ran before goes on");
    assert!(gateway.stderr().contains("verfy"), "{}", gateway.stderr());

    // A source that still has events is not taken away.
    std::fs::write(gateway.config(), SHOPIFY).unwrap();
    gateway.signal("HUP");
    wait_until(|| gateway.stderr().contains("has a backlog"));
    assert_eq!(client.send(&post("/new", b"{}")).status, 200);
}

#[test]
fn a_removed_source_answers_503_for_a_while_instead_of_404() {
    let two = format!("{SHOPIFY}  - {{ path: /old, verify: {{ provider: none }} }}\n");
    let gateway = gateway(&two).with(&["--accept-removal"]).start();
    let mut client = gateway.client();
    assert_eq!(client.send(&post("/old", b"{}")).status, 200);
    std::fs::write(gateway.config(), SHOPIFY).unwrap();
    wait_until(|| client.send(&post("/old", b"{}")).status == 503);
    assert_eq!(client.send(&post("/never", b"{}")).status, 404);
    assert!(!gateway.events("source=/old").is_empty(), "its events are kept");
}

/// Looks again until it is so; the reload looks at the file once a second.
fn wait_until(mut what: impl FnMut() -> bool) {
    let started = Duration::from_secs(30);
    let deadline = std::time::UNIX_EPOCH.elapsed().unwrap() + started;
    while !what() {
        assert!(std::time::UNIX_EPOCH.elapsed().unwrap() < deadline, "it did not happen within {started:?}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
