//! Everything that a store answers, taken page by page, and the ways in which its answers must agree with one another.

use std::collections::BTreeSet;
use std::sync::Arc;

use fairlane::event::{Event, Lane, Seq, Wall};
use fairlane::store::{LaneStore, LaneSummary, Pending, Query, Record, Status, Story, Usage};

/// What all reads gave.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) lanes: Vec<LaneSummary>,
    /// Fresh events, lane after lane.
    pub(crate) fresh: Vec<Pending>,
    pub(crate) due: Vec<Pending>,
    pub(crate) open: Vec<Pending>,
    pub(crate) records: Vec<Record>,
    pub(crate) stories: Vec<Story>,
    pub(crate) events: Vec<Arc<Event>>,
    pub(crate) usage: Usage,
}

impl Snapshot {
    /// Asks everything, `limit` a page, and checks that the answers agree.
    pub(crate) async fn take(store: &dyn LaneStore, limit: usize) -> Self {
        let lanes = all_lanes(store, limit).await;
        let mut fresh = Vec::new();
        for summary in &lanes {
            fresh.extend(all_fresh(store, &summary.lane, limit).await);
        }
        let records = all_records(store, Query { limit, ..Query::default() }).await;
        let mut stories = Vec::new();
        for record in &records {
            let story = store.find(record.id).await.unwrap();
            stories.push(story.unwrap_or_else(|| panic!("{} is listed and cannot be found", record.id)));
        }
        let seqs: Vec<Seq> = records.iter().map(|record| record.seq).collect();
        let mut events = Vec::new();
        for page in seqs.chunks(limit) {
            events.extend(store.read(page.to_vec()).await.unwrap());
        }
        let snapshot = Self {
            due: all_due(store, limit).await,
            open: all_open(store, limit).await,
            events: events.into_iter().map(|event| event.expect("every listed event can be read")).collect(),
            usage: store.usage(),
            lanes,
            fresh,
            records,
            stories,
        };
        snapshot.check();
        snapshot
    }

    /// What one answer says must not contradict another.
    fn check(&self) {
        assert!(self.records.is_sorted_by(|a, b| a.seq > b.seq), "a list is newest first, no event twice");
        assert!(self.lanes.is_sorted_by(|a, b| a.lane < b.lane), "lanes are in the order of their names, none twice");
        assert!(self.due.is_sorted_by(|a, b| (a.due, a.seq) < (b.due, b.seq)), "due events are in order, none twice");
        assert!(self.open.is_sorted_by(|a, b| a.seq < b.seq), "open events are in order, none twice");
        for (queue, status) in
            [(&self.fresh, Status::Queued), (&self.due, Status::Retrying), (&self.open, Status::InFlight)]
        {
            let mut queued: Vec<&Pending> = queue.iter().collect();
            queued.sort_by_key(|pending| std::cmp::Reverse(pending.seq));
            let listed: Vec<&Record> = self.records.iter().filter(|record| record.status == status).collect();
            assert_eq!(queued.len(), listed.len(), "{status:?}: {queued:?} against {listed:?}");
            for (pending, record) in queued.into_iter().zip(listed) {
                agree(pending, record);
            }
        }
        for ((record, story), event) in self.records.iter().zip(&self.stories).zip(&self.events) {
            assert_eq!(*record, story.record, "find and list");
            assert!(
                record.status == Status::Dead || record.reason.is_empty(),
                "only dead ones have a reason: {record:?}"
            );
            assert_eq!(
                (
                    record.id,
                    record.received,
                    &record.lane,
                    &record.source,
                    &record.key_source,
                    record.body_bytes as usize
                ),
                (event.id, event.received, &event.lane, &event.source, &event.key_source, event.body.len()),
                "read and list"
            );
        }
        self.check_sums();
    }

    /// Summaries and usage say what the lists say.
    fn check_sums(&self) {
        let pending: Vec<&Pending> = self.fresh.iter().chain(&self.due).chain(&self.open).collect();
        let lanes: BTreeSet<&Lane> = pending.iter().map(|pending| &pending.lane).collect();
        assert_eq!(self.lanes.iter().map(|summary| &summary.lane).collect::<BTreeSet<_>>(), lanes, "lanes and queues");
        let mut by_lane = std::collections::BTreeMap::<&Lane, (u64, u64, u64, Wall)>::new();
        let waits_from = |pending: &Pending| pending.requeued.unwrap_or(pending.received);
        for pending in &pending {
            let sums = by_lane.entry(&pending.lane).or_insert_with(|| (0, 0, 0, waits_from(pending)));
            sums.0 += u64::from(!pending.open && pending.due.is_none());
            sums.1 += u64::from(!pending.open && pending.due.is_some());
            sums.2 += u64::from(pending.bytes);
            sums.3 = sums.3.min(waits_from(pending));
        }
        for summary in &self.lanes {
            let said = (summary.fresh, summary.retrying, summary.bytes, summary.oldest);
            assert_eq!(said, by_lane[&summary.lane], "fresh, retrying, bytes and oldest of {:?}", summary.lane);
        }
        assert_eq!(self.usage.pending, pending.len() as u64, "usage: pending");
        assert_eq!(self.usage.history, (self.records.len() - pending.len()) as u64, "usage: history");
        assert_eq!(self.usage.lanes, self.lanes.len() as u64, "usage: lanes");
        assert_eq!(self.usage.oldest, pending.iter().map(|pending| waits_from(pending)).min(), "usage: oldest");
    }

