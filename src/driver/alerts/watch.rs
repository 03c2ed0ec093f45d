//! The slow tick beside the delivery path: gathers facts, has them judged, counts and logs what changed, and posts it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::catalog::Kind;
use super::facts::{Facts, History, SourceFacts};
use super::judge::judge;
use super::{Alert, Alerts, Post, message};
use crate::driver::{Handle, SourceInfo};
use crate::metrics::Metrics;

/// How often things are looked at.
const TICK: Duration = Duration::from_secs(2);

/// A look takes the delivery loop's time, by the number of waiting groups. The next one comes after so many times what it took, so that
/// looking takes a hundredth of it at most.
const REST: u32 = 100;

/// However long that was: what happens is told within minutes.
const TICK_MAX: Duration = Duration::from_mins(2);

/// A driver that does not answer within this is held up; what only it knows is then not judged.
const PATIENCE: Duration = Duration::from_secs(5);

/// Messages that wait for the one that is being posted. Twenty groups may fire at once; beyond all this the receiver is down.
const WAITING_MAX: usize = 100;

/// Pauses between the tries of one message. A receiver that is down for longer is not waited for: later messages would come too late.
const AGAIN_AFTER: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(15), Duration::from_secs(60)];

/// Watches until the future is dropped. `post` makes one try.
pub async fn watch(handle: Handle, post: Post) {
    let alerts = handle.alerts();
    // A second watcher would say everything twice; there is none.
    let post = Arc::clone(alerts.post.get_or_init(|| post));
    let (queue, waiting) = mpsc::channel(WAITING_MAX);
    tokio::join!(look(&handle, &queue), deliver(alerts, &post, handle.metrics(), waiting));
}

async fn look(handle: &Handle, queue: &mpsc::Sender<Bytes>) {
    let mut history = History::default();
    loop {
        let (changed, took) = once(handle, &mut history).await;
        for alert in &changed {
            tell(handle, alert, queue);
        }
        if !changed.is_empty() {
            handle.alerts().keep().await;
        }
        tokio::time::sleep((took * REST).clamp(TICK, TICK_MAX)).await;
    }
}

/// One look: what fired and what resolved, and what it took of the delivery loop's time.
async fn once(handle: &Handle, history: &mut History) -> (Vec<Alert>, Duration) {
    let alerts = handle.alerts();
    let settings = alerts.settings();
    let (facts, took) = gather(handle, settings.group_age).await;
    let now = handle.now();
    history.see(&facts, now);
    let mut board = alerts.board.lock();
    let judgement = judge(&facts, history, &settings, &board, now);
    let judged = |kind| !judgement.unknown.contains(&kind);
    let changed = board.see(judgement.findings, judged, &settings, now);
    for kind in Kind::ALL {
        handle.metrics().alerts.firing(kind.name(), board.count(*kind));
    }
    (changed, took)
}

async fn gather(handle: &Handle, group_age: Duration) -> (Facts, Duration) {
    let asked = tokio::time::timeout(PATIENCE, handle.survey(group_age)).await;
    let (survey, took) = asked.ok().and_then(Result::ok).unzip();
    let (usage, metrics) = (handle.usage(), handle.metrics());
    let facts = Facts {
        survey,
        beat_age: handle.beat_age(),
        sources: handle.sources().iter().map(|source| counted(metrics, source)).collect(),
        room: usage.room,
        room_bytes: usage.room_bytes,
        silent: handle.store_silence(&usage),
        spool: usage.spool,
        config_ok: metrics.config_ok.get() == 1,
        addresses: handle.addresses(),
    };
    (facts, took.unwrap_or_default())
}

fn counted(metrics: &Metrics, source: &SourceInfo) -> SourceFacts {
    let numbers = metrics.numbers_of(&source.name, source.secrets.len());
    SourceFacts {
        name: Arc::clone(&source.name),
        has_key: source.key.is_some(),
        accepted: numbers.accepted,
        fallback: numbers.fallback,
        refused: numbers.refused,
        secrets: source.secrets.iter().copied().zip(numbers.matches).collect(),
        skew_s: numbers.skew_s,
    }
}

/// Counts it, writes it into the log and puts it into the queue of messages.
fn tell(handle: &Handle, alert: &Alert, queue: &mpsc::Sender<Bytes>) {
    let Alert { name, severity, what, command, .. } = alert;
    let severity = severity.as_str();
    if alert.resolved.is_some() {
        tracing::info!(alert = name, severity, what, "an alert resolved");
    } else {
        handle.metrics().alerts.fired(name);
        tracing::warn!(alert = name, severity, what, command, "an alert fires");
    }
    if handle.alerts().settings().webhook.is_some() && queue.try_send(message::body(alert)).is_err() {
        handle.metrics().alerts.posted("dropped");
        tracing::warn!(alert = name, "too many alerts wait for alerts.webhook: this one is not posted");
    }
}

/// Posts what waits, one at a time, each a few times.
async fn deliver(alerts: &Alerts, post: &Post, metrics: &Metrics, mut waiting: mpsc::Receiver<Bytes>) {
    while let Some(message) = waiting.recv().await {
        let sent = deliver_one(alerts, post, &message).await;
        metrics.alerts.posted(if sent.is_ok() { "sent" } else { "failed" });
        if let Err(error) = sent {
            let tries = AGAIN_AFTER.len() + 1;
            tracing::warn!(error, tries, "an alert could not be posted to alerts.webhook");
        }
    }
}

/// The address is looked up for each try: a reload may have mended it, or taken it away.
async fn deliver_one(alerts: &Alerts, post: &Post, message: &Bytes) -> Result<(), String> {
    let mut pauses = AGAIN_AFTER.into_iter();
    loop {
        let Some(webhook) = alerts.settings().webhook.clone() else {
            return Err("alerts.webhook was taken away".to_owned());
        };
        let error = match post(webhook, message.clone()).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let Some(pause) = pauses.next() else { return Err(error) };
        tracing::debug!(error, "an alert was not taken; it is posted again");
        tokio::time::sleep(pause).await;
    }
}
