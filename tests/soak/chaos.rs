//! What happens to the gateway of a soak, one thing after another, from a seed.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::SmallRng;

use crate::receiver::{Mood, Receiver};
use crate::senders::{GROUPS, Senders};
use crate::support::faults::{EIO, ENOSPC, EROFS, Faults};
use crate::support::{Gateway, gateway};
use tempfile::TempDir;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deed {
    Kill,
    Restart,
    WritesFail,
    SyncsFail,
    SlowDisk,
    FullDisk,
    ReadOnlyDisk,
    ReadsFail,
    Mood,
    Refuse,
    Reload,
    Pause,
    Weigh,
    SetClock,
}

impl Deed {
    const ENDING: [Self; 4] = [Self::Kill, Self::Restart, Self::WritesFail, Self::SyncsFail];
    const OTHERS: [Self; 10] = [
        Self::SlowDisk,
        Self::FullDisk,
        Self::ReadOnlyDisk,
        Self::ReadsFail,
        Self::Mood,
        Self::Refuse,
        Self::Reload,
        Self::Pause,
        Self::Weigh,
        Self::SetClock,
    ];
}

/// The gateway and all around it.
pub(crate) struct World {
    random: SmallRng,
    pub(crate) faults: Faults,
    pub(crate) receiver: Receiver,
    pub(crate) senders: Senders,
    gateway: Option<Gateway>,
    /// Another number in the file with each reload.
    burst_ms: u32,
    pub(crate) done: BTreeMap<Deed, u32>,
    pub(crate) slowest_start: Duration,
}

impl World {
    pub(crate) fn new(random: SmallRng, seed: u64) -> Self {
        let mut world = Self {
            random,
            faults: Faults::new(),
            receiver: Receiver::start(),
            senders: Senders::start(seed),
            gateway: None,
            burst_ms: 500,
            done: BTreeMap::new(),
            slowest_start: Duration::ZERO,
        };
        world.start(tempfile::tempdir().unwrap());
        world
    }

    pub(crate) fn gateway(&self) -> &Gateway {
        self.gateway.as_ref().unwrap()
    }

    fn yaml(&self, url: &str) -> String {
        format!(
            "upstream:\n  url: {url}\n  concurrency: 16\n  timeout: 1s\n  \
             breaker: {{ upstream: {{ open: 1s, open_max: 1s }}, group: {{ open: 1s, open_max: 1s }} }}\n  \
             retry: {{ backoff: {{ initial: 500ms, factor: 2, max: 2s }} }}\n\
             groups: {{ burst: {}ms }}\n\
             listen: {{ limits: {{ header_timeout: 2s, body_timeout: 2s }} }}\n\
             store: {{ embedded: {{ min_free: 0 }} }}\n\
             sources:\n  - {{ path: /any, verify: {{ provider: none }}, key: headers.x-key }}\n",
            self.burst_ms
        )
    }

    fn start(&mut self, dir: TempDir) {
        let wrapper = self.faults.wrapper(&dir.path().canonicalize().unwrap().join("data"));
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        let builder = gateway(&self.yaml(&self.receiver.upstream.url())).again_in(dir).through(&wrapper);
        let from = crate::now();
        let gateway = builder.start();
        self.slowest_start = self.slowest_start.max(crate::now() - from);
        self.senders.send_to(Some(gateway.address));
        self.gateway = Some(gateway);
    }

    /// One process ends, in its way, and the next begins on a disk that works.
    fn next_life(&mut self, end: impl FnOnce(Gateway) -> TempDir) {
        self.senders.send_to(None);
        let dir = end(self.gateway.take().unwrap());
        self.faults.mend();
        self.start(dir);
    }

    /// Dies of its own disk: it says so, and exits with 1.
    fn die(&mut self) {
        let gateway = self.gateway.take().unwrap();
        let (status, dir) = gateway.ended();
        let log = std::fs::read_to_string(dir.path().join("stderr")).unwrap();
        assert_eq!(status.code(), Some(1), "{log}");
        assert!(log.contains("the store failed"), "{log}");
        self.senders.send_to(None);
        self.faults.mend();
        self.start(dir);
    }

