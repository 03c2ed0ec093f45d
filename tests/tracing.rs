//! Traces through the real binary: what a collector gets, what the upstream is told, and that nobody waits for either. And what no
//! log ever has.

mod support;

use std::net::TcpListener;

use support::collector::{Span, collector};
use support::upstream::{Upstream, answer, upstream};
use support::{Gateway, gateway, post};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn yaml(upstream: &Upstream, otlp: &str) -> String {
    format!(
        "upstream: {{ url: {}, retry: {{ backoff: {{ initial: 1ms, max: 1ms }} }} }}\notlp: {otlp}\nsources:\n  - path: /any\n    verify: \
         {{ provider: none }}\n    key: headers.x-key\n  - {{ path: /live, verify: none, respond: upstream }}\n",
        upstream.url()
    )
}

fn send(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> String {
    let request = headers.iter().fold(post(path, b"{}").header("X-Key", "a"), |r, (name, value)| r.header(name, value));
    let response = gateway.client().send(&request);
    assert_eq!(response.status, 200, "{}", response.text());
    response.header("fairlane-event-id").unwrap_or_default().to_owned()
}

fn named<'s>(spans: &'s [Span], name: &str) -> Vec<&'s Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

#[test]
fn an_event_is_one_trace_from_its_sender_to_the_upstream() {
    let (collector, receiver) = (
        collector(),
        upstream(|request| answer(if request.header("fairlane-attempt") == Some("1") { 500 } else { 200 })),
    );
    let gateway = gateway(&yaml(&receiver, &collector.url())).start();
    let came = format!("00-{TRACE}-{PARENT}-01");
    let id = send(&gateway, "/any", &[("traceparent", &came), ("tracestate", "a=1"), ("tracestate", "b=2")]);
    let event = gateway.wait_for_status(&id, "delivered");
    assert_eq!(event["trace_id"], TRACE);

    let spans = collector.wait_for(|spans| named(spans, "deliver").len() == 2 && !named(spans, "accept").is_empty());
    assert!(spans.iter().all(|span| span.trace == TRACE), "{spans:#?}");
    let accept = named(&spans, "accept")[0].clone();
    assert_eq!((accept.parent.as_str(), accept.kind), (PARENT, 2), "a server's span in the sender's");
    assert_eq!((&accept.attributes["fairlane.event_id"], &*accept.attributes["fairlane.group"]), (&id, "a"));
    for name in ["listen", "verify", "group", "store", "wait", "deliver"] {
        let found = named(&spans, name);
        assert_eq!(found.len(), if ["wait", "deliver"].contains(&name) { 2 } else { 1 }, "{name}");
        assert!(found.iter().all(|span| span.parent == accept.id && span.start <= span.end), "{name}: {found:#?}");
    }
    let delivers = named(&spans, "deliver");
    let told = receiver.wait_for(2);
    for (request, span) in told.iter().zip(&delivers) {
        assert_eq!(
            request.all("traceparent"),
            [format!("00-{TRACE}-{}-01", span.id)],
            "its work is a part of the attempt"
        );
        assert_eq!(request.all("tracestate"), ["a=1", "b=2"]);
    }
    assert_eq!(delivers.iter().map(|span| (span.kind, span.status)).collect::<Vec<_>>(), [(3, 2), (3, 0)]);
    assert_eq!(delivers[0].attributes["http.response.status_code"], "500");
    assert_eq!(delivers[1].attributes["fairlane.attempt"], "2");
}

