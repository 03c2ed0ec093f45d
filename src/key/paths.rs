//! Finds the values at several paths in one pass over a document.
//!
//! The paths stand in a tree; the reader walks down it while the document follows and skips what no path leads to. Of
//! duplicate members the last one counts, whole: what an earlier one held is forgotten, as in the parsers of the receivers.

use super::json::{Cursor, Invalid, Span, decode};

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The member of an object.
    Member(Box<str>),
    /// The item of an array, from 0.
    Item(usize),
    /// A number in a dotted path: an array's item, or an object's member of that name.
    Either(Box<str>, usize),
}

impl Step {
    /// A segment of a dotted path.
    pub(super) fn segment(text: &str) -> Self {
        let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        match text.parse() {
            Ok(index) if plain => Self::Either(text.into(), index),
            _ => Self::Member(text.into()),
        }
    }

    /// The member's name that it stands for.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Member(name) | Self::Either(name, _) => Some(name),
            Self::Item(_) => None,
        }
    }

    fn index(&self) -> Option<usize> {
        match self {
            Self::Item(index) | Self::Either(_, index) => Some(*index),
            Self::Member(_) => None,
        }
    }
}

/// Paths into one document, each with a number (its slot).
///
/// Steps of dotted paths and of JSONPath are not to be mixed in one set: a member `0` would belong to two branches.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    root: Node,
    slots: usize,
}

#[derive(Clone, Debug, Default)]
struct Node {
    slot: Option<usize>,
    next: Vec<(Step, Node)>,
}

impl Paths {
    /// Adds a path; the same path has the same slot.
    pub(super) fn add(&mut self, path: &[Step]) -> usize {
        let mut node = &mut self.root;
        for step in path {
            let place = node.next.iter().position(|(s, _)| s == step).unwrap_or_else(|| {
                node.next.push((step.clone(), Node::default()));
                node.next.len() - 1
            });
            node = node.next.get_mut(place).map(|(_, n)| n).expect("the place was found or made just now");
        }
        let fresh = self.slots;
        let slot = *node.slot.get_or_insert(fresh);
        self.slots += usize::from(slot == fresh);
        slot
    }

    /// Reads `text` through, up to its end or to where it stops being JSON.
    pub(super) fn scan(&self, text: &str) -> Scan {
        let mut walk = Walk { cursor: Cursor::new(text), spots: vec![None; self.slots] };
        let valid = walk.value(&self.root, 0).and_then(|()| walk.cursor.ended()).is_ok();
        Scan {
            spots: walk.spots,
            valid,
            deepest: walk.cursor.deepest(),
            #[cfg(test)]
            looks: walk.cursor.looks,
        }
    }
}

/// What one pass over a document gave.
#[derive(Debug)]
pub(super) struct Scan {
    /// The value of each slot; to be believed only where the document is valid.
    spots: Vec<Option<Span>>,
    /// Whether all of it is one JSON document.
    pub(super) valid: bool,
    /// How deep it goes, up to its end or to where it stops being JSON.
    pub(super) deepest: usize,
    #[cfg(test)]
    pub(super) looks: usize,
}

impl Scan {
    /// The value of `slot`.
    pub(super) fn spot(&self, slot: usize) -> Option<Span> {
        self.spots.get(slot).copied().flatten()
    }
}

struct Walk<'t> {
    cursor: Cursor<'t>,
    spots: Vec<Option<Span>>,
}

impl Walk<'_> {
    /// Recursion is as deep as the longest path, never as the document.
    fn value(&mut self, node: &Node, depth: usize) -> Result<(), Invalid> {
        let first = self.cursor.token()?;
        let start = self.cursor.at();
        self.forget(node);
        match first {
            b'{' if !node.next.is_empty() => self.object(node, depth + 1)?,
            b'[' if !node.next.is_empty() => self.array(node, depth + 1)?,
            _ => self.cursor.skip(depth)?,
        }
        if let Some(slot) = node.slot {
            self.set(slot, Some(Span { start, end: self.cursor.at() }));
        }
        Ok(())
    }

    fn object(&mut self, node: &Node, depth: usize) -> Result<(), Invalid> {
        self.cursor.bump();
        self.cursor.reached(depth);
        if self.cursor.token()? == b'}' {
            self.cursor.bump();
            return Ok(());
        }
        loop {
            let name = self.cursor.name()?;
            match node.member(self.cursor.text_of(name)) {
                Some(next) => self.value(next, depth)?,
                None => self.cursor.skip(depth)?,
            }
            if self.closed(b'}')? {
                return Ok(());
            }
        }
    }

    fn array(&mut self, node: &Node, depth: usize) -> Result<(), Invalid> {
        self.cursor.bump();
        self.cursor.reached(depth);
        if self.cursor.token()? == b']' {
            self.cursor.bump();
            return Ok(());
        }
        let mut index = 0;
        loop {
            match node.item(index) {
                Some(next) => self.value(next, depth)?,
                None => self.cursor.skip(depth)?,
            }
            if self.closed(b']')? {
                return Ok(());
            }
            index += 1;
        }
    }

    /// Takes the comma after a value (false) or the end of what holds it (true).
    fn closed(&mut self, end: u8) -> Result<bool, Invalid> {
        let byte = self.cursor.token()?;
        self.cursor.bump();
        match byte {
            b',' => Ok(false),
            byte if byte == end => Ok(true),
            _ => Err(Invalid),
        }
    }

    /// An earlier member of the same name may have filled these.
    fn forget(&mut self, node: &Node) {
        if let Some(slot) = node.slot {
            self.set(slot, None);
        }
        for (_, next) in &node.next {
            self.forget(next);
        }
    }

    fn set(&mut self, slot: usize, spot: Option<Span>) {
        if let Some(place) = self.spots.get_mut(slot) {
            *place = spot;
        }
    }
}

impl Node {
    /// The branch for a member, by its name as the document writes it, with quotes.
    fn member(&self, literal: &str) -> Option<&Self> {
        // A name that is half a surrogate pair is nobody's: no expression can spell it.
        let name = decode(literal)?;
        self.next.iter().find(|(step, _)| step.name() == Some(&*name)).map(|(_, node)| node)
    }

    fn item(&self, index: usize) -> Option<&Self> {
        self.next.iter().find(|(step, _)| step.index() == Some(index)).map(|(_, node)| node)
    }
}