    /// Whatever was wrong before is over; then something happens. `endings`: it may be the process's end.
    pub(crate) fn next(&mut self, endings: bool) {
        self.mend();
        let deeds: Vec<Deed> = Deed::OTHERS.into_iter().chain(Deed::ENDING.into_iter().filter(|_| endings)).collect();
        let deed = deeds[self.random.random_range(0..deeds.len())];
        *self.done.entry(deed).or_default() += 1;
        self.commit(deed);
    }

    fn commit(&mut self, deed: Deed) {
        match deed {
            Deed::Kill => self.next_life(Gateway::kill),
            Deed::Restart => self.next_life(|gateway| {
                let (status, dir) = gateway.stop();
                assert!(status.success(), "{status}");
                dir
            }),
            Deed::WritesFail => {
                self.faults.fail_writes(Some(EIO));
                self.die();
            }
            Deed::SyncsFail => {
                self.faults.fail_syncs(Some(EIO));
                self.die();
            }
            Deed::SlowDisk => self.faults.delay_syncs(Duration::from_millis(self.random.random_range(20..2_000))),
            Deed::FullDisk => self.faults.fail_writes(Some(ENOSPC)),
            Deed::ReadOnlyDisk => self.faults.fail_writes(Some(EROFS)),
            Deed::ReadsFail => {
                self.faults.only_in_the_log(true);
                self.faults.fail_reads(Some(EIO));
            }
            Deed::Mood => self.receiver.feel(Mood::ALL[self.random.random_range(1..Mood::ALL.len())]),
            Deed::Refuse => self.reload("http://127.0.0.1:9"),
            Deed::Reload => {
                self.burst_ms = self.random.random_range(100..900);
                self.reload(&self.receiver.upstream.url());
            }
            Deed::Pause => {
                let group = self.random.random_range(0..GROUPS);
                self.change(&format!("/api/v1/group?name=shop-{group}"), r#"{"paused":true,"expires":"3s"}"#);
            }
            Deed::Weigh => {
                let (group, weight) = (self.random.random_range(0..GROUPS), self.random.random_range(1..9));
                let body = format!(r#"{{"weight":{weight},"concurrency":{weight}}}"#);
                self.change(&format!("/api/v1/group?name=shop-{group}"), &body);
            }
            Deed::SetClock => self.faults.set_clock_by(self.random.random_range(-6..=6) * 3_600),
        }
    }

    pub(crate) fn mend(&mut self) {
        self.faults.mend();
        self.faults.only_in_the_log(false);
        self.receiver.feel(Mood::Well);
        if self.gateway().config_has("127.0.0.1:9\n") {
            self.reload(&self.receiver.upstream.url());
        }
    }

    /// Everything is as it should be, clock and pauses included, and nobody sends any more.
    pub(crate) fn calm(&mut self) {
        self.mend();
        self.faults.set_clock_by(0);
        self.senders.stop();
        for group in 0..GROUPS {
            self.change(&format!("/api/v1/group?name=shop-{group}"), r#"{"paused":false}"#);
        }
    }

    pub(crate) fn kill_once_more(&mut self) {
        self.next_life(Gateway::kill);
    }

    fn reload(&self, url: &str) {
        std::fs::write(self.gateway().config(), self.yaml(url)).unwrap();
        self.gateway().signal("HUP");
    }

    /// It may be refused: a change is written down, and there may be no room for that.
    fn change(&self, path: &str, body: &str) {
        let answer = self.gateway().change("PATCH", path, body);
        assert!(matches!(answer.status, 200 | 500 | 503 | 507), "{}: {}", answer.status, answer.text());
    }

    /// It is not to end by itself.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.gateway.as_mut().is_some_and(|gateway| gateway.child.try_wait().unwrap().is_none())
    }
}

impl Gateway {
    fn config_has(&self, words: &str) -> bool {
        std::fs::read_to_string(self.config()).unwrap().contains(words)
    }
}
