//! A histogram of how things stand now: each group counts once, in the bucket of its age, and leaves it again.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Seconds from one to three days, after which an event that was tried is given up.
const BOUNDS: [f64; 10] = [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 259_200.0];

#[derive(Clone, Copy, Debug, Default)]
struct Snapshot {
    buckets: [u64; BOUNDS.len() + 1],
    sum: f64,
}

/// Ages of groups at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Ages(Arc<Mutex<Snapshot>>);

impl Ages {
    /// Puts other ages in the place of those before.
    pub(super) fn set(&self, ages: impl Iterator<Item = Duration>) {
        let mut next = Snapshot::default();
        for age in ages {
            let age = age.as_secs_f64();
            let index = BOUNDS.iter().position(|bound| age <= *bound).unwrap_or(BOUNDS.len());
            if let Some(count) = next.buckets.get_mut(index) {
                *count += 1;
            }
            next.sum += age;
        }
        *self.0.lock() = next;
    }
}

impl EncodeMetric for Ages {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Snapshot { buckets, sum } = *self.0.lock();
        let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(buckets).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
