//! What a disk can do to a running gateway, through the real binary: slow and hanging syncs, failed syncs, writes and reads, a full disk, a
//! file system that becomes read-only. The faults are those of `tests/support/faults.c` beneath the process, and once a real ext4 on
//! a loop device that the kernel shuts down. (A real full disk: `tests/full_disk.rs`; damage: `tests/restart.rs`.)
//!
//! In each: what senders are told, that everything answered 200 is delivered, that nothing comes twice without need, and that it goes
//! on by itself, or says what has to be done.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use support::faults::{EIO, ENOSPC, EROFS, Faults};
use support::upstream::{Upstream, answer, upstream};
use support::{Client, Gateway, Response, gateway, get, post};
use tempfile::TempDir;

/// No test waits for so long.
const FOR_EVER: Duration = Duration::from_secs(100_000);

/// A gateway, the disk beneath it, and a receiver that answers when it may.
struct World {
    faults: Faults,
    receiver: Upstream,
    gate: Gate,
    yaml: String,
    gateway: Option<Gateway>,
}

/// What the receiver's answers wait for while it is closed.
#[derive(Clone)]
struct Gate(Arc<(Mutex<Before>, Condvar)>);

struct Before {
    is_open: bool,
    /// Requests that came to it.
    came: usize,
}

impl Gate {
    fn new() -> Self {
        Self(Arc::new((Mutex::new(Before { is_open: true, came: 0 }), Condvar::new())))
    }

    fn set(&self, is_open: bool) {
        self.0.0.lock().unwrap().is_open = is_open;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let mut before = self.0.0.lock().unwrap();
        before.came += 1;
        self.0.1.notify_all();
        drop(self.0.1.wait_while(before, |before| !before.is_open).unwrap());
    }

    fn wait_for(&self, came: usize) {
        drop(self.0.1.wait_while(self.0.0.lock().unwrap(), |before| before.came < came).unwrap());
    }
}

impl World {
    fn new() -> Self {
        let gate = Gate::new();
        let behind = gate.clone();
        let receiver = upstream(move |_| {
            behind.pass();
            answer(200)
        });
        let yaml = format!(
            "upstream: {{ url: \"{}\" }}\nsources: [{{ path: /any, verify: {{ provider: none }}, key: headers.x-key }}]\n\
             store: {{ embedded: {{ min_free: 0 }} }}\n",
            receiver.url()
        );
        let mut world = Self { faults: Faults::new(), receiver, gate, yaml, gateway: None };
        world.start(tempfile::tempdir().unwrap());
        world
    }

    fn start(&mut self, dir: TempDir) {
        let started = self.try_start(dir);
        started.expect("it starts");
    }

    fn try_start(&mut self, dir: TempDir) -> Result<(), String> {
        let wrapper = self.faults.wrapper(&dir.path().canonicalize().unwrap().join("data"));
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        let started = gateway(&self.yaml).again_in(dir).through(&wrapper).try_start();
        self.gateway = Some(started.map_err(|(status, error)| format!("{status}: {error}"))?);
        Ok(())
    }

    fn gateway(&self) -> &Gateway {
        self.gateway.as_ref().unwrap()
    }

    fn send(&self, body: &str) -> Response {
        send(&mut self.gateway().client(), body).expect("an answer")
    }

    /// Sends and gives the event's id.
    fn accepted(&self, body: &str) -> String {
        let response = self.send(body);
        assert_eq!(response.status, 200, "{}", response.text());
        response.header("fairlane-event-id").unwrap().to_owned()
    }

    fn ready(&self) -> Response {
        Client::to(self.gateway().admin).send(&get("/readyz"))
    }

    /// Waits until it is ready, or is not; what it says then.
    fn wait_for_ready(&self, status: u16) -> String {
        loop {
            let ready = self.ready();
            if ready.status == status {
                return ready.text();
            }
            std::thread::yield_now();
        }
    }

    fn wait_for_alert(&self) {
        while self.gateway().metric(r#"fairlane_alerts_firing{alert="store_failing"} "#) != Some(1.0) {
            std::thread::yield_now();
        }
    }

    /// How often each event came to the receiver.
    fn deliveries(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for request in self.receiver.received() {
            *counts.entry(request.header("fairlane-event-id").unwrap().to_owned()).or_default() += 1;
        }
        counts
    }

