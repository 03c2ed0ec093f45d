//! The receiver of a soak: it changes its mood when it is told to, and counts what it took.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::upstream::{Answer, Received, Upstream, answer, upstream};

/// How it answers for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mood {
    Well,
    Failing,
    /// It says when to come again.
    Busy,
    /// It answers long after nobody waits any more.
    Hanging,
    Slow,
}

impl Mood {
    pub(crate) const ALL: [Self; 5] = [Self::Well, Self::Failing, Self::Busy, Self::Hanging, Self::Slow];

    fn answer(self) -> Answer {
        match self {
            Self::Well => answer(200),
            Self::Failing => answer(500),
            Self::Busy => answer(503).header("Retry-After", "1"),
            Self::Hanging => answer(200).after(Duration::from_secs(4)),
            Self::Slow => answer(200).after(Duration::from_millis(150)),
        }
    }
}

/// A body with this in it is never taken.
pub(crate) const POISON: &str = "poison";

#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) upstream: Upstream,
    mood: Arc<AtomicU8>,
    taken: Arc<Mutex<HashMap<String, u32>>>,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        let (mood, taken) = (Arc::new(AtomicU8::new(0)), Arc::new(Mutex::new(HashMap::new())));
        let (current, counts) = (Arc::clone(&mood), Arc::clone(&taken));
        let rule = move |request: &Received| {
            if String::from_utf8_lossy(&request.body).contains(POISON) {
                return answer(410);
            }
            let answer = Mood::ALL[usize::from(current.load(Ordering::Relaxed))].answer();
            if answer.status == 200 {
                let id = request.header("fairlane-event-id").unwrap().to_owned();
                *counts.lock().unwrap().entry(id).or_default() += 1;
            }
            answer
        };
        // What was sent is not needed again.
        Self { upstream: upstream(rule).keeping(|_| false), mood, taken }
    }

    pub(crate) fn feel(&self, mood: Mood) {
        let number = Mood::ALL.iter().position(|one| *one == mood).unwrap();
        self.mood.store(u8::try_from(number).unwrap(), Ordering::Relaxed);
    }

    /// How often each event was answered 200.
    pub(crate) fn taken(&self) -> HashMap<String, u32> {
        self.taken.lock().unwrap().clone()
    }
}
