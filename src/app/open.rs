//! Opening the store that the configuration names; a Redis is looked at first, and looked for where it is away.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use crate::clock::Clock;
use crate::config::Store;
use crate::metrics::Metrics;
use crate::store::doctor::{Finding, Standing};
use crate::store::embedded::Embedded;
use crate::store::redis::link::Link;
use crate::store::redis::{self, Redis};
use crate::store::spool::{self, Spooled};
use crate::store::{Error, LaneStore};

/// What a start is refused for: a Redis that is set up so that events would be lost, or that cannot be written to. What may pass by
/// itself (memory that is nearly full, a replica that is away) is said and started with.
const REFUSED: [&str; 6] = ["redis", "version", "mode", "eviction", "persistence", "writes"];

/// How often a Redis that was away at the start is looked for.
const LOOK: Duration = Duration::from_millis(500);

/// A store that is ready, and where it is shared with other nodes.
pub(super) struct Opened {
    pub(super) store: Arc<dyn LaneStore>,
    /// `None`: it is this node's own.
    pub(super) remote: Option<Arc<Redis>>,
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
            let in_words = || format!("the store in {} cannot be opened", settings.server);
            let redis = Redis::over(link, (**settings).clone(), Arc::clone(clock)).with_context(in_words)?;
            match take_into_use(&redis, settings, &**clock).await {
                Ok(()) => {}
                Err(NotUsed::Away(why)) if settings.spool => {
                    tracing::warn!(
                        why,
                        "Redis is away: this node starts all the same, keeps events in its spool, and delivers nothing until Redis is there"
                    );
                }
                Err(NotUsed::Away(why)) => {
                    let hint = "with a spool (store.redis.spool) a node starts without it";
                    return Err(anyhow::anyhow!("{why}; {hint}")).with_context(in_words);
                }
                Err(NotUsed::Unfit(error)) => return Err(error).with_context(in_words),
            }
            let spool = spool::before_redis(&redis, settings, Arc::clone(clock), Arc::clone(metrics));
            let folder = settings.folder.display();
            let spool = spool.with_context(|| format!("the spool in {folder} cannot be opened"))?;
            let store = Arc::clone(&spool) as Arc<dyn LaneStore>;
            Ok(Opened { store, remote: Some(redis), spool: Some(spool) })
        }
    }
}

/// Why a Redis is not used.
enum NotUsed {
    /// Nothing is there yet; in words.
    Away(String),
    /// It is there, and events would be lost or cannot be written.
    Unfit(anyhow::Error),
}

/// Looks at a Redis, and takes the store in it into use.
async fn take_into_use(redis: &Redis, settings: &redis::Settings, clock: &dyn Clock) -> Result<(), NotUsed> {
    let findings = redis::checkup(redis.link(), settings, clock).await;
    if let Some(why) = findings.first().filter(|_| redis::is_away(&findings)) {
        return Err(NotUsed::Away(why.text.clone()));
    }
    admit(findings).map_err(NotUsed::Unfit)?;
    redis.begin().await.map_err(|error| match error {
        Error::Unavailable(why) => NotUsed::Away(why),
        error => NotUsed::Unfit(error.into()),
    })
}

/// Looks for a Redis that was away at the start until the store in it is in use. One that is there and set up so that events would be lost
/// is not used either until somebody has changed that.
pub(super) async fn look_for(redis: Arc<Redis>, settings: redis::Settings, clock: Arc<dyn Clock>) {
    let mut said = String::new();
    loop {
        tokio::time::sleep(LOOK).await;
        match take_into_use(&redis, &settings, &*clock).await {
            Ok(()) => return tracing::info!("Redis is there: what is in the spool goes to it, and deliveries begin"),
            Err(NotUsed::Away(why)) => tracing::debug!(why, "Redis is away still"),
            Err(NotUsed::Unfit(error)) => {
                let why = format!("{error:#}");
                if why != said {
                    tracing::error!(
                        "Redis is there and cannot be used as it is: {why}; events stay in the spool until that is changed"
                    );
                    said = why;
                }
            }
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
    let is_refused = |finding: &Finding| finding.standing == Standing::Bad && REFUSED.contains(&finding.what);
    let (refused, passed): (Vec<Finding>, Vec<Finding>) = findings.into_iter().partition(is_refused);
    let refused: Vec<String> =
        refused.into_iter().map(|Finding { what, text, .. }| format!("{what}: {text}")).collect();
    anyhow::ensure!(refused.is_empty(), "{} (`fairlane doctor` shows all that was looked at)", refused.join("; "));
    for Finding { what, text, .. } in passed.iter().filter(|finding| finding.standing != Standing::Good) {
        tracing::warn!(what, "Redis: {text}");
    }
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
