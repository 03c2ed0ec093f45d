//! Opening the store that the configuration names; a Redis is looked at first.

use std::sync::Arc;

use anyhow::Context as _;

use crate::clock::Clock;
use crate::config::Store;
use crate::metrics::Metrics;
use crate::store::LaneStore;
use crate::store::doctor::{Finding, Standing};
use crate::store::embedded::Embedded;
use crate::store::redis::link::Link;
use crate::store::redis::{self, Redis};
use crate::store::spool::{self, Spooled};

/// What a start is refused for: a Redis that is set up so that events would be lost, or that cannot be written to. What may pass by
/// itself (memory that is nearly full, a replica that is away) is said and started with.
const REFUSED: [&str; 6] = ["redis", "version", "mode", "eviction", "persistence", "writes"];

/// A store in Redis, and the way to it.
pub(super) type Remote = (Arc<Redis>, Arc<Link>);

/// A store that is ready, and where it is shared with other nodes.
pub(super) struct Opened {
    pub(super) store: Arc<dyn LaneStore>,
    /// `None`: it is this node's own.
    pub(super) remote: Option<Remote>,
    /// What keeps events while the shared one is away; it has to be run.
    pub(super) spool: Option<Arc<Spooled>>,
}

/// The store, ready.
///
/// # Errors
/// What keeps it from being opened, and what to do.
pub(super) async fn open_store(
    store: &Store,
    clock: &Arc<dyn Clock>,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Opened> {
    match store {
        Store::Embedded(settings) => {
            let opened = Embedded::open(settings.clone(), Arc::clone(clock));
            let place = settings.path.display();
            let opened = opened.with_context(|| format!("the store in {place} cannot be opened"))?;
            Ok(Opened { store: Arc::new(opened), remote: None, spool: None })
        }
        Store::Redis(settings) => {
            let link = Arc::new(Link::new(settings.server.clone(), settings.ack, Arc::clone(clock)));
            let findings = redis::checkup(&link, settings, &**clock).await;
            admit(findings).with_context(|| format!("the store in {} cannot be opened", settings.server))?;
            let opened = Redis::open_over(Arc::clone(&link), (**settings).clone(), Arc::clone(clock)).await;
            let redis = opened.with_context(|| format!("the store in {} cannot be opened", settings.server))?;
            let spool = spool::before_redis(&redis, settings, Arc::clone(clock), Arc::clone(metrics));
            let folder = settings.folder.display();
            let spool = spool.with_context(|| format!("the spool in {folder} cannot be opened"))?;
            let store = Arc::clone(&spool) as Arc<dyn LaneStore>;
            Ok(Opened { store, remote: Some((redis, link)), spool: Some(spool) })
        }
    }
}

/// Whether the store could be opened, by somebody who may not yet: another process has it.
///
/// # Errors
/// What would keep it from being opened, and what to do.
pub(super) async fn check(store: &Store, clock: &Arc<dyn Clock>) -> anyhow::Result<()> {
    match store {
        Store::Embedded(settings) => {
            let place = settings.path.display();
            Embedded::check(&settings.path).with_context(|| format!("the store in {place} cannot be opened"))
        }
        Store::Redis(settings) => {
            let link = Link::new(settings.server.clone(), settings.ack, Arc::clone(clock));
            let findings = redis::checkup(&link, settings, &**clock).await;
            admit(findings).with_context(|| format!("the store in {} cannot be opened", settings.server))
        }
    }
}

/// Whether no other process has the store open.
///
/// # Errors
/// One has; of a store in Redis, its spool.
pub(super) fn is_free(store: &Store) -> anyhow::Result<()> {
    match store {
        Store::Embedded(settings) => Embedded::is_free(&settings.path)?,
        Store::Redis(settings) => Embedded::is_free(&settings.folder.join(spool::FOLDER))?,
    }
    Ok(())
}

/// Says what somebody should know, and refuses what would lose events.
fn admit(findings: Vec<Finding>) -> anyhow::Result<()> {
    let mut refused = Vec::new();
    for Finding { what, standing, text } in findings {
        if standing == Standing::Bad && REFUSED.contains(&what) {
            refused.push(format!("{what}: {text}"));
        } else if standing != Standing::Good {
            tracing::warn!(what, "Redis: {text}");
        }
    }
    anyhow::ensure!(refused.is_empty(), "{} (`fairlane doctor` shows all that was looked at)", refused.join("; "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_would_lose_events_keeps_it_from_starting() {
        let found = |what, standing| Finding { what, standing, text: "why".into() };
        admit(vec![found("memory", Standing::Bad), found("eviction", Standing::Note), found("writes", Standing::Good)])
            .unwrap();
        let refused = admit(vec![found("eviction", Standing::Bad), found("version", Standing::Bad)]).unwrap_err();
        assert!(refused.to_string().starts_with("eviction: why; version: why ("), "{refused}");
    }
}
