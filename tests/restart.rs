//! What a restart finds on the disk, through the real binary: counts that go on, damage that is said, and nothing to say.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::upstream::{Upstream, answer, upstream};
use support::{Gateway, gateway, post};

fn yaml(upstream: &Upstream, retry: &str) -> String {
    format!(
        "upstream:\n  url: {}\n  retry: {retry}\nsources:\n  - path: /any\n    verify: {{ provider: none }}\n    key: headers.x-key\n",
        upstream.url()
    )
}

fn send(gateway: &Gateway, key: &str, body: &[u8]) -> String {
    let response = gateway.client().send(&post("/any", body).header("X-Key", key));
    assert_eq!(response.status, 200, "{}", response.text());
    response.header("fairlane-event-id").unwrap().to_owned()
}

/// The segments of the log in which something was written, in their order.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir.join("data/log")).unwrap();
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.retain(|path| std::fs::read(path).unwrap().iter().any(|byte| *byte != 0));
    paths.sort();
    paths
}

fn flip(path: &Path, at: impl Fn(&[u8]) -> usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = at(&bytes);
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_store_that_never_stored_anything_starts_without_a_warning() {
    let receiver = upstream(|_| answer(200));
    let text = yaml(&receiver, "{}");
    let (status, dir) = gateway(&text).start().stop();
    assert!(status.success());
    let gateway = gateway(&text).again_in(dir).start();
    let log = gateway.stderr();
    assert!(!log.contains("index is built again") && !log.contains("reading the whole log"), "{log}");
}

#[test]
fn refusals_before_a_restart_count_after_it() {
    let receiver = upstream(|_| answer(404));
    let text = yaml(&receiver, "{ attempts: 2, backoff: { initial: 2s, factor: 1, max: 2s } }");
    let gateway = gateway(&text).start();
    let id = send(&gateway, "a", b"x");
    gateway.wait_for_status(&id, "retrying");
    let gateway = support::gateway(&text).again_in(gateway.kill()).start();
    let event = gateway.wait_for_status(&id, "dead");
    assert!(event["reason"].as_str().unwrap().contains("refused with a 4xx 2 times"), "{event}");
    assert_eq!(receiver.count(), 2, "one before and one after");
}

#[test]
fn an_event_that_is_damaged_on_the_disk_is_given_up_with_its_place_and_the_others_are_delivered() {
    const BODY: &[u8] = b"this one is damaged on the disk";
    let receiver = upstream(|_| answer(503));
    let text = yaml(&receiver, "{ backoff: { initial: 1s, factor: 1, max: 1s } }");
    let gateway = gateway(&text).start();
    let bad = send(&gateway, "a", BODY);
    let good = send(&gateway, "a", b"this one is not");
    gateway.wait_for_status(&good, "retrying");
    let (status, dir) = gateway.stop();
    assert!(status.success());
    let segment = segments(dir.path()).remove(0);
    flip(&segment, |bytes| bytes.windows(BODY.len()).position(|window| window == BODY).unwrap());
    receiver.rule(|_| answer(200));

    let gateway = support::gateway(&text).again_in(dir).start();
    gateway.wait_for_status(&good, "delivered");
    let event = gateway.wait_for_status(&bad, "dead");
    assert!(event["reason"].as_str().unwrap().contains("its last attempt says why"), "{event}");
    let attempt = event["tries"].as_array().unwrap().last().unwrap();
    assert_eq!(attempt["outcome"], "unsendable", "{event}");
    assert!(attempt["error"].as_str().unwrap().contains("00000001.seg at offset"), "{event}");
    for _ in 0..2 {
        let refused = gateway.get(&format!("/api/v1/events/{bad}/body"));
        assert_eq!(refused.status, 500, "trying again does not help: {}", refused.text());
        let text = refused.text();
        assert!(text.contains("00000001.seg at offset") && text.contains("does not help"), "{text}");
    }
    let log = gateway.stderr();
    let said: Vec<&str> = log.lines().filter(|line| line.contains("damaged and cannot be read")).collect();
    assert_eq!(said.len(), 1, "{log}");
    assert!(said[0].contains(&bad) && said[0].contains("ERROR"), "{said:?}");
}

#[test]
fn an_end_of_the_log_that_is_damaged_after_an_orderly_stop_is_not_cut() {
    let receiver = upstream(|_| answer(503));
    let text = yaml(&receiver, "{}");
    let gateway = gateway(&text).start();
    let id = send(&gateway, "a", b"x");
    gateway.wait_for_status(&id, "retrying");
    let (status, dir) = gateway.stop();
    assert!(status.success());
    let segment = segments(dir.path()).pop().unwrap();
    flip(&segment, |bytes| bytes.iter().rposition(|byte| *byte != 0).unwrap());
    let Err((status, error)) = support::gateway(&text).again_in(dir).try_start() else { panic!("it started") };
    assert!(!status.success());
    assert!(error.contains("00000001.seg at offset") && error.contains("restore a copy"), "{error}");
}

/// `fairlane doctor --store` on the folder of a gateway: whether it ended well, and what it found.
fn doctor(dir: &Path) -> (bool, serde_json::Value, String) {
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
        command.args(["doctor", "--store"]).arg(dir.join("data")).args(more).output().unwrap()
    };
    let output = run(&["--json"]);
    let text = String::from_utf8(run(&[]).stdout).unwrap();
    (output.status.success(), serde_json::from_slice(&output.stdout).unwrap(), text)
}

