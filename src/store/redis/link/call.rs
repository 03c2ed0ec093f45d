//! What is asked of Redis: one command or script on the keys of one hash tag.

use std::fmt;

use redis::{Cmd, ToRedisArgs, Value};
use sha1::{Digest as _, Sha1};

use crate::store::Error;

/// Slots of a cluster.
const SLOTS: u16 = 16_384;

/// A hash tag: keys that hold it lie on one server, whatever the cluster does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    text: Box<str>,
    slot: u16,
}

impl Tag {
    /// The tag of `inside`, which has no braces: its keys begin with `{inside}`.
    #[must_use]
    pub fn new(inside: &str) -> Self {
        Self { text: format!("{{{inside}}}").into(), slot: crc16(inside.as_bytes()) % SLOTS }
    }

    /// The slot of the cluster that has its keys.
    pub(super) fn slot(&self) -> u16 {
        self.slot
    }

    /// A key of it.
    #[must_use]
    pub fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.text)
    }
}

impl fmt::Display for Tag {
    /// With its braces: what its keys begin with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// CRC-16/XMODEM, by which a cluster knows the slot of a key (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8)
            .fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
    })
}

/// A Lua script. Servers are told it when they do not know it.
#[derive(Debug)]
pub struct Script {
    code: &'static str,
    hash: String,
}

impl Script {
    /// The script of this code.
    #[must_use]
    pub fn new(code: &'static str) -> Self {
        let hash = Sha1::digest(code).iter().map(|byte| format!("{byte:02x}")).collect();
        Self { code, hash }
    }

    /// Tells it to a server.
    fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.code);
        command
    }
}

/// One thing to do, repeatable: it may be carried out more often than it is answered.
#[derive(Clone, Debug)]
pub struct Call {
    command: Cmd,
    script: Option<&'static Script>,
    tag: Tag,
    durable: bool,
}

impl Call {
    /// A command, e.g. `HGET`, on keys of `tag`.
    #[must_use]
    pub fn command(tag: &Tag, name: &str) -> Self {
        Self { command: redis::cmd(name), script: None, tag: tag.clone(), durable: false }
    }

    /// A script on these keys of `tag`, which are all that it touches.
    #[must_use]
    pub fn script(tag: &Tag, script: &'static Script, keys: &[String]) -> Self {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&script.hash).arg(keys.len()).arg(keys);
        Self { command, script: Some(script), tag: tag.clone(), durable: false }
    }

    /// With this argument, or these.
    #[must_use]
    pub fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.command.arg(argument);
        self
    }

    /// Answered only when what it wrote is as durable as `store.redis.ack` asks for.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    pub(super) fn slot(&self) -> u16 {
        self.tag.slot()
    }

    pub(super) fn is_durable(&self) -> bool {
        self.durable
    }

    pub(super) fn cmd(&self) -> &Cmd {
        &self.command
    }

    /// A write of one of its keys that changes nothing anybody reads: what is waited for has to be written over the same connection, and
    /// a call that is repeated may find that there is nothing left to write.
    pub(super) fn mark(&self) -> Cmd {
        let mut command = redis::cmd("SET");
        command.arg(self.tag.key("waited")).arg(1);
        command
    }

    /// Tells its script to a server.
    pub(super) fn load(&self) -> Option<Cmd> {
        self.script.map(Script::load)
    }
}

/// What became of a call.
pub type Answer = Result<Value, Unanswered>;

/// Why a call has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// No server answered it in time; whether it was carried out is unknown. In words, for people.
    #[error("{0}")]
    Unavailable(String),
    /// The server, or the script, refused it: an error reply, its first word and the rest. Repeating does not help.
    #[error("Redis refused: {code} {detail}")]
    Refused {
        /// The first word, e.g. `ERR`, `OOM`, `NOPERM`, or a script's own.
        code: Box<str>,
        /// The rest.
        detail: Box<str>,
    },
}

impl Unanswered {
    /// As an error of the store: `OOM` is [`Error::Full`], for there is no room.
    #[must_use]
    pub fn into_error(self) -> Error {
        match &self {
            Self::Refused { code, .. } if &**code == "OOM" => Error::Full(self.to_string()),
            _ => Error::Unavailable(self.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_a_cluster() {
        // The check value of CRC-16/XMODEM, and what CLUSTER KEYSLOT says.
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(Tag::new("fairlane:0").slot(), redis_slot("{fairlane:0}:meta"));
        assert_eq!(Tag::new("fairlane:63").slot(), redis_slot("{fairlane:63}"));
    }

    /// By the crate's own arithmetic, which it does not show: two keys of one slot are equal.
    fn redis_slot(key: &str) -> u16 {
        let slot = redis::cluster_routing::Slot::for_key(key);
        (0..SLOTS).find(|&number| redis::cluster_routing::Slot::new(number) == Some(slot)).unwrap()
    }

    #[test]
    fn a_script_is_named_by_its_hash() {
        let script = Script::new("return 1");
        assert_eq!(script.hash, redis::Script::new("return 1").get_hash());
        assert_eq!(Tag::new("fairlane:7").key("meta"), "{fairlane:7}:meta");
    }
}
