//! From the configuration to the settings of the engine, the deliverer and the driver.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use super::settings::Policy;
use super::{Config, Rate};
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
                concurrency: Some(upstream.retry.concurrency),
            },
            breakers: engine::Breakers { upstream: upstream.breaker, group: upstream.group_breaker },
            // One hold for all sources: the longest that any of them allows.
            order_max_hold: self
                .order_max_hold
                .values()
                .max()
                .copied()
                .unwrap_or_else(|| engine::Settings::default().order_max_hold),
            // The beginning of an attempt is written with the next batch; waiting for it would add a sync to every wait. A crash in
            // between repeats an attempt that was in flight, which it would do anyway.
            begun_first: false,
            ..engine::Settings::default()
        }
    }

    /// Where and how to deliver.
    #[must_use]
    pub fn deliver(&self) -> deliver::Settings {
        let upstream = &self.upstream;
        deliver::Settings {
            url: upstream.url.clone(),
            timeout: upstream.timeout,
            idle: upstream.idle,
            headers: upstream.headers.clone(),
            signing_secret: upstream.signing_secret.clone(),
            resign: self.resign(),
            never: upstream.retry.never.clone(),
        }
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
        let groups = &self.groups;
        driver::FilePolicies {
            defaults: policy(&groups.defaults),
            fallback: policy(&groups.fallback),
            overrides: groups.overrides.iter().map(|o| (o.matches.clone(), policy(&o.policy))).collect(),
        }
    }
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

fn policy(policy: &Policy) -> engine::Policy {
    engine::Policy {
        weight: policy.weight,
        concurrency: Some(policy.concurrency),
        rate: policy.rate.map(rate),
        paused: false,
    }
}

fn rate(rate: Rate) -> engine::Rate {
    engine::Rate { events: u32::try_from(rate.events).unwrap_or(u32::MAX), per: rate.per }
}
