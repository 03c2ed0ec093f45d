//! Honest senders: signed requests by a fixed schedule over kept connections.

use std::net::SocketAddr;
use std::time::Duration;

use fairlane::clock::{Clock as _, SystemClock};

use crate::support::{Client, post};

const CONNECTIONS: u32 = 16;

/// What they saw.
pub(crate) struct Seen {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// Answered otherwise than 200, or not at all.
    pub(crate) refused: usize,
}

/// `rate` requests a second for so long.
pub(crate) fn send(to: SocketAddr, rate: u64, span: Duration) -> Seen {
    let each = Duration::from_secs(1) * CONNECTIONS / u32::try_from(rate).unwrap_or(u32::MAX);
    let took: Vec<Option<Duration>> = std::thread::scope(|scope| {
        let senders: Vec<_> =
            (0..CONNECTIONS).map(|number| scope.spawn(move || send_over_one(to, number, each, span))).collect();
        senders.into_iter().flat_map(|sender| sender.join().expect("it does not panic")).collect()
    });
    let mut answered: Vec<Duration> = took.iter().flatten().copied().collect();
    answered.sort_unstable();
    let rank = |share: usize| answered.get(answered.len().saturating_sub(1) * share / 100).copied().unwrap_or_default();
    Seen { p50: rank(50), p99: rank(99), refused: took.len() - answered.len() }
}

/// From when each request was due, or was sent where the connection was idle: the timer's coarseness is ours.
fn send_over_one(to: SocketAddr, number: u32, each: Duration, span: Duration) -> Vec<Option<Duration>> {
    let body = format!("{{\"id\":820982911946154508,\"note\":\"{}\"}}", "n".repeat(980));
    let request = post("/webhooks/shopify", body.as_bytes()).shopify(&format!("shop-{number}.myshopify.com"));
    let mut client = Client::to(to);
    let began = SystemClock.now().mono;
    let mut due = began.plus(each * number / CONNECTIONS);
    let mut took = Vec::new();
    while due < began.plus(span) {
        let wait = due.since(SystemClock.now().mono);
        if !wait.is_zero() {
            std::thread::park_timeout(wait);
        }
        let from = if wait.is_zero() { due } else { SystemClock.now().mono };
        match client.try_send(&request) {
            Some(answer) if answer.status == 200 => took.push(Some(SystemClock.now().mono.since(from))),
            Some(_) => took.push(None),
            None => {
                took.push(None);
                client = Client::to(to);
            }
        }
        due = due.plus(each);
    }
    took
}
