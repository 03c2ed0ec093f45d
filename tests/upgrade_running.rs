//! `fairlane run --upgrade` through the real binary: one process takes the place of another under load, and whatever goes wrong on the way
//! leaves somebody who serves.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
#![expect(clippy::panic, reason = "likewise")]
#![expect(clippy::print_stdout, reason = "the pauses, and the logs of what failed")]

#[path = "upgrade_running/nodes.rs"]
mod nodes;
#[path = "upgrade_running/secure.rs"]
mod secure;
mod support;
#[path = "upgrade_running/world.rs"]
mod world;

use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::json;
use support::upstream::{Upstream, answer, upstream};
use support::{Client, SHOPIFY_SECRET, post};
use world::{Load, Place, Predecessor, Successor, send, waiting};

fn yaml(upstream: &Upstream, more: &str) -> String {
    format!(
        "upstream: {{ url: \"{}\", concurrency: 16, timeout: 20s, retry: {{ backoff: {{ initial: 10ms, max: 20ms }} }} }}\n\
         listen: {{ limits: {{ answer_timeout: 60s }} }}\n\
         sources:\n  - path: /webhooks/shopify\n    verify: {{ provider: shopify, secret: \"{SHOPIFY_SECRET}\" }}\n    order: body.key\n{more}",
        upstream.url()
    )
}

#[test]
fn ten_replacements_in_a_row_under_load_refuse_nobody_and_lose_nothing() {
    let receiver = upstream(|_| answer(200).after(Duration::from_millis(2)));
    let place = Place::new(&yaml(&receiver, ""));
    let mut running = place.start();
    let load = Load::start(running.address, 8);
    load.go_on(200);
    for _ in 0..10 {
        let next = place.replace();
        assert_eq!((next.address, next.admin), (running.address, running.admin));
        let before = std::mem::replace(&mut running, next);
        assert_eq!(before.ended().code(), Some(0));
        load.go_on(100);
    }
    let sent = load.end();
    assert_eq!(sent.came_to(&receiver), 0, "an attempt that had ended was made again");
    println!("ten replacements, {} crossed, longest pause {:?}", sent.crossed, sent.longest);
    let status = running.json("/api/v1/status");
    assert_eq!(status["draining"], false, "{status}");
}

#[test]
fn what_cannot_run_leaves_the_one_that_runs_as_it_is() {
    let receiver = upstream(|_| answer(200));
    let text = yaml(&receiver, "");
    let place = Place::new(&text);
    let running = place.start();
    send(running.address, "a", 1);
    let data = place.data();

    let elsewhere = TempFile::new(&place, "other.yaml", &text.replace("shopify,", "shopfy,"));
    let (code, told) = place.refused(&["-c", &elsewhere.path]);
    assert_eq!(code, Some(78), "{told}");
    assert!(told.contains("did you mean \"shopify\"?"), "{told}");

    let certificate = TempFile::new(
        &place,
        "tls.yaml",
        &format!("{text}admin: {{ address: 127.0.0.1:0 }}\n")
            .replace("listen: {", "listen: { tls: { cert: /nonexistent/tls.crt, key: /nonexistent/tls.key },"),
    );
    let (code, told) = place.refused(&["-c", &certificate.path]);
    assert!(code != Some(0) && told.contains("/nonexistent/tls.crt"), "{told}");

    // An address that somebody else has: found before anything is asked for.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, told) = place.refused(&["--listen", &taken.local_addr().unwrap().to_string()]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains(&format!("process {} goes on as before", running.child.id())), "{told}");

    // A store that this version does not read, as after a step back.
    let format = std::fs::read_to_string(data.join("FORMAT")).unwrap();
    std::fs::write(data.join("FORMAT"), format.replacen("store ", "store 9", 1)).unwrap();
    let (code, told) = place.refused(&[]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("written by a newer fairlane"), "{told}");
    std::fs::write(data.join("FORMAT"), format).unwrap();

    // What people changed cannot be read.
    std::fs::write(data.join("sources.json"), "no JSON").unwrap();
    let (code, told) = place.refused(&[]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("sources.json"), "{told}");
    std::fs::remove_file(data.join("sources.json")).unwrap();

    // One of a version that offers nothing, or where there are no sockets.
    let (socket, away) = (data.join("upgrade.sock"), data.join("away"));
    std::fs::rename(&socket, &away).unwrap();
    let (code, told) = place.refused(&[]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("offers no sockets") && told.contains(&format!("process {}", running.child.id())), "{told}");
    std::fs::rename(&away, &socket).unwrap();

    // None of it was noticed; and nothing is left of it that would keep the right one away.
    let log = running.log();
    assert!(!log.contains("successor"), "{log}");
    send(running.address, "a", 2);
    receiver.wait_for(2);
    let next = place.replace();
    assert_eq!(running.ended().code(), Some(0));
    send(next.address, "a", 3);
    receiver.wait_for(3);
}