/// Five events that wait, each in a batch of its own, in a log that no checkpoint speaks for.
fn five_waiting(receiver: &Upstream, text: &str) -> (tempfile::TempDir, Vec<String>) {
    let gateway = gateway(text).start();
    assert_eq!(gateway.change("PATCH", "/api/v1/upstream", r#"{"paused":true,"expires":"never"}"#).status, 200);
    let ids = (0..5).map(|number| send(&gateway, "a", format!("body of event {number}").as_bytes())).collect();
    let dir = gateway.kill();
    std::fs::remove_file(dir.path().join("data/upstream.json")).unwrap();
    assert_eq!(receiver.count(), 0);
    (dir, ids)
}

#[test]
fn damage_in_the_middle_of_the_log_is_found_by_the_doctor_and_ends_the_start_with_its_place() {
    let receiver = upstream(|_| answer(200));
    let text = yaml(&receiver, "{}");
    let (dir, _) = five_waiting(&receiver, &text);
    let (whole, found, said) = doctor(dir.path());
    assert!(whole && found["accepted"] == 5 && found["damage"].as_array().unwrap().is_empty(), "{found}");
    assert!(said.ends_with("every checksum holds\n"), "{said}");

    let segment = segments(dir.path()).remove(0);
    flip(&segment, |bytes| bytes.windows(15).position(|window| window == b"body of event 1").unwrap());
    let (whole, found, said) = doctor(dir.path());
    assert!(!whole && found["ok"] == false, "{found}");
    let place = &found["damage"][0];
    assert!(place["file"].as_str().unwrap().ends_with("00000001.seg"), "{found}");
    let at = format!("00000001.seg at offset {}", place["offset"]);
    assert!(said.contains(&at) && said.contains("restore a copy"), "{said}");

    let before = std::fs::read(&segment).unwrap();
    let kept = tempfile::tempdir().unwrap();
    assert!(Command::new("cp").arg("-a").arg(dir.path().join("data")).arg(kept.path()).status().unwrap().success());
    let Err((status, error)) = gateway(&text).again_in(dir).try_start() else { panic!("it started") };
    assert_eq!(status.code(), Some(1));
    assert!(error.contains(&at) && error.contains("restore a copy"), "{error}");
    assert!(std::fs::read(&segments(kept.path())[0]).unwrap() == before, "nothing was changed");
    assert_eq!(receiver.count(), 0, "nothing was delivered past the damage");
}

#[test]
fn an_end_of_the_log_that_is_no_whole_batch_is_named_by_the_doctor_cut_and_said() {
    let receiver = upstream(|_| answer(200));
    let text = yaml(&receiver, "{}");
    let (dir, ids) = five_waiting(&receiver, &text);
    flip(&segments(dir.path())[0], |bytes| bytes.iter().rposition(|byte| *byte != 0).unwrap());
    let (whole, found, said) = doctor(dir.path());
    assert!(whole, "every crash may leave such an end: {found}");
    assert!(found["accepted"] == 4 && found["tail"]["bytes"].as_u64().unwrap() > 0, "{found}");
    assert!(said.contains("do not make one") && said.contains("00000001.seg from offset"), "{said}");

    let gateway = gateway(&text).again_in(dir).start();
    for id in &ids[..4] {
        gateway.wait_for_status(id, "delivered");
    }
    assert_eq!(gateway.get(&format!("/api/v1/events/{}", ids[4])).status, 404);
    let log = gateway.stderr();
    assert!(log.contains("were cut") && log.contains("events acknowledged in it are gone"), "{log}");
}
