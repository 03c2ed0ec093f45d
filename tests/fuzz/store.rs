//! Stores: bytes of a log, a checkpoint or an index changed while nobody looked. Opening refuses with the place, or gives back what was there:
//! nothing but the end of the log may be missing, and nothing may be otherwise than it was. What `doctor` finds whole is whole.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fairlane::clock::{Clock as _, TestClock};
use fairlane::event::{Event, EventId, Fingerprint, Seq};
use fairlane::store::disk::sim::Sim;
use fairlane::store::embedded::{Embedded, Options, Settings};
use fairlane::store::{Durability, Error, LaneStore, Query, Settlement, Verdict, doctor};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use tempfile::TempDir;

use crate::world::{RETENTION, START, event, inner_lane, lane, note, run};
use crate::{each_seed, mutate};

/// Stores in an ordinary run: some seconds of a debug build.
const ROUNDS: u64 = 80;

/// What lengths, numbers and marks may be taken for.
const NASTY: &[&[u8]] = &[
    b"\0",
    &[0xFF; 4],
    &[0xFF; 9],
    &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F],
    &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01],
    &[0xFF, 0xFF, 0xFF, 0x7F],
    &[0, 0, 0, 0x40],
    b"FLB1",
    b"FLB2",
    &[0; 64],
];

/// A store that was closed, to be damaged again and again.
struct Site {
    dir: TempDir,
    /// What else lies in the directory, by path from it.
    files: BTreeMap<PathBuf, Vec<u8>>,
    disk: Sim,
    events: BTreeMap<EventId, Arc<Event>>,
    /// In the order in which they were appended, and how many of them the last batch of the log has.
    order: Vec<EventId>,
}

/// What was done to it.
#[derive(Debug, PartialEq)]
enum Damage {
    /// One bit of the log.
    Bit,
    /// More of the log, in one place.
    Log,
    /// The checkpoint, or a file of the index.
    Beside,
}

#[test]
fn no_damage_makes_it_panic_or_is_taken_for_what_was_written() {
    let sites = [Site::new(true), Site::new(false)];
    let mut opened = 0;
    let tried = each_seed(
        ROUNDS,
        |seed| {
            let mut random = SmallRng::seed_from_u64(seed);
            let site = sites.choose(&mut random).unwrap();
            site.round(&mut random)
        },
        |was_opened| opened += u64::from(was_opened),
    );
    println!("{tried} damaged stores, {opened} of them opened");
    assert!(tried < 60 || (opened > tried / 20 && opened < tried), "{opened} of {tried}");
}

fn options(disk: &Sim) -> Options {
    Options {
        disk: Arc::new(disk.clone()),
        segment_bytes: 4096,
        // Only as a test says.
        checkpoint_bytes: u64::MAX,
        checkpoint_entries: usize::MAX,
        checkpoint_after: Duration::from_secs(1_000_000),
        index_bulk: 10,
        upkeep_every: None,
        ..Options::default()
    }
}

impl Site {
    /// With a checkpoint, and some log behind it; or without one, all to be read again.
    fn new(with_checkpoint: bool) -> Self {
        // In memory where the system has such a place: files come and go by the thousand, and nothing has to outlast this.
        let shared = Path::new("/dev/shm");
        let dir = if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() }.unwrap();
        let mut site =
            Self { dir, files: BTreeMap::new(), disk: Sim::new(), events: BTreeMap::new(), order: Vec::new() };
        let clock = Arc::new(TestClock::at(START));
        run(async {
            let store = site.open(&site.disk).unwrap();
            site.live(&store, &clock).await;
            if with_checkpoint {
                store.checkpoint().unwrap();
                site.live(&store, &clock).await;
            }
            // Dropped as by a kill: closing would make a checkpoint.
        });
        site.files = read_tree(&site.path());
        site
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn open(&self, disk: &Sim) -> Result<Embedded, Error> {
        let settings = Settings {
            path: self.path(),
            durability: Durability::Fsync,
            max_bytes: None,
            min_free: 0,
            retention: RETENTION,
        };
        Embedded::open_with(settings, Arc::new(TestClock::at(START)), options(disk))
    }

    /// A dozen batches: events of three lanes, some repeats; attempts, ends, retries, requeues.
    async fn live(&mut self, store: &Embedded, clock: &TestClock) {
        for round in 0..12 {
            let now = clock.now().wall;
            let number = self.order.len() as u64;
            let lanes = [lane("a"), inner_lane("a", "x"), lane("b")];
            let batch: Vec<Arc<Event>> = (number..number + 1 + round % 4)
                .zip(lanes.iter().cycle())
                .map(|(number, lane)| {
                    let fingerprint =
                        (number % 5 == 0).then_some(Fingerprint { hash: [7; 16], window: Duration::from_secs(86_400) });
                    Arc::new(Event { fingerprint, ..event(number, lane, now) })
                })
                .collect();
            self.order.extend(batch.iter().map(|event| event.id));
            self.events.extend(batch.iter().map(|event| (event.id, Arc::clone(event))));
            let first = store.append(batch).await.unwrap().first;
            for (verdict, ends) in [(Verdict::Begun, false), (verdict_of(round, now), true)] {
                let attempt = ends.then(|| note(1, now));
                store.settle(vec![Settlement { seq: first, at: now, verdict, attempt }]).await.unwrap();
            }
            if round % 5 == 4 {
                store.requeue(vec![first], now).await.unwrap();
            }
        }
    }

