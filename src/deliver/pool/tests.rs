//! The pool's promises: never none, nothing forgotten over a reload, and one address that is simply used.

use std::collections::HashSet;

use http::StatusCode;

use super::*;
use crate::clock::TestClock;
use crate::deliver::{Address, Health};

struct World {
    clock: Arc<TestClock>,
    metrics: Metrics,
}

impl World {
    fn new() -> Self {
        Self { clock: Arc::new(TestClock::at(Wall(0))), metrics: Metrics::new("fsync") }
    }

    fn pool(&self, settings: &Settings, before: Option<&Pool>) -> Pool {
        let clock: Arc<dyn Clock> = self.clock.clone();
        Pool::new(settings, before, clock, &self.metrics).unwrap()
    }
}

fn settings(urls: &[&str]) -> Settings {
    let addresses = urls.iter().map(|url| Address { url: url.parse().unwrap(), weight: 1 }).collect();
    Settings { addresses, ..Settings::to("http://unused".parse().unwrap()) }
}

fn group(name: &str) -> Group {
    Group::of(&[name])
}

/// Refuses everything at this address until it is out.
fn refuse(pool: &Pool, index: usize) {
    for _ in 0..pool.rules.failures {
        pool.ended(index, &group("a"), Outcome::Refused, "closed");
    }
}

fn picks(pool: &Pool, count: usize) -> Vec<usize> {
    (0..count).map(|_| pool.pick(&group("a"), &[]).unwrap().index).collect()
}

fn states(pool: &Pool) -> Vec<&'static str> {
    pool.views().iter().map(|view| view.state.as_str()).collect()
}

#[test]
fn an_address_that_is_out_is_not_picked_until_its_time_is_over() {
    let world = World::new();
    let pool = world.pool(&settings(&["http://a", "http://b/"]), None);
    refuse(&pool, 0);
    assert_eq!((picks(&pool, 10), states(&pool)), (vec![1; 10], vec!["ejected", "used"]));
    world.clock.advance(Duration::from_secs(5));
    assert_eq!(states(&pool), ["slow_start", "used"]);
    let back = picks(&pool, 110).iter().filter(|index| **index == 0).count();
    assert_eq!(back, 10, "a tenth of its weight against a whole one");
    let view = &pool.views()[0];
    assert_eq!(view.last_failure.as_ref().map(|(_, words)| &**words), Some("closed"));
    assert_eq!(pool.views()[1].address.as_ref(), "http://b");
}

#[test]
fn with_every_address_out_all_are_used() {
    let world = World::new();
    let pool = world.pool(&settings(&["http://a", "http://b"]), None);
    refuse(&pool, 0);
    refuse(&pool, 1);
    assert_eq!(states(&pool), ["ejected", "ejected"]);
    assert_eq!(picks(&pool, 10).into_iter().collect::<HashSet<_>>().len(), 2);
    // And an attempt that finds one of them closed goes on to the other.
    assert_eq!(pool.pick(&group("a"), &[0]).map(|pick| pick.index), Some(1));
    assert!(pool.pick(&group("a"), &[0, 1]).is_none());
}

#[test]
fn an_attempt_does_not_go_on_to_an_address_that_is_out_while_others_are_not() {
    let world = World::new();
    let pool = world.pool(&settings(&["http://a", "http://b"]), None);
    refuse(&pool, 0);
    assert!(pool.pick(&group("a"), &[1]).is_none());
}

#[test]
fn a_sticky_group_stays_at_home_leaves_it_when_it_is_out_and_comes_back() {
    let world = World::new();
    let pool = world.pool(&Settings { sticky: true, ..settings(&["http://a", "http://b", "http://c"]) }, None);
    let home = picks(&pool, 1)[0];
    assert_eq!(picks(&pool, 20), [home; 20]);
    refuse(&pool, home);
    let guest = picks(&pool, 1)[0];
    assert_ne!(guest, home);
    assert_eq!(picks(&pool, 20), [guest; 20]);
    world.clock.advance(Duration::from_secs(35));
    assert_eq!(picks(&pool, 20), [home; 20]);
}