    /// Each of them was delivered, and came once.
    fn each_came_once(&self, ids: &[String]) {
        for id in ids {
            self.gateway().wait_for_status(id, "delivered");
        }
        let deliveries = self.deliveries();
        for id in ids {
            assert_eq!(deliveries.get(id), Some(&1), "{id}");
        }
        assert_eq!(self.gateway().metric("fairlane_invariant_violations_total "), Some(0.0));
    }
}

fn send(client: &mut Client, body: &str) -> Option<Response> {
    client.try_send(&post("/any", body.as_bytes()).header("x-key", body.len().to_string()))
}

/// Refused, with words for a person and a time for a program; sending it again is safe, for nothing was stored.
fn is_refused(response: &Response) {
    assert_eq!(response.status, 503, "{}", response.text());
    let after: u64 = response.header("retry-after").unwrap().parse().unwrap();
    assert!((5..=15).contains(&after), "{after}");
    assert!(response.text().contains("nothing was stored, please send it again"), "{}", response.text());
}

/// The one answer after which nobody knows.
fn is_unknown(response: &Response) {
    assert_eq!(response.status, 503, "{}", response.text());
    assert!(response.header("retry-after").is_some());
    assert!(response.text().contains("may or may not be stored"), "{}", response.text());
}

#[test]
fn syncs_that_take_two_seconds_make_everybody_wait_and_lose_nothing() {
    let world = World::new();
    world.faults.delay_syncs(Duration::from_secs(2));
    let answers: Vec<Response> = std::thread::scope(|scope| {
        let senders = (0..12).map(|number| {
            let world = &world;
            scope.spawn(move || (0..2).map(|turn| world.send(&format!("{number}-{turn}"))).collect::<Vec<_>>())
        });
        let senders: Vec<_> = senders.collect();
        assert_eq!(Client::to(world.gateway().admin).send(&get("/healthz")).status, 200);
        senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect()
    });
    world.faults.mend();
    let (accepted, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert!(accepted.len() > 1, "{} of 24", accepted.len());
    for answer in refused {
        // Who came when a batch had just begun waited for it and for his own: longer than senders are given.
        if answer.text().contains("may or may not") { is_unknown(answer) } else { is_refused(answer) }
    }
    let ids: Vec<String> = accepted.iter().map(|one| one.header("fairlane-event-id").unwrap().to_owned()).collect();
    world.each_came_once(&ids);
    assert!(world.deliveries().into_values().all(|count| count == 1), "also what nobody knew of came once at most");
    assert!(
        world.gateway().metric("fairlane_commit_seconds_sum ").unwrap() >= 2.0,
        "the metric says what they waited for"
    );
    world.accepted("fast again");
}

#[test]
fn a_sync_that_hangs_is_seen_by_everybody_and_over_when_the_disk_goes_on() {
    let world = World::new();
    world.accepted("before");
    world.faults.delay_syncs(FOR_EVER);
    is_unknown(&world.send("on its way"));
    let why = world.wait_for_ready(503);
    assert!(why.contains("on their way to the disk for"), "{why}");
    is_refused(&world.send("refused at once"));
    world.wait_for_alert();
    let status = world.gateway().json("/api/v1/status");
    assert_eq!(status["ready"], false);
    assert!(status["not_ready_reason"].as_str().unwrap().contains("on their way"), "{status}");
    assert_eq!(Client::to(world.gateway().admin).send(&get("/healthz")).status, 200, "the loop goes on");

    world.faults.mend();
    world.wait_for_ready(200);
    world.accepted("after");
    let all = world.receiver.wait_for(3);
    let mut bodies: Vec<String> = all.iter().map(|one| String::from_utf8(one.body.clone()).unwrap()).collect();
    bodies.sort();
    assert_eq!(
        bodies,
        ["after", "before", "on its way"],
        "what was on its way was stored, once; what was refused was not"
    );
}

#[test]
fn a_full_disk_refuses_and_goes_on_by_itself() {
    writes_fail_and_come_back(ENOSPC, "no room");
}

#[test]
fn a_file_system_that_is_read_only_for_a_while_refuses_and_goes_on_by_itself() {
    writes_fail_and_come_back(EROFS, "cannot be written");
}

fn writes_fail_and_come_back(error: i64, words: &str) {
    let mut world = World::new();
    world.gate.set(false);
    let mut ids: Vec<String> = (0..3).map(|number| world.accepted(&format!("in flight {number}"))).collect();
    world.gate.wait_for(3);
    world.faults.fail_writes(Some(error));
    for number in 0..3 {
        is_refused(&world.send(&format!("refused {number}")));
    }
    // Their attempts end while that cannot be written down.
    world.gate.set(true);
    let why = world.wait_for_ready(503);
    assert!(why.contains(words), "{why}");
    world.wait_for_alert();
    let status = world.gateway().json("/api/v1/status");
    assert!(status["not_ready_reason"].as_str().unwrap().contains(words), "{status}");
    let [_, failed, _] = world.faults.counts();
    assert!(failed >= 3, "{failed}");

    world.faults.mend();
    // Nobody sends: whoever asks whether it is ready would send nobody here otherwise.
    world.wait_for_ready(200);
    world.each_came_once(&ids);
    ids.push(world.accepted("after"));
    world.each_came_once(&ids);

    let dir = world.gateway.take().unwrap().kill();
    world.start(dir);
    ids.push(world.accepted("after a restart"));
    world.each_came_once(&ids);
    assert_eq!(world.deliveries().len(), ids.len(), "nothing that was refused was delivered");
    let log = world.gateway().stderr();
    assert!(!log.contains("were cut"), "what was written of the refused ones was taken away again: {log}");
}

#[test]
fn after_a_failed_sync_the_process_ends_and_starts_when_the_disk_works() {
    let (refused, ids, mut world, dir) = ended_by(|faults| faults.fail_syncs(Some(EIO)), "fdatasync failed");
    let error = world.try_start(dir_like(&dir)).unwrap_err();
    assert!(error.contains("exit status: 1") && error.contains("cannot"), "{error}");
    assert!(error.contains("Input/output error"), "{error}");
    world.faults.mend();
    world.start(dir);
    world.gate.set(true);
    world.each_came_once(&ids);
    // The sender was told that it may be stored. Its write went through.
    let others = world.deliveries().len() - ids.len();
    assert!(others <= usize::from(refused.is_none_or(|answer| answer.text().contains("may or may not"))), "{others}");
}

#[test]
fn after_a_failed_write_the_process_ends_and_starts_when_the_disk_works() {
    let (refused, ids, mut world, dir) = ended_by(|faults| faults.fail_writes(Some(EIO)), "cannot write to the log");
    assert!(refused.is_none_or(|answer| answer.text().contains("may or may not")));
    world.faults.mend();
    world.start(dir);
    world.gate.set(true);
    world.each_came_once(&ids);
    assert_eq!(world.deliveries().len(), ids.len(), "a half of a write is nothing");
}

/// A copy of a folder: a start that fails keeps none.
fn dir_like(dir: &TempDir) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    assert!(Command::new("cp").arg("-a").arg(dir.path().join("data")).arg(copy.path()).status().unwrap().success());
    copy
}