/// A file beside the configuration.
struct TempFile {
    path: String,
}

impl TempFile {
    fn new(place: &Place, name: &str, text: &str) -> Self {
        let path = place.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        Self { path: path.to_str().unwrap().to_owned() }
    }
}

#[test]
fn a_successor_that_is_killed_before_the_store_is_free_changes_nothing() {
    let slow = upstream(|received| {
        let waits = received.body.windows(6).any(|part| part == b"\"slow\"");
        answer(200).after(if waits { Duration::from_secs(2) } else { Duration::ZERO })
    });
    let place = Place::new(&yaml(&slow, ""));
    let running = place.start();
    let held = send(running.address, "slow", 1);
    slow.wait_for(1);
    // It waits for the attempt that is under way.
    let (mut command, _) = place.command(&["--upgrade"]);
    let mut next = command.spawn().unwrap();
    running.wait_for_log("a successor is ready");
    let meanwhile = send(running.address, "quick", 1);
    next.kill().unwrap();
    next.wait().unwrap();
    running.wait_for_log("the successor went away");
    for id in [&held, &meanwhile, &send(running.address, "quick", 2)] {
        let event = running.wait_for_status(id, "delivered");
        assert_eq!(event["attempts"], 1, "{event}");
    }
    let mut client = running.client();
    assert_eq!(client.send(&post("/nowhere", b"")).header("connection"), None, "connections are kept again");
}

#[test]
fn a_successor_that_dies_with_the_store_in_its_hands_gives_everything_back() {
    let receiver = upstream(|_| answer(200));
    let place = Place::new(&yaml(&receiver, ""));
    let running = place.start();
    for round in 0..3 {
        let before = send(running.address, "a", 10 * round);
        running.wait_for_status(&before, "delivered");
        let successor = Successor::take(&place);
        // The store is nobody's: whoever comes waits, and is neither refused nor answered.
        let mut client = waiting(running.address, "a", 10 * round + 1);
        client.stream.get_ref().set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        assert!(client.receive().is_none());
        drop(successor);
        let mut again = waiting(running.address, "a", 10 * round + 2);
        assert_eq!(again.receive().unwrap().status, 200);
        client.stream.get_ref().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        assert_eq!(client.receive().unwrap().status, 200);
    }
    assert_eq!(running.log().matches("takes its sockets back").count(), 3, "{}", running.log());
    receiver.wait_for(9);
    // And it can still be replaced.
    let next = place.replace();
    assert_eq!(running.ended().code(), Some(0));
    send(next.address, "a", 100);
    receiver.wait_for(10);
}

#[test]
fn under_load_successors_that_die_at_any_moment_lose_nothing() {
    let receiver = upstream(|_| answer(200).after(Duration::from_millis(2)));
    let place = Place::new(&yaml(&receiver, ""));
    let running = place.start();
    let load = Load::start(running.address, 6);
    for round in 0..6 {
        load.go_on(100);
        let mut successor = Successor::to(&place);
        successor.say(&json!({ "word": "hello", "protocol": 1, "version": "0.0.0" }));
        if round % 3 > 0 {
            successor.hear();
            successor.say(&json!({ "word": "go" }));
        }
        if round % 3 > 1 {
            successor.hear();
        }
    }
    load.go_on(100);
    let sent = load.end();
    assert_eq!(sent.came_to(&receiver), 0);
    drop(running);
}

#[test]
fn versions_that_differ_understand_each_other_and_say_when_they_do_not() {
    let receiver = upstream(|_| answer(200));
    let place = Place::new(&yaml(&receiver, ""));
    let running = place.start();
    let mut later = Successor::to(&place);
    later.say(&json!({ "word": "hello", "protocol": 2, "version": "99.0.0" }));
    let refused = later.hear();
    assert_eq!(refused["word"], "refused");
    assert!(refused["why"].as_str().unwrap().contains("protocol 1"), "{refused}");
    // One that comes while another is at it is told so.
    let first = Successor::take(&place);
    let mut second = Successor::to(&place);
    second.say(&json!({ "word": "hello", "protocol": 1, "version": "99.0.0" }));
    assert!(second.hear()["why"].as_str().unwrap().contains("another process"));
    drop((first, second));
    running.wait_for_log("99.0.0");
    send(running.address, "a", 1);
    drop(running);

    // An earlier one gives way to this one.
    let elsewhere = Place::new(&yaml(&receiver, ""));
    let predecessor = Predecessor::in_folder(&elsewhere.data());
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let (next, (hello, mut stream)) = std::thread::scope(|scope| {
        let next = scope.spawn(|| elsewhere.replace());
        let given = predecessor.give_way(&socket);
        (next.join().unwrap(), given)
    });
    assert_eq!((&hello["protocol"], hello["version"].as_str()), (&json!(1), Some(env!("CARGO_PKG_VERSION"))));
    assert_eq!(next.address, socket.local_addr().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stream, &mut line).unwrap();
    assert_eq!(line, "{\"word\":\"serving\"}\n");
    send(next.address, "a", 2);
}

