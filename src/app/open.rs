//! Opening the store that the configuration names.

use std::sync::Arc;

use anyhow::Context as _;

use crate::clock::Clock;
use crate::config::Store;
use crate::store::LaneStore;
use crate::store::embedded::Embedded;

/// The store, ready.
///
/// # Errors
/// What keeps it from being opened, and what to do.
pub(super) async fn open_store(store: &Store, clock: &Arc<dyn Clock>) -> anyhow::Result<Arc<dyn LaneStore>> {
    match store {
        Store::Embedded(settings) => {
            let opened = Embedded::open(settings.clone(), Arc::clone(clock));
            let place = settings.path.display();
            Ok(Arc::new(opened.with_context(|| format!("the store in {place} cannot be opened"))?))
        }
        Store::Redis(settings) => anyhow::bail!("{} cannot be used in this version", settings.server),
    }
}
