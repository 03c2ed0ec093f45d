//! Calls on their way to an answer: which are open, where they go next, what went wrong last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::call::{Answer, Call, Unanswered};
use super::judge::{Next, needs_a_person};
use super::node::Node;
use crate::store::redis::settings::{Address, Server};

/// Calls on their way to an answer.
pub(super) struct Work<'c> {
    pub(super) calls: &'c [Call],
    done: Vec<Option<Answer>>,
    /// The calls without an answer.
    pub(super) open: Vec<usize>,
    /// Calls that go to a server that the map does not name, once.
    pub(super) ask: BTreeMap<usize, Address>,
    /// Calls whose script their server does not know.
    pub(super) load: Vec<usize>,
    /// Whether nothing speaks against trying again at once.
    pub(super) at_once: bool,
    /// Attempts that were repeated at once, one after another; a limit keeps servers that send us round and round from doing so.
    hops: u32,
    /// What went wrong last, in words.
    pub(super) why: String,
}

/// So many repetitions at once are enough to follow a slot that moved and to load a script there.
const HOPS_MAX: u32 = 5;

impl<'c> Work<'c> {
    pub(super) fn new(calls: &'c [Call]) -> Self {
        Self {
            calls,
            done: vec![None; calls.len()],
            open: (0..calls.len()).collect(),
            ask: BTreeMap::new(),
            load: Vec::new(),
            at_once: false,
            hops: 0,
            why: String::new(),
        }
    }

    /// The answers; those that are missing say why.
    pub(super) fn answers(self, server: &Server, within: Duration) -> Vec<Answer> {
        let why = if self.why.is_empty() { "no answer".to_owned() } else { self.why };
        // Who says what is wrong with it has answered.
        let words = match needs_a_person(&why) {
            true => format!("{server} cannot be used: {why}"),
            false => format!("{server} did not answer within {} ms: {why}", within.as_millis()),
        };
        let missing = || Unanswered::Unavailable(words.clone());
        self.done.into_iter().map(|answer| answer.unwrap_or_else(|| Err(missing()))).collect()
    }

    pub(super) fn call(&self, index: usize) -> &'c Call {
        self.calls.get(index).expect("invariant: an open call is one of the calls")
    }

    /// Takes what an attempt said of each call that was open; what follows for all of them.
    pub(super) fn learn(&mut self, homeless: Vec<usize>, said: Vec<(usize, Result<Value, Next>)>) -> Learned {
        let mut learned = Learned { look: !homeless.is_empty(), moved: Vec::new() };
        let mut waits = learned.look;
        if learned.look {
            "no server is known for a key".clone_into(&mut self.why);
        }
        self.open = homeless;
        self.load.clear();
        for (index, next) in said {
            let answer = match next {
                Ok(value) => Ok(value),
                Err(Next::Refused(refused)) => Err(refused),
                Err(next) => {
                    self.open.push(index);
                    waits |= self.follow(index, next, &mut learned);
                    continue;
                }
            };
            if let Some(done) = self.done.get_mut(index) {
                *done = Some(answer);
            }
        }
        self.open.sort_unstable();
        self.hops = if waits { 0 } else { self.hops + 1 };
        self.at_once = !waits && self.hops <= HOPS_MAX;
        learned
    }

    /// What follows for a call that is still open; whether it has to wait.
    fn follow(&mut self, index: usize, next: Next, learned: &mut Learned) -> bool {
        match next {
            Next::Load => self.load.push(index),
            Next::Ask(at) => drop(self.ask.insert(index, at)),
            Next::Moved(to) => {
                learned.moved.push((self.call(index).slot(), to));
                learned.look = true;
            }
            Next::Wait(why) => {
                self.why = why;
                return true;
            }
            Next::Elsewhere(why) => {
                learned.look = true;
                self.why = why;
                return true;
            }
            Next::Silent(why) => {
                learned.look = true;
                if self.why.is_empty() {
                    self.why = why;
                }
                return true;
            }
            Next::Refused(_) => {}
        }
        false
    }
}

/// What an attempt taught.
pub(super) struct Learned {
    /// Whether it is time to look who serves what.
    pub(super) look: bool,
    /// Slots that are another server's now.
    pub(super) moved: Vec<(u16, Address)>,
}

/// Calls that go to one server over one connection.
pub(super) struct Group {
    pub(super) node: Arc<Node>,
    pub(super) durable: bool,
    /// Which of the calls; whether each is asked for aside (`ASKING`), and whether its script has to be told first.
    pub(super) calls: Vec<(usize, bool, bool)>,
}