    /// Damages it in one place, opens it and looks at everything; whether it opened.
    fn round(&self, random: &mut SmallRng) -> bool {
        write_tree(&self.path(), &self.files);
        let disk = self.disk.copy();
        let damage = self.damage(&disk, random);
        let report = doctor::examine(&self.path(), Arc::new(disk.copy()));
        let is_whole = report.as_ref().is_ok_and(|report| report.is_healthy() && report.tail.is_none());
        match self.open(&disk) {
            Ok(store) => {
                run(self.look(&store, &damage, is_whole));
                true
            }
            Err(Error::Corrupt(why) | Error::Unavailable(why)) => {
                assert!(!is_whole, "doctor finds nothing in what cannot be opened: {damage:?}: {why}");
                false
            }
            Err(other) => panic!("{damage:?}: {other}"),
        }
    }

    fn damage(&self, disk: &Sim, random: &mut SmallRng) -> Damage {
        let segments: Vec<PathBuf> = (1..)
            .map(|n| self.path().join(format!("log/{n:08}.seg")))
            .take_while(|path| disk.bytes(path).is_some())
            .collect();
        let segment = segments.choose(random).expect("there are segments");
        match random.random_range(0..5) {
            0 | 1 => {
                disk.damage(segment, |bytes| {
                    // Mostly where something is written.
                    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |at| at + 1);
                    let at = random.random_range(0..used);
                    bytes[at] ^= 1 << random.random_range(0..8);
                });
                Damage::Bit
            }
            2 | 3 => {
                let other = segments.choose(random).and_then(|path| disk.bytes(path)).unwrap_or_default();
                disk.damage(segment, |bytes| mutate::bytes(bytes, &other, NASTY, random));
                Damage::Log
            }
            _ => {
                let checkpoint = self.path().join("checkpoint");
                let index: Vec<&PathBuf> = self.files.keys().filter(|path| path.starts_with("index")).collect();
                match index.choose(random) {
                    Some(file) if random.random_range(0..3) > 0 => {
                        let mut bytes = self.files[*file].clone();
                        mutate::bytes(&mut bytes, &[], NASTY, random);
                        std::fs::write(self.path().join(file), bytes).unwrap();
                    }
                    _ => disk.damage(&checkpoint, |bytes| mutate::bytes(bytes, &[], NASTY, random)),
                }
                Damage::Beside
            }
        }
    }

    async fn look(&self, store: &Embedded, damage: &Damage, is_whole: bool) {
        let mut listed = Vec::new();
        let mut query = Query { limit: 50, oldest_first: true, ..Query::default() };
        loop {
            let page = match store.list(query.clone()).await {
                Ok(page) => page,
                Err(Error::Corrupt(_) | Error::Unavailable(_)) if !is_whole || *damage == Damage::Beside => return,
                Err(error) => panic!("{damage:?}: a list: {error}"),
            };
            listed.extend(page.records.into_iter().map(|record| (record.id, record.seq)));
            match page.next {
                Some(next) => query.behind = Some(next),
                None => break,
            }
        }
        self.only_the_end_is_missing(&listed, damage, is_whole);
        for (id, seq) in listed {
            match store.read(vec![seq]).await {
                Ok(mut events) => {
                    let event = events.remove(0);
                    assert!(
                        event.is_some_and(|event| *event == *self.events[&id]),
                        "{damage:?}: {id} is another event now"
                    );
                }
                Err(Error::Corrupt(_) | Error::Unavailable(_)) if !is_whole => {}
                Err(error) => panic!("{damage:?}: {id}: {error}"),
            }
        }
    }

    fn only_the_end_is_missing(&self, listed: &[(EventId, Seq)], damage: &Damage, is_whole: bool) {
        let there = |id: &EventId| listed.iter().any(|(listed, _)| listed == id);
        let missing = self.order.iter().filter(|id| !there(id)).count();
        let kept = self.order.len() - missing;
        assert!(self.order[..kept].iter().all(there), "{damage:?}: {missing} are missing, and not at the end");
        assert_eq!(listed.len(), kept, "{damage:?}: some are there twice, or were never stored");
        // A bit can take the last batch, which has no event after an append: its last settlement.
        let all = is_whole || *damage == Damage::Bit || *damage == Damage::Beside;
        assert!(!all || missing == 0, "{damage:?}: {missing} of {} are missing", self.order.len());
    }
}

fn verdict_of(round: u64, now: fairlane::event::Wall) -> Verdict {
    match round % 5 {
        0 => Verdict::Delivered,
        1 => Verdict::RetryAt(now.plus(Duration::from_secs(60))),
        2 => Verdict::Released,
        3 => Verdict::Discarded,
        _ => Verdict::Dead("no".into()),
    }
}

fn read_tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut open) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = open.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => open.push(path),
                false => drop(files.insert(path.strip_prefix(root).unwrap().to_owned(), std::fs::read(&path).unwrap())),
            }
        }
    }
    files
}

fn write_tree(root: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) {
    std::fs::remove_dir_all(root).ok();
    std::fs::create_dir_all(root).unwrap();
    for (path, bytes) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}
