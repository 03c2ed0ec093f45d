//! The data folder of a gateway that runs or is started: gone, moved, with a damaged notebook, without room for one.

mod support;

use std::fs;

use support::upstream::{answer, upstream};
use support::{Client, Gateway, gateway, get, post};

const TOKEN: &str = "a-token-of-the-test";

fn yaml(upstream: &str) -> String {
    format!(
        "upstream: {{ url: \"{upstream}\" }}\nadmin: {{ token: {TOKEN} }}\nstore: {{ embedded: {{ min_free: 0 }} }}\n\
         sources: [{{ path: /any, verify: {{ provider: none }}, key: headers.x-key }}]\n"
    )
}

/// Waits until it is ready, or is not; what it says then.
fn wait_for_ready(gateway: &Gateway, status: u16) -> String {
    loop {
        let ready = Client::to(gateway.admin).send(&get("/readyz"));
        if ready.status == status {
            return ready.text();
        }
        std::thread::yield_now();
    }
}

/// Waits for a page to whoever is on call.
fn wait_for_alert(gateway: &Gateway) {
    let metrics = get("/metrics").header("Authorization", format!("Bearer {TOKEN}"));
    while !Client::to(gateway.admin).send(&metrics).text().contains("fairlane_alerts_firing{alert=\"store_failing\"} 1")
    {
        std::thread::yield_now();
    }
}

fn change(gateway: &Gateway, path: &str, body: &str) -> support::Response {
    let request = post(path, body.as_bytes()).method("PATCH").without("Host").header("Host", "127.0.0.1");
    let request = request.header("Authorization", format!("Bearer {TOKEN}")).header("Content-Type", "application/json");
    Client::to(gateway.admin).send(&request)
}

#[test]
fn without_its_data_folder_nothing_is_accepted_until_it_is_back() {
    let receiver = upstream(|_| answer(200));
    let gateway = gateway(&yaml(&receiver.url())).start();
    let mut client = gateway.client();
    assert_eq!(client.send(&post("/any", b"before")).status, 200);
    let (data, away) = (gateway.dir().join("data"), gateway.dir().join("away"));

    fs::rename(&data, &away).unwrap();
    let why = wait_for_ready(&gateway, 503);
    assert!(why.contains("cannot be written"), "{why}");
    let refused = gateway.client().send(&post("/any", b"moved"));
    assert_eq!(refused.status, 503, "{}", refused.text());
    wait_for_alert(&gateway);
    // Another folder of that name is not it.
    fs::create_dir(&data).unwrap();
    fs::write(data.join("lock"), "").unwrap();
    assert_eq!(gateway.client().send(&post("/any", b"replaced")).status, 503);
    fs::remove_dir_all(&data).unwrap();

    fs::rename(&away, &data).unwrap();
    wait_for_ready(&gateway, 200);
    assert_eq!(gateway.client().send(&post("/any", b"after")).status, 200);

    fs::remove_dir_all(&data).unwrap();
    wait_for_ready(&gateway, 503);
    assert_eq!(gateway.client().send(&post("/any", b"deleted")).status, 503);
    let log = gateway.stderr();
    assert!(log.contains("is no longer what it was") && log.contains("Put the folder back"), "{log}");
}

#[test]
fn an_empty_notebook_refuses_the_start() {
    let gateway_1 = gateway(&yaml("http://127.0.0.1:9")).start();
    assert_eq!(change(&gateway_1, "/api/v1/upstream", r#"{"paused":true}"#).status, 200);
    let dir = gateway_1.kill();
    let file = dir.path().join("data/upstream.json");
    assert!(fs::metadata(&file).unwrap().len() > 0);
    fs::write(&file, "").unwrap();
    let (status, said) = gateway(&yaml("http://127.0.0.1:9")).again_in(dir).try_start().err().unwrap();
    assert!(!status.success());
    assert!(said.contains("upstream.json is empty") && said.contains("remove the file"), "{said}");
}

#[test]
fn a_pause_ends_although_that_cannot_be_written() {
    let receiver = upstream(|_| answer(200));
    let gateway = gateway(&yaml(&receiver.url())).start();
    let all = [
        ("/api/v1/upstream", r#"{"paused":true}"#, r#"{"paused":false}"#, "upstream.new"),
        ("/api/v1/group?name=a", r#"{"paused":true}"#, r#"{"paused":false}"#, "overrides.new"),
        ("/api/v1/source?name=/any", r#"{"state":"paused"}"#, r#"{"state":"running"}"#, "sources.new"),
    ];
    for (path, pause, _, in_the_way) in all {
        assert_eq!(change(&gateway, path, pause).status, 200, "{path}");
        // As good as a full disk: what is written first is not written.
        fs::create_dir(gateway.dir().join("data").join(in_the_way)).unwrap();
    }
    assert_eq!(gateway.client().send(&post("/any", b"{}").header("X-Key", "a")).status, 200);
    for (path, pause, resume, _) in all {
        let resumed = change(&gateway, path, resume);
        assert_eq!(resumed.status, 200, "{path}: {}", resumed.text());
        assert!(resumed.text().contains("a restart brings it back"), "{path}: {}", resumed.text());
        assert_eq!(change(&gateway, path, pause).status, 503, "{path}: what begins must be written");
    }
    receiver.wait_for(1);
    assert!(gateway.stderr().contains("what was taken back holds"), "{}", gateway.stderr());
}
