//! What the operating system saw: each 2xx is written after an `fdatasync` that began after the event was written.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::collections::HashMap;

use support::{gateway, post};

const CALLS: &str = "trace=write,writev,pwrite64,pwritev,pwritev2,fdatasync,fsync,sendto,sendmsg";
const EVENTS: usize = 200;

/// One system call: when it began and ended, as places in the trace, and its text.
struct Call {
    name: String,
    began: usize,
    ended: usize,
    text: String,
}

/// Reads `strace -f` output, in which calls of several threads interrupt each other.
fn calls(trace: &str) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut open: HashMap<&str, (usize, String)> = HashMap::new();
    for (place, line) in trace.lines().enumerate() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(text) = rest.strip_suffix("<unfinished ...>") {
            open.insert(thread, (place, text.to_owned()));
        } else if rest.starts_with("<... ") {
            let Some((began, text)) = open.remove(thread) else { continue };
            calls.push(Call { name: text.split('(').next().unwrap().to_owned(), began, ended: place, text });
        } else if rest.contains('(') {
            let name = rest.split('(').next().unwrap().to_owned();
            calls.push(Call { name, began: place, ended: place, text: rest.to_owned() });
        }
    }
    calls
}

/// Whether each event (its marker and the id of its answer) was synced between its write and its answer.
fn check(trace: &str, events: &[(String, String)]) -> Result<usize, String> {
    let calls = calls(trace);
    let syncs: Vec<&Call> = calls.iter().filter(|c| c.name == "fdatasync" || c.name == "fsync").collect();
    for (marker, id) in events {
        let on_disk = |c: &&Call| c.name.contains("write") && c.text.contains(".seg") && c.text.contains(marker);
        let written = calls.iter().find(on_disk).ok_or_else(|| format!("no write of {marker} to the log was seen"))?;
        let answered = calls.iter().find(|c| c.text.contains("HTTP/1.1 200") && c.text.contains(id));
        let answered = answered.ok_or_else(|| format!("no answer with {id} was seen"))?;
        let between = |c: &&Call| c.began > written.ended && c.ended < answered.began && c.text.contains(".seg");
        if !syncs.iter().any(between) {
            return Err(format!("{marker}: its answer was written without an fdatasync after its write"));
        }
    }
    Ok(syncs.len())
}

/// Runs a gateway under strace and posts to it over several connections at a time.
fn traced(durability: &str) -> (String, Vec<(String, String)>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace");
    let yaml = format!(
        "upstream: http://127.0.0.1:9\nstore: {{ embedded: {{ durability: {durability} }} }}\n\
         sources: [{{ path: /any, verify: {{ provider: none }} }}]\n"
    );
    let strace = ["strace", "-f", "-y", "-s", "1000000", "-e", CALLS, "-o", file.to_str().unwrap()];
    let gateway = gateway(&yaml).through(&strace).start();
    let mut senders = Vec::new();
    for sender in 0..4 {
        let mut client = gateway.client();
        senders.push(std::thread::spawn(move || {
            let mut events = Vec::new();
            for number in 0..EVENTS / 4 {
                let marker = format!("marker-{sender}-{number}-end");
                let response = client.send(&post("/any", marker.as_bytes()));
                assert_eq!(response.status, 200);
                events.push((marker, response.header("fairlane-event-id").unwrap().to_owned()));
            }
            events
        }));
    }
    let events = senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect();
    let (_, _dir) = gateway.stop();
    (std::fs::read_to_string(file).unwrap(), events)
}

#[test]
fn each_2xx_follows_an_fdatasync_that_began_after_its_event_was_written() {
    let (trace, events) = traced("fsync");
    assert_eq!(events.len(), EVENTS);
    let syncs = check(&trace, &events).unwrap();
    println!("{EVENTS} events, {syncs} syncs seen in all");
}

#[test]
fn the_check_fails_where_durability_is_left_to_the_operating_system() {
    let (trace, events) = traced("os");
    let error = check(&trace, &events).unwrap_err();
    assert!(error.contains("without an fdatasync"), "{error}");
}

#[test]
fn after_a_failed_fdatasync_nobody_gets_a_2xx_and_the_process_ends_with_a_failure() {
    // The kernel's answer is replaced from the 30th sync on: some before it succeed.
    let inject =
        ["strace", "-f", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=30+"];
    let yaml = "upstream: http://127.0.0.1:9\nsources: [{ path: /any, verify: { provider: none } }]\n";
    let failing = gateway(yaml).through(&inject).start();
    let mut client = failing.client();
    let mut accepted = Vec::new();
    let refused = loop {
        match client.try_send(&post("/any", format!("event {}", accepted.len()).as_bytes())) {
            Some(answer) if answer.status == 200 => {
                accepted.push(answer.header("fairlane-event-id").unwrap().to_owned())
            }
            other => break other,
        }
    };
    // 503, or the process was gone before it could say so.
    assert!(refused.is_none_or(|answer| answer.status == 503));
    assert!(!accepted.is_empty(), "no sync succeeded, so nothing was shown");
    let (status, dir) = failing.ended();
    assert_eq!(status.code(), Some(1));
    let log = std::fs::read_to_string(dir.path().join("stderr")).unwrap();
    assert!(log.contains("fdatasync failed"), "{log}");

    let again = gateway(yaml).again_in(dir).start();
    for (number, id) in accepted.iter().enumerate() {
        assert_eq!(again.get(&format!("/api/v1/events/{id}/body")).body, format!("event {number}").as_bytes());
    }
}
