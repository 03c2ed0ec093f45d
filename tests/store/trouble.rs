//! The embedded store in trouble: a full disk, a failed sync, damage, a lost or half-written index, a second process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use fairlane::clock::Clock as _;
use fairlane::event::Seq;
use fairlane::store::doctor;
use fairlane::store::embedded::{Embedded, IndexFault, IndexFaults, IndexStep, Options};
use fairlane::store::{Durability, Error, LaneStore, Refusal, Status, Verdict};

use crate::power::settings;
use crate::site::{Site, populate};
use crate::snapshot::Snapshot;
use crate::world::{everything, lane, run};

/// The process dies before a commit to the index when there were this many.
fn dies_after(commits: i64) -> IndexFaults {
    let left = AtomicI64::new(commits);
    Arc::new(move |step| {
        (step == IndexStep::Commit && left.fetch_sub(1, Ordering::Relaxed) <= 0).then_some(IndexFault::Dies)
    })
}

#[test]
fn a_checkpoint_that_stops_at_any_commit_changes_no_answer() {
    for commits in 0..12 {
        run(async {
            let mut site = Site::new();
            let options =
                Options { index_faults: Some(dies_after(commits)), index_batch: 7, index_bulk: 20, ..site.options() };
            let store = site.open_with(options).unwrap();
            populate(&mut site, &store).await;
            let before = Snapshot::take(&store, 50).await;
            drop(store);
            // The next process takes the checkpoint in again, and dies in it too.
            let options = Options { index_faults: Some(dies_after(commits / 2)), index_batch: 5, ..site.options() };
            drop(site.open_with(options));
            let store = site.open();
            before.assert_same(&Snapshot::take(&store, 50).await, &format!("after {commits} commits"));
            store.checkpoint().unwrap();
            before.assert_same(&Snapshot::take(&store, 50).await, &format!("after {commits} commits, checkpointed"));
        });
    }
}

#[test]
fn an_index_that_is_lost_damaged_or_older_is_built_again() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 3] = [
        ("deleted", |index| std::fs::remove_dir_all(index).unwrap()),
        ("emptied files", |index| each_file(index, &|file| std::fs::write(file, []).unwrap())),
        ("flipped bytes", |index| {
            each_file(index, &|file| {
                let mut bytes = std::fs::read(file).unwrap();
                bytes.iter_mut().step_by(97).for_each(|byte| *byte ^= 0x55);
                std::fs::write(file, bytes).unwrap();
            });
        }),
    ];
    for (name, damage) in damages {
        run(async {
            let mut site = Site::new();
            let store = site.open();
            populate(&mut site, &store).await;
            let before = Snapshot::take(&store, 50).await;
            store.close().await.unwrap();
            drop(store);
            damage(&site.path().join("index"));
            let store = site.open();
            before.assert_same(&Snapshot::take(&store, 50).await, name);
        });
    }
    run(async {
        let mut site = Site::new();
        let store = site.open();
        populate(&mut site, &store).await;
        store.close().await.unwrap();
        drop(store);
        let (index, older) = (site.path().join("index"), site.dir.path().join("older"));
        copy_dir(&index, &older);
        let store = site.open();
        populate(&mut site, &store).await;
        let before = Snapshot::take(&store, 50).await;
        store.close().await.unwrap();
        drop(store);
        std::fs::remove_dir_all(&index).unwrap();
        std::fs::rename(&older, &index).unwrap();
        before.assert_same(&Snapshot::take(&site.open(), 50).await, "an older index");
    });
}

