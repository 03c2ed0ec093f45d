//! What a refusal leaves: a number, and a masked record in memory.

use std::sync::Arc;

use http::request::Parts;

use super::accept::{Found, Front, Table};
use super::connection::Connection;
use super::head;
use super::reply::Refused;
use crate::driver::Rejection;

/// A request as a record of it is made.
pub(super) struct Came<'a> {
    pub(super) front: &'a Front,
    pub(super) table: &'a Table,
    pub(super) connection: &'a Connection,
    pub(super) parts: &'a Parts,
    pub(super) found: Option<&'a Found<'a, 'a>>,
    /// Bytes of the body, as far as it was read.
    pub(super) body_bytes: usize,
}

impl Came<'_> {
    /// Counts a refusal and keeps a record of it. Refusals for want of room, and those of handshakes that are too many, are only
    /// counted: a flood of them must not push out what a person needs to see.
    pub(super) fn refused(&self, refused: &Refused) {
        match self.found {
            Some(found) if refused.is_shed() => return found.source.metrics.shed(refused.reason()),
            // Counted where it was found.
            Some(_) if matches!(refused, Refused::Questions) => return,
            Some(found) => found.source.metrics.rejected(refused.reason()),
            None => self.front.handle.metrics().rejected_without_source(refused.reason()),
        }
        self.keep(refused.reason(), refused.message());
    }

    /// Keeps a record.
    pub(super) fn keep(&self, reason: &'static str, message: String) {
        let rejection = Rejection {
            at: self.front.clock.now().wall,
            source: self.found.map_or_else(|| Arc::from(""), |found| Arc::clone(&found.source.name)),
            peer: self.connection.peer,
            reason: reason.into(),
            message,
            method: head::shown(self.parts.method.as_str().as_bytes()),
            path: self.table.shown(self.parts.uri.path(), self.found.is_some()),
            headers: head::masked(&self.parts.headers, &self.table.carriers),
            body_bytes: self.body_bytes,
        };
        self.front.handle.rejections().push(rejection, self.table.settings.rejections);
    }
}
