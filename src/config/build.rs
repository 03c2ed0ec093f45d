//! The checked tree to the settings of each stage, and what has to fit together across fields.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::check::Checker;
use super::notes::{self, Note};
use super::scalar;
use super::settings::{Dedicated, Groups, Log, LogFormat, Override, Policy, Retry, Slow, Store, Upstream};
use super::value::{Slot, quoted};
use crate::driver::alerts;
use crate::engine::{Backoff, Charge, GroupBreaker, UpstreamBreaker};
use crate::event::Secret;
use crate::store::{Durability, Retention, embedded};
use crate::{admin, listen};

/// What is gathered while the settings are made.
pub(super) struct Builder<'c, 'a> {
    /// Takes the problems.
    pub(super) checker: &'c mut Checker<'a>,
    /// What a person should know and no problem is.
    pub(super) notes: Vec<Note>,
    /// What a null comes to, by path.
    pub(super) meanings: HashMap<String, String>,
}

impl Builder<'_, '_> {
    /// Notes something about a field.
    pub(super) fn note(&mut self, path: &str, text: impl Into<String>) {
        self.notes.push(Note { path: path.to_owned(), text: text.into() });
    }

    /// Says what a null at `path` comes to.
    pub(super) fn meaning(&mut self, path: &str, text: impl Into<String>) {
        self.meanings.insert(path.to_owned(), text.into());
    }

    /// The listener.
    pub(super) fn listen(&mut self, listen: &Slot) -> listen::Settings {
        let limits = limits(listen.at("limits"));
        if listen.at("h2c").get() && !listen.at("tls").is_null() {
            self.note("listen.h2c", "has no effect beside listen.tls, where clients choose HTTP/2 in the handshake");
        }
        if limits.buffered < limits.body {
            let (buffered, body) = (scalar::show_size(limits.buffered as u64), scalar::show_size(limits.body as u64));
            let text = format!("bodies above {buffered} always get 503, though limits.body says {body}");
            self.note("listen.limits.buffered", text);
        }
        listen::Settings {
            address: address(listen.at("address")),
            tls: self.tls(listen.at("tls")),
            h2c: listen.at("h2c").get(),
            trusted_proxies: listen.at("trusted_proxies").items().iter().map(parsed).collect(),
            limits,
            rejections: listen.at("rejections").get(),
        }
    }

    /// TLS files have to be readable now: a listener that fails later would fail at its next start.
    fn tls(&mut self, tls: &Slot) -> Option<listen::Tls> {
        let mut file = |name: &str| {
            let slot = tls.at(name);
            let path = slot.maybe::<String>().map(PathBuf::from)?;
            if let Err(error) = self.checker.read_file(&path) {
                let found = format!("{} cannot be read: {error}", quoted(&path.to_string_lossy()));
                let problem = self.checker.problem_at(&format!("listen.tls.{name}"), slot.place, &found);
                problem.hint = Some("the user that runs fairlane must be able to read it".to_owned());
            }
            Some(path)
        };
        let (cert, key, client_ca) = (file("cert"), file("key"), file("client_ca"));
        Some(listen::Tls { cert: cert?, key: key?, client_ca })
    }

    /// The admin listener; it cannot share the senders' address.
    pub(super) fn admin(&mut self, admin: &Slot, listen_slot: &Slot, listen: &listen::Settings) -> admin::Settings {
        let settings = admin::Settings {
            address: address(admin.at("address")),
            hosts: admin.at("hosts").items().iter().map(Slot::get).collect(),
            token: admin.at("token").maybe(),
            open_metrics: admin.at("open_metrics").get(),
        };
        let (ours, theirs) = (settings.address, listen.address);
        let same_ip = ours.ip() == theirs.ip() || ours.ip().is_unspecified() || theirs.ip().is_unspecified();
        if same_ip && ours.port() == theirs.port() && ours.port() != 0 {
            let found = format!("{ours} takes the port of listen.address, {theirs}");
            let own = admin.at("address");
            let place = if own.given { own.place } else { listen_slot.at("address").place };
            self.checker.problem_at("admin.address", place, &found).expected = Some("a port of its own".to_owned());
        }
        if settings.token.as_ref().is_some_and(|token| token.expose().len() < notes::SECRET_BYTES) {
            self.note("admin.token", notes::SHORT);
        }
        if !ours.ip().is_loopback() {
            let text = "other machines reach the API, and its token travels without TLS unless a proxy adds it";
            self.note("admin.address", text);
        }
        settings
    }

