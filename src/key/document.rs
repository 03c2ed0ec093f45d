//! One JSON document of an event: read through once, its tree built once, and only when a rule asks.

use std::borrow::Cow;

use serde_json::Value;

use super::json::{Span, decode};
use super::paths::{Paths, Scan};
use super::tree::{self, JsonPath, TREE_BYTES_MAX, TREE_DEPTH_MAX};
use crate::event::Missing;

/// A text that is perhaps a document.
#[derive(Debug)]
pub(super) struct Document<'t> {
    text: Cow<'t, str>,
    scan: Option<Scan>,
    tree: Option<Result<Value, Missing>>,
}

impl<'t> Document<'t> {
    /// Over `text`, of which nothing is read yet.
    pub(super) fn new(text: Cow<'t, str>) -> Self {
        Self { text, scan: None, tree: None }
    }

    /// The value in `slot` of `paths`, which have to be the same ones each time.
    pub(super) fn at(&mut self, paths: &Paths, slot: usize) -> Result<Cow<'_, str>, Missing> {
        let scan = self.scan.get_or_insert_with(|| paths.scan(&self.text));
        if !scan.valid {
            return Err(Missing::NotJson);
        }
        scalar(&self.text, scan.spot(slot).ok_or(Missing::Absent)?)
    }

    /// The first result of a query.
    pub(super) fn first(&mut self, query: &JsonPath) -> Result<Cow<'_, str>, Missing> {
        if self.text.len() > TREE_BYTES_MAX {
            return Err(Missing::TooBig);
        }
        let span = if let Some(direct) = query.direct() {
            let scan = direct.scan(&self.text);
            treelike(&scan)?;
            scan.spot(0)
        } else {
            let text = &self.text;
            let tree = self.tree.get_or_insert_with(|| {
                treelike(&Paths::default().scan(text))?;
                tree::build(text).ok_or(Missing::TooBig)
            });
            query.first(tree.as_ref().map_err(|why| *why)?, text)
        };
        scalar(&self.text, span.ok_or(Missing::Absent)?)
    }
}

/// Whether a tree may be built of a document. Depth comes first: it is met before the place at which the document ends badly.
fn treelike(scan: &Scan) -> Result<(), Missing> {
    if scan.deepest > TREE_DEPTH_MAX {
        Err(Missing::TooDeep)
    } else if !scan.valid {
        Err(Missing::NotJson)
    } else {
        Ok(())
    }
}

/// What counts as a key: a string's text, a number or a boolean as written.
fn scalar(text: &str, span: Span) -> Result<Cow<'_, str>, Missing> {
    let literal = text.get(span.start..span.end).unwrap_or_default();
    match literal.as_bytes().first() {
        Some(b'"') => decode(literal).ok_or(Missing::BadEncoding),
        Some(b'{' | b'[') => Err(Missing::NotScalar),
        Some(b'n') | None => Err(Missing::Empty),
        Some(_) => Ok(literal.into()),
    }
}
