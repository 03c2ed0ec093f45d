//! The metrics of the upstream's addresses: by one label, as many as the configuration has.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::names::Names;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AddressLabel {
    address: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    address: String,
    result: &'static str,
}

/// What is counted of all addresses.
#[derive(Debug)]
pub struct AllAddresses {
    attempts: Family<ResultLabel, Counter>,
    left_out: Family<AddressLabel, Counter>,
    share: Family<AddressLabel, Gauge<f64, AtomicU64>>,
    in_flight: Family<AddressLabel, Gauge>,
}

impl AllAddresses {
    pub(super) fn new(names: &mut Names) -> Self {
        Self {
            attempts: names.add(
                "upstream_address_attempts",
                &["address", "result"],
                "Attempts by the address that they went to: ok (any answer but a 5xx) or failed. One that found an address closed and went to another counts at both",
                Family::default(),
            ),
            left_out: names.add(
                "upstream_address_left_out",
                &["address"],
                "How often an address was left out: for failures in a row, or for its checks",
                Family::default(),
            ),
            share: names.add(
                "upstream_address_share",
                &["address"],
                "How much of its weight counts now: 1, less after it came back, 0 while it is left out",
                Family::default(),
            ),
            in_flight: names.add(
                "upstream_address_in_flight",
                &["address"],
                "Attempts under way to an address",
                Family::default(),
            ),
        }
    }

    /// The counters of one address.
    #[must_use]
    pub fn of(&self, address: &str) -> AddressMetrics {
        let attempts = |result| {
            let label = ResultLabel { address: address.to_owned(), result };
            self.attempts.get_or_create_owned(&label)
        };
        let left_out = self.left_out.get_or_create_owned(&AddressLabel { address: address.to_owned() });
        AddressMetrics { ok: attempts("ok"), failed: attempts("failed"), left_out }
    }

    /// The addresses that there are now: each one's share, 0 to 1, and what is under way to it.
    pub fn show<'a>(&self, addresses: impl Iterator<Item = (&'a str, f64, u32)>) {
        // Those of an earlier configuration are gone.
        self.share.clear();
        self.in_flight.clear();
        for (address, share, in_flight) in addresses {
            let label = AddressLabel { address: address.to_owned() };
            self.share.get_or_create(&label).set(share);
            self.in_flight.get_or_create(&label).set(in_flight.into());
        }
    }
}

/// The counters of one address.
#[derive(Debug)]
pub struct AddressMetrics {
    ok: Counter,
    failed: Counter,
    left_out: Counter,
}

impl AddressMetrics {
    /// An attempt there was answered.
    pub fn well(&self) {
        self.ok.inc();
    }

    /// An attempt there failed.
    pub fn failed(&self) {
        self.failed.inc();
    }

    /// It is left out.
    pub fn left_out(&self) {
        self.left_out.inc();
    }
}