    /// The receiver.
    pub(super) fn upstream(&mut self, upstream: &Slot) -> Upstream {
        let reached = self.reached(upstream);
        let (breaker, retry) = (upstream.at("breaker"), upstream.at("retry"));
        let concurrency: u32 = upstream.at("concurrency").get();
        self.ordered(breaker.at("upstream"), "upstream.breaker.upstream", ["open", "open_max"]);
        self.ordered(breaker.at("group"), "upstream.breaker.group", ["open", "open_max"]);
        self.ordered(retry.at("backoff"), "upstream.retry.backoff", ["initial", "max"]);
        let headers = upstream
            .at("headers")
            .members()
            .filter_map(|(name, value)| Some((name.parse::<HeaderName>().ok()?, sensitive(&value.maybe()?)?)));
        Upstream {
            addresses: reached.addresses,
            sticky: reached.sticky,
            health: reached.health,
            ejection: reached.ejection,
            tls: reached.tls,
            concurrency,
            rate: upstream.at("rate").maybe(),
            timeout: upstream.at("timeout").get(),
            idle: upstream.at("idle").get(),
            headers: headers.collect(),
            signing_secret: upstream.at("signing_secret").maybe(),
            breaker: upstream_breaker(breaker.at("upstream")),
            group_breaker: group_breaker(breaker.at("group")),
            retry: self.retry(retry, concurrency),
        }
    }

    fn retry(&mut self, retry: &Slot, slots: u32) -> Retry {
        for (i, status) in retry.at("never").items().iter().enumerate() {
            let status_code: u16 = status.get();
            if matches!(status_code, 200..=299) {
                let path = format!("upstream.retry.never[{i}]");
                let found = format!("{status_code}: 2xx is success and can never be retried");
                self.checker.problem_at(&path, status.place, &found).hint = Some("leave it out".to_owned());
            }
        }
        let own = retry.at("concurrency").maybe();
        let concurrency = own.unwrap_or_else(|| (slots / 4).max(1));
        if own.is_none() {
            self.meaning("upstream.retry.concurrency", concurrency.to_string());
        } else if concurrency > slots {
            let text =
                format!("{concurrency} slots for retries, but upstream.concurrency gives only {slots} for everything");
            self.note("upstream.retry.concurrency", text);
        }
        let backoff = retry.at("backoff");
        Retry {
            attempts: retry.at("attempts").get(),
            max_age: retry.at("max_age").get(),
            backoff: Backoff {
                initial: backoff.at("initial").get(),
                factor: backoff.at("factor").get(),
                max: backoff.at("max").get(),
            },
            never: retry.at("never").items().iter().map(Slot::get).collect(),
            concurrency,
        }
    }

    /// The first of two durations may not be longer than the second.
    pub(super) fn ordered(&mut self, map: &Slot, path: &str, [first, second]: [&str; 2]) {
        let (low, high): (Duration, Duration) = (map.at(first).get(), map.at(second).get());
        if low > high {
            let slot = if map.at(second).given { map.at(second) } else { map.at(first) };
            let found =
                format!("{second} is {} and {first} is {}", scalar::show_duration(high), scalar::show_duration(low));
            self.checker.problem_at(path, slot.place, &found).expected =
                Some(format!("{second} no shorter than {first}"));
        }
    }

    /// Fairness between groups.
    pub(super) fn groups(&mut self, groups: &Slot, slots: u32) -> Groups {
        let cap = (slots / 8).max(1);
        let defaults =
            policy(groups.at("defaults"), &Policy { weight: 1.0, concurrency: cap, rate: None, backlog: None });
        let fallback = groups.at("fallback");
        let fallback = Policy {
            weight: fallback.at("weight").get(),
            concurrency: fallback.at("concurrency").maybe().unwrap_or(defaults.concurrency),
            rate: None,
            backlog: None,
        };
        for (path, policy) in [("groups.defaults.concurrency", &defaults), ("groups.fallback.concurrency", &fallback)] {
            self.meaning(path, policy.concurrency.to_string());
        }
        let dedicated = groups.at("dedicated");
        self.dedicated(groups, (slots, defaults.concurrency));
        let slow = groups.at("slow");
        Groups {
            overrides: self.overrides(groups.at("overrides"), &defaults),
            defaults,
            fallback,
            charge: if groups.at("charge").get::<String>() == "events" { Charge::Events } else { Charge::Time },
            burst: groups.at("burst").get(),
            slow: Slow {
                after: slow.at("after").get(),
                factor: slow.at("factor").get(),
                slots: slow.at("slots").get(),
            },
            max_active: groups.at("max_active").get(),
            new_groups: groups.at("new_groups").maybe(),
            shed: groups.at("shed").get(),
            dedicated: Dedicated {
                max: dedicated.at("max").get(),
                concurrency: dedicated.at("concurrency").get(),
                promote_share: dedicated.at("promote_share").get(),
                demote_share: dedicated.at("demote_share").get(),
                promote_after: dedicated.at("promote_after").get(),
                demote_after: dedicated.at("demote_after").get(),
            },
        }
    }

