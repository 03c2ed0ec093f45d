//! What a newcomer meets first, through the real binary: a start that fails, and commands that answer in words.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "a log is waited for with a limit")]

mod support;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use support::{Gateway, SHOPIFY, gateway, post};

const ANY: &str = "upstream: http://127.0.0.1:9\nsources: [{ path: /any, verify: { provider: none } }]\n";

fn fairlane(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    command.current_dir(folder).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn wait_for_log(gateway: &Gateway, text: &str) {
    let begun = Instant::now();
    while !gateway.stderr().contains(text) {
        assert!(begun.elapsed() < Duration::from_secs(60), "no {text:?} in the log");
        std::thread::yield_now();
    }
}

#[test]
fn a_configuration_that_is_not_there_names_one_that_is() {
    let dir = tempfile::tempdir().unwrap();
    let output = fairlane(dir.path(), &["run"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(said(&output).contains("fairlane providers shopify"), "{}", said(&output));
    std::fs::write(dir.path().join("other.yaml"), ANY).unwrap();
    for command in ["run", "check", "doctor"] {
        let output = fairlane(dir.path(), &[command]);
        assert_eq!(output.status.code(), Some(78), "{command}");
        assert!(said(&output).contains("other.yaml?"), "{command}: {}", said(&output));
    }
}

#[test]
fn a_start_that_cannot_be_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("gateway.yaml"), ANY).unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let us = format!("(process {})", std::process::id());
    let free = "127.0.0.1:0";
    for (arguments, told) in [
        (["--listen", &taken, "--admin", free, "--data", "data"], [us.as_str(), "or --listen"]),
        (["--listen", free, "--admin", &taken, "--data", "data"], [us.as_str(), "or --admin"]),
        (["--listen", "192.0.2.1:1", "--admin", free, "--data", "data"], ["no such address", "--listen"]),
        (["--listen", free, "--admin", free, "--data", "file"], ["not a folder", "--data"]),
        (["--listen", free, "--admin", free, "--data", "file/inside"], ["cannot be made", "--data"]),
    ] {
        let output = fairlane(dir.path(), &[&["run"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", said(&output));
        for words in told {
            assert!(said(&output).contains(words), "{arguments:?}: {}", said(&output));
        }
    }
}

#[test]
fn a_folder_that_another_gateway_has_names_it() {
    let gateway = gateway(ANY).start();
    let data = gateway.dir().join("data");
    let data = data.to_str().unwrap();
    let arguments = ["run", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", data];
    let output = fairlane(gateway.dir(), &arguments);
    assert_eq!(output.status.code(), Some(1));
    let told = said(&output);
    assert!(told.contains(&format!("process {}", gateway.child.id())) && told.contains("stop it"), "{told}");
}

#[test]
fn a_port_that_another_gateway_has_names_it_and_the_way_to_replace_it() {
    let gateway = gateway(ANY).start();
    let address = gateway.address.to_string();
    let output = fairlane(gateway.dir(), &["run", "--listen", &address, "--admin", "127.0.0.1:0", "--data", "another"]);
    assert_eq!(output.status.code(), Some(1));
    let told = said(&output);
    let who = format!("fairlane (process {})", gateway.child.id());
    assert!(told.contains(&who) && told.contains("take its place with --upgrade"), "{told}");
}

#[test]
fn too_few_descriptors_are_refused_before_anything_is_begun() {
    let (status, told) =
        gateway(ANY).through(&["bash", "-c", "ulimit -n 40; exec \"$@\"", "limited"]).try_start().err().unwrap();
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains("only 40 files") && told.contains("ulimit -n"), "{told}");
}

#[test]
fn a_secret_that_is_not_set_and_a_provider_that_nobody_knows_are_named() {
    let dir = tempfile::tempdir().unwrap();
    for (from, to, told) in [
        ("hush-a-test-secret", "${NOT_SET_ANYWHERE}", "the environment variable NOT_SET_ANYWHERE is not set"),
        ("provider: shopify", "provider: shopfy", "did you mean \"shopify\"?"),
    ] {
        std::fs::write(dir.path().join("gateway.yaml"), SHOPIFY.replace(from, to)).unwrap();
        let output = fairlane(dir.path(), &["run"]);
        assert_eq!(output.status.code(), Some(78));
        assert!(said(&output).contains(told), "{}", said(&output));
    }
}

#[test]
fn an_upstream_that_is_down_is_said_at_the_start_and_events_wait() {
    // A port that was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let gateway = gateway(&ANY.replace(":9\n", &format!(":{port}\n"))).start();
    wait_for_log(&gateway, "the upstream does not answer: events are accepted and wait");
    assert_eq!(gateway.client().send(&post("/any", b"{}")).status, 200);
}

#[test]
fn a_log_in_a_file_has_no_colour() {
    let gateway = gateway(&format!("{ANY}log: {{ format: text }}\n")).start();
    wait_for_log(&gateway, "admin token was made");
    assert!(!gateway.stderr().contains('\u{1b}'), "{:?}", gateway.stderr());
}

#[test]
fn send_says_what_became_of_each_event_and_events_show_it() {
    let gateway = gateway(SHOPIFY).start();
    let dir = gateway.dir();
    std::fs::write(dir.join("secret"), support::SHOPIFY_SECRET).unwrap();
    std::fs::write(dir.join("body"), "{\"id\":\"it's\"}").unwrap();
    let to = format!("http://{}/webhooks/shopify", gateway.address);
    let send = |more: &[&str]| {
        let own = ["send", "--provider", "shopify", "--secret", "file:secret", "--to", &to, "--body", "body"];
        fairlane(dir, &[&own, more].concat())
    };
    let shop = ["--header", "X-Shopify-Shop-Domain: A.myshopify.com", "--event-type", "orders/paid", "--count", "2"];
    let output = send(&shop);
    let told = said(&output);
    assert!(output.status.success() && told.contains("2 sent, 2 accepted"), "{told}");
    assert!(told.contains("accepted as evt_") && told.contains("group a.myshopify.com"), "{told}");
    let json: serde_json::Value = serde_json::from_slice(&send(&["--json"]).stdout).unwrap();
    let id = json["events"][0]["event_id"].as_str().unwrap();

    let admin = gateway.admin.to_string();
    let ask = |arguments: &[&str]| said(&fairlane(dir, &[arguments, &["--admin", &admin, "--data", "data"]].concat()));
    let list = ask(&["events"]);
    assert!(list.contains("orders/paid") && list.contains("PROVIDER ID") && list.contains("a.myshopify.com"), "{list}");
    let shown = ask(&["events", "show", id, "--body"]);
    assert!(shown.contains(&format!("id: {id}")) && shown.contains("{\"id\":\"it's\"}"), "{shown}");
    let shown: serde_json::Value = serde_json::from_str(&ask(&["events", "show", id, "--body", "--json"])).unwrap();
    assert_eq!(shown["body"], "{\"id\":\"it's\"}");
    assert!(ask(&["sources"]).contains("/webhooks/shopify"));
    assert!(ask(&["events", "show", "evt_nothing"]).contains("400"), "{}", ask(&["events", "show", "evt_nothing"]));

    std::fs::write(dir.join("secret"), "another-secret-of-somebody").unwrap();
    let refused = send(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("401 Unauthorized: not accepted"), "{}", said(&refused));
    assert!(said(&refused).contains("`fairlane rejections`"), "{}", said(&refused));
    let list = ask(&["rejections", "--source", "/webhooks/shopify", "--limit", "1"]);
    assert!(list.starts_with("TIME") && list.contains("bad_signature") && list.contains("127.0.0.1"), "{list}");
    assert!(ask(&["rejections", "--source", "nobody"]).contains("no rejections"));
    let json: serde_json::Value = serde_json::from_str(&ask(&["rejections", "--json"])).unwrap();
    assert_eq!(json["rejections"][0]["reason"], "bad_signature");
    let unknown = fairlane(dir, &["send", "--provider", "shopfy", "--to", &to, "--body", "body"]);
    assert_eq!(unknown.status.code(), Some(64));
    assert!(said(&unknown).contains("did you mean \"shopify\"?"), "{}", said(&unknown));
}

#[test]
fn send_tells_each_event_as_it_is_answered_and_where_it_stopped() {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}/in", listener.local_addr().unwrap());
    let receiver = std::thread::spawn(move || {
        for _ in 0..2 {
            // The third one gets no answer, in each of the two runs.
            for answered in [true, true, false] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut got = Vec::new();
                while !got.ends_with(b"{\"a\":1}") {
                    let mut some = [0; 4096];
                    let read = stream.read(&mut some).unwrap();
                    assert_ne!(read, 0, "closed early");
                    got.extend_from_slice(some.get(..read).unwrap());
                }
                if answered {
                    let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
                    stream.write_all(answer).unwrap();
                }
            }
        }
    });
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("secret"), "hush").unwrap();
    std::fs::write(dir.path().join("body"), "{\"a\":1}").unwrap();
    let own =
        ["send", "--provider", "github", "--secret", "file:secret", "--to", &to, "--body", "body", "--count", "600"];
    let output = fairlane(dir.path(), &own);
    assert_eq!(output.status.code(), Some(1));
    let told = said(&output);
    assert_eq!(told.matches("200 OK: accepted").count(), 2, "{told}");
    assert!(told.contains("600 to send, 2 accepted, stopped at number 3: no answer from"), "{told}");
    assert!(told.contains("answered by the receiver itself"), "{told}");
    let output = fairlane(dir.path(), &[&own[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (json["sent"].as_u64(), json["accepted"].as_u64(), json["to_send"].as_u64()),
        (Some(2), Some(2), Some(600))
    );
    assert_eq!(json["events"].as_array().unwrap().len(), 2);
    assert!(json["error"].as_str().unwrap().contains("no answer"), "{json}");
    receiver.join().unwrap();
}

#[test]
fn where_the_gateway_is_may_be_said_before_an_inner_command() {
    let gateway = gateway(ANY).start();
    let admin = format!("http://{}", gateway.admin);
    let ask = |arguments: &[&str]| fairlane(gateway.dir(), arguments);
    for arguments in [
        &["groups", "--admin", &admin, "--data", "data", "pause", "noisy"][..],
        &["groups", "pause", "noisy", "--admin", &admin, "--data", "data"],
        &["groups", "--admin", &admin, "pause", "noisy", "--data", "data"],
        &["upstream", "-c", "gateway.yaml", "--admin", &admin, "--data", "data", "resume"],
        &["sources", "--admin", &admin, "--data", "data"],
    ] {
        let output = ask(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    }
    let output = ask(&["groups", "--limit", "3", "--admin", &admin, "--data", "data", "pause", "noisy"]);
    assert_eq!(output.status.code(), Some(64), "{}", said(&output));
    assert!(said(&output).contains("--limit is for the list"), "{}", said(&output));
    let output = ask(&["events", "--admin", &admin, "--data", "data", "show", "evt_nothing"]);
    assert!(said(&output).contains("400"), "{}", said(&output));
}

#[test]
fn check_ends_with_its_notes_and_can_be_brief() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("gateway.yaml"), ANY).unwrap();
    let whole = said(&fairlane(dir.path(), &["check"]));
    let (_, notes) =
        whole.split_once("# gateway.yaml: 1 source, delivered to http://127.0.0.1:9/ by 64 slots").unwrap();
    assert!(notes.contains("# 3 notes:\n#   "), "{whole}");
    let quiet = said(&fairlane(dir.path(), &["check", "--quiet"]));
    assert!(quiet.starts_with("3 notes:\n") && quiet.lines().count() == 4, "{quiet}");
}

#[test]
fn doctor_looks_at_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    let yaml = |min_free: &str| {
        format!("{ANY}listen: {{ limits: {{ connections: 10 }} }}\nstore: {{ embedded: {{ min_free: {min_free} }} }}\n")
    };
    std::fs::write(dir.path().join("gateway.yaml"), yaml("1000000GiB")).unwrap();
    let output = fairlane(dir.path(), &["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let disk = report["findings"].as_array().unwrap().iter().find(|one| one["what"] == "disk").unwrap();
    assert_eq!((&report["ok"], disk["standing"].as_str()), (&serde_json::Value::Bool(false), Some("bad")));
    let upstream = |report: &serde_json::Value| {
        let findings = report["findings"].as_array().unwrap();
        let one = findings.iter().find(|one| one["what"] == "upstream").unwrap();
        (one["standing"].as_str().unwrap().to_owned(), one["text"].as_str().unwrap().to_owned())
    };
    let (standing, told) = upstream(&report);
    assert_eq!(standing, "note", "{told}");
    assert!(told.contains("http://127.0.0.1:9/ does not answer") && told.contains("refused"), "{told}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let there = yaml("0B").replace(":9\n", &format!(":{}\n", listener.local_addr().unwrap().port()));
    std::fs::write(dir.path().join("there.yaml"), there).unwrap();
    let output = fairlane(dir.path(), &["doctor", "--json", "-c", "there.yaml"]);
    let (standing, told) = upstream(&serde_json::from_slice(&output.stdout).unwrap());
    assert_eq!(standing, "ok", "{told}");
    let text = said(&fairlane(dir.path(), &["doctor"]));
    assert!(text.contains("below min_free") && text.contains("wrong\n"), "{text}");
    assert!(!dir.path().join("fairlane-data").exists(), "it only looks");
}

#[test]
fn asking_a_gateway_needs_no_secret_of_its_sources() {
    let gateway = gateway(ANY).start();
    let dir = tempfile::tempdir().unwrap();
    let (admin, data) = (gateway.admin.to_string(), gateway.dir().join("data").display().to_string());
    let at = format!("admin: {{ address: \"{admin}\" }}\nstore: {{ embedded: {{ path: {data:?} }} }}\n");
    let secret = "sources: [{ path: /a, verify: { provider: shopify, secret: \"${NOT_SET_ANYWHERE}\" } }]\n";
    std::fs::write(dir.path().join("gateway.yaml"), format!("{at}{secret}")).unwrap();
    let output = fairlane(dir.path(), &["groups"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    // Told where it is, it needs no file either.
    let output = fairlane(dir.path(), &["groups", "-c", "none.yaml", "--admin", &admin, "--data", &data]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    // What it does need has to be right.
    std::fs::write(dir.path().join("gateway.yaml"), format!("admin: {{ address: here }}\n{secret}")).unwrap();
    let output = fairlane(dir.path(), &["groups"]);
    assert!(said(&output).contains("admin.address") && !said(&output).contains("NOT_SET"), "{}", said(&output));
}
