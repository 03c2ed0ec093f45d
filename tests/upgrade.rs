//! Stores that earlier versions wrote are opened by this one, and one of a later version is left alone.
//!
//! The fixtures are data directories as each format's first version left them behind after a `kill -9`; `tests/fixtures/README.md`
//! says what is in them. Whoever changes what is written makes a fixture of the new format before the old code is gone.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::indexing_slicing, reason = "likewise")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use fairlane::store::embedded::FORMAT;
use serde_json::Value;
use support::upstream::{Upstream, answer, upstream};
use support::{Gateway, GatewayBuilder, SHOPIFY_SECRET, gateway, post};
use tempfile::TempDir;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Every format that there was, as its number and folder.
fn formats() -> Vec<(u32, PathBuf)> {
    let folders = std::fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path());
    let numbered = folders.filter_map(|folder| {
        let name = folder.file_name()?.to_str()?.to_owned();
        Some((name.strip_prefix("store-")?.parse().ok()?, folder))
    });
    numbered.collect()
}

/// The store of a fixture, in a folder of its own.
fn unpacked(fixture: &Path) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let unpacked =
        Command::new("tar").arg("-xzf").arg(fixture.join("data.tar.gz")).arg("-C").arg(folder.path()).status();
    assert!(unpacked.unwrap().success());
    folder
}

/// With the configuration that it was made with.
fn with(upstream: &Upstream) -> GatewayBuilder {
    let yaml = std::fs::read_to_string(fixtures().join("gateway.yaml")).unwrap();
    let yaml = yaml
        .replace("${UPSTREAM}", &format!("http://{}", upstream.address))
        .replace("${FAIRLANE_SIGNING_SECRET}", "whsec_aHVzaC1hLXRlc3Qtc2VjcmV0")
        .replace("${SHOPIFY_SECRET}", SHOPIFY_SECRET);
    gateway(&yaml)
}

fn events(gateway: &Gateway) -> Vec<Value> {
    gateway.events("order=newest")
}

#[test]
fn a_store_of_every_earlier_format_is_opened_and_owes_what_it_owed() {
    let formats = formats();
    assert!(formats.iter().any(|(format, _)| *format == FORMAT), "there is no fixture of format {FORMAT}");
    for (format, fixture) in formats {
        let upstream = upstream(|_| answer(200));
        let gateway = with(&upstream).again_in(unpacked(&fixture)).start();
        let before: Value = serde_json::from_slice(&std::fs::read(fixture.join("events.json")).unwrap()).unwrap();
        let before = before["events"].as_array().unwrap();
        let after = events(&gateway);
        assert_eq!(after.len(), before.len(), "format {format}");
        for (was, is) in before.iter().zip(&after) {
            for field in ["id", "group", "source", "status", "received_at", "attempts", "provider_event_id"] {
                assert_eq!(was[field], is[field], "format {format}: {field} of {}", was["id"]);
            }
        }
        // What a person has set for good still holds: nothing goes out until it is taken back.
        assert_eq!(gateway.json("/api/v1/upstream")["paused"], true, "format {format}");
        assert_eq!(gateway.json("/api/v1/group?name=fern.myshopify.com")["weight"], 3.0, "format {format}");
        assert!(upstream.received().is_empty());
        assert_eq!(gateway.change("PATCH", "/api/v1/upstream", r#"{"paused":false}"#).status, 200);
        let mut bodies: Vec<String> =
            upstream.wait_for(3).iter().map(|got| String::from_utf8(got.body.clone()).unwrap()).collect();
        bodies.sort();
        let queued =
            [r#"{"id":11,"word":"queued"}"#, r#"{"id":12,"word":"queued"}"#, r#"{"id":13,"word":"café, queued"}"#];
        assert_eq!(bodies, queued, "format {format}");
        writes_go_on(&gateway, &upstream, format);
        // And what this version made of it, it opens again.
        let (_, folder) = gateway.stop();
        let again = with(&upstream).again_in(folder).start();
        assert!(events(&again).iter().all(|event| event["status"] != "queued"), "format {format}");
        assert!(gateway_is_sound(&again), "format {format}");
    }
}

/// Old records and new ones live together: a repeat of an old event is known, a dead one goes out again, a new one is taken.
fn writes_go_on(gateway: &Gateway, upstream: &Upstream, format: u32) {
    let send = |body: &[u8]| gateway.client().send(&post("/webhooks/shopify", body).shopify("fern.myshopify.com"));
    assert_eq!(send(br#"{"id":14}"#).status, 200, "format {format}");
    assert_eq!(upstream.wait_for(4)[3].body, br#"{"id":14}"#);
    let dead = gateway.events("status=dead").remove(0)["id"].as_str().unwrap().to_owned();
    let replayed = gateway.change("POST", &format!("/api/v1/events/{dead}/replay"), "{}");
    assert!((200..300).contains(&replayed.status), "format {format}: {}", replayed.text());
    assert_eq!(upstream.wait_for(5)[4].body, b"no JSON");
    gateway.wait_for_status(&dead, "delivered");
}

fn gateway_is_sound(gateway: &Gateway) -> bool {
    gateway.metric("fairlane_invariant_violations_total").is_none_or(|violations| violations == 0.0)
}

/// Going back to an older version: it says so and touches nothing, rather than to read what it does not understand.
#[test]
fn a_store_of_a_later_format_is_left_alone() {
    let folder = unpacked(&fixtures().join(format!("store-{FORMAT}")));
    let format = folder.path().join("data/FORMAT");
    let later =
        std::fs::read_to_string(&format).unwrap().replace(&format!("store {FORMAT}"), &format!("store {}", FORMAT + 1));
    std::fs::write(&format, &later).unwrap();
    let upstream = upstream(|_| answer(200));
    let data = folder.path().join("data");
    let names = |data: &Path| {
        let mut names: Vec<_> = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names(&data);
    let elsewhere = tempfile::tempdir().unwrap();
    let arguments = ["--data", data.to_str().unwrap()];
    let (_, said) = with(&upstream).with(&arguments).again_in(elsewhere).try_start().err().unwrap();
    assert!(said.contains("written by a newer fairlane") && said.contains(&format!("is {}", FORMAT + 1)), "{said}");
    assert!(said.contains("docs/upgrading.md"), "{said}");
    assert_eq!(names(&data), before);
    assert_eq!(std::fs::read_to_string(&format).unwrap(), later);
}