#[test]
fn a_trace_begins_here_where_the_sender_has_none_and_is_not_recorded_where_it_says_so() {
    let (collector, receiver) = (collector(), upstream(|_| answer(200)));
    let gateway = gateway(&yaml(&receiver, &collector.url())).start();
    // Not recorded, and still the same trace.
    let quiet = format!("00-{TRACE}-{PARENT}-00");
    let unrecorded = send(&gateway, "/any", &[("traceparent", &quiet), ("tracestate", "a=1")]);
    assert_eq!(gateway.wait_for_status(&unrecorded, "delivered")["trace_id"], TRACE);
    let told = receiver.wait_for(1).remove(0);
    let sent = told.header("traceparent").unwrap();
    assert!(sent.starts_with(&format!("00-{TRACE}-")) && sent.ends_with("-00"), "{sent}");
    assert_eq!(told.header("tracestate"), Some("a=1"));

    // A broken one is none, and the words about it go with it.
    for headers in [vec![], vec![("traceparent", "00-zz"), ("tracestate", "a=1")]] {
        let id = send(&gateway, "/any", &headers);
        let trace = gateway.wait_for_status(&id, "delivered")["trace_id"].as_str().unwrap().to_owned();
        let spans = collector.wait_for(|spans| spans.iter().any(|span| span.trace == trace && span.name == "accept"));
        assert!(spans.iter().any(|span| span.trace == trace && span.name == "accept" && span.parent.is_empty()));
        let all = receiver.received();
        let told = all.iter().find(|request| request.header("fairlane-event-id") == Some(&id)).unwrap();
        assert_eq!(told.header("traceparent").unwrap().get(3..35), Some(trace.as_str()));
        assert_eq!(told.header("tracestate"), None);
    }
    // A sender that waits for the answer.
    send(&gateway, "/live", &[("traceparent", &quiet.replace("-00", "-01").replace("00-4b", "00-5b"))]);
    let live = collector.wait_for(|spans| {
        let own = |name: &str| spans.iter().any(|span| span.trace.starts_with("5bf9") && span.name == name);
        own("accept") && own("deliver") && own("wait")
    });
    assert!(live.iter().all(|span| span.trace != TRACE), "nothing of what is not recorded");
}

#[test]
fn a_trace_survives_kill_9() {
    let collector = collector();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = |address| {
        format!("upstream: http://{address}\notlp: {}\nsources: [{{ path: /any, verify: none }}]\n", collector.url())
    };
    let first = gateway(&nobody(closed)).start();
    let id = send(&first, "/any", &[("traceparent", &format!("00-{TRACE}-{PARENT}-01"))]);
    let accept = collector.wait_for(|spans| !named(spans, "accept").is_empty());
    let accept = named(&accept, "accept")[0].id.clone();
    let receiver = upstream(|_| answer(200));
    let second = gateway(&nobody(receiver.address)).again_in(first.kill()).start();
    assert_eq!(second.wait_for_status(&id, "delivered")["trace_id"], TRACE);
    let delivered = |span: &Span| span.name == "deliver" && span.status == 0;
    let spans = collector.wait_for(|spans| spans.iter().any(delivered));
    let deliver = spans.iter().find(|span| delivered(span)).unwrap();
    assert_eq!((&*deliver.trace, &deliver.parent), (TRACE, &accept));
    assert_eq!(receiver.wait_for(1)[0].header("traceparent"), Some(format!("00-{TRACE}-{}-01", deliver.id).as_str()));
}

#[test]
fn without_a_collector_events_flow_and_what_senders_say_of_traces_goes_as_it_came() {
    let receiver = upstream(|_| answer(200));
    let off = gateway(&yaml(&receiver, "null")).start();
    let headers = [("traceparent", "as it came"), ("tracestate", "a=1")];
    let id = send(&off, "/any", &headers);
    assert_eq!(off.wait_for_status(&id, "delivered")["trace_id"], serde_json::Value::Null);
    let told = receiver.wait_for(1).remove(0);
    assert_eq!((told.header("traceparent"), told.header("tracestate")), (Some("as it came"), Some("a=1")));

    // One that is away, and one that takes connections and never answers.
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [away, deaf.local_addr().unwrap()] {
        let gateway = gateway(&yaml(&receiver, &format!("http://{address}"))).start();
        let ids: Vec<String> = (0..300).map(|_| send(&gateway, "/any", &[])).collect();
        ids.iter().for_each(|id| drop(gateway.wait_for_status(id, "delivered")));
        while gateway.metric("fairlane_spans_dropped_total") == Some(0.0) {
            std::thread::yield_now();
        }
        assert_eq!(gateway.metric("fairlane_spans_exported_total"), Some(0.0));
        let (ended, _dir) = gateway.stop();
        assert!(ended.success(), "{ended}");
    }
}

