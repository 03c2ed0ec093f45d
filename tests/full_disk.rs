//! A real full disk: a small tmpfs of the gateway's own. Nothing acknowledged is lost, senders get 503, and it goes on by
//! itself when there is room again.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "what it took is worth a line")]

mod support;

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use support::{Client, Gateway, Response, gateway, get, post};

const TOKEN: &str = "a-token-of-the-test";
const BODY_BYTES: usize = 1_000_000;

fn yaml(data: &Path, min_free: &str) -> String {
    format!(
        "upstream: http://127.0.0.1:9\nadmin: {{ token: {TOKEN} }}\n\
         store: {{ embedded: {{ path: {}, min_free: {min_free} }} }}\n\
         sources: [{{ path: /any, verify: {{ provider: none }}, key: headers.x-key }}]\n",
        data.display()
    )
}

/// A gateway in a mount namespace of its own, in which `data` is a tmpfs of that many MiB.
fn start(data: &Path, mib: u32, min_free: &str) -> Gateway {
    let script = format!("mount -t tmpfs -o size={mib}m,mode=700 tmpfs '{}' && exec \"$@\"", data.display());
    // Without root, a user namespace gives the right to mount.
    let flags = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let wrapper = ["unshare", flags, "sh", "-c", &script, "sh"];
    gateway(&yaml(data, min_free)).through(&wrapper).with(&["--data", data.to_str().unwrap()]).start()
}

fn resize(gateway: &Gateway, data: &Path, mib: u32) {
    let process = gateway.child.id().to_string();
    let size = format!("remount,size={mib}m");
    let mut command = Command::new("nsenter");
    command.args(["-t", &process, "-m"]);
    if !rustix::process::geteuid().is_root() {
        command.arg("-U");
    }
    assert!(command.args(["mount", "-o", &size]).arg(data).status().unwrap().success());
}

fn body(number: usize) -> Vec<u8> {
    let mut body = vec![0; BODY_BYTES];
    body.iter_mut()
        .zip(0u32..)
        .for_each(|(byte, i)| *byte = (i.wrapping_mul(31).wrapping_add(number as u32) >> 3) as u8);
    body
}

fn send(client: &mut Client, number: usize, accepted: &mut HashMap<String, usize>) -> Response {
    let response = client.send(&post("/any", &body(number)).header("x-key", format!("shop-{}", number % 3)));
    if response.status == 200 {
        accepted.insert(response.header("fairlane-event-id").unwrap().to_owned(), number);
    }
    response
}

fn check(gateway: &Gateway, accepted: &HashMap<String, usize>) {
    let mut client = Client::to(gateway.admin);
    let token = format!("Bearer {TOKEN}");
    for (id, number) in accepted {
        let stored = client.send(&get(&format!("/api/v1/events/{id}/body")).header("authorization", &token));
        assert_eq!(stored.status, 200, "{id} is lost: {}", stored.text());
        assert!(stored.body == body(*number), "{id}: the stored body differs");
    }
}

#[test]
fn a_full_disk_loses_nothing_and_recovers_by_itself() {
    // 0: no mark stands before the real end of space.
    fill("0", &[503]);
}

#[test]
fn the_marks_refuse_before_the_disk_is_full() {
    fill("20MiB", &[429, 503]);
}

fn fill(min_free: &str, refusals: &[u16]) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let gateway = start(&data, 200, min_free);
    let mut client = gateway.client();
    let mut accepted = HashMap::new();
    let mut refused = Vec::new();
    for number in 0..400 {
        let response = send(&mut client, number, &mut accepted);
        match response.status {
            200 => {}
            status => {
                assert!(refusals.contains(&status), "{status}: {}", response.text());
                assert!(response.header("retry-after").is_some());
                refused.push(status);
            }
        }
        if refused.len() >= 20 {
            break;
        }
    }
    assert_eq!(refused.len(), 20, "{} MB did not fill it", accepted.len());
    assert!(accepted.len() > 50, "only {} events of 1 MB fit 200 MiB", accepted.len());
    check(&gateway, &accepted);
    assert_eq!(Client::to(gateway.admin).send(&get("/healthz")).status, 200);

    resize(&gateway, &data, 400);
    while send(&mut client, 1_000, &mut accepted).status != 200 {
        std::thread::yield_now();
    }
    for number in 1_001..1_020 {
        assert_eq!(send(&mut client, number, &mut accepted).status, 200);
    }
    check(&gateway, &accepted);
    println!("{} events of 1 MB, {} refused while it was full", accepted.len(), refused.len());
}
