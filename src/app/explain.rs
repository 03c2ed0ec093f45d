//! What would become of one request under a configuration: the listener's decisions, and what the file says about the group.

use bytes::Bytes;
use http::request::Parts;

use crate::config::Config;
use crate::event::{Group, Wall};
pub use crate::listen::{Examined, Refusal, Via};

/// All that is to be said about a request.
#[derive(Debug)]
pub struct Explanation<'c> {
    /// What the listener would decide.
    pub examined: Examined<'c>,
    /// How its group would be treated.
    pub treatment: Option<Treatment>,
    /// The address at the upstream, without the query.
    pub forwarded_to: Option<String>,
}

/// How a group is treated, as the file says it; what was changed at a running gateway is not in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Treatment {
    /// Which part of the file says so, e.g. `groups.overrides[0] (plus-*)`.
    pub rule: String,
    /// Its share where groups compete.
    pub weight: f64,
    /// Slots that it may hold.
    pub concurrency: u32,
    /// Of so many.
    pub slots: u32,
    /// Deliveries: how many, in how long.
    pub rate: Option<(u32, std::time::Duration)>,
}

/// Says what would become of a request with this head and body, were it to come at `now`.
#[must_use]
pub fn explain<'c>(config: &'c Config, parts: Parts, body: &Bytes, via: Via, now: Wall) -> Explanation<'c> {
    let examined = crate::listen::examine(&config.listen, &config.sources, parts, body, via, now);
    let treatment = examined.grouped.as_ref().map(|claimed| treatment(config, &claimed.lane.group));
    let path = |target: &str| target.split('?').next().unwrap_or_default().to_owned();
    let forwarded_to = examined.forward.as_deref().map(|target| {
        let bases = config.upstream.addresses.iter().map(|address| address.url.to_string());
        let whole: Vec<_> = bases.map(|base| format!("{}{}", base.trim_end_matches('/'), path(target))).collect();
        whole.join(" or ")
    });
    Explanation { examined, treatment, forwarded_to }
}

fn treatment(config: &Config, group: &Group) -> Treatment {
    let policies = config.policies();
    let policy = policies.of(group);
    let rule = match policies.matching(group) {
        Some(at) => {
            let glob = policies.overrides.get(at).map_or("", |(glob, _)| glob);
            format!("groups.overrides[{at}] ({glob})")
        }
        None if *group == Group::fallback() => "groups.fallback".to_owned(),
        None => "groups.defaults".to_owned(),
    };
    let slots = config.upstream.concurrency;
    Treatment {
        rule,
        weight: policy.weight,
        // The engine's own rule, so that what is said here is what a running gateway does.
        concurrency: policy.concurrency.unwrap_or_else(|| config.engine().default_cap()),
        slots,
        rate: policy.rate.map(|rate| (rate.events, rate.per)),
    }
}
