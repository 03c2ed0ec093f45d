//! The one table of metrics: each is registered through it, and `docs/metrics.md` is written from it.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Metric, Registry};

/// What stands before every name.
const PREFIX: &str = "fairlane";

/// A metric as its users know it.
#[derive(Clone, Debug)]
struct Described {
    name: String,
    kind: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
}

/// Metrics and what they are called.
#[derive(Debug)]
pub(super) struct Names {
    registry: Registry,
    described: Vec<Described>,
}

impl Names {
    pub(super) fn new() -> Self {
        Self { registry: Registry::with_prefix(PREFIX), described: Vec::new() }
    }

    /// Registers `metric` and gives it back. `name` is without the prefix and without the suffix that its kind brings.
    pub(super) fn add<M: Metric + Clone>(
        &mut self,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        metric: M,
    ) -> M {
        self.put(name, labels, help, metric.clone());
        metric
    }

    /// Registers a metric that nobody changes.
    pub(super) fn put(
        &mut self,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        metric: impl Metric,
    ) {
        let (kind, suffix) = match metric.metric_type() {
            MetricType::Counter => ("counter", "_total"),
            MetricType::Gauge => ("gauge", ""),
            MetricType::Histogram => ("histogram", ""),
            MetricType::Info => ("info", "_info"),
            MetricType::Unknown => ("unknown", ""),
        };
        self.described.push(Described { name: format!("{PREFIX}_{name}{suffix}"), kind, labels, help });
        self.registry.register(name, help, metric);
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The rows of a Markdown table.
    pub(super) fn rows(&self) -> String {
        let row = |described: &Described| {
            let Described { name, kind, labels, help } = described;
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", "))
        };
        self.described.iter().map(row).collect()
    }
}