#[test]
fn an_attempt_that_outlasts_the_drain_is_ended_and_made_again() {
    let receiver = upstream(|_| answer(200).after(Duration::from_secs(15)));
    let place = Place::new(&yaml(&receiver, "shutdown: { drain: 1s }\n"));
    let running = place.start();
    let slow = send(running.address, "a", 1);
    receiver.wait_for(1);
    receiver.rule(|_| answer(200));
    let next = place.replace();
    assert_eq!(running.ended().code(), Some(0));
    let second = send(next.address, "a", 2);
    for (id, attempts) in [(&slow, 2), (&second, 1)] {
        let event = next.wait_for_status(id, "delivered");
        assert_eq!(event["attempts"], attempts, "{event}");
    }
    let attempts = next.json(&format!("/api/v1/events/{slow}/attempts"));
    assert_eq!(attempts["attempts"][0]["outcome"], "cancelled", "{attempts}");
}

/// Requests that came to `/live`.
static LIVE: AtomicUsize = AtomicUsize::new(0);

#[test]
fn senders_that_wait_for_the_upstreams_answer_get_it_and_hold_up_nobody() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let opens = Arc::clone(&gate);
    let receiver = upstream(move |_| answer(200).body("relayed")).keeping(move |received| {
        // It answers when the test says so.
        if received.target == "/live" {
            LIVE.fetch_add(1, Ordering::SeqCst);
            drop(opens.1.wait_while(opens.0.lock().unwrap(), |open| !*open).unwrap());
        }
        true
    });
    let live = "  - path: /live\n    verify: { provider: none }\n    key: const:live\n    respond: upstream\n\
                groups: { defaults: { concurrency: 1 } }\n";
    let place = Place::new(&yaml(&receiver, live));
    let running = place.start();
    let mut first = running.client();
    first.write(&post("/live", b"{}").bytes()).unwrap();
    while LIVE.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    // This one waits for its turn: its group may have one attempt at a time.
    let mut second = running.client();
    second.write(&post("/live", b"{}").bytes()).unwrap();
    while running.json("/api/v1/group?name=live")["live"] != 1 {
        std::thread::yield_now();
    }
    let next = place.replace();
    send(next.address, "a", 1);
    receiver.wait_for(1);
    assert_eq!(LIVE.load(Ordering::SeqCst), 1, "the first has no answer yet, and the second no turn");
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    for client in [&mut first, &mut second] {
        let answer = client.receive().unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "relayed"));
        assert_eq!(answer.header("connection"), Some("close"));
    }
    assert_eq!(running.ended().code(), Some(0));
}

#[test]
fn a_request_whose_body_is_slow_is_taken_by_the_one_that_read_its_head() {
    let receiver = upstream(|_| answer(200));
    let text = yaml(&receiver, "shutdown: { drain: 1h }\n").replace("limits: {", "limits: { header_timeout: 1h,");
    let place = Place::new(&text);
    let running = place.start();
    // Nobody waits for one that says nothing.
    let _silent = running.client();
    let request = post("/webhooks/shopify", b"{\"key\":\"a\",\"number\":1}").shopify("a.myshopify.com").bytes();
    let (early, late) = request.split_at(request.len() - 5);
    let mut slow = running.client();
    slow.write(early).unwrap();
    // Its head was surely read once a later request is answered.
    send(running.address, "b", 1);
    let mut idle = running.client();
    assert_eq!(idle.send(&post("/nowhere", b"")).status, 404);
    let (next, answer) = std::thread::scope(|scope| {
        let next = scope.spawn(|| place.replace());
        running.wait_for_log("a successor is ready");
        // New senders are served meanwhile, and each is told to come back over another connection.
        let mut client = running.client();
        let other = client.send(&post("/webhooks/shopify", b"{\"key\":\"c\"}").shopify("c.myshopify.com"));
        assert_eq!((other.status, other.header("connection")), (200, Some("close")));
        assert!(idle.is_closed(), "a connection without a request is ended in order");
        slow.write(late).unwrap();
        let answer = slow.receive().unwrap();
        (next.join().unwrap(), answer)
    });
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert_eq!(running.ended().code(), Some(0));
    receiver.wait_for(3);
    drop(next);
}