    /// Without what each store counts in its own way: bytes of records, of the disk.
    pub(crate) fn without_sizes(mut self) -> Self {
        self.fresh.iter_mut().chain(&mut self.due).chain(&mut self.open).for_each(|pending| pending.bytes = 0);
        self.lanes.iter_mut().for_each(|summary| summary.bytes = 0);
        self
    }

    /// Fails with what differs first; bodies may be large and are not printed.
    pub(crate) fn assert_same(&self, other: &Self, when: &str) {
        assert_eq!(self.records, other.records, "{when}: list");
        assert_eq!(self.lanes, other.lanes, "{when}: lanes");
        assert_eq!(self.fresh, other.fresh, "{when}: load");
        assert_eq!(self.due, other.due, "{when}: due");
        assert_eq!(self.open, other.open, "{when}: open");
        assert_eq!(self.stories, other.stories, "{when}: find");
        assert_eq!(numbers(self.usage), numbers(other.usage), "{when}: usage");
        for (a, b) in self.events.iter().zip(&other.events) {
            assert!(a == b, "{when}: {} is read otherwise", a.id);
        }
    }
}

/// What of a store's usage is the same for every store, whatever it takes on its disk.
fn numbers(usage: Usage) -> (u64, u64, u64, Option<Wall>) {
    (usage.pending, usage.history, usage.lanes, usage.oldest)
}

fn agree(pending: &Pending, record: &Record) {
    assert_eq!(
        (pending.seq, pending.id, &pending.lane, pending.received, pending.attempts, pending.due),
        (record.seq, record.id, &record.lane, record.received, record.attempts, record.due),
        "a queue and the list"
    );
    assert_eq!(pending.open, record.status == Status::InFlight, "a queue and the list: {pending:?}");
    assert!(pending.bytes >= record.body_bytes, "a record holds its body: {pending:?}");
}

/// All lanes, page by page.
pub(crate) async fn all_lanes(store: &dyn LaneStore, limit: usize) -> Vec<LaneSummary> {
    let mut all: Vec<LaneSummary> = Vec::new();
    loop {
        let after = all.last().map(|last| last.lane.clone());
        let page = store.lanes(after, limit).await.unwrap();
        assert!(page.len() <= limit, "at most {limit} lanes were asked for");
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

/// All fresh events of a lane, page by page.
pub(crate) async fn all_fresh(store: &dyn LaneStore, lane: &Lane, limit: usize) -> Vec<Pending> {
    let mut all: Vec<Pending> = Vec::new();
    loop {
        let after = all.last().map_or(Seq(0), |last| last.seq);
        let page = store.load(lane.clone(), after, limit).await.unwrap();
        assert!(page.len() <= limit, "at most {limit} events were asked for");
        if page.is_empty() {
            assert!(all.is_sorted_by(|a, b| a.seq < b.seq), "a lane is in the order of its seqs, none twice");
            return all;
        }
        all.extend(page);
    }
}

/// All retrying events, page by page.
pub(crate) async fn all_due(store: &dyn LaneStore, limit: usize) -> Vec<Pending> {
    let mut all: Vec<Pending> = Vec::new();
    loop {
        let after = all.last().map(|last| (last.due.expect("a retrying event has a due time"), last.seq));
        let page = store.due(after, limit).await.unwrap();
        assert!(page.len() <= limit, "at most {limit} events were asked for");
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

/// All open events, page by page.
pub(crate) async fn all_open(store: &dyn LaneStore, limit: usize) -> Vec<Pending> {
    let mut all: Vec<Pending> = Vec::new();
    loop {
        let page = store.open(all.last().map_or(Seq(0), |last| last.seq), limit).await.unwrap();
        assert!(page.len() <= limit, "at most {limit} events were asked for");
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

/// All records that match, page by page, to the end that the store names.
pub(crate) async fn all_records(store: &dyn LaneStore, mut query: Query) -> Vec<Record> {
    let mut all = Vec::new();
    loop {
        let page = store.list(query.clone()).await.unwrap();
        assert!(page.records.len() <= query.limit, "at most {} records were asked for", query.limit);
        let lowest = page.records.last().map(|record| record.seq);
        all.extend(page.records);
        let Some(next) = page.next else { return all };
        assert!(
            query.behind.is_none_or(|behind| if query.oldest_first { next > behind } else { next < behind }),
            "a page must lead on: {next} after {:?}",
            query.behind
        );
        let leads_on = |last| if query.oldest_first { next >= last } else { next <= last };
        assert!(lowest.is_none_or(leads_on), "the next page must not repeat {lowest:?}");
        query.behind = Some(next);
    }
}
