//! From the configuration to the settings of the engine, the deliverer and the driver.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use super::settings::Policy;
use super::value::Slot;
use super::{Config, Rate, scalar};
use crate::deliver::{Follows, Limit};
use crate::event::{Event, Wall};
use crate::listen::Source;
use crate::verify::{Again, Verifier};
use crate::{deliver, driver, engine};

/// The head start where a lease is charged as one event: ten of them (one second stands for one).
const EVENTS_BURST: Duration = Duration::from_secs(10);

impl Config {
    /// The engine's numbers.
    #[must_use]
    pub fn engine(&self) -> engine::Settings {
        let (upstream, groups) = (&self.upstream, &self.groups);
        engine::Settings {
            slots: upstream.concurrency,
            timeout: upstream.timeout,
            rate: upstream.rate.map(rate),
            charge: groups.charge,
            burst: match groups.charge {
                // Ten events, as the engine counts them; half a second would be half an event.
                engine::Charge::Events if groups.burst == engine::Settings::default().burst => EVENTS_BURST,
                _ => groups.burst,
            },
            slow: engine::Slow {
                after: groups.slow.after,
                // The median times a factor is a coarse mark; fractions of it say nothing.
                factor: groups.slow.factor.round() as u32,
                share: groups.slow.slots,
            },
            retry: engine::Retry {
                attempts: upstream.retry.attempts,
                max_age: upstream.retry.max_age,
                backoff: upstream.retry.backoff,
                concurrency: own_concurrency(self.tree.at("upstream").at("retry")),
            },
            replay_share: self.tree.at("replay").at("share").get(),
            breakers: engine::Breakers { upstream: upstream.breaker, group: upstream.group_breaker },
            // The beginning of an attempt is written with the next batch; waiting for it would add a sync to every wait. A crash in
            // between repeats an attempt that was in flight, which it would do anyway.
            begun_first: false,
            dedicated: engine::Dedicated {
                max: groups.dedicated.max,
                slots: groups.dedicated.concurrency,
                promote_share: groups.dedicated.promote_share,
                demote_share: groups.dedicated.demote_share,
                promote_after: groups.dedicated.promote_after,
                demote_after: groups.dedicated.demote_after,
            },
            shed: groups.shed,
            max_active: groups.max_active,
            ..engine::Settings::default()
        }
    }

    /// Where and how to deliver.
    #[must_use]
    pub fn deliver(&self) -> deliver::Settings {
        let upstream = &self.upstream;
        deliver::Settings {
            addresses: upstream.addresses.clone(),
            sticky: upstream.sticky,
            health: upstream.health.clone(),
            ejection: upstream.ejection,
            tls: upstream.tls.clone(),
            timeout: upstream.timeout,
            idle: upstream.idle,
            renew: deliver::RENEW,
            headers: upstream.headers.clone(),
            signing_secret: upstream.signing_secret.clone(),
            resign: self.resign(),
            never: upstream.retry.never.clone(),
        }
    }

    /// What follows each outcome of an attempt, in words: computed from the rule that deliveries go by.
    #[must_use]
    pub fn outcomes(&self) -> Vec<(String, String)> {
        let retry = &self.upstream.retry;
        let age = scalar::show_duration(retry.max_age);
        let words = |follows| match follows {
            Follows::Settled => "settled".to_owned(),
            Follows::Dead => "dead letter at once".to_owned(),
            Follows::Retried(Limit::Age) => format!("retried, until {age} after the first attempt"),
            Follows::Retried(Limit::Attempts) => {
                format!("retried, at most {} such attempts, until {age} after the first", retry.attempts)
            }
        };
        deliver::table(&retry.never).into_iter().map(|row| (row.outcome, words(row.follows))).collect()
    }

    /// Signs the events of those sources again that ask for it; `None` where none does.
    fn resign(&self) -> Option<deliver::Resign> {
        let signers = |source: &Source| -> Vec<Arc<Verifier>> {
            source.senders.iter().filter(|sender| sender.resign).map(|sender| Arc::clone(&sender.verifier)).collect()
        };
        let sources = self.sources.iter().map(|source| (Arc::clone(&source.name), signers(source)));
        let sources: HashMap<_, _> = sources.filter(|(_, signers)| !signers.is_empty()).collect();
        if sources.is_empty() {
            return None;
        }
        Some(deliver::Resign(Arc::new(move |event, now, headers| {
            let signers = sources.get(&event.source).into_iter().flatten();
            // What it is not genuine for, or for nobody, is not vouched for.
            match signers.into_iter().find(|verifier| verifier.has_verified(&event.verified)) {
                Some(verifier) => resign(verifier, event, now, headers),
                None => Ok(()),
            }
        })))
    }

    /// How groups are treated.
    #[must_use]
    pub fn policies(&self) -> driver::FilePolicies {
        let (groups, tree) = (&self.groups, self.tree.at("groups"));
        let usual = own_concurrency(tree.at("defaults"));
        let policy = |policy: &Policy, slot: &Slot| engine::Policy {
            weight: policy.weight,
            concurrency: own_concurrency(slot).or(usual),
            rate: policy.rate.map(rate),
            paused: false,
            backlog: policy.backlog.map(|events| u32::try_from(events).unwrap_or(u32::MAX)),
            chosen: own_concurrency(slot).is_some(),
            named: false,
        };
        let overrides = groups.overrides.iter().zip(tree.at("overrides").items());
        driver::FilePolicies {
            // What is chosen for all is chosen for none of them.
            defaults: engine::Policy { chosen: false, ..policy(&groups.defaults, tree.at("defaults")) },
            fallback: policy(&groups.fallback, tree.at("fallback")),
            new_groups: groups.new_groups.map(rate),
            order_max_hold: self.order_max_hold.clone(),
            overrides: overrides.map(|(o, slot)| (o.matches.clone(), policy(&o.policy, slot))).collect(),
        }
    }
}

/// What the file says of it; null is left to the engine, for then it is a part of the slots, whose number may change live.
fn own_concurrency(slot: &Slot) -> Option<u32> {
    slot.at("concurrency").maybe()
}

fn resign(verifier: &Verifier, event: &Event, now: Wall, headers: &mut HeaderMap) -> Result<(), String> {
    let text = |name: &str| event.headers.get(name).and_then(|value| value.to_str().ok());
    // Only of trusted proxies was it kept; the first one met the sender.
    let host =
        text("x-forwarded-host").and_then(|hosts| hosts.split(',').next()).map(str::trim).or_else(|| text("host"));
    let seen_url = host.map(|host| format!("{}://{host}", if event.https { "https" } else { "http" }));
    let again =
        Again { method: &event.method, target: &event.target, seen_url: seen_url.as_deref(), body: &event.body, now };
    verifier.resign(&again, headers).map_err(|no| no.to_string())
}

fn rate(rate: Rate) -> engine::Rate {
    engine::Rate { events: u32::try_from(rate.events).unwrap_or(u32::MAX), per: rate.per }
}
