//! Reading: the remote and the spool as one.
//!
//! An event moves from the spool to the remote. So who looks for one looks into the spool first: what is not there any more is at the
//! remote by then. While a list is paged an event may be met twice, or, with the oldest first, be passed by as it moves.

use std::sync::Arc;
use std::time::Duration;

use super::embedded::Embedded;
use super::{FIRST, Spooled, inner, is_spooled, outer};
use crate::event::{Event, EventId, Seq};
use crate::store::{Error, LaneStore as _, Page, Query, Record, Status, Story};

/// A read that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);

impl Spooled {
    pub(super) async fn look_for(&self, id: EventId) -> Result<Option<Story>, Error> {
        let here = match &self.local {
            Some(local) => local.find(id).await?.filter(|story| story.record.status.is_pending()),
            None => None,
        };
        let Some(here) = here else { return self.ask(PATIENCE, self.remote.find(id)).await };
        // It may have arrived and not be struck out yet. While the remote is away, nobody waits to learn that it has not.
        let deadline = self.settings.deadline;
        if !self.is_silent(deadline)
            && let Ok(Some(there)) = self.ask(deadline, self.remote.find(id)).await
        {
            return Ok(Some(there));
        }
        Ok(Some(Story { record: shown(here.record), ..here }))
    }

    pub(super) async fn look_at(&self, seqs: Vec<Seq>) -> Result<Vec<Option<Arc<Event>>>, Error> {
        let (here, there): (Vec<Seq>, Vec<Seq>) = seqs.iter().copied().partition(|seq| is_spooled(*seq));
        let of_spool = match &self.local {
            Some(local) if !here.is_empty() => local.read(here.into_iter().map(inner).collect()).await?,
            _ => Vec::new(),
        };
        let of_remote = if there.is_empty() && !seqs.is_empty() {
            Vec::new()
        } else {
            self.ask(PATIENCE, self.remote.read(there)).await?
        };
        let (mut of_spool, mut of_remote) = (of_spool.into_iter(), of_remote.into_iter());
        let next = |seq| if is_spooled(seq) { of_spool.next() } else { of_remote.next() };
        Ok(seqs.into_iter().map(next).map(Option::flatten).collect())
    }

    /// The spool's events stand above all others.
    pub(super) async fn look_through(&self, query: Query) -> Result<Page, Error> {
        let within = query.behind.is_some_and(is_spooled);
        match &self.local {
            Some(local) if within || self.waiting() > 0 => {
                if query.oldest_first {
                    self.upwards(local, query).await
                } else {
                    self.downwards(local, query).await
                }
            }
            _ => self.list_there(query).await,
        }
    }

    fn list_there(&self, query: Query) -> impl Future<Output = Result<Page, Error>> + '_ {
        let asked = self.remote.list(query);
        async move { self.ask(PATIENCE, asked).await }
    }

    /// Newest first: the spool, then the remote.
    async fn downwards(&self, local: &Embedded, query: Query) -> Result<Page, Error> {
        if query.behind.is_some_and(|seq| !is_spooled(seq)) {
            return self.list_there(query).await;
        }
        let mut page = list_here(local, &query).await?;
        let left = query.limit.saturating_sub(page.records.len());
        if page.next.is_some() {
            return Ok(page);
        }
        if left > 0 {
            match self.list_there(Query { behind: None, limit: left, ..query }).await {
                Ok(theirs) => {
                    page.records.extend(theirs.records);
                    return Ok(Page { records: page.records, ..theirs });
                }
                Err(error) if page.records.is_empty() => return Err(error),
                // What is here is shown; who asks for more gets the error.
                Err(_) => {}
            }
        }
        page.next = Some(Seq(FIRST));
        page.reached = page.records.last().map(|record| record.received);
        Ok(page)
    }

    /// Oldest first: the remote, then the spool.
    async fn upwards(&self, local: &Embedded, query: Query) -> Result<Page, Error> {
        if query.behind.is_some_and(is_spooled) {
            return list_here(local, &query).await;
        }
        let mut page = self.list_there(query.clone()).await?;
        let left = query.limit.saturating_sub(page.records.len());
        if page.next.is_some() {
            return Ok(page);
        }
        if left == 0 {
            page.next = Some(Seq(FIRST));
            page.reached = page.records.last().map(|record| record.received);
            return Ok(page);
        }
        let ours = list_here(local, &Query { behind: None, limit: left, ..query }).await?;
        page.records.extend(ours.records);
        Ok(Page { records: page.records, ..ours })
    }
}

/// A page of what is in the spool. It has queued events alone: what has moved is the remote's to show.
async fn list_here(local: &Embedded, query: &Query) -> Result<Page, Error> {
    if !query.status.is_empty() && !query.status.contains(&Status::Queued) {
        return Ok(Page::default());
    }
    let behind = query.behind.map(inner);
    let page = local.list(Query { status: vec![Status::Queued], behind, ..query.clone() }).await?;
    Ok(Page {
        records: page.records.into_iter().map(shown).collect(),
        next: page.next.map(outer),
        reached: page.reached,
    })
}

fn shown(record: Record) -> Record {
    Record { seq: outer(record.seq), ..record }
}
