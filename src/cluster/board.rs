//! The board: the few keys in Redis that all nodes share and that belong to no shard, under one hash tag `{<namespace>:nodes}`.
//!
//! - `nodes` hash: a node's *life* (its name and a number drawn at its start) → when it was heard last (milliseconds of Redis's clock), how
//!   long it rests after that, the slots that it may use, and what it says of itself, as JSON. A life that is silent for as long as it
//!   rests is struck out by whoever comes next.
//! - `views` hash: node → what it shows of itself to people.
//! - `changes` hash and `version`: what people changed, one field a part, and a number that grows with every change.
//! - `audit` sorted set: what people did of late, by when (microseconds), each once.
//! - `numbers` hash: what is numbered over all nodes → the last number.
//! - `resting` hash: shard, epoch and seq → until when an attempt of a lost node may be at the upstream, and whose it is.
//!
//! Every script may be carried out twice, as a call may that had no answer. Only the clock of Redis is compared with itself.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::{FromRedisValue, Value};
use serde::{Deserialize, Serialize};

use crate::event::{Group, Seq};
use crate::store::Error;
use crate::store::redis::link::{Call, Link, Script, Tag};
use crate::store::redis::{Epoch, Shard};

/// A beat: what the node may use of the slots, what it says of itself, and what the others say.
static BEAT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/beat.lua")));
/// Changes of people.
static PUT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/put.lua")));
/// Attempts of lost nodes.
static REST: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/rest.lua")));

/// Notes of what people did that stay.
pub(super) const NOTES_KEPT: usize = 500;

/// Notes in one call.
const NOTES_MAX: usize = 100;

/// What a node says of itself. Nodes of two versions read each other: what one does not say is as nothing, what one does not know is passed over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// Its name.
    pub node: String,
    /// Where its admin side is, for the others; `host:port`.
    pub admin: String,
    /// Which version it is.
    pub version: String,
    /// Whether it is about to end.
    pub leaving: bool,
    /// Weights of the groups that wait there, in thousandths, smoothed.
    pub weight: u64,
    /// Attempts in flight.
    pub busy: u32,
    /// The shards that it holds.
    pub held: Vec<u16>,
    /// Those of them that it gives up.
    pub moving: Vec<u16>,
    /// A fingerprint of the admin token: nodes that ask each other must share it.
    pub token: String,
}

/// A node as the others see it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    /// What it says of itself.
    pub about: About,
    /// Its life: its name and a number of its process.
    pub life: String,
    /// How long ago it was heard, by Redis's clock.
    pub silent: Duration,
    /// Slots that it may use.
    pub slots: u32,
    /// Shards that it holds.
    pub held: Vec<u16>,
}

/// What a beat found.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Slots that this node may use.
    pub(super) granted: u32,
    /// Grows with every change of people's.
    pub(super) version: u64,
    /// The other lives, those that rest with them.
    pub(super) others: Vec<NodeView>,
}

/// What a beat says.
#[derive(Clone, Debug)]
pub(super) struct Beat<'a> {
    pub(super) life: &'a str,
    /// How long its slots stay taken after its last beat.
    pub(super) rest: Duration,
    pub(super) total: u32,
    pub(super) wants: u32,
    pub(super) about: &'a About,
}

/// The board.
pub(super) struct Board {
    link: Arc<Link>,
    tag: Tag,
    within: Duration,
}

impl Board {
    /// The board of `namespace`; a call takes no longer than `within`.
    pub(super) fn new(link: Arc<Link>, namespace: &str, within: Duration) -> Self {
        Self { link, tag: Tag::new(&format!("{namespace}:nodes")), within }
    }

    async fn call<T: FromRedisValue>(&self, call: Call) -> Result<T, Error> {
        let value =
            self.link.call(call, self.within).await.map_err(crate::store::redis::link::Unanswered::into_error)?;
        redis::from_redis_value(value).map_err(|error| unreadable(&error))
    }

    /// Says that this node lives, and asks for slots.
    pub(super) async fn beat(&self, beat: &Beat<'_>) -> Result<Seen, Error> {
        let about = serde_json::to_string(beat.about).unwrap_or_default();
        let call = Call::script(&self.tag, &BEAT, &[self.tag.key("nodes"), self.tag.key("version")])
            .arg(beat.life)
            .arg(millis(beat.rest))
            .arg(beat.total)
            .arg(beat.wants)
            .arg(beat.about.busy)
            .arg(about);
        let (now, granted, version, lives): (u64, u32, u64, Vec<String>) = self.call(call).await?;
        let others = lives.as_chunks::<2>().0.iter().filter_map(|[life, said]| read_life(life, said, now)).collect();
        Ok(Seen { granted, version, others })
    }

    /// This life is over and nothing of it is in flight.
    pub(super) async fn farewell(&self, life: &str) -> Result<(), Error> {
        self.call::<Value>(Call::command(&self.tag, "HDEL").arg(self.tag.key("nodes")).arg(life)).await.map(drop)
    }

    /// Writes changes of people's; an end is an empty value.
    pub(super) async fn put(&self, changes: &[super::seat::Put]) -> Result<(), Error> {
        let mut call = Call::script(&self.tag, &PUT, &[self.tag.key("changes"), self.tag.key("version")]);
        for (name, value) in changes {
            call = call.arg(name).arg(value.as_deref().unwrap_or_default());
        }
        self.call::<Value>(call.durable()).await.map(drop)
    }

