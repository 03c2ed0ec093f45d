//! Rough handling, through the real binary: signals at the wrong moment, files that are none, too few descriptors, clients that hang
//! up half-way or hold on for ever.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "how long something took is the subject here")]

mod support;

use std::net::Shutdown;
use std::process::Command;
use std::time::{Duration, Instant};

use support::{Client, Gateway, gateway, get, post};

const ANY: &str = "upstream: http://127.0.0.1:9\nsources: [{ path: /any, verify: { provider: none } }]\n";

/// Waits until the gateway's log has `text` in it.
fn wait_for_log(gateway: &Gateway, text: &str) {
    let begun = Instant::now();
    while !gateway.stderr().contains(text) {
        assert!(begun.elapsed() < Duration::from_secs(60), "no {text:?} in the log");
        std::thread::yield_now();
    }
}

fn make_fifo(path: &std::path::Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn a_hangup_as_soon_as_it_says_that_it_listens_does_not_end_it() {
    for _ in 0..5 {
        let gateway = gateway(ANY).start();
        gateway.signal("HUP");
        assert_eq!(gateway.client().send(&post("/any", b"{}")).status, 200);
        wait_for_log(&gateway, "configuration applied");
        assert!(gateway.stop().0.success());
    }
}

#[test]
fn a_termination_as_soon_as_it_says_that_it_listens_ends_it_in_order() {
    for _ in 0..5 {
        assert!(gateway(ANY).start().stop().0.success());
    }
}

#[test]
fn a_configuration_that_became_a_pipe_holds_nothing_up() {
    let gateway = gateway(ANY).start();
    std::fs::remove_file(gateway.config()).unwrap();
    make_fifo(&gateway.config());
    gateway.signal("HUP");
    wait_for_log(&gateway, "not a regular file");
    assert_eq!(gateway.client().send(&post("/any", b"{}")).status, 200);
    assert!(gateway.stop().0.success());
}

#[test]
fn a_secret_that_became_an_endless_device_is_refused_and_the_old_one_stays() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, support::SHOPIFY_SECRET).unwrap();
    let yaml = ANY.replace("provider: none", &format!("provider: shopify, secret: \"file:{}\"", secret.display()));
    let gateway = gateway(&yaml).start();
    std::fs::remove_file(&secret).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &secret).unwrap();
    gateway.signal("HUP");
    wait_for_log(&gateway, "not a regular file");
    assert_eq!(gateway.client().send(&post("/any", b"{}").shopify("a")).status, 200);
}

#[test]
fn a_secret_that_is_rewritten_is_taken_over_with_no_touch_of_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "the-one-before-this").unwrap();
    let yaml = ANY.replace("provider: none", &format!("provider: shopify, secret: \"file:{}\"", secret.display()));
    let gateway = gateway(&yaml).start();
    let mut client = gateway.client();
    let new = post("/any", b"{}").shopify("a");
    assert_eq!(client.send(&new).status, 401);

    // Replaced by renaming, as whoever hands out secrets does it.
    let next = dir.path().join("next");
    std::fs::write(&next, support::SHOPIFY_SECRET).unwrap();
    std::fs::rename(&next, &secret).unwrap();
    wait_for_log(&gateway, "configuration applied");
    assert_eq!(client.send(&new).status, 200, "the new secret's signature");

    // Half-way through a rewrite it is empty: the one before stays, said once.
    std::fs::write(&secret, "").unwrap();
    wait_for_log(&gateway, "the configuration was not applied");
    assert_eq!(gateway.metric("fairlane_config_ok"), Some(0.0));
    assert_eq!(client.send(&new).status, 200, "the old one stays");
    std::fs::remove_file(&secret).unwrap();
    wait_for_log(&gateway, "cannot be read");
    assert_eq!(client.send(&new).status, 200, "the old one stays");
    let refusals = gateway.stderr().lines().filter(|line| line.contains("was not applied")).count();
    assert_eq!(refusals, 2, "one line for each change: {}", gateway.stderr());

    // And now another one: what was accepted is refused.
    std::fs::write(&secret, "the-one-after-that").unwrap();
    let begun = Instant::now();
    while gateway.metric("fairlane_config_ok") != Some(1.0) {
        assert!(begun.elapsed() < Duration::from_secs(60), "it was not read again");
        std::thread::yield_now();
    }
    assert_eq!(client.send(&new).status, 401, "the old secret's signature");
}

