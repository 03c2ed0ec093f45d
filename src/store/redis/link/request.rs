//! A pipeline to one server, and what its replies mean for the calls in it.

use std::time::Duration;

use redis::{Pipeline, Value};

use super::call::Call;
use super::dial::Confirm;
use super::judge::{self, Next};
use super::work::Group;
use crate::store::redis::settings::Address;

/// A pipeline, and what each of its replies is.
pub(super) struct Request {
    pub(super) pipeline: Pipeline,
    replies: Vec<Reply>,
    confirm: Confirm,
}

/// What a reply of a pipeline is.
enum Reply {
    /// Of no interest: a script was told, a redirection announced, a mark written.
    Aside,
    /// To this call.
    To(usize),
    /// Whether what was written is durable.
    Confirmation,
}

impl Request {
    pub(super) fn of(group: &Group, calls: &[Call], confirm: Confirm, within: Duration) -> Self {
        let mut request =
            Self { pipeline: Pipeline::with_capacity(group.calls.len() + 2), replies: Vec::new(), confirm };
        let call = |index: usize| calls.get(index).expect("invariant: a group's calls are some of the calls");
        for &(index, aside, load) in &group.calls {
            if let Some(script) = call(index).load().filter(|_| load) {
                request.push(script, Reply::Aside);
            }
            if aside {
                request.push(redis::cmd("ASKING"), Reply::Aside);
            }
            request.push(call(index).cmd().clone(), Reply::To(index));
        }
        let last = group.calls.last().map(|&(index, ..)| call(index));
        if let (Some(last), Some(wait)) = (last, wait(confirm, within)) {
            request.push(last.mark(), Reply::Aside);
            request.push(wait, Reply::Confirmation);
        }
        request
    }

    fn push(&mut self, command: redis::Cmd, reply: Reply) {
        self.pipeline.add_command(command);
        self.replies.push(reply);
    }

    /// What the replies mean for each call.
    pub(super) fn read(&self, replies: Vec<Value>, from: &Address) -> Vec<(usize, Result<Value, Next>)> {
        let mut answers = Vec::with_capacity(replies.len());
        let mut unconfirmed = None;
        for (reply, value) in self.replies.iter().zip(replies) {
            match (reply, value) {
                (Reply::Aside, _) => {}
                (Reply::To(index), Value::ServerError(error)) => {
                    answers.push((*index, Err(judge::judge(&error, from))))
                }
                (Reply::To(index), value) => answers.push((*index, Ok(value))),
                (Reply::Confirmation, value) => unconfirmed = unconfirmed.or_else(|| self.unconfirmed(&value)),
            }
        }
        if let Some(why) = unconfirmed {
            // What was done is done; only it may not be called durable, so it is done again.
            for (_, answer) in &mut answers {
                if answer.is_ok() {
                    *answer = Err(Next::Wait(format!("{from}: {why}")));
                }
            }
        }
        answers
    }

    /// Why what was written is not durable yet; `None` where it is.
    fn unconfirmed(&self, value: &Value) -> Option<String> {
        match (self.confirm, value) {
            (Confirm::Replicas(wanted), Value::Int(have)) if *have >= i64::from(wanted) => None,
            (Confirm::Replicas(wanted), Value::Int(have)) => {
                Some(format!("{have} of {wanted} replicas confirmed the write (store.redis.ack: replicas({wanted}))"))
            }
            (Confirm::Disk, Value::Array(counts)) if matches!(counts.first(), Some(Value::Int(1..))) => None,
            (Confirm::Disk, Value::Array(_)) => {
                Some("the disk did not confirm the write (store.redis.ack: aof)".into())
            }
            (Confirm::Answer, _) => None,
            (_, Value::ServerError(error)) => Some(format!("{error}")),
            (_, _) => Some("WAIT was not answered as it should be".into()),
        }
    }
}

/// The command that waits until what was written before it is durable; `None` where the answer says so.
fn wait(confirm: Confirm, within: Duration) -> Option<redis::Cmd> {
    // It ends before we stop listening, so that a connection on which it waits is not given up for it. 0 would be for ever.
    let ms = u64::try_from((within * 3 / 4).as_millis()).unwrap_or(u64::MAX).max(1);
    match confirm {
        Confirm::Answer => None,
        Confirm::Replicas(n) => {
            let mut command = redis::cmd("WAIT");
            command.arg(n).arg(ms);
            Some(command)
        }
        Confirm::Disk => {
            let mut command = redis::cmd("WAITAOF");
            command.arg(1).arg(0).arg(ms);
            Some(command)
        }
    }
}