/// Events wait for the receiver; then the disk fails: what the next sender was answered, the ids of those events, and the folder that
/// the process left, which ended with these words.
fn ended_by(fail: impl Fn(&Faults), words: &str) -> (Option<Response>, Vec<String>, World, TempDir) {
    let mut world = World::new();
    let pause = world.gateway().change("PATCH", "/api/v1/upstream", r#"{"paused":true,"expires":"never"}"#);
    assert_eq!(pause.status, 200, "{}", pause.text());
    let ids: Vec<String> = (0..20).map(|number| world.accepted(&format!("waits {number}"))).collect();
    let mut client = world.gateway().client();
    fail(&world.faults);
    let refused = send(&mut client, "refused");
    if let Some(answer) = &refused {
        is_unknown(answer);
    }
    let (status, dir) = world.gateway.take().unwrap().ended();
    assert_eq!(status.code(), Some(1));
    let log = std::fs::read_to_string(dir.path().join("stderr")).unwrap();
    assert!(log.contains(words) && log.contains("a restart reads what is there"), "{log}");
    // Nothing holds the events back at the next start.
    std::fs::remove_file(dir.path().join("data/upstream.json")).unwrap();
    (refused, ids, world, dir)
}

#[test]
fn events_that_cannot_be_read_are_tried_again_later_and_nothing_is_given_up() {
    let mut world = World::new();
    world.yaml = world.yaml.replace("\" }", "\", retry: { backoff: { initial: 1s, factor: 1, max: 1s } } }");
    let dir = world.gateway.take().unwrap().kill();
    world.start(dir);
    let pause = world.gateway().change("PATCH", "/api/v1/upstream", r#"{"paused":true,"expires":"never"}"#);
    assert_eq!(pause.status, 200, "{}", pause.text());
    let ids: Vec<String> = (0..5).map(|number| world.accepted(&format!("waits {number}"))).collect();
    // After a restart they are on the disk alone.
    let dir = world.gateway.take().unwrap().kill();
    world.start(dir);
    world.faults.only_in_the_log(true);
    world.faults.fail_reads(Some(EIO));
    assert_eq!(world.gateway().change("PATCH", "/api/v1/upstream", r#"{"paused":false}"#).status, 200);
    // What is told of one event alone takes a read of the log, too.
    while world.gateway().events("status=retrying").len() < ids.len() {
        std::thread::yield_now();
    }
    for id in &ids {
        let body = world.gateway().get(&format!("/api/v1/events/{id}/body"));
        assert!(body.status >= 500 && body.text().contains("Input/output error"), "{}", body.text());
    }
    assert_eq!(world.receiver.count(), 0);
    world.faults.mend();
    world.each_came_once(&ids);
}

/// An ext4 in a file, mounted through a loop device; gone with it.
struct Loop {
    image: PathBuf,
    mounted: PathBuf,
}

impl Loop {
    fn mount(&self) -> bool {
        run("mount", &["-o".as_ref(), "loop".as_ref(), self.image.as_os_str(), self.mounted.as_os_str()])
    }

    fn unmount(&self) -> bool {
        run("umount", &[self.mounted.as_os_str()])
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        while run("mountpoint", &["-q".as_ref(), self.mounted.as_os_str()]) && self.unmount() {}
    }
}

fn run(program: &str, args: &[&std::ffi::OsStr]) -> bool {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let ran = Command::new(program).args(args).env("PATH", path).output();
    ran.is_ok_and(|output| output.status.success())
}

fn ext4(folder: &Path) -> Option<Loop> {
    let (image, mounted) = (folder.join("image"), folder.join("mounted"));
    std::fs::create_dir(&mounted).unwrap();
    std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    let made = Loop { image, mounted };
    let is_there = run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), made.image.as_os_str()]) && made.mount();
    is_there.then_some(made)
}

#[test]
fn a_real_file_system_that_the_kernel_shuts_down_loses_nothing_that_was_answered_200() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = ext4(folder.path()) else {
        eprintln!(
            "LEFT OUT: a real ext4 that is shut down: here nothing can be mounted (it takes root, a loop device and mkfs.ext4)"
        );
        return;
    };
    let data = disk.mounted.join("data");
    let receiver = upstream(|_| answer(200));
    let yaml = format!(
        "upstream: {{ url: \"{}\" }}\nsources: [{{ path: /any, verify: {{ provider: none }} }}]\nstore: {{ embedded: {{ min_free: 0 }} }}\n\
         admin: {{ token: of-this-test }}\n",
        receiver.url()
    );
    let start = |dir| gateway(&yaml).again_in(dir).with(&["--data", data.to_str().unwrap()]).try_start();
    let running = start(tempfile::tempdir().unwrap()).unwrap_or_else(|(_, error)| panic!("{error}"));
    let mut client = running.client();
    let mut accepted = Vec::new();
    for number in 0..50 {
        let response = send(&mut client, &format!("event {number}")).unwrap();
        assert_eq!(response.status, 200, "{}", response.text());
        accepted.push(response.header("fairlane-event-id").unwrap().to_owned());
    }
    // As the kernel does by itself after an error (errors=remount-ro).
    assert!(run("mount", &["-o".as_ref(), "remount,abort".as_ref(), disk.mounted.as_os_str()]));
    let refused = send(&mut client, "refused");
    assert!(refused.is_none_or(|answer| answer.status == 503));
    // It may stay and refuse, or end and say why; it depends on which call the kernel refuses first.
    running.signal("TERM");
    let (_, dir) = running.ended();
    let log = std::fs::read_to_string(dir.path().join("stderr")).unwrap();
    assert!(log.contains("Read-only file system") || log.contains("Input/output error"), "{log}");
    let Err((status, error)) = start(dir) else { panic!("it started on a file system that takes no writes") };
    assert_eq!(status.code(), Some(1));
    assert!(
        error.contains("read-only") || error.contains("Read-only") || error.contains("Input/output error"),
        "{error}"
    );

    assert!(disk.unmount() && disk.mount());
    let running = start(tempfile::tempdir().unwrap()).unwrap_or_else(|(_, error)| panic!("{error}"));
    let all = receiver.wait_until(|received| {
        accepted.iter().all(|id| received.iter().any(|one| one.header("fairlane-event-id") == Some(id)))
    });
    assert!(all.len() >= accepted.len());
    drop(running);
}