    /// Slots of their own: fewer than would be of use, more than others can spare, or never given back.
    fn dedicated(&mut self, groups: &Slot, (slots, cap): (u32, u32)) {
        let dedicated = groups.at("dedicated");
        let (max, each): (u32, u32) = (dedicated.at("max").get(), dedicated.at("concurrency").get());
        self.shares(dedicated);
        if max == 0 {
            if groups.at("shed").get() {
                let found = "has no effect while groups.dedicated.max is 0: no group outgrows what it does not get";
                let problem = self.checker.problem_at("groups.shed", groups.at("shed").place, found);
                problem.hint =
                    Some("set groups.dedicated.max, or cap backlogs with groups.defaults.backlog".to_owned());
            }
            return;
        }
        let place = if dedicated.at("concurrency").given { dedicated.at("concurrency") } else { dedicated.at("max") };
        if max.saturating_mul(each) > slots / 2 {
            let found =
                format!("{max} groups with {each} slots each are more than half of {slots} (upstream.concurrency)");
            let problem = self.checker.problem_at("groups.dedicated", place.place, &found);
            problem.expected = Some(format!("max × concurrency at most {}", slots / 2));
        }
        if each < cap {
            let found = format!(
                "{each} slots are fewer than the {cap} that a group may hold anyway (groups.defaults.concurrency)"
            );
            let problem = self.checker.problem_at("groups.dedicated.concurrency", place.place, &found);
            problem.expected = Some(format!("{cap} or more"));
            problem.hint = Some("a promoted group would be slower than before".to_owned());
        }
        if dedicated.at("demote_share").get::<f64>() <= 0.0 {
            let place = dedicated.at("demote_share").place;
            let problem = self.checker.problem_at("groups.dedicated.demote_share", place, "nobody demands less than 0");
            problem.hint = Some("a promoted group would never give its slots back".to_owned());
        }
    }

    fn shares(&mut self, dedicated: &Slot) {
        let (promote, demote): (f64, f64) = (dedicated.at("promote_share").get(), dedicated.at("demote_share").get());
        if demote >= promote {
            let found = format!("{demote} is not below promote_share, {promote}");
            let problem =
                self.checker.problem_at("groups.dedicated.demote_share", dedicated.at("demote_share").place, &found);
            problem.hint = Some("a group would be promoted and demoted in turn".to_owned());
        }
    }

    fn overrides(&mut self, list: &Slot, defaults: &Policy) -> Vec<Override> {
        let mut overrides: Vec<Override> = Vec::new();
        for (i, slot) in list.items().iter().enumerate() {
            let Some(matches) = slot.at("match").maybe::<String>() else { continue };
            if let Some(earlier) = overrides.iter().position(|o| o.matches == matches || o.matches == "*") {
                let text = format!("never used: overrides[{earlier}] matches first");
                self.note(&format!("groups.overrides[{i}]"), text);
            }
            overrides.push(Override { matches, policy: policy(slot, defaults) });
        }
        overrides
    }

    /// The store: exactly one of its kinds.
    pub(super) fn store(&mut self, store: &Slot) -> Store {
        let (embedded, redis, retention) = (store.at("embedded"), store.at("redis"), store.at("retention"));
        let retention = Retention {
            delivered: retention.at("delivered").get(),
            dead: retention.at("dead").get(),
            suppressed: retention.at("suppressed").get(),
        };
        if redis.is_null() {
            return Store::Embedded(self.embedded(embedded, retention));
        }
        if !embedded.is_null() {
            let found = "both embedded and redis are given";
            self.checker.problem_at("store", redis.place, found).expected = Some("exactly one of them".to_owned());
        }
        Store::Redis(Box::new(self.redis(redis, retention)))
    }

