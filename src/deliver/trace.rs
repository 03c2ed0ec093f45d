//! How far an attempt has come, told by the parts of the connector that nobody hands the attempt to.
//!
//! The HTTP client calls name lookup, connect and TLS with an address and nothing else. They all run inside the attempt's own
//! poll, so a task-local leads back to it. A connection that is finished in the background, because another one became free
//! first, belongs to no attempt, and its steps are told to nobody.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;

tokio::task_local! {
    static CURRENT: Arc<Trace>;
}

/// A step before the request can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Lookup,
    Connect,
    Tls,
}

/// One attempt's way to a connection.
#[derive(Debug)]
pub(super) struct Trace(Mutex<Place>);

#[derive(Debug)]
struct Place {
    phase: Phase,
    addresses: Vec<SocketAddr>,
}

impl Trace {
    /// An address that is no name is connected to without lookup, so this is where an attempt begins.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Place { phase: Phase::Connect, addresses: Vec::new() })))
    }

    /// Runs `future` as part of this attempt.
    pub(super) fn scope<F: Future>(self: &Arc<Self>, future: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(Arc::clone(self), future)
    }

    pub(super) fn phase(&self) -> Phase {
        self.0.lock().phase
    }

    /// What the name was found to stand for; empty before, and where there was no name.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.0.lock().addresses.clone()
    }
}

/// The attempt on whose behalf this runs; `None` in the background.
pub(super) fn current() -> Option<Arc<Trace>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// The current attempt has come to this phase.
pub(super) fn enter(phase: Phase) {
    if let Some(trace) = current() {
        trace.0.lock().phase = phase;
    }
}

/// The current attempt's name stands for these addresses; the next step is to connect.
pub(super) fn found(addresses: &[SocketAddr]) {
    if let Some(trace) = current() {
        *trace.0.lock() = Place { phase: Phase::Connect, addresses: addresses.to_vec() };
    }
}
