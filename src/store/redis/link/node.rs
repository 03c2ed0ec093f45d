//! One server: a connection for what is only to be answered, and one for what is waited for until it is durable, since WAIT holds up all
//! that comes behind it on the same connection. Both are made when they are needed, by one caller at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use super::dial::{self, Live};
use crate::store::redis::settings::{Ack, Address, Server};

/// One server.
pub(super) struct Node {
    address: Address,
    quick: Line,
    durable: Line,
}

#[derive(Default)]
struct Line {
    live: tokio::sync::Mutex<Option<Live>>,
    made: AtomicU64,
}

impl Node {
    pub(super) fn at(address: Address) -> Self {
        Self { address, quick: Line::default(), durable: Line::default() }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// The connection, made anew where there is none.
    pub(super) async fn live(&self, server: &Server, ack: Ack, durable: bool) -> Result<Live, String> {
        let line = self.line(ack, durable);
        let mut held = line.live.lock().await;
        if let Some(live) = &*held {
            return Ok(live.clone());
        }
        let number = line.made.fetch_add(1, Ordering::Relaxed);
        let live = dial::live(server, &self.address, ack, number).await?;
        *held = Some(live.clone());
        Ok(live)
    }

    /// That connection is of no use any more.
    pub(super) async fn lose(&self, live: &Live, ack: Ack, durable: bool) {
        let mut held = self.line(ack, durable).live.lock().await;
        if held.as_ref().is_some_and(|held| held.number == live.number) {
            *held = None;
        }
    }

    /// Where nothing is waited for, one connection does.
    fn line(&self, ack: Ack, durable: bool) -> &Line {
        if durable && ack != Ack::Memory { &self.durable } else { &self.quick }
    }
}
