//! What was fetched, what is on its way, and how many new addresses may still be asked for.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::Shared;

use super::{Fetching, Unfetched};
use crate::event::Mono;

/// Keys change every few months, and then have another address.
const FETCHED_FOR: Duration = Duration::from_hours(24);
/// What is not there may appear.
const NOT_THERE_FOR: Duration = Duration::from_mins(10);
/// A failure is the network's, and senders repeat.
const FAILED_FOR: Duration = Duration::from_secs(15);
/// New addresses within a minute, of each provider. It has one or two keys at a time; whoever names more only wants us to ask. An
/// address that had a key once is asked for again whatever strangers name.
const NEW_A_MINUTE: usize = 10;
const MINUTE: Duration = Duration::from_mins(1);
/// Addresses that are remembered: 4 MiB at the most.
const ADDRESSES_MAX: usize = 64;

type Result = std::result::Result<Bytes, Unfetched>;

/// What is remembered.
#[derive(Default)]
pub(super) struct Kept {
    entries: HashMap<String, Entry>,
    /// When the last new addresses were asked for, by provider. Only addresses of providers get here, so there are few.
    asked: HashMap<String, VecDeque<Mono>>,
}

enum Entry {
    OnItsWay(Shared<Fetching>),
    Known { result: Result, until: Mono },
}

/// What is to be done about an address.
pub(super) enum Asked {
    Known(Result),
    OnItsWay(Shared<Fetching>),
    New,
    TooMany,
}

impl Kept {
    pub(super) fn ask(&mut self, url: &str, now: Mono) -> Asked {
        match self.entries.get(url) {
            Some(Entry::OnItsWay(fetching)) => return Asked::OnItsWay(fetching.clone()),
            Some(Entry::Known { result, until }) if *until > now => return Asked::Known(result.clone()),
            Some(Entry::Known { result: Ok(_), .. }) => return Asked::New,
            Some(Entry::Known { .. }) | None => {}
        }
        let asked = self.asked.entry(provider(url)).or_default();
        while asked.front().is_some_and(|at| now.since(*at) >= MINUTE) {
            asked.pop_front();
        }
        if asked.len() >= NEW_A_MINUTE {
            return Asked::TooMany;
        }
        asked.push_back(now);
        Asked::New
    }

    pub(super) fn on_its_way(&mut self, url: &str, fetching: Shared<Fetching>) {
        self.make_room();
        self.entries.insert(url.to_owned(), Entry::OnItsWay(fetching));
    }

    pub(super) fn known(&mut self, url: &str, result: Result, now: Mono) {
        let span = match &result {
            Ok(_) => FETCHED_FOR,
            Err(Unfetched::NotThere { .. }) => NOT_THERE_FOR,
            Err(Unfetched::Failed(_)) => FAILED_FOR,
        };
        self.entries.insert(url.to_owned(), Entry::Known { result, until: now.plus(span) });
    }

    /// What ends first goes first; what is on its way is bounded by its timeout.
    fn make_room(&mut self) {
        if self.entries.len() < ADDRESSES_MAX {
            return;
        }
        let ends = |entry: &Entry| if let Entry::Known { until, .. } = entry { Some(*until) } else { None };
        let first = self.entries.iter().filter_map(|(url, entry)| Some((ends(entry)?, url.clone()))).min();
        if let Some((_, url)) = first {
            self.entries.remove(&url);
        }
    }
}

/// Whose address it is: the name before the top of its domain, `paypal` of `https://api.paypal.com/v1`.
fn provider(url: &str) -> String {
    let host = url.split("://").nth(1).unwrap_or(url).split(['/', ':', '?']).next().unwrap_or_default();
    host.rsplit('.').nth(1).unwrap_or(host).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok() -> Result {
        Ok(Bytes::from_static(b"key"))
    }

    #[test]
    fn few_new_addresses_a_minute_and_known_ones_always() {
        let mut kept = Kept::default();
        let now = Mono(1_000_000_000);
        kept.known("own", ok(), now);
        let url = |n: &u32| format!("https://keys.example/{n}");
        let new = (0..100).filter(|n| matches!(kept.ask(&url(n), now), Asked::New)).count();
        assert_eq!(new, NEW_A_MINUTE);
        assert!(matches!(kept.ask("own", now), Asked::Known(Ok(_))));
        assert!(matches!(kept.ask("own", now.plus(FETCHED_FOR)), Asked::New), "a day later it is asked for again");
        assert!(matches!(kept.ask(&url(&100), now.plus(MINUTE)), Asked::New));
    }

    #[test]
    fn strangers_use_up_neither_another_providers_addresses_nor_the_renewal_of_a_key() {
        let mut kept = Kept::default();
        let (now, url) = (Mono(1_000_000_000), |name: &str| format!("https://api.paypal.com/v1/{name}"));
        kept.known(&url("own"), ok(), now);
        let later = now.plus(FETCHED_FOR);
        let new = (0..100).filter(|n| matches!(kept.ask(&url(&n.to_string()), later), Asked::New)).count();
        assert_eq!(new, NEW_A_MINUTE);
        assert!(matches!(kept.ask(&url("own"), later), Asked::New));
        assert!(matches!(kept.ask("https://sns.us-east-1.amazonaws.com/a.pem", later), Asked::New));
    }

    #[test]
    fn failures_are_remembered_for_a_shorter_time() {
        let mut kept = Kept::default();
        let now = Mono(1_000_000_000);
        kept.known("a", Err(Unfetched::Failed("x".to_owned())), now);
        assert!(matches!(kept.ask("a", now.plus(FAILED_FOR - Duration::from_micros(1))), Asked::Known(Err(_))));
        assert!(matches!(kept.ask("a", now.plus(FAILED_FOR)), Asked::New));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_lasting_ones_stay() {
        let mut kept = Kept::default();
        let now = Mono(1_000_000_000);
        kept.known("own", ok(), now);
        for n in 0..1_000 {
            let url = n.to_string();
            kept.make_room();
            kept.known(&url, Err(Unfetched::Failed("x".to_owned())), now);
        }
        assert!(kept.entries.len() <= ADDRESSES_MAX);
        assert!(kept.entries.contains_key("own"));
    }
}
