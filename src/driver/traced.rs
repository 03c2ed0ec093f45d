//! Attempts as spans: a way to the upstream that tells it whose trace it is in, and records how long the event waited and what the
//! attempt gave.

use std::sync::Arc;
use std::time::Duration;

use crate::deliver::{Attempt, Deliver, Job};
use crate::event::{Event, Now, Trace};
use crate::spans::{Kind, Recorder, Span};

/// `deliver`, recorded. A job without a trace goes as it would have gone.
pub(super) fn traced(deliver: Deliver, spans: Arc<Recorder>) -> Deliver {
    Arc::new(move |mut job: Job| {
        let Some(trace) = job.trace.filter(|trace| trace.is_sampled() && spans.is_on()) else { return deliver(job) };
        let own = Trace { span: rand::random(), ..trace };
        job.trace = Some(own);
        let under_way = UnderWay::new(Arc::clone(&spans), trace, own, &job);
        let attempt = deliver(job);
        Box::pin(async move {
            let attempt = attempt.await;
            under_way.end(&attempt);
            attempt
        })
    })
}

/// An attempt that is recorded when this is dropped: at its end, or with the task that was cancelled.
struct UnderWay {
    spans: Arc<Recorder>,
    /// The event's acceptance.
    accepted: Trace,
    own: Trace,
    event: Arc<Event>,
    began: Now,
    attempt: u32,
    waited: Duration,
    /// What it waited for, as the upstream is told.
    reason: String,
    ended: Option<Ended>,
}

struct Ended {
    outcome: &'static str,
    status: Option<u16>,
    failure: Option<String>,
}

impl Ended {
    fn of(attempt: &Attempt) -> Self {
        let outcome = attempt.outcome;
        // Errors are words of ours, never what the upstream said.
        let failure = (!outcome.is_delivered()).then(|| format!("{}: {}", outcome.name(), attempt.error));
        Self { outcome: outcome.name(), status: attempt.answer.as_ref().map(|answer| answer.status.as_u16()), failure }
    }
}

impl UnderWay {
    fn new(spans: Arc<Recorder>, accepted: Trace, own: Trace, job: &Job) -> Self {
        let (event, began) = (Arc::clone(&job.event), spans.now());
        let (waited, reason) = (job.wait, job.waited.to_string());
        Self { spans, accepted, own, event, began, attempt: job.attempt, waited, reason, ended: None }
    }

    fn end(mut self, attempt: &Attempt) {
        self.ended = Some(Ended::of(attempt));
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let span = |context, name, kind, start, end| Span {
            context,
            parent: Some(self.accepted.span),
            name,
            kind,
            start,
            end,
            attributes: vec![
                ("fairlane.event_id", (&*self.event.id.to_string()).into()),
                ("fairlane.group", self.event.lane.group.as_str().into()),
                ("fairlane.attempt", self.attempt.into()),
            ],
            failure: None,
        };
        let start = self.began.wall;
        let of_wait = Trace { span: rand::random(), ..self.own };
        let mut waited = span(of_wait, "wait", Kind::Internal, start.minus(self.waited), start);
        waited.attributes.push(("fairlane.wait_reason", (&*self.reason).into()));
        self.spans.record(waited);

        let took = self.spans.now().mono.since(self.began.mono);
        let mut sent = span(self.own, "deliver", Kind::Client, start, start.plus(took));
        let cancelled = || Ended { outcome: "cancelled", status: None, failure: Some("cancelled".to_owned()) };
        let ended = self.ended.take().unwrap_or_else(cancelled);
        sent.attributes.push(("fairlane.outcome", ended.outcome.into()));
        if let Some(status) = ended.status {
            sent.attributes.push(("http.response.status_code", u32::from(status).into()));
        }
        sent.failure = ended.failure;
        self.spans.record(sent);
    }
}