    fn embedded(&mut self, embedded: &Slot, retention: Retention) -> embedded::Settings {
        let settings = embedded::Settings {
            path: PathBuf::from(embedded.at("path").get::<String>()),
            durability: if embedded.at("durability").get::<String>() == "os" {
                Durability::Os
            } else {
                Durability::Fsync
            },
            max_bytes: embedded.at("max_bytes").maybe(),
            min_free: embedded.at("min_free").get(),
            retention,
        };
        if settings.durability == Durability::Os {
            self.note("store.embedded.durability", "os: a power cut loses events that were answered with 2xx");
        }
        let least = embedded::Settings::least_bytes(settings.min_free);
        if let Some(max) = settings.max_bytes.filter(|max| *max < least) {
            let found =
                format!("{}, too little for an empty store, a segment of events and a margin", scalar::show_size(max));
            self.checker.problem_at("store.embedded.max_bytes", embedded.at("max_bytes").place, &found).expected =
                Some(format!("{} or more, with this min_free", scalar::show_size(least)));
        } else if let Some(max) = settings.max_bytes.filter(|max| *max <= settings.min_free.saturating_mul(2)) {
            let (max, free) = (scalar::show_size(max), scalar::show_size(settings.min_free));
            let text = format!(
                "{max} is not above 2 × min_free ({free}): history goes at once, and new events are refused early"
            );
            self.note("store.embedded.max_bytes", text);
        }
        self.about_room(settings.min_free);
        settings
    }
}

/// The log.
pub(super) fn log(log: &Slot) -> Log {
    Log {
        format: match log.at("format").get::<String>().as_str() {
            "json" => LogFormat::Json,
            "text" => LogFormat::Text,
            _ => LogFormat::Auto,
        },
        level: parsed(log.at("level")),
    }
}

/// What an operator is told.
pub(super) fn alerts(alerts: &Slot) -> alerts::Settings {
    let (backlog_age, skew) = (alerts.at("backlog_age"), alerts.at("skew"));
    alerts::Settings {
        webhook: alerts.at("webhook").maybe(),
        group_age: backlog_age.at("group").get(),
        groups_over: backlog_age.at("groups_over").get(),
        fallback_share: alerts.at("fallback_share").get(),
        skew: alerts::Skew {
            max_lag: skew.at("max_lag").get(),
            max_age: skew.at("max_age").get(),
            ratio: skew.at("ratio").get(),
            window: skew.at("window").get(),
        },
    }
}

fn limits(limits: &Slot) -> listen::Limits {
    listen::Limits {
        body: limits.at("body").get(),
        headers: limits.at("headers").get(),
        connections: limits.at("connections").get(),
        connections_per_ip: limits.at("connections_per_ip").get(),
        buffered: limits.at("buffered").get(),
        header_timeout: limits.at("header_timeout").get(),
        body_timeout: limits.at("body_timeout").get(),
        idle_timeout: limits.at("idle_timeout").get(),
    }
}

fn policy(slot: &Slot, otherwise: &Policy) -> Policy {
    Policy {
        weight: slot.at("weight").maybe().unwrap_or(otherwise.weight),
        concurrency: slot.at("concurrency").maybe().unwrap_or(otherwise.concurrency),
        rate: slot.at("rate").maybe().or(otherwise.rate),
        backlog: slot.at("backlog").maybe().or(otherwise.backlog),
    }
}

fn upstream_breaker(breaker: &Slot) -> UpstreamBreaker {
    UpstreamBreaker {
        failures: breaker.at("failures").get(),
        ratio: breaker.at("ratio").get(),
        groups: breaker.at("groups").get(),
        window: breaker.at("window").get(),
        open: breaker.at("open").get(),
        open_max: breaker.at("open_max").get(),
    }
}

fn group_breaker(breaker: &Slot) -> GroupBreaker {
    GroupBreaker {
        failures: breaker.at("failures").get(),
        window: breaker.at("window").get(),
        open: breaker.at("open").get(),
        open_max: breaker.at("open_max").get(),
    }
}

/// A header value that libraries keep out of their logs.
fn sensitive(secret: &Secret) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(secret.expose()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

pub(super) fn address(slot: &Slot) -> SocketAddr {
    parsed(slot)
}

/// Text that the table has checked, as what it stands for.
pub(super) fn parsed<T: std::str::FromStr>(slot: &Slot) -> T {
    let text: String = slot.get();
    text.parse().ok().expect("invariant: the field's form was checked when it was read")
}