    /// All changes of people's.
    pub(super) async fn changes(&self) -> Result<Vec<(String, String)>, Error> {
        self.call(Call::command(&self.tag, "HGETALL").arg(self.tag.key("changes"))).await
    }

    /// Writes down what lost nodes may have at the upstream for events of `shard`, for how much longer; gives all that is known of it.
    pub(super) async fn rest(
        &self,
        (shard, epoch): (Shard, Epoch),
        open: &[(Seq, Group)],
        rest: Duration,
    ) -> Result<Vec<(Group, Duration)>, Error> {
        let mut call = Call::script(&self.tag, &REST, &[self.tag.key("resting")]).arg(shard.0).arg(millis(rest));
        for (seq, group) in open {
            // An event may have been at the upstream for several owners that were lost one after another.
            call = call.arg(format!("{}.{seq}", epoch.0)).arg(group.as_str());
        }
        let found: Vec<(String, u64)> = self.call(call).await?;
        let read = |(group, left): (String, u64)| Some((Group::from_written(&group)?, Duration::from_millis(left)));
        Ok(found.into_iter().filter_map(read).collect())
    }

    /// Notes what people did, each with when (microseconds since 1970); the latest stay.
    pub(super) async fn note(&self, notes: &[(u64, String)]) -> Result<(), Error> {
        let key = self.tag.key("audit");
        for notes in notes.chunks(NOTES_MAX) {
            let mut call = Call::command(&self.tag, "ZADD").arg(&key);
            for (at, note) in notes {
                call = call.arg(*at).arg(note);
            }
            self.call::<Value>(call.durable()).await?;
        }
        let keep = -(i64::try_from(NOTES_KEPT).unwrap_or(i64::MAX)) - 1;
        let call = Call::command(&self.tag, "ZREMRANGEBYRANK").arg(&key).arg(0).arg(keep.to_string());
        self.call::<Value>(call).await.map(drop)
    }

    /// What people did of late, on any node, the latest first.
    pub(super) async fn noted(&self) -> Result<Vec<String>, Error> {
        self.call(Call::command(&self.tag, "ZREVRANGE").arg(self.tag.key("audit")).arg(0).arg(NOTES_KEPT - 1)).await
    }

    /// The next number of a kind, above `last`. No two calls give the same.
    pub(super) async fn draw(&self, kind: &str, last: u64) -> Result<u64, Error> {
        let key = self.tag.key("numbers");
        let more = |by: u64| Call::command(&self.tag, "HINCRBY").arg(&key).arg(kind).arg(by).durable();
        let drawn: u64 = self.call(more(1)).await?;
        // What counted before was thrown away: go on where this node was.
        if drawn > last { Ok(drawn) } else { self.call(more(last + 1 - drawn)).await }
    }

    /// Shows this node to people, and gives what all nodes show.
    pub(super) async fn show(&self, node: &str, view: &str) -> Result<(), Error> {
        let call = Call::command(&self.tag, "HSET").arg(self.tag.key("views")).arg(node).arg(view);
        self.call::<Value>(call).await.map(drop)
    }

    /// What all nodes show of themselves, by node.
    pub(super) async fn views(&self) -> Result<Vec<(String, String)>, Error> {
        self.call(Call::command(&self.tag, "HGETALL").arg(self.tag.key("views"))).await
    }
}

/// `<heard> <rests> <slots> <about>`, as the script writes it. What cannot be read is of another version and counts for its slots alone,
/// which the script knows.
fn read_life(life: &str, said: &str, now: u64) -> Option<NodeView> {
    let mut parts = said.splitn(4, ' ');
    let (heard, _rests, slots) = (parts.next()?.parse::<u64>().ok()?, parts.next()?, parts.next()?.parse().ok()?);
    let about: About = serde_json::from_str(parts.next()?).ok()?;
    let silent = Duration::from_millis(now.saturating_sub(heard));
    Some(NodeView { held: about.held.clone(), about, life: life.to_owned(), silent, slots })
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn unreadable(error: &dyn std::fmt::Display) -> Error {
    Error::Unavailable(format!("Redis answered what cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(about: &str) -> Option<NodeView> {
        read_life("n1/5", &format!("1000 2000 7 {about}"), 1_500)
    }

    #[test]
    fn nodes_of_another_version_are_read_as_far_as_they_are_understood() {
        let own = About { node: "n1".into(), held: vec![3, 4], weight: 9, ..About::default() };
        let mut said = serde_json::to_value(&own).expect("it is plain data");
        let view = read(&said.to_string()).expect("it is its own");
        assert_eq!((&view.about, view.slots, view.silent), (&own, 7, Duration::from_millis(500)));
        // A newer one says more.
        said["color"] = serde_json::json!({ "of": ["its", "own"] });
        assert_eq!(read(&said.to_string()).map(|view| view.about), Some(own));
        // An older one says less.
        let older = read(r#"{"node":"n1","held":[3]}"#).expect("it is read");
        assert_eq!((older.held, older.about.version.as_str(), older.about.leaving), (vec![3], "", false));
        // What cannot be read counts for its slots alone, which the script has seen to.
        assert_eq!(read("not json"), None);
    }
}
