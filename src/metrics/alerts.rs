//! The metrics of alerts: how many of each kind fire, how many fired, and what became of their messages.

use std::borrow::Cow;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::OutcomeLabel;
use super::names::Names;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AlertLabel {
    alert: Cow<'static, str>,
}

/// What is counted of alerts.
#[derive(Debug)]
pub struct AlertMetrics {
    firing: Family<AlertLabel, Gauge>,
    fired: Family<AlertLabel, Counter>,
    posts: Family<OutcomeLabel, Counter>,
}

impl AlertMetrics {
    pub(super) fn new(names: &mut Names) -> Self {
        Self {
            firing: names.add(
                "alerts_firing",
                &["alert"],
                "Alerts that fire now, by kind; see docs/alerts.md",
                Family::default(),
            ),
            fired: names.add("alerts", &["alert"], "Alerts that fired, by kind", Family::default()),
            posts: names.add(
                "alert_posts",
                &["outcome"],
                "Messages to alerts.webhook: sent, failed (after all tries) or dropped (too many waited)",
                Family::default(),
            ),
        }
    }

    /// So many alerts of this kind fire.
    pub fn firing(&self, alert: &'static str, count: u64) {
        self.firing.get_or_create(&AlertLabel { alert: alert.into() }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// An alert of this kind fired.
    pub fn fired(&self, alert: Cow<'static, str>) {
        self.fired.get_or_create(&AlertLabel { alert }).inc();
    }

    /// A message was `sent`, could not be (`failed`), or was `dropped` since too many waited.
    pub fn posted(&self, outcome: &'static str) {
        self.posts.get_or_create(&OutcomeLabel { outcome }).inc();
    }
}
