//! Opening the store that the configuration names.

use std::sync::Arc;

use anyhow::Context as _;

use crate::clock::Clock;
use crate::config::Store;
use crate::store::LaneStore;
use crate::store::embedded::Embedded;
use crate::store::redis::Redis;
use crate::store::redis::link::Link;

/// A store in Redis, and the way to it.
pub(super) type Remote = (Arc<Redis>, Arc<Link>);

/// A store that is ready, and where it is shared with other nodes.
pub(super) struct Opened {
    pub(super) store: Arc<dyn LaneStore>,
    /// `None`: it is this node's own.
    pub(super) remote: Option<Remote>,
}

/// The store, ready.
///
/// # Errors
/// What keeps it from being opened, and what to do.
pub(super) async fn open_store(store: &Store, clock: &Arc<dyn Clock>) -> anyhow::Result<Opened> {
    match store {
        Store::Embedded(settings) => {
            let opened = Embedded::open(settings.clone(), Arc::clone(clock));
            let place = settings.path.display();
            let opened = opened.with_context(|| format!("the store in {place} cannot be opened"))?;
            Ok(Opened { store: Arc::new(opened), remote: None })
        }
        Store::Redis(settings) => {
            let link = Arc::new(Link::new(settings.server.clone(), settings.ack, Arc::clone(clock)));
            let opened = Redis::open_over(Arc::clone(&link), (**settings).clone(), Arc::clone(clock)).await;
            let redis = opened.with_context(|| format!("the store in {} cannot be opened", settings.server))?;
            Ok(Opened { store: Arc::clone(&redis) as Arc<dyn LaneStore>, remote: Some((redis, link)) })
        }
    }
}