fn each_file(dir: &Path, act: &dyn Fn(&Path)) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { each_file(&path, act) } else { act(&path) }
    }
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_dir(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn damage_in_the_middle_is_an_error_with_its_place_and_the_doctor_finds_it() {
    run(async {
        let mut site = Site::new();
        let store = site.open();
        populate(&mut site, &store).await;
        drop(store);
        let report = doctor::examine(&site.path(), Arc::new(site.disk.clone())).unwrap();
        assert!(report.is_healthy(), "{:?}", report.damage);
        assert_eq!(report.accepted, 15);
        site.disk.damage(&site.segment(1), |bytes| bytes[100] ^= 1);
        let report = doctor::examine(&site.path(), Arc::new(site.disk.clone())).unwrap();
        assert_eq!(report.damage.len(), 1, "{report:?}");
        assert_eq!(report.damage[0].offset, 0);
        site.forget_all_but_the_log();
        match site.open_with(site.options()) {
            Err(Error::Corrupt(what)) => assert!(what.contains("00000001.seg at offset 0"), "{what}"),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("damage was skipped silently"),
        }
    });
}

/// The last batch of a segment has none behind it in its own file: the next segment tells.
#[test]
fn damage_at_the_end_of_a_segment_is_found_by_the_doctor_as_by_the_start() {
    run(async {
        let mut site = Site::new();
        let store = site.open();
        populate(&mut site, &store).await;
        drop(store);
        site.forget_all_but_the_log();
        assert!(doctor::examine(&site.path(), Arc::new(site.disk.clone())).unwrap().is_healthy());
        let path = site.segment(1);
        site.disk.damage(&path, |bytes| {
            let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
            bytes[last] ^= 0x10;
        });
        let damage = doctor::examine(&site.path(), Arc::new(site.disk.clone())).unwrap().damage;
        let Err(Error::Corrupt(what)) = site.open_with(site.options()) else { panic!("damage was skipped silently") };
        assert_eq!(damage.len(), 1, "{damage:?}");
        let place = format!("{} at offset {}", path.display(), damage[0].offset);
        assert!(damage[0].file == path.display().to_string() && what.contains(&place), "{what}: {damage:?}");
    });
}

/// Nothing stands before it that would tell, and what follows does not begin the log.
#[test]
fn a_first_segment_that_holds_nothing_any_more_is_found_by_the_doctor_as_by_the_start() {
    run(async {
        let mut site = Site::new();
        let store = site.open();
        populate(&mut site, &store).await;
        drop(store);
        site.forget_all_but_the_log();
        site.disk.damage(&site.segment(1), |bytes| bytes.fill(0x55));
        let damage = doctor::examine(&site.path(), Arc::new(site.disk.clone())).unwrap().damage;
        assert_eq!(damage.first().map(|damage| damage.offset), Some(0), "{damage:?}");
        assert!(matches!(site.open_with(site.options()), Err(Error::Corrupt(_))));
    });
}

/// Flips a bit in the last byte that was written to the log, and says in which segment that is.
fn damage_the_end(site: &Site, segments: &[u32]) -> PathBuf {
    let written = |number: &&u32| site.disk.bytes(&site.segment(**number)).unwrap().iter().any(|byte| *byte != 0);
    let path = site.segment(*segments.iter().rev().find(written).unwrap());
    site.disk.damage(&path, |bytes| {
        let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        bytes[last] ^= 0x10;
    });
    path
}

#[test]
fn a_last_batch_that_does_not_hold_is_named_by_the_doctor() {
    run(async {
        let mut site = Site::new();
        let store = site.open();
        populate(&mut site, &store).await;
        let segments = store.segments();
        drop(store);
        site.forget_all_but_the_log();
        let whole = doctor::examine(&site.path(), Arc::new(site.disk.clone())).unwrap();
        assert_eq!(whole.tail, None, "nothing lies behind the last batch");
        let path = damage_the_end(&site, &segments);
        let report = doctor::examine(&site.path(), Arc::new(site.disk.clone())).unwrap();
        assert!(report.is_healthy() && report.batches == whole.batches - 1, "{report:?}");
        let tail = report.tail.unwrap();
        assert_eq!(tail.file, path.display().to_string());
        let behind = &site.disk.bytes(&path).unwrap()[usize::try_from(tail.offset).unwrap()..];
        assert_eq!(tail.bytes, behind.iter().filter(|byte| **byte != 0).count() as u64);
    });
}

#[test]
fn a_log_that_ends_before_the_checkpoint_is_damaged_and_not_torn() {
    run(async {
        let mut site = Site::new();
        let store = site.open();
        populate(&mut site, &store).await;
        let segments = store.segments();
        store.close().await.unwrap();
        drop(store);
        assert!(doctor::examine(&site.path(), Arc::new(site.disk.clone())).unwrap().is_healthy());
        let path = damage_the_end(&site, &segments);
        let damage = doctor::examine(&site.path(), Arc::new(site.disk.clone())).unwrap().damage;
        assert_eq!(damage.len(), 1, "{damage:?}");
        assert_eq!(damage[0].file, path.display().to_string());
        let before = site.disk.bytes(&path);
        match site.open_with(site.options()) {
            Err(Error::Corrupt(what)) => {
                let place = format!("{} at offset {}", path.display(), damage[0].offset);
                assert!(what.contains(&place) && what.contains("restore a copy"), "{what}");
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("what was acknowledged was cut"),
        }
        assert_eq!(site.disk.bytes(&path), before, "nothing is changed");

        let os = settings(&site.path(), Durability::Os);
        let store = Embedded::open_with(os, Arc::clone(&site.clock) as _, site.options()).unwrap();
        assert!(store.usage().pending > 0, "with `durability: os` the rest goes on");
    });
}

#[test]
fn a_failed_sync_ends_all_writing_and_tells_why() {
    run(async {
        let mut site = Site::new();
        let store = site.open();
        let seqs = site.append(&store, "a", 2).await;
        site.disk.set_syncs(Some(0));
        let event = site.event("a", 10);
        assert!(matches!(store.append(vec![event.clone()]).await, Err(Error::Poisoned(_))));
        assert!(store.poisoned().await.contains("fdatasync failed"));
        site.disk.set_syncs(None);
        assert!(
            matches!(store.append(vec![event]).await, Err(Error::Poisoned(_))),
            "not even when it would work again"
        );
        let settle = store.settle(site.settlements(&seqs, &Verdict::Delivered)).await;
        assert!(matches!(settle, Err(Error::Poisoned(_))));
        assert_eq!(store.admits(&lane("a").group), Err(Refusal::Unavailable));
        assert!(store.read(seqs).await.unwrap().iter().all(Option::is_some), "reads go on");
    });
}

#[test]
fn what_a_failed_sync_left_behind_is_written_again_before_it_counts() {
    for seed in 0..32 {
        run(async {
            let mut site = Site::new();
            let store = site.open();
            site.append(&store, "a", 2).await;
            site.disk.set_syncs(Some(0));
            let lost = site.event("a", 300);
            assert!(matches!(store.append(vec![lost]).await, Err(Error::Poisoned(_))));
            drop(store);
            // The next process reads it as if it were on the disk, and so do those behind it.
            site.disk.set_syncs(None);
            let store = site.open();
            site.append(&store, "a", 2).await;
            let before = Snapshot::take(&store, 50).await;
            drop(store);
            site.disk = site.disk.cut(seed);
            before.assert_same(&Snapshot::take(&site.open(), 50).await, &format!("seed {seed}"));
        });
    }
}

#[test]
fn a_file_system_that_is_read_only_for_a_while_refuses_and_is_left_without_a_restart() {
    run(async {
        let mut site = Site::new();
        let store = site.open();
        let seqs = site.append(&store, "a", 3).await;
        site.disk.set_read_only(true);
        assert!(matches!(store.append(vec![site.event("a", 300)]).await, Err(Error::Unavailable(_))));
        assert_eq!(store.usage().failing, Some(Refusal::Unavailable));
        let settle = store.settle(site.settlements(&seqs, &Verdict::Delivered)).await;
        assert!(matches!(settle, Err(Error::Unavailable(_))), "nothing of it is written, so it may be repeated");
        store.upkeep().ok();
        assert_eq!(store.usage().failing, Some(Refusal::Unavailable), "it still is");
        site.disk.set_read_only(false);
        store.upkeep().unwrap();
        assert_eq!(store.usage().failing, None, "nobody has to send anything for that");
        site.settle(&store, &seqs, Verdict::Delivered).await;
        site.append(&store, "a", 1).await;
        let before = Snapshot::take(&store, 50).await;
        drop(store);
        site.forget_all_but_the_log();
        before.assert_same(&Snapshot::take(&site.open(), 50).await, "from the log alone");
    });
}

/// The wall clock is set by so many days.
fn set_by(site: &Site, days: i64) {
    let seconds = site.clock.now().wall.unix_s() + days * 86_400;
    site.clock.set_wall(fairlane::event::Wall::from_unix_s(seconds));
}

/// Upkeep and checkpoints over so many minutes: whatever is to be given up is gone then.
async fn keep_up(site: &mut Site, store: &Embedded, minutes: u32) {
    for _ in 0..minutes {
        store.upkeep().unwrap();
        // A checkpoint needs something to bring.
        site.append(store, "traffic", 1).await;
        store.checkpoint().unwrap();
        site.clock.advance(Duration::from_secs(60));
    }
}

#[test]
fn a_wrong_date_gives_up_no_history_until_it_has_held_for_ten_minutes() {
    run(async {
        let mut site = Site::new();
        let store = site.open();
        let seqs = site.append(&store, "a", 3).await;
        site.settle(&store, &seqs, Verdict::Delivered).await;
        let delivered = fairlane::store::Query { status: vec![Status::Delivered], ..everything(10) };
        let listed = async |store: &Embedded| store.list(delivered.clone()).await.unwrap().records.len();
        keep_up(&mut site, &store, 2).await;
        set_by(&site, 60);
        keep_up(&mut site, &store, 8).await;
        assert_eq!(listed(&store).await, 0, "past retention by this date");
        set_by(&site, -60);
        assert_eq!(listed(&store).await, 3, "and there all the same");

        set_by(&site, 60);
        keep_up(&mut site, &store, 15).await;
        set_by(&site, -60);
        assert_eq!(listed(&store).await, 0, "the clock has run evenly: it is believed");
    });
}

#[test]
fn a_full_disk_refuses_events_takes_settlements_and_is_left_without_a_restart() {
    run(async {
        let mut site = Site::new();
        let store = site.open();
        let seqs = site.append(&store, "a", 8).await;
        site.disk.set_space(Some(0));
        let mut refused = 0;
        for _ in 0..20 {
            let event = site.event("a", 300);
            match store.append(vec![event]).await {
                Ok(_) => assert_eq!(refused, 0, "room does not come back by itself"),
                Err(Error::Full(_)) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(refused > 5);
        site.settle(&store, &seqs, Verdict::Delivered).await;
        let full = Snapshot::take(&store, 50).await;
        site.disk.set_space(None);
        let more = site.append(&store, "a", 12).await;
        assert_eq!(more[0].0, full.records[0].seq.0 + 1, "a refused event takes no seq");
        let before = Snapshot::take(&store, 50).await;
        drop(store);
        site.forget_all_but_the_log();
        before.assert_same(&Snapshot::take(&site.open(), 50).await, "from the log alone");
    });
}

#[test]
fn a_write_that_stops_in_its_middle_leaves_nothing() {
    for fit in (0..400).step_by(23) {
        run(async {
            let mut site = Site::new();
            let store = site.open();
            site.append(&store, "a", 2).await;
            let before = Snapshot::take(&store, 50).await;
            site.disk.set_writes(Some(fit));
            let event = site.event("a", 300);
            assert!(matches!(store.append(vec![event]).await, Err(Error::Full(_))), "{fit} bytes fit");
            before.assert_same(&Snapshot::take(&store, 50).await, "nothing is left behind");
            let disk = site.disk.copy();
            site.disk.set_writes(None);
            site.append(&store, "a", 1).await;
            drop(store);
            site.disk = disk;
            before.assert_same(&Snapshot::take(&site.open(), 50).await, "nor found after a crash");
        });
    }
}

#[test]
fn segments_go_when_nothing_in_them_is_needed_and_nothing_comes_back() {
    run(async {
        let mut site = Site::new();
        let store = site.open();
        let keep = site.append(&store, "kept", 1).await;
        let mut seqs: Vec<Vec<Seq>> = Vec::new();
        for _ in 0..6 {
            let batch = site.append(&store, "a", 10).await;
            // Settled in later segments than they were accepted in.
            if let Some(before) = seqs.last().cloned() {
                site.settle(&store, &before, Verdict::Delivered).await;
            }
            seqs.push(batch);
        }
        site.settle(&store, &seqs[5], Verdict::Delivered).await;
        let many = store.segments().len();
        assert!(many > 6, "{many}");
        site.clock.advance(Duration::from_secs(9 * 86_400));
        for _ in 0..4 {
            store.upkeep().unwrap();
        }
        let left = store.segments();
        assert!(left.len() < 6, "{left:?} of {many}");
        assert!(!left.contains(&1), "the pending event of the first segment was copied forward: {left:?}");
        assert!(store.read(keep.clone()).await.unwrap()[0].is_some());
        let before = Snapshot::take(&store, 50).await;
        assert_eq!(before.records.len(), 1);
        drop(store);
        site.forget_all_but_the_log();
        let store = site.open();
        before.assert_same(&Snapshot::take(&store, 50).await, "from the log alone");
        assert_eq!(store.load(lane("a"), Seq(0), 100).await.unwrap(), [], "nothing is delivered again");
        let next = site.append(&store, "a", 1).await;
        assert!(next[0] > seqs[5][9], "no seq is given twice");
    });
}

#[test]
fn the_marks_give_up_history_then_refuse_the_largest_groups_then_everybody() {
    run(async {
        let mut site = Site::new();
        let settings =
            fairlane::store::embedded::Settings { min_free: 1_000_000, ..settings(&site.path(), Durability::Fsync) };
        let store = Embedded::open_with(settings, Arc::clone(&site.clock) as _, site.options()).unwrap();
        let old = site.append(&store, "old", 4).await;
        site.settle(&store, &old, Verdict::Delivered).await;
        site.clock.advance(Duration::from_secs(86_400));
        site.append(&store, "large", 9).await;
        site.append(&store, "small", 1).await;
        let (large, small) = (lane("large").group, lane("small").group);
        let admits = |store: &Embedded| (store.admits(&large), store.admits(&small));
        let delivered = || fairlane::store::Query { status: vec![Status::Delivered], ..everything(10) };

        site.disk.set_free(Some(2_500_000));
        store.upkeep().unwrap();
        assert_eq!(admits(&store), (Ok(()), Ok(())));
        assert_eq!(store.list(delivered()).await.unwrap().records.len(), 4);

        site.disk.set_free(Some(1_900_000));
        store.upkeep().unwrap();
        assert_eq!(admits(&store), (Ok(()), Ok(())));
        store.checkpoint().unwrap();
        store.upkeep().unwrap();
        assert_eq!(store.usage().history, 0, "the oldest delivered history goes first");

        site.disk.set_free(Some(1_400_000));
        store.upkeep().unwrap();
        assert_eq!(admits(&store), (Err(Refusal::GroupTooLarge), Ok(())));
        assert!(store.append(vec![site.event("small", 10)]).await.is_ok());

        site.disk.set_free(Some(900_000));
        store.upkeep().unwrap();
        assert_eq!(admits(&store), (Err(Refusal::Full), Err(Refusal::Full)));
        assert!(matches!(store.append(vec![site.event("small", 10)]).await, Err(Error::Full(_))));
        let waiting = store.load(lane("large"), Seq(0), 1).await.unwrap()[0].seq;
        site.settle(&store, &[waiting], Verdict::Delivered).await;

        site.disk.set_free(Some(5_000_000));
        store.upkeep().unwrap();
        assert_eq!(admits(&store), (Ok(()), Ok(())));
        assert!(store.append(vec![site.event("small", 10)]).await.is_ok());
    });
}

#[test]
fn a_second_process_and_a_directory_of_others_are_refused() {
    run(async {
        let site = Site::new();
        let store = site.open();
        match site.open_with(site.options()) {
            Err(Error::Locked(what)) => assert!(what.contains(&format!("process {}", std::process::id())), "{what}"),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("two at once"),
        }
        store.close().await.unwrap();
        drop(site.open());

        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("thesis.tex"), "no").unwrap();
        let opened = Embedded::open_with(
            settings(other.path(), Durability::Fsync),
            Arc::clone(&site.clock) as _,
            site.options(),
        );
        match opened {
            Err(Error::Unavailable(what)) => assert!(what.contains("thesis.tex"), "{what}"),
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("somebody else's directory was taken over"),
        }
    });
}

#[test]
fn what_is_stored_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    run(async {
        let site = Site::new();
        let options = Options { upkeep_every: None, segment_bytes: 4096, ..Options::default() };
        let store = site.open_with(options).unwrap();
        store.checkpoint().ok();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&site.path()), 0o700);
        for name in ["FORMAT", "lock", "log/00000001.seg"] {
            assert_eq!(mode(&site.path().join(name)), 0o600, "{name}");
        }
        assert_eq!(mode(&site.path().join("log")), 0o700);
    });
}
