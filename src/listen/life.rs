//! How a listener ends: in stages that its connections see, and with a count of who is still there.
//!
//! A connection is counted until it has ended, or until all that it still waits for is an answer of the upstream's: such a request
//! is past everything that the store is needed for. A listener that waits for a successor begins another count, so that it can tell those who
//! were there before from those who came since. One that never asked for anything counts among the latter: nobody waits for it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

/// How long idle connections stay open after a listener began to end. A request that was on its way then is still
/// read; ending a connection whose first request was not read would leave it without an answer.
const LAME_DUCK: Duration = Duration::from_millis(250);

/// Where a listener stands on the way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It serves.
    Open,
    /// A successor is about to take over: every answer is the last of its connection, and idle connections end. Connections are still
    /// accepted; one that has had no answer yet is left alone.
    Retiring,
    /// Nothing is accepted any more.
    Ending,
}

/// A listener's life.
pub(super) struct Life(Arc<Shared>);

struct Shared {
    stage: watch::Sender<Stage>,
    /// Each connection holds a receiver of the count that it is in.
    count: Mutex<watch::Sender<()>>,
}

/// A connection's part in it.
pub(super) struct Stay {
    shared: Arc<Shared>,
    stage: watch::Receiver<Stage>,
    /// `None`: it is not waited for any more.
    counted: Mutex<Option<watch::Receiver<()>>>,
}

/// Those who were there at one moment.
#[derive(Debug)]
pub struct Those(watch::Sender<()>);

impl Life {
    pub(super) fn new() -> Self {
        let stage = watch::Sender::new(Stage::Open);
        Self(Arc::new(Shared { stage, count: Mutex::new(watch::Sender::new(())) }))
    }

    /// A connection has come.
    pub(super) fn enter(&self) -> Stay {
        let counted = self.0.count.lock().subscribe();
        Stay { shared: Arc::clone(&self.0), stage: self.0.stage.subscribe(), counted: Mutex::new(Some(counted)) }
    }

    pub(super) fn stage(&self) -> Stage {
        *self.0.stage.borrow()
    }

    pub(super) fn set(&self, stage: Stage) {
        self.0.stage.send_replace(stage);
    }

    /// Those who are there now; whoever comes from now on is counted anew.
    pub(super) fn those(&self) -> Those {
        Those(std::mem::replace(&mut *self.0.count.lock(), watch::Sender::new(())))
    }

    /// Resolves when no connection is left, those that are not counted any more with them.
    pub(super) async fn all_gone(&self) {
        self.0.stage.closed().await;
    }
}

impl Those {
    /// Resolves when all of them have gone.
    pub async fn gone(&self) {
        self.0.closed().await;
    }
}

impl Stay {
    /// It is not waited for any more where its present answer is its last: what it still waits for needs no store.
    pub(super) fn waits_alone(&self) {
        if *self.stage.borrow() != Stage::Open {
            self.counted.lock().take();
        }
    }

    /// Counts among those who came last.
    fn stays_on(&self) {
        let mut counted = self.counted.lock();
        if counted.is_some() {
            *counted = Some(self.shared.count.lock().subscribe());
        }
    }

    /// Resolves when the connection is to end as soon as nothing is under way on it. `has_asked`: whether a request of it was read;
    /// `is_held`: whether one waits for an answer of the upstream's.
    pub(super) async fn over(&self, has_asked: impl Fn() -> bool, is_held: impl Fn() -> bool) {
        let mut stages = self.stage.clone();
        loop {
            let stage = *stages.borrow_and_update();
            if is_held() {
                self.waits_alone();
            }
            let rest = async {
                match stage {
                    Stage::Open => std::future::pending().await,
                    Stage::Retiring | Stage::Ending => tokio::time::sleep(LAME_DUCK).await,
                }
            };
            tokio::select! {
                // In this order: what holds now decides, not what held while the rest passed.
                biased;
                changed = stages.changed() => if changed.is_err() {
                    // The listener is gone: we are ending all the same.
                    return tokio::time::sleep(LAME_DUCK).await;
                },
                () = rest => {
                    if stage == Stage::Ending || has_asked() {
                        return;
                    }
                    self.stays_on();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Poll;

    use super::*;

    /// Whether it is done, after all that is due by now was done.
    async fn is_done(future: &mut (impl Future<Output = ()> + Unpin)) -> bool {
        tokio::task::yield_now().await;
        std::future::poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_ready())).await
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_not_asked_yet_is_left_alone_until_nothing_is_accepted() {
        let life = Life::new();
        let stay = life.enter();
        let asked = Arc::new(AtomicBool::new(false));
        let has_asked = Arc::clone(&asked);
        let mut over = Box::pin(stay.over(move || has_asked.load(Ordering::Relaxed), || false));
        life.set(Stage::Retiring);
        let those = life.those();
        let mut gone = Box::pin(those.gone());
        for _ in 0..5 {
            assert!(!is_done(&mut over).await, "it has not asked");
            tokio::time::sleep(LAME_DUCK).await;
        }
        assert!(is_done(&mut gone).await, "nobody waits for one that does not ask");
        life.set(Stage::Open);
        asked.store(true, Ordering::Relaxed);
        tokio::time::sleep(LAME_DUCK * 5).await;
        assert!(!is_done(&mut over).await, "the successor did not come");
        asked.store(false, Ordering::Relaxed);
        life.set(Stage::Ending);
        assert!(!is_done(&mut over).await);
        tokio::time::sleep(LAME_DUCK).await;
        assert!(is_done(&mut over).await);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_asked_ends_after_the_lame_duck() {
        let life = Life::new();
        let stay = life.enter();
        let mut over = Box::pin(stay.over(|| true, || false));
        life.set(Stage::Retiring);
        assert!(!is_done(&mut over).await);
        tokio::time::sleep(LAME_DUCK).await;
        assert!(is_done(&mut over).await);
    }

    #[tokio::test(start_paused = true)]
    async fn those_before_are_told_from_those_since_and_whoever_waits_alone_is_not_waited_for() {
        let life = Life::new();
        let before = life.enter();
        let those = life.those();
        let since = life.enter();
        let gone = those.gone();
        tokio::pin!(gone);
        assert!(!is_done(&mut gone).await);
        drop(before);
        assert!(is_done(&mut gone).await);
        let those = life.those();
        let gone = those.gone();
        tokio::pin!(gone);
        since.waits_alone();
        assert!(!is_done(&mut gone).await, "its answer could be followed by another request");
        life.set(Stage::Retiring);
        since.waits_alone();
        assert!(is_done(&mut gone).await);
        let all = life.all_gone();
        tokio::pin!(all);
        assert!(!is_done(&mut all).await);
        drop(since);
        assert!(is_done(&mut all).await);
    }
}
