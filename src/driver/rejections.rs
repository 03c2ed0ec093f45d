//! The refusals of late, in memory: a bounded ring for each source.
//!
//! A refused request leaves nothing on disk. Here stays what a person needs to mend a sender: when, who, why in words, and
//! which headers came, values of headers that may hold a secret or a signature masked.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::event::Wall;

/// One refused request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejection {
    /// When it came.
    pub at: Wall,
    /// The source it was for; empty when there is none at its path.
    #[serde(with = "crate::event::written::shared")]
    pub source: Arc<str>,
    /// Who sent it.
    pub peer: IpAddr,
    /// The kind of fault, as in metrics.
    pub reason: Cow<'static, str>,
    /// What was expected and what was found.
    pub message: String,
    /// The method.
    pub method: String,
    /// The path, without the query (it may hold a secret).
    pub path: String,
    /// Header lines; values that may hold a secret are masked.
    pub headers: Vec<(String, String)>,
    /// Bytes of the body, as far as it was read.
    pub body_bytes: usize,
}

/// The rings.
#[derive(Debug, Default)]
pub struct Rejections {
    rings: Mutex<HashMap<Arc<str>, VecDeque<Rejection>>>,
}

impl Rejections {
    /// Keeps `rejection`, and the newest `keep` of its source.
    pub fn push(&self, rejection: Rejection, keep: usize) {
        let mut rings = self.rings.lock();
        let ring = rings.entry(Arc::clone(&rejection.source)).or_default();
        ring.push_front(rejection);
        ring.truncate(keep);
    }

    /// The newest ones, of one source or of all, newest first, at most `limit`.
    #[must_use]
    pub fn list(&self, source: Option<&str>, limit: usize) -> Vec<Rejection> {
        let rings = self.rings.lock();
        let mut all: Vec<_> = match source {
            Some(source) => rings.get(source).into_iter().flatten().take(limit).cloned().collect(),
            None => rings.values().flat_map(|ring| ring.iter().take(limit)).cloned().collect(),
        };
        all.sort_by_key(|rejection| std::cmp::Reverse(rejection.at));
        all.truncate(limit);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejection(source: &str, at: u64) -> Rejection {
        Rejection {
            at: Wall(at),
            source: source.into(),
            peer: IpAddr::from([127, 0, 0, 1]),
            reason: "bad_signature".into(),
            message: String::new(),
            method: "POST".into(),
            path: "/".into(),
            headers: Vec::new(),
            body_bytes: 0,
        }
    }

    #[test]
    fn a_flood_of_one_source_leaves_the_others_theirs() {
        let rejections = Rejections::default();
        rejections.push(rejection("quiet", 1), 3);
        for at in 2..100 {
            rejections.push(rejection("noisy", at), 3);
        }
        let times = |source| rejections.list(source, 10).iter().map(|r| r.at.0).collect::<Vec<_>>();
        assert_eq!(times(Some("noisy")), [99, 98, 97]);
        assert_eq!(times(Some("quiet")), [1]);
        assert_eq!(times(None), [99, 98, 97, 1]);
        assert_eq!(rejections.list(None, 2).len(), 2);
    }
}