#[test]
fn check_says_what_is_wrong_with_a_file_that_is_none() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("latin1"), b"upstream: caf\xe9").unwrap();
    for (file, why) in [
        (dir.path().to_path_buf(), "Is a directory"),
        (dir.path().join("none"), "No such file"),
        (dir.path().join("latin1"), "expected UTF-8 text; line 1 is none"),
        ("/dev/zero".into(), "larger than 16 MiB"),
    ] {
        for json in [false, true] {
            let mut check = Command::new(env!("CARGO_BIN_EXE_fairlane"));
            check.arg("check").arg("-c").arg(&file).args(json.then_some("--json"));
            let output = check.output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(78), "{file:?}: {said}");
            assert!(said.contains(why), "{file:?}: {said}");
            assert!(!json || serde_json::from_str::<serde_json::Value>(&said).is_ok(), "{said}");
        }
    }
}

#[test]
fn a_client_that_closes_its_half_after_the_request_is_answered() {
    let gateway = gateway(ANY).start();
    let mut client = gateway.client();
    client.write(&post("/any", b"{}").bytes()).unwrap();
    client.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    let response = client.receive().unwrap_or_else(|| panic!("it got no answer"));
    assert_eq!(response.status, 200);
    assert!(client.is_closed());
    assert_eq!(gateway.events("").len(), 1);
}

#[test]
fn connections_leave_the_descriptors_that_the_store_needs() {
    let gateway = gateway(ANY).through(&["bash", "-c", "ulimit -n 128; exec \"$@\"", "limited"]).start();
    wait_for_log(&gateway, "LimitNOFILE");
    let mut first = gateway.client();
    let mut idle: Vec<Client> = (0..150).map(|_| gateway.client()).collect();
    // Half of 128 stay ours: whoever came too late is closed at once, and those who are in are served.
    assert!(idle.last_mut().unwrap().is_closed());
    assert_eq!(first.send(&post("/any", b"{}")).status, 200);
    assert_eq!(gateway.events("").len(), 1);
}

#[test]
fn the_admin_address_takes_only_so_many_connections() {
    let gateway = gateway(ANY).start();
    let mut open: Vec<Client> = (0..256).map(|_| Client::to(gateway.admin)).collect();
    // A further one finds a place: that of the one that has been without a request for longest.
    let health = get("/healthz");
    assert_eq!(Client::to(gateway.admin).send(&health).status, 200);
    assert!(open.first_mut().unwrap().is_closed());
    assert_eq!(open.last_mut().unwrap().send(&health).status, 200);
}

#[test]
fn a_flood_of_hostile_rejections_stays_small_and_names_no_secret() {
    let yaml = "upstream: http://127.0.0.1:9\nsources: [{ path: /any, verify: { token: { header: X-Hook }, secret: \"hush-hush-hush-hush\" } }]\n";
    let gateway = gateway(yaml).start();
    let big = post("/any", b"{}").header("X-Big", vec![0xff; 60_000]);
    let mut client = gateway.client();
    for _ in 0..20 {
        assert_eq!(client.send(&big).status, 401);
    }
    // The right secret, at the wrong path and with the wrong method.
    assert_eq!(client.send(&post("/other", b"").header("X-Hook", "hush-hush-hush-hush")).status, 404);
    assert_eq!(client.send(&get("/any").header("X-Hook", "hush-hush-hush-hush")).status, 405);
    let list = gateway.get("/api/v1/rejections?limit=1000").text();
    assert!(list.len() < 20 * 2000, "{} bytes", list.len());
    assert!(list.contains("… (60000 bytes)") && list.contains("*** (19 bytes)"), "{list}");
    assert!(!list.contains("hush"), "{list}");
    for limit in ["0", "1001"] {
        assert_eq!(gateway.get(&format!("/api/v1/rejections?limit={limit}")).status, 400);
    }
}

#[test]
fn what_the_admin_api_cannot_read_it_refuses_as_json_and_in_words() {
    let gateway = gateway(ANY).start();
    for (path, why) in [
        ("/api/v1/events?cursor=garbage", "cursor: expected a whole number"),
        ("/api/v1/events?limit=-1", "limit: expected a whole number"),
        ("/api/v1/events/%ff", "UTF-8"),
        ("/api/v1/events/%ff/body", "UTF-8"),
    ] {
        let response = gateway.get(path);
        assert_eq!(response.status, 400, "{path}");
        let problem: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
        assert!(problem["error"].as_str().unwrap().contains(why), "{problem}");
    }
    let two = get("/api/v1/status")
        .header("Host", "evil.example")
        .header("authorization", format!("Bearer {}", gateway.token()));
    assert_eq!(Client::to(gateway.admin).send(&two).status, 421);
}
