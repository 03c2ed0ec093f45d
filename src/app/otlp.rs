//! Spans on their way to a collector: OTLP over gRPC, in batches, from a queue with a bound. Nothing waits for it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, Value as OtelValue};
use opentelemetry_otlp::{SpanExporter as Exporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::clock::{Clock, Seldom};
use crate::driver::Handle;
use crate::event::Wall;
use crate::metrics::Metrics;
use crate::spans::{Kind, Recorder, Span, Value};

/// Spans that may wait: a second of 1,000 events with an attempt each. At some 500 bytes each they take 4 MB at most.
const QUEUE: usize = 8_192;
/// Spans of one call.
const BATCH: usize = 512;
/// How long the first span of a batch waits for others.
const LINGER: Duration = Duration::from_millis(500);
/// A collector that takes longer is as good as away.
const TIMEOUT: Duration = Duration::from_secs(5);
/// What the last spans may take at the end of the process.
const FLUSH: Duration = Duration::from_secs(2);

/// The way to the collector that the configuration names, if any.
pub(super) struct Otlp {
    handle: Handle,
    url: Option<String>,
    sending: JoinSet<()>,
}

impl Otlp {
    /// Begins to send to `url`, from within the runtime.
    pub(super) fn start(handle: Handle, url: Option<&str>) -> anyhow::Result<Self> {
        let mut otlp = Self { handle, url: None, sending: JoinSet::new() };
        let way = url.map(Self::way).transpose()?;
        otlp.replace(url, way);
        Ok(otlp)
    }

    /// A way to another collector, when it is another one.
    pub(super) fn other(&self, url: Option<&str>) -> anyhow::Result<Option<Exporter>> {
        if url == self.url.as_deref() { Ok(None) } else { url.map(Self::way).transpose() }
    }

    /// Sends there from now on; what waits for the one before goes there still.
    pub(super) fn replace(&mut self, url: Option<&str>, way: Option<Exporter>) {
        if url == self.url.as_deref() {
            return;
        }
        self.url = url.map(str::to_owned);
        let (recorder, metrics) = (self.recorder(), Arc::clone(self.handle.metrics()));
        let Some(exporter) = way else { return recorder.send_to(None) };
        let (queue, waiting) = mpsc::channel(QUEUE);
        recorder.send_to(Some(queue));
        let clock = Arc::clone(self.handle.clock());
        self.sending.spawn(send(waiting, exporter, metrics, clock));
    }

    fn recorder(&self) -> Arc<Recorder> {
        Arc::clone(self.handle.spans())
    }

    /// The connection is made when the first batch goes, and again whenever it is lost.
    fn way(url: &str) -> anyhow::Result<Exporter> {
        let exporter = Exporter::builder().with_tonic().with_endpoint(url).with_timeout(TIMEOUT).build();
        let mut exporter = exporter.with_context(|| format!("otlp: {url} cannot be used"))?;
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        exporter.set_resource(&Resource::builder().with_service_name("fairlane").with_attribute(version).build());
        Ok(exporter)
    }

    /// Sends what waits, and ends.
    pub(super) async fn end(mut self) {
        self.recorder().send_to(None);
        let sent = async { while self.sending.join_next().await.is_some() {} };
        if tokio::time::timeout(FLUSH, sent).await.is_err() {
            tracing::debug!("the last spans were not sent in time");
        }
    }
}

/// Whether spans could be sent to `url`, from within the runtime.
///
/// # Errors
/// It is no address of a collector.
pub(super) fn check(url: Option<&str>) -> anyhow::Result<()> {
    url.map(Otlp::way).transpose().map(drop)
}

/// Sends batch after batch, until the queue is closed and empty.
async fn send(mut waiting: mpsc::Receiver<Span>, exporter: Exporter, metrics: Arc<Metrics>, clock: Arc<dyn Clock>) {
    let mut said = Seldom::default();
    let scope = InstrumentationScope::builder("fairlane").with_version(env!("CARGO_PKG_VERSION")).build();
    while let Some(batch) = gather(&mut waiting).await {
        let spans = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let batch = batch.into_iter().map(|span| data(span, &scope)).collect();
        match exporter.export(batch).await {
            Ok(()) => drop(metrics.spans_exported.inc_by(spans)),
            Err(error) => {
                metrics.spans_dropped.inc_by(spans);
                if let Some(left_out) = said.pass(clock.now().mono) {
                    tracing::warn!(%error, spans, left_out, "the collector (otlp) did not take spans; they are dropped, events go on");
                }
            }
        }
    }
}

/// The next batch; `None` at the end.
async fn gather(waiting: &mut mpsc::Receiver<Span>) -> Option<Vec<Span>> {
    let mut batch = Vec::with_capacity(BATCH);
    if waiting.recv_many(&mut batch, BATCH).await == 0 {
        return None;
    }
    let more = async {
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            if waiting.recv_many(&mut batch, room).await == 0 {
                return;
            }
        }
    };
    // What does not come in time goes with the next one.
    tokio::time::timeout(LINGER, more).await.ok();
    Some(batch)
}

/// A span as the exporter takes it.
fn data(span: Span, scope: &InstrumentationScope) -> SpanData {
    let Span { context, parent, name, kind, start, end, attributes, failure } = span;
    let attribute = |(key, value): (&'static str, Value)| {
        let value = match value {
            Value::Text(text) => OtelValue::String(text.into()),
            Value::Number(number) => OtelValue::I64(number),
        };
        KeyValue::new(key, value)
    };
    SpanData {
        span_context: SpanContext::new(
            TraceId::from_bytes(context.id),
            SpanId::from_bytes(context.span),
            TraceFlags::new(context.flags),
            false,
            TraceState::NONE,
        ),
        parent_span_id: parent.map_or(SpanId::INVALID, SpanId::from_bytes),
        parent_span_is_remote: parent.is_some() && kind == Kind::Server,
        span_kind: match kind {
            Kind::Internal => SpanKind::Internal,
            Kind::Server => SpanKind::Server,
            Kind::Client => SpanKind::Client,
        },
        name: name.into(),
        start_time: time(start),
        end_time: time(end),
        attributes: attributes.into_iter().map(attribute).collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: failure.map_or(Status::Unset, Status::error),
        instrumentation_scope: scope.clone(),
    }
}

fn time(at: Wall) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(at.0)
}
