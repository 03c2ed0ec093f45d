//! The store is let go of: what came before is answered, live requests are served on, and nothing is written any more.

use super::*;
use crate::store::{Query, Status};

async fn status(w: &World, seq: Seq) -> Status {
    let page = w.handle.events(Query { limit: 100, ..Query::default() }).await.unwrap();
    page.records.iter().find(|record| record.seq == seq).unwrap().status
}

#[tokio::test(start_paused = true)]
async fn what_came_before_is_stored_and_a_live_request_has_its_answer_after_the_store_has_gone() {
    let slow = Duration::from_secs(1);
    let w = world_with(Arc::new(move |job| {
        Box::pin(async move {
            tokio::time::sleep(slow).await;
            delivered(job.attempt)
        })
    }));
    let in_flight = w.submit(1, 1).await.unwrap().unwrap();
    let call = w.call(2);
    settle().await;
    // Nothing is attempted any more, but all is taken in.
    let (quiet, held) = (w.handle.clone(), w.submit(3, 1));
    let quiet = async move { quiet.hold_events().await };
    let (quiet, held) = tokio::join!(quiet, held);
    assert_eq!((quiet, held.unwrap().is_ok()), (Ok(()), true));
    assert_eq!(status(&w, in_flight).await, Status::Delivered);
    let call_too = w.call(4);
    let mut gate = w.memory.hold_next(Call::Append);
    let last = w.submit(5, 1);
    gate.arrived().await;
    let handle = w.handle.clone();
    let letting_go = async move { handle.let_go().await };
    let opening = async {
        settle().await;
        gate.open();
    };
    let (gone, ()) = tokio::join!(letting_go, opening);
    assert_eq!(gone, Ok(()));
    assert!(last.await.unwrap().is_ok(), "it came before");
    assert_eq!(w.submit(6, 1).await.unwrap(), Err(Shed::Draining));
    assert!(!w.driver.is_finished(), "somebody still waits for an answer");
    assert!(call.await.unwrap().is_ok() && call_too.await.unwrap().is_ok());
    w.driver.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hold_can_be_taken_back() {
    let w = world();
    assert_eq!(w.handle.hold_events().await, Ok(()));
    let held = w.submit(1, 1).await.unwrap().unwrap();
    settle().await;
    assert_eq!(status(&w, held).await, Status::Queued);
    assert_eq!(w.handle.resume_events().await, Ok(()));
    settle().await;
    assert_eq!(status(&w, held).await, Status::Delivered);
}
