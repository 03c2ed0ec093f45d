//! Where the upstream is: its addresses, how they are watched, and TLS towards them.

use std::path::Path;
use std::sync::Arc;

use http::Uri;

use super::build::{Builder, parsed};
use super::scalar;
use super::value::{Slot, quoted};
use crate::deliver::{Address, Ejection, Health, Identity, Tls};
use crate::event::Secret;

/// More addresses are a fleet, which has a balancer of its own.
const ADDRESSES_MAX: usize = 64;

/// What is behind the plain settings of `upstream`.
pub(super) struct Reached {
    pub(super) addresses: Vec<Address>,
    pub(super) sticky: bool,
    pub(super) health: Option<Health>,
    pub(super) ejection: Ejection,
    pub(super) tls: Tls,
}

impl Builder<'_, '_> {
    /// How the upstream is reached.
    pub(super) fn reached(&mut self, upstream: &Slot) -> Reached {
        let addresses = self.addresses(upstream);
        let ejection = upstream.at("breaker").at("address");
        self.ordered(ejection, "upstream.breaker.address", ["open", "open_max"]);
        let health = Some(upstream.at("health")).filter(|health| !health.is_null()).map(health);
        if let Some(health) = &health
            && health.timeout > health.interval
        {
            let (timeout, interval) = (scalar::show_duration(health.timeout), scalar::show_duration(health.interval));
            let text =
                format!("an answer may take {timeout}, so a round may take longer than the interval, {interval}");
            self.note("upstream.health.timeout", &text);
        }
        let sticky = !upstream.at("sticky").is_null();
        if addresses.len() == 1 {
            let without = "has no effect with one address (upstream.urls gives several)";
            for (name, given) in [("health", health.is_some()), ("sticky", sticky)] {
                if given {
                    self.note(&format!("upstream.{name}"), without);
                }
            }
        } else if health.is_none() {
            let text = "no address is asked how it is (upstream.health): one that is down is found by the attempts that meet it";
            self.note("upstream.urls", text);
        }
        let tls = self.upstream_tls(upstream.at("tls"));
        if tls != Tls::default() && addresses.iter().all(|address| address.url.scheme_str() != Some("https")) {
            self.note("upstream.tls", "has no effect: no address begins with https://");
        }
        Reached { addresses, sticky, health, ejection: self::ejection(ejection), tls }
    }

    fn addresses(&mut self, upstream: &Slot) -> Vec<Address> {
        let (url, urls) = (upstream.at("url"), upstream.at("urls"));
        if urls.is_null() {
            return vec![Address { url: parsed(url), weight: 1 }];
        }
        // The effective configuration writes both, the first as it is by default.
        if url.given && url.get::<String>() != super::fields::UPSTREAM_URL {
            let problem = self.checker.problem_at("upstream.url", url.place, "stands beside upstream.urls");
            problem.hint = Some("make it one of upstream.urls, and leave this out".to_owned());
        }
        // One whose url is missing or none has its problem already.
        let read = |item: &Slot| {
            let url: Uri = item.at("url").maybe::<String>()?.parse().ok()?;
            Some(Address { url, weight: item.at("weight").get() })
        };
        let addresses: Vec<Address> = urls.items().iter().filter_map(read).collect();
        if addresses.len() > ADDRESSES_MAX {
            let problem =
                self.checker.problem_at("upstream.urls", urls.place, &format!("holds {} addresses", addresses.len()));
            problem.expected =
                Some(format!("at most {ADDRESSES_MAX}; for more, one address of a balancer in front of them"));
        }
        for (i, (address, item)) in addresses.iter().zip(urls.items()).enumerate() {
            if addresses.iter().take(i).any(|before| same(&before.url, &address.url)) {
                let path = format!("upstream.urls[{i}].url");
                let problem =
                    self.checker.problem_at(&path, item.place, &format!("{} stands there twice", address.url));
                problem.hint = Some("give it once, with the weight of both".to_owned());
            }
        }
        addresses
    }

    /// The texts of the files, which have to be of use now: with others no delivery would be made.
    fn upstream_tls(&mut self, tls: &Slot) -> Tls {
        if tls.is_null() {
            return Tls::default();
        }
        let (ca, cert, key) = (self.pem(tls, "ca"), self.pem(tls, "cert"), self.pem(tls, "key"));
        for (one, other) in [("cert", "key"), ("key", "cert")] {
            if tls.at(one).is_null() && !tls.at(other).is_null() {
                let found = format!("{other} stands there without {one}");
                let problem = self.checker.problem_at("upstream.tls", tls.at(other).place, &found);
                problem.expected = Some("both, or neither".to_owned());
            }
        }
        let identity = cert.zip(key).map(|(cert, key)| Identity { cert: cert.into(), key: Secret::new(key) });
        let made = Tls { ca: ca.map(Arc::from), identity };
        if !self.checker.is_broken("upstream.tls")
            && let Err((name, error)) = made.check()
        {
            let file = tls.at(name);
            let found = format!("{}: {error}", quoted(&file.get::<String>()));
            self.checker.problem_at(&format!("upstream.tls.{name}"), file.place, &found);
        }
        made
    }

    fn pem(&mut self, tls: &Slot, name: &str) -> Option<String> {
        let file = tls.at(name);
        let path: String = file.maybe()?;
        match self.checker.text_of(Path::new(&path)) {
            Ok(text) => Some(text),
            Err(error) => {
                let found = format!("{} cannot be read: {error}", quoted(&path));
                let problem = self.checker.problem_at(&format!("upstream.tls.{name}"), file.place, &found);
                problem.hint = Some("the user that runs fairlane must be able to read it".to_owned());
                None
            }
        }
    }
}

/// Whether two urls are of one address: a slash at the end makes no other.
fn same(one: &Uri, other: &Uri) -> bool {
    let parts = |url: &Uri| {
        let path = url.path().trim_end_matches('/').to_owned();
        (url.scheme().cloned(), url.authority().cloned(), path)
    };
    parts(one) == parts(other)
}

fn health(health: &Slot) -> Health {
    Health {
        path: parsed(health.at("path")),
        interval: health.at("interval").get(),
        timeout: health.at("timeout").get(),
        failures: health.at("failures").get(),
        successes: health.at("successes").get(),
    }
}

fn ejection(address: &Slot) -> Ejection {
    Ejection {
        failures: address.at("failures").get(),
        open: address.at("open").get(),
        open_max: address.at("open_max").get(),
        slow_start: address.at("slow_start").get(),
    }
}
