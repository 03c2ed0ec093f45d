//! Buckets: ended events that are given up together.

use std::time::Duration;

use super::wire::{Damaged, Reader, put_number};
use super::{Retention, Status};
use crate::event::Wall;

/// Ended events of one kind whose end falls into one span of time: they are given up together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Bucket {
    pub(super) family: Family,
    /// Its beginning, in microseconds since 1970.
    pub(super) start: u64,
    /// Its length, in microseconds.
    pub(super) width: u64,
}

/// Kinds of ended events by how long they are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Family {
    Delivered,
    Dead,
    Suppressed,
}

impl Family {
    pub(super) const ALL: [Self; 3] = [Self::Delivered, Self::Dead, Self::Suppressed];

    /// The kind of an ended event; `None` while it is pending.
    pub(super) fn of(status: Status) -> Option<Self> {
        match status {
            Status::Queued | Status::InFlight | Status::Retrying => None,
            Status::Delivered | Status::Discarded => Some(Self::Delivered),
            Status::Dead => Some(Self::Dead),
            Status::Suppressed => Some(Self::Suppressed),
        }
    }

    pub(super) fn retention(self, retention: &Retention) -> Duration {
        match self {
            Self::Delivered => retention.delivered,
            Self::Dead => retention.dead,
            Self::Suppressed => retention.suppressed,
        }
    }

    pub(super) fn letter(self) -> char {
        match self {
            Self::Delivered => 'd',
            Self::Dead => 'x',
            Self::Suppressed => 's',
        }
    }
}

/// Narrowest and widest bucket. Narrower ones cost files and milliseconds, wider ones keep events longer than asked.
const BUCKET_MIN: Duration = Duration::from_secs(60);
const BUCKET_MAX: Duration = Duration::from_secs(86_400);
/// Buckets that a retention is cut into.
const BUCKETS: u32 = 24;

impl Bucket {
    pub(super) fn at(family: Family, ended: Wall, retention: &Retention) -> Self {
        let width = (family.retention(retention) / BUCKETS).clamp(BUCKET_MIN, BUCKET_MAX);
        let width = u64::try_from(width.as_micros()).unwrap_or(u64::MAX);
        Self { family, start: ended.0 - ended.0 % width, width }
    }

    /// When everything in it is past retention.
    pub(super) fn until(&self, retention: &Retention) -> Wall {
        Wall(self.start.saturating_add(self.width)).plus(self.family.retention(retention))
    }

    /// Its keyspace's name.
    pub(super) fn name(&self) -> String {
        format!("{}-{}-{}", self.family.letter(), self.start, self.width)
    }

    /// From a keyspace's name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let letter = parts.next()?;
        let family = Family::ALL.into_iter().find(|family| family.letter().to_string() == letter)?;
        let bucket = Self { family, start: parts.next()?.parse().ok()?, width: parts.next()?.parse().ok()? };
        parts.next().is_none().then_some(bucket)
    }

    pub(super) fn put(self, out: &mut Vec<u8>) {
        out.push(match self.family {
            Family::Delivered => 1,
            Family::Dead => 2,
            Family::Suppressed => 3,
        });
        put_number(out, self.start);
        put_number(out, self.width);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        let number = usize::from(reader.byte("a bucket")?);
        let family = *Family::ALL.get(number.wrapping_sub(1)).ok_or(Damaged("a bucket"))?;
        Ok(Self { family, start: reader.number("a bucket")?, width: reader.number("a bucket")? })
    }
}