#[test]
fn without_one_that_runs_it_starts_as_usual_and_a_new_address_is_bound() {
    let receiver = upstream(|_| answer(200));
    let place = Place::new(&yaml(&receiver, ""));
    let running = place.replace();
    running.wait_for_log("there is nothing to replace");
    send(running.address, "a", 1);
    // What is left of a process that was killed is nobody.
    running.signal("KILL");
    let (address, status) = (running.address, running.ended());
    assert!(!status.success());
    let again = place.run(&["--upgrade", "--listen", &address.to_string()]);
    again.wait_for_log("there is nothing to replace");
    // Another address is bound before the old one is given up.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let moved = place.run(&["--upgrade", "--listen", &free.to_string()]);
    assert_eq!(again.ended().code(), Some(0));
    assert_eq!(moved.address, free);
    send(free, "a", 2);
    assert!(std::net::TcpStream::connect(address).is_err(), "nobody listens there any more");
}

#[test]
fn only_its_own_user_may_replace_it() {
    if !rustix::process::geteuid().is_root() {
        println!("LEFT OUT: only root can be two users");
        return;
    }
    let receiver = upstream(|_| answer(200));
    let place = Place::new(&yaml(&receiver, ""));
    std::fs::create_dir(place.data()).unwrap();
    for path in [place.dir.path().to_owned(), place.data(), place.dir.path().join("gateway.yaml")] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let (mut command, log) = place.command(&[]);
    std::os::unix::process::CommandExt::uid(&mut command, NOBODY);
    let mut running = match command.spawn() {
        Ok(running) => running,
        Err(error) => return println!("LEFT OUT: another user cannot run the binary where it lies ({error})"),
    };
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(running.stdout.take().unwrap()), &mut line).unwrap();
    assert!(!line.is_empty(), "{}", std::fs::read_to_string(log).unwrap());
    let (code, told) = place.refused(&[]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("only its own user may replace") && told.contains(&NOBODY.to_string()), "{told}");
    assert!(running.try_wait().unwrap().is_none(), "it goes on");
    running.kill().unwrap();
    running.wait().unwrap();
}

const NOBODY: u32 = 65_534;

#[test]
fn a_supervisor_is_told_who_is_ready_and_who_is_next() {
    let receiver = upstream(|_| answer(200));
    let place = Place::new(&yaml(&receiver, ""));
    let notify = place.dir.path().join("notify");
    let supervisor = UnixDatagram::bind(&notify).unwrap();
    supervisor.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let hear = || {
        let mut bytes = [0; 200];
        let read = supervisor.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..read].to_vec()).unwrap()
    };
    let start = |arguments: &[&str]| {
        let (mut command, _) = place.command(arguments);
        command.env("NOTIFY_SOCKET", &notify).spawn().unwrap()
    };
    let mut first = start(&[]);
    assert_eq!(hear(), "READY=1");
    let mut second = start(&["--upgrade"]);
    assert_eq!(hear(), format!("MAINPID={}", second.id()));
    assert_eq!(first.wait().unwrap().code(), Some(0));
    assert!(Command::new("kill").arg(second.id().to_string()).status().unwrap().success());
    assert_eq!(hear(), "STOPPING=1");
    assert_eq!(second.wait().unwrap().code(), Some(0));
}

#[test]
fn detached_it_answers_when_it_serves() {
    let receiver = upstream(|_| answer(200));
    let text = yaml(&receiver, "");
    let place = Place::new(&text);
    let running = place.start();
    place.configure(&text.replace("shopify,", "shopfy,"));
    let (mut command, _) = place.command(&["--upgrade", "--detach"]);
    assert_eq!(command.output().unwrap().status.code(), Some(78));
    place.configure(&text);
    let (mut command, _) = place.command(&["--upgrade", "--detach"]);
    let output = command.output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && told.contains(&format!("listening on http://{}", running.address)), "{told}");
    let process = told.rsplit_once("(process ").unwrap().1.trim().trim_end_matches(')').to_owned();
    let address = running.address;
    assert_eq!(running.ended().code(), Some(0));
    send(address, "a", 1);
    receiver.wait_for(1);
    assert!(Command::new("kill").arg(&process).status().unwrap().success());
    while Client::try_to(address).is_some() {
        std::thread::yield_now();
    }
}
