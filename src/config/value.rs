//! What was read: a tree of typed values in the shape of the field table, every default filled in.

use std::fmt;
use std::time::Duration;

use super::effective;
use super::problem::Place;
use super::scalar::Rate;
use crate::event::Secret;

/// A value at its place in the file.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// Where it stands; for a default, the map that it is missing in.
    pub(super) place: Place,
    /// Whether it is in the file.
    pub(super) given: bool,
    /// The value.
    pub(super) value: Value,
}

/// A value.
#[derive(Clone, PartialEq)]
pub(super) enum Value {
    /// Nothing, where that means something; or a required field that has a problem.
    Null,
    Bool(bool),
    Int(u64),
    Number(f64),
    Duration(Duration),
    Size(u64),
    Rate(Rate),
    Text(String),
    Secret(Secret),
    Key(Key),
    List(Vec<Slot>),
    Map(Vec<(String, Slot)>),
}

/// As it is shown anywhere: an address may hold a password.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&effective::line(self))
    }
}

/// A key rule as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// One expression.
    One(String),
    /// The first that gives something.
    First(Vec<Key>),
    /// All of them, as one key of several parts.
    Join(Vec<Key>),
}

impl PartialEq for Slot {
    /// Equal values are equal wherever they stand.
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Slot {
    /// The member of this name. The table gives every map all its fields, so asking for another is a mistake in this crate.
    pub(super) fn at(&self, name: &str) -> &Self {
        let Value::Map(members) = &self.value else { return &NOTHING };
        let member = members.iter().find(|(n, _)| n == name);
        member.map(|(_, slot)| slot).expect("invariant: every map has a slot for every field of its table")
    }

    /// The member of this name, to be changed.
    pub(super) fn member(&mut self, name: &str) -> Option<&mut Self> {
        let Value::Map(members) = &mut self.value else { return None };
        members.iter_mut().find(|(n, _)| n == name).map(|(_, slot)| slot)
    }

    /// Its members; none where it is no map.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &Self)> {
        let members = if let Value::Map(members) = &self.value { members.as_slice() } else { &[] };
        members.iter().map(|(name, slot)| (name.as_str(), slot))
    }

    /// Its items; none where it is no list.
    pub(super) fn items(&self) -> &[Self] {
        if let Value::List(items) = &self.value { items } else { &[] }
    }

    /// Its value, for a field that always has one.
    pub(super) fn get<T: Read>(&self) -> T {
        T::read(&self.value).expect("invariant: the table says of what type this field is")
    }

    /// Its value, for a field that may be null.
    pub(super) fn maybe<T: Read>(&self) -> Option<T> {
        T::read(&self.value)
    }

    /// Whether there is nothing.
    pub(super) fn is_null(&self) -> bool {
        self.value == Value::Null
    }
}

static NOTHING: Slot = Slot { place: Place::START, given: false, value: Value::Null };

/// What a value may be read as.
pub(super) trait Read: Sized {
    /// The value as this type; `None` where it is of another.
    fn read(value: &Value) -> Option<Self>;
}

macro_rules! read {
    ($($type:ty: $pattern:pat => $value:expr;)*) => {
        $(impl Read for $type {
            fn read(value: &Value) -> Option<Self> {
                if let $pattern = value { $value } else { None }
            }
        })*
    };
}

read! {
    bool: Value::Bool(b) => Some(*b);
    u64: Value::Int(n) | Value::Size(n) => Some(*n);
    u32: Value::Int(n) => u32::try_from(*n).ok();
    u16: Value::Int(n) => u16::try_from(*n).ok();
    usize: Value::Int(n) | Value::Size(n) => usize::try_from(*n).ok();
    f64: Value::Number(n) => Some(*n);
    Duration: Value::Duration(d) => Some(*d);
    Rate: Value::Rate(r) => Some(*r);
    String: Value::Text(t) => Some(t.clone());
    Secret: Value::Secret(s) => Some(s.clone());
    Key: Value::Key(k) => Some(k.clone());
}

/// Text as it may stand in a problem: quoted, control and direction characters escaped, cut to a line's length.
pub(super) fn quoted(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    if text.chars().count() <= CHARS_MAX {
        return format!("{text:?}");
    }
    let cut: String = text.chars().take(CHARS_MAX).collect();
    format!("{cut:?} …")
}