#[test]
fn a_collector_is_changed_by_a_reload() {
    let (one, other, receiver) = (collector(), collector(), upstream(|_| answer(200)));
    let gateway = gateway(&yaml(&receiver, &one.url())).start();
    send(&gateway, "/any", &[]);
    one.wait_for(|spans| !named(spans, "deliver").is_empty());
    std::fs::write(gateway.config(), yaml(&receiver, &other.url())).unwrap();
    gateway.signal("HUP");
    while !gateway.stderr().contains("configuration applied") {
        std::thread::yield_now();
    }
    send(&gateway, "/any", &[]);
    other.wait_for(|spans| named(spans, "deliver").len() == 1);
}

#[test]
fn no_log_has_a_body_a_secret_or_a_signature_even_at_its_most_talkative() {
    let (collector, receiver) = (
        collector(),
        upstream(|request| {
            let status = if request.header("fairlane-attempt") == Some("1") { 500 } else { 422 };
            answer(status).body("what-the-upstream-said").header("set-cookie", "cookie-of-the-upstream")
        }),
    );
    for format in ["json", "text"] {
        let gateway = gateway(&format!(
            "upstream: {{ url: {}, signing_secret: whsec_c2lnbmluZy1zZWNyZXQtb2Ytb3Vycw==, headers: {{ authorization: Bearer-of-the-upstream }}, \
             retry: {{ attempts: 1, backoff: {{ initial: 1ms, max: 1ms }} }} }}\nlog: {{ level: trace, format: {format} }}\notlp: {}\nadmin: {{ \
             token: token-of-the-admin }}\nsources:\n  - {{ path: /signed, verify: {{ provider: github, secret: secret-of-the-source }}, key: \
             body.shop, dedupe: {{ key: body.id }} }}\n  - {{ path: /open, verify: {{ provider: github, secret: secret-of-the-source, enforce: \
             false }} }}\n  - {{ path: /live, verify: none, respond: upstream }}\n",
            receiver.url(),
            collector.url()
        ))
        .start();
        let body = br#"{"shop":"the-shop","id":1,"card":"text-of-the-body"}"#;
        let good = support::hex(&support::hmac_sha256("secret-of-the-source", &[body]));
        let bad = "ba".repeat(32);
        for (path, mac) in [
            ("/signed", &good),
            ("/signed", &good),
            ("/signed", &bad),
            ("/open", &bad),
            ("/live", &bad),
            ("/none", &bad),
        ] {
            let request = post(&format!("{path}?token=text-of-the-query"), body)
                .header("X-Hub-Signature-256", format!("sha256={mac}"))
                .header("Authorization", "Bearer-of-the-sender")
                .header("Cookie", "cookie-of-the-sender");
            gateway.client().send(&request);
        }
        let get = support::get("/api/v1/events").header("authorization", "Bearer token-of-the-admin");
        loop {
            let events: serde_json::Value =
                serde_json::from_slice(&support::Client::to(gateway.admin).send(&get).body).unwrap();
            if events["events"].as_array().unwrap().iter().filter(|event| event["status"] == "dead").count() == 2 {
                break;
            }
        }
        let (ended, dir) = gateway.stop();
        assert!(ended.success(), "{ended}");
        let log = std::fs::read_to_string(dir.path().join("stderr")).unwrap();
        assert!(log.contains("an event went to the dead letters") && log.contains("the-shop"), "{log}");
        for secret in [
            "text-of-the-body",
            "text-of-the-query",
            "secret-of-the-source",
            "c2lnbmluZy1zZWNyZXQ",
            "signing-secret-of-ours",
            "Bearer-of-the-sender",
            "Bearer-of-the-upstream",
            "cookie-of-the",
            "token-of-the-admin",
            "what-the-upstream-said",
            &good,
            &bad,
        ] {
            let found = log.lines().find(|line| line.contains(secret));
            assert!(found.is_none(), "{secret} in {found:?}");
        }
    }
}
