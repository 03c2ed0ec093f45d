//! What a start finds: leases that were open when the process died, and lanes that still owe.

use std::collections::HashMap;
use std::sync::Arc;

use crate::engine::Engine;
use crate::event::{Lane, Now, Seq};
use crate::store::{Error, LaneStore, Pending, Settlement, Verdict};

/// An event under whose attempt the process died this often in a row may be what kills it.
const CRASHES_MAX: u32 = 3;

/// Entries of one read. Nothing is read for each event, so that a start costs by lanes and not by backlog.
const PAGE: usize = 10_000;

/// Ends open leases durably, then tells the engine which lanes have pending events. The answer is how many attempts had been under
/// way.
///
/// # Errors
/// The store's.
pub(super) async fn recover(store: &Arc<dyn LaneStore>, engine: &mut Engine, now: Now) -> Result<usize, Error> {
    let interrupted = end_open_leases(store, now).await?;
    let mut after = None;
    let mut shared = HashMap::new();
    loop {
        let lanes = store.lanes(after.take(), PAGE).await?;
        for summary in &lanes {
            if summary.lane.group.is_overflow() {
                shared.insert(summary.lane.clone(), summary.retrying);
            }
            engine.on_recovered(&summary.lane, summary.fresh, summary.retrying, summary.oldest, now);
        }
        match lanes.last() {
            Some(last) if lanes.len() == PAGE => after = Some(last.lane.clone()),
            _ => break,
        }
    }
    tell_owners(store, engine, shared).await?;
    Ok(interrupted)
}

/// Says whose events are in overflow lanes: the one thing that a start has to read by events, since a group stays there until its own
/// are gone. `lanes` has how many of each are retrying.
async fn tell_owners(store: &Arc<dyn LaneStore>, engine: &mut Engine, lanes: HashMap<Lane, u64>) -> Result<(), Error> {
    let tell = |engine: &mut Engine, pending: &Pending| {
        if let Some(owner) = &pending.owner {
            engine.on_overflowed(&pending.lane, owner);
        }
    };
    for lane in lanes.keys() {
        let mut after = Seq(0);
        loop {
            let fresh = store.load(lane.clone(), after, PAGE).await?;
            fresh.iter().for_each(|pending| tell(engine, pending));
            let Some(last) = fresh.last().filter(|_| fresh.len() == PAGE) else { break };
            after = last.seq;
        }
    }
    let mut missing: u64 = lanes.values().sum();
    let mut after = None;
    while missing > 0 {
        let due = store.due(after, PAGE).await?;
        for pending in due.iter().filter(|pending| lanes.contains_key(&pending.lane)) {
            tell(engine, pending);
            missing = missing.saturating_sub(1);
        }
        let Some(last) = due.last().filter(|_| due.len() == PAGE) else { break };
        after = last.due.map(|due| (due, last.seq));
    }
    Ok(())
}

async fn end_open_leases(store: &Arc<dyn LaneStore>, now: Now) -> Result<usize, Error> {
    let mut ended = 0;
    loop {
        // Each round ends what it finds, so the next begins anew.
        let open = store.open(Seq(0), PAGE).await?;
        if open.is_empty() {
            return Ok(ended);
        }
        ended += open.len();
        store.settle(open.iter().map(|pending| interruption(pending, now)).collect()).await?;
    }
}

pub(super) fn interruption(pending: &Pending, now: Now) -> Settlement {
    let verdict = if pending.interrupted + 1 >= CRASHES_MAX {
        Verdict::Dead(
            format!("crashed_gateway: the gateway ended {CRASHES_MAX} times in a row during its attempt").into(),
        )
    } else {
        Verdict::Interrupted
    };
    Settlement { seq: pending.seq, at: now.wall, verdict, attempt: None }
}
