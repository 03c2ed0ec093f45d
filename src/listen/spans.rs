//! The first half of the road as spans: what a request went through before its sender was answered.

use crate::event::{Now, Trace, Wall};
use crate::spans::{Kind, Recorder, Span};

use crate::event::Event;

/// A request that may become an event of a trace.
pub(super) struct Road<'r> {
    spans: &'r Recorder,
    /// Its own span, in the sender's trace or in a new one.
    context: Trace,
    /// The sender's span.
    parent: Option<[u8; 8]>,
    began: Now,
    steps: Vec<(&'static str, Wall)>,
}

impl<'r> Road<'r> {
    /// Begins one, while anybody collects traces. Nothing is recorded of a request before it is an event, for forged ones must not fill a
    /// collector; and nothing of one whose sender says that its trace is not recorded. `random` gives ids.
    pub(super) fn begin(
        spans: &'r Recorder,
        headers: &http::HeaderMap,
        mut random: impl FnMut() -> [u8; 16],
    ) -> Option<Self> {
        if !spans.is_on() {
            return None;
        }
        let came = Trace::from_headers(headers);
        let [span @ .., _, _, _, _, _, _, _, _] = random();
        let (id, flags) = came.map_or_else(|| (random(), Trace::SAMPLED), |came| (came.id, came.flags));
        let context = Trace { id, span, flags };
        Some(Self { spans, context, parent: came.map(|came| came.span), began: spans.now(), steps: Vec::new() })
    }

    /// A step has ended; the next one begins.
    pub(super) fn step(&mut self, name: &'static str) {
        let now = self.now();
        self.steps.push((name, now));
    }

    /// On the wall clock of the beginning, so that a clock that is set meanwhile stretches nothing.
    fn now(&self) -> Wall {
        self.began.wall.plus(self.spans.now().mono.since(self.began.mono))
    }

    pub(super) fn context(&self) -> Trace {
        self.context
    }

    /// The event's sender is about to be answered.
    pub(super) fn ended(self, event: &Known) {
        if !self.context.is_sampled() {
            return;
        }
        let end = self.now();
        let mut start = self.began.wall;
        for &(name, until) in &self.steps {
            let context = Trace { span: rand::random(), ..self.context };
            let attributes = Vec::new();
            self.spans.record(self.span(
                context,
                Some(self.context.span),
                name,
                Kind::Internal,
                (start, until),
                attributes,
            ));
            start = until;
        }
        let attributes = vec![
            ("fairlane.event_id", (&*event.id).into()),
            ("fairlane.source", (&event.source).into()),
            ("fairlane.group", (&*event.group).into()),
            ("http.request.method", (&*event.method).into()),
        ];
        self.spans.record(self.span(
            self.context,
            self.parent,
            "accept",
            Kind::Server,
            (self.began.wall, end),
            attributes,
        ));
    }

    fn span(
        &self,
        context: Trace,
        parent: Option<[u8; 8]>,
        name: &'static str,
        kind: Kind,
        (start, end): (Wall, Wall),
        attributes: Vec<(&'static str, crate::spans::Value)>,
    ) -> Span {
        Span { context, parent, name, kind, start, end, attributes, failure: None }
    }
}

/// What a span says of an event, which is on its way when that is written.
pub(super) struct Known {
    id: String,
    source: std::sync::Arc<str>,
    group: String,
    method: String,
}

impl Known {
    pub(super) fn of(event: &Event) -> Self {
        Self {
            id: event.id.to_string(),
            source: std::sync::Arc::clone(&event.source),
            group: event.lane.group.to_string(),
            method: event.method.to_string(),
        }
    }
}