#[test]
fn groups_come_back_one_after_the_other() {
    let world = World::new();
    let pool = world.pool(&Settings { sticky: true, ..settings(&["http://a", "http://b"]) }, None);
    let at_a = |pool: &Pool| -> HashSet<usize> {
        (0..400).filter(|n| pool.pick(&group(&n.to_string()), &[]).unwrap().index == 0).collect()
    };
    let all = at_a(&pool);
    refuse(&pool, 0);
    assert_eq!(at_a(&pool), HashSet::new());
    world.clock.advance(Duration::from_secs(5));
    let first = at_a(&pool);
    world.clock.advance(Duration::from_secs(15));
    let half = at_a(&pool);
    assert!(first.len() < all.len() / 4 && half.len() > all.len() / 3, "{} {} {}", first.len(), half.len(), all.len());
    assert!(first.is_subset(&half) && half.is_subset(&all) && half.len() < all.len(), "each moves once");
    world.clock.advance(Duration::from_secs(15));
    assert_eq!(at_a(&pool), all);
}

#[test]
fn a_reload_keeps_what_is_known_and_lets_new_addresses_grow() {
    let world = World::new();
    let before = world.pool(&settings(&["http://a", "http://b"]), None);
    refuse(&before, 0);
    let under_way = before.pick(&group("a"), &[]).unwrap();
    let after = world.pool(&settings(&["http://c", "http://b/", "http://a"]), Some(&before));
    assert_eq!(states(&after), ["slow_start", "used", "ejected"]);
    assert_eq!(after.views()[1].in_flight, 1, "attempts outlast the reload");
    drop(under_way);
    assert_eq!(after.views()[1].in_flight, 0);
}

#[test]
fn an_address_that_failed_its_checks_is_used_again_when_nobody_asks_any_more() {
    let world = World::new();
    let health = Health {
        path: "/up".parse().unwrap(),
        interval: Duration::from_secs(5),
        timeout: Duration::from_secs(2),
        failures: 2,
        successes: 1,
    };
    let watched = Settings { health: Some(health), ..settings(&["http://a", "http://b"]) };
    let before = world.pool(&watched, None);
    before.checked(0, Err("503".into()), false);
    assert_eq!(states(&before), ["unwell", "used"]);
    let again = world.pool(&watched, Some(&before));
    again.checked(0, Err("503".into()), true);
    assert_eq!(states(&again), ["unwell", "used"], "the first of two bad answers after a reload is no good one");
    again.checked(0, Ok(()), true);
    assert_eq!(states(&again), ["slow_start", "used"]);
    assert_eq!(states(&world.pool(&settings(&["http://a", "http://b"]), Some(&before))), ["slow_start", "used"]);
}

#[test]
fn a_poisoned_tenant_takes_no_address_from_the_others() {
    let world = World::new();
    let pool = world.pool(&settings(&["http://a", "http://b"]), None);
    let error = Outcome::Status(StatusCode::INTERNAL_SERVER_ERROR);
    for _ in 0..50 {
        pool.ended(0, &group("poisoned"), error, "500");
        pool.ended(1, &group("poisoned"), error, "500");
    }
    assert_eq!(states(&pool), ["used", "used"]);
    // But one that fails here and does well there is a witness.
    pool.ended(1, &group("poisoned"), Outcome::Delivered(StatusCode::OK), "");
    pool.ended(0, &group("poisoned"), error, "500");
    assert_eq!(states(&pool), ["ejected", "used"]);
}

#[test]
fn one_address_is_used_whatever_it_does() {
    let world = World::new();
    let pool = world.pool(&settings(&["http://a"]), None);
    refuse(&pool, 0);
    assert_eq!((picks(&pool, 3), states(&pool)), (vec![0; 3], vec!["used"]));
    assert!(pool.pick(&group("a"), &[0]).is_none());
}

#[test]
fn addresses_that_cannot_be_are_refused() {
    let world = World::new();
    let refused = |urls: &[&str]| {
        let clock: Arc<dyn Clock> = world.clock.clone();
        Pool::new(&settings(urls), None, clock, &world.metrics).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(refused(&[]).contains("at least one"));
    assert!(refused(&["http://a/x", "http://a/x/"]).contains("twice"));
    assert_eq!(refused(&["http://a/x", "http://a/y", "https://a/x"]), "");
}
