//! Several rules made ready to run together: what they read of the body is found in one pass.
//!
//! A plan knows *documents*: the body, and every text that an expression goes on inside of (`| json |`). Each has the set of
//! paths that any rule wants from it, so that it is read once an event, when the first rule asks, or never.

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderName;
use sha2::{Digest, Sha256};

use super::content::{self, Content, Pick};
use super::document::Document;
use super::parse::{Expr, Root, Route, Stage, Transform};
use super::paths::Paths;
use super::tree::JsonPath;
use super::{Found, Input, Rule, Shape};
use crate::event::{KEY_BYTES_MAX, Missing};

/// Rules that run together over one event, each known by the number that [`Plan::add`] gave.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    rules: Vec<Planned>,
    body: Paths,
    inner: Vec<Inner>,
}

#[derive(Clone, Debug)]
struct Planned {
    node: Node,
    /// Bytes of the key that the namespace and its joint take.
    taken: usize,
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(Lookup),
    First(Vec<Self>),
    Join(Arc<str>, Vec<Self>),
}

/// One expression, ready to run.
#[derive(Clone, Debug)]
struct Lookup {
    text: Arc<str>,
    value: Value,
    /// Whether the value stands in the body, or nowhere that a sender could reach.
    body: bool,
}

/// A text: where it comes from, and what is made of it.
#[derive(Clone, Debug)]
struct Value {
    origin: Origin,
    transforms: Vec<Transform>,
}

#[derive(Clone, Debug)]
enum Origin {
    Header(HeaderName),
    Query(Box<str>),
    Name(Box<str>),
    Segment(usize),
    Const(Box<str>),
    /// A dotted path into a document; `field` is its name where it is short enough to be a form's.
    Spot {
        document: Which,
        slot: usize,
        field: Option<Box<str>>,
    },
    JsonPath {
        document: Which,
        query: Arc<JsonPath>,
    },
}

#[derive(Clone, Copy, Debug)]
enum Which {
    Body,
    Inner(usize),
}

/// A document inside a text.
#[derive(Clone, Debug)]
struct Inner {
    /// The expression of that text, by which rules recognise that they mean the same one.
    text: String,
    value: Value,
    paths: Paths,
}

impl Plan {
    /// A plan without rules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule, whose key will have `namespace` as a further part; the answer is its number, counted from 0.
    pub fn add(&mut self, rule: &Rule, namespace: Option<&str>) -> usize {
        self.add_shape(&rule.0.shape, namespace)
    }

    /// The same for a rule that is still being made.
    pub(super) fn add_shape(&mut self, shape: &Shape, namespace: Option<&str>) -> usize {
        let node = self.node(shape);
        self.rules.push(Planned { node, taken: namespace.map_or(0, |n| n.len() + 1) });
        self.rules.len() - 1
    }

    /// Begins with an event. Nothing of it is read before a rule asks for it.
    #[must_use]
    pub fn open<'e>(&'e self, input: &'e Input<'e>) -> Reading<'e> {
        Reading { plan: self, input, body: None, inner: Vec::new() }
    }

    fn node(&mut self, shape: &Shape) -> Node {
        match shape {
            Shape::Expr(expr) => Node::Leaf(self.lookup(expr)),
            Shape::First(_, rules) => Node::First(rules.iter().map(|s| self.node(s)).collect()),
            Shape::Join(text, parts) => Node::Join(Arc::clone(text), parts.iter().map(|s| self.node(s)).collect()),
        }
    }

    fn lookup(&mut self, expr: &Expr) -> Lookup {
        let mut text = expr.root.to_string();
        let mut value = Value { origin: self.origin(&expr.root), transforms: Vec::new() };
        for stage in &expr.stages {
            match stage {
                Stage::Transform(transform) => value.transforms.push(*transform),
                Stage::Json(route) => {
                    let document = Which::Inner(self.inner(&text, value));
                    value = Value { origin: self.spot(document, route), transforms: Vec::new() };
                }
            }
            text.push_str(" | ");
            text.push_str(&stage.to_string());
        }
        let body = matches!(expr.root, Root::Body(_) | Root::Const(_));
        Lookup { text: Arc::clone(&expr.text), value, body }
    }

    fn origin(&mut self, root: &Root) -> Origin {
        match root {
            Root::Body(route) => self.spot(Which::Body, route),
            Root::Header(name) => Origin::Header(name.clone()),
            Root::Query(name) => Origin::Query(name.clone()),
            Root::Name(name) => Origin::Name(name.clone()),
            Root::Segment(index) => Origin::Segment(*index),
            Root::Const(text) => Origin::Const(text.clone()),
        }
    }

    fn spot(&mut self, document: Which, route: &Route) -> Origin {
        let steps = match route {
            Route::JsonPath(query, _) => return Origin::JsonPath { document, query: Arc::clone(query) },
            Route::Dotted(steps) => steps,
        };
        let field = match steps.as_slice() {
            [only] => only.name().map(Into::into),
            _ => None,
        };
        let slot = match document {
            Which::Body => self.body.add(steps),
            Which::Inner(index) => self.inner.get_mut(index).map(|d| d.paths.add(steps)).unwrap_or_default(),
        };
        Origin::Spot { document, slot, field }
    }

    fn inner(&mut self, text: &str, value: Value) -> usize {
        self.inner.iter().position(|d| d.text == text).unwrap_or_else(|| {
            self.inner.push(Inner { text: text.to_owned(), value, paths: Paths::default() });
            self.inner.len() - 1
        })
    }
}

/// One event on its way through a plan's rules; what was read once is kept for the next rule.
#[derive(Debug)]
pub struct Reading<'e> {
    plan: &'e Plan,
    input: &'e Input<'e>,
    body: Option<Result<Body<'e>, Missing>>,
    inner: Vec<(usize, Result<Document<'e>, Missing>)>,
}

#[derive(Debug)]
enum Body<'e> {
    Form(Cow<'e, [u8]>),
    Json(Document<'e>),
}

impl<'e> Reading<'e> {
    /// Runs the rule that [`Plan::add`] gave this number; a number that it did not give is absent.
    ///
    /// # Errors
    ///
    /// Why the rule found nothing.
    pub fn find(&mut self, rule: usize) -> Result<Found, Missing> {
        let plan = self.plan;
        let Planned { node, taken } = plan.rules.get(rule).ok_or(Missing::Absent)?;
        self.run(node, *taken)
    }

    fn run(&mut self, node: &Node, taken: usize) -> Result<Found, Missing> {
        match node {
            Node::Leaf(lookup) => {
                let part = self.text(&lookup.value)?.into_owned();
                Found { parts: vec![part], rule: Arc::clone(&lookup.text), body_only: lookup.body }.fitting(taken)
            }
            Node::First(rules) => {
                let mut why = Missing::Absent;
                for rule in rules {
                    match self.run(rule, taken) {
                        Ok(found) => return Ok(found),
                        // "Not there" is what a list is for; any other reason says more.
                        Err(reason) if why == Missing::Absent => why = reason,
                        Err(_) => {}
                    }
                }
                Err(why)
            }
            Node::Join(text, rules) => {
                let mut all = Found { parts: Vec::new(), rule: Arc::clone(text), body_only: true };
                for rule in rules {
                    let found = self.run(rule, taken)?;
                    all.parts.extend(found.parts);
                    all.body_only &= found.body_only;
                }
                all.fitting(taken)
            }
        }
    }

    /// A value's text, transformed and not empty.
    fn text<'s>(&'s mut self, value: &'s Value) -> Result<Cow<'s, str>, Missing> {
        let mut text = self.raw(&value.origin)?;
        for transform in &value.transforms {
            text = apply(*transform, some(text)?);
        }
        some(text)
    }

    fn raw<'s>(&'s mut self, origin: &'s Origin) -> Result<Cow<'s, str>, Missing> {
        let input = self.input;
        match origin {
            Origin::Header(name) => {
                let value = input.headers.get(name).ok_or(Missing::Absent)?;
                std::str::from_utf8(value.as_bytes()).map(Cow::Borrowed).map_err(|_| Missing::BadEncoding)
            }
            Origin::Query(name) => {
                content::field(input.query.unwrap_or_default().as_bytes(), name, Pick::First).map(Cow::Owned)
            }
            Origin::Name(name) => {
                let (_, text) = input.names.iter().find(|(n, _)| **n == **name).ok_or(Missing::Absent)?;
                content::segment(text)
            }
            Origin::Segment(index) => {
                let text = input.path.split('/').filter(|s| !s.is_empty()).nth(*index).ok_or(Missing::Absent)?;
                content::segment(text)
            }
            Origin::Const(text) => Ok(Cow::Borrowed(text)),
            Origin::Spot { document, slot, field } => self.spot(*document, *slot, field.as_deref()),
            Origin::JsonPath { document, query } => self.query(*document, query),
        }
    }

    fn spot(&mut self, document: Which, slot: usize, field: Option<&str>) -> Result<Cow<'_, str>, Missing> {
        let plan = self.plan;
        match document {
            Which::Body => match self.body()? {
                // Forms have no depth: a longer path leads nowhere.
                Body::Form(pairs) if content::is_no_form(pairs) => Err(Missing::NotJson),
                Body::Form(pairs) => content::field(pairs, field.ok_or(Missing::Absent)?, Pick::Last).map(Cow::Owned),
                Body::Json(document) => document.at(&plan.body, slot),
            },
            Which::Inner(index) => {
                let paths = plan.inner.get(index).map(|d| &d.paths).ok_or(Missing::Absent)?;
                self.inner(index)?.at(paths, slot)
            }
        }
    }

    fn query(&mut self, document: Which, query: &JsonPath) -> Result<Cow<'_, str>, Missing> {
        match document {
            Which::Body => match self.body()? {
                Body::Form(_) => Err(Missing::NotJson),
                Body::Json(document) => document.first(query),
            },
            Which::Inner(index) => self.inner(index)?.first(query),
        }
    }

    fn body(&mut self) -> Result<&mut Body<'e>, Missing> {
        let input = self.input;
        let body = self.body.get_or_insert_with(|| {
            content::content(input).map(|content| match content {
                Content::Form(pairs) => Body::Form(pairs),
                Content::Text(text) => Body::Json(Document::new(text)),
            })
        });
        shorter(body)
    }

    fn inner(&mut self, index: usize) -> Result<&mut Document<'e>, Missing> {
        let known = self.inner.iter().position(|(i, _)| *i == index);
        let place = match known {
            Some(place) => place,
            None => {
                let plan = self.plan;
                let value = plan.inner.get(index).map(|d| &d.value).ok_or(Missing::Absent)?;
                let text = self.text(value).map(Cow::into_owned);
                self.inner.push((index, text.map(|text| Document::new(Cow::Owned(text)))));
                self.inner.len() - 1
            }
        };
        let (_, document) = self.inner.get_mut(place).ok_or(Missing::Absent)?;
        shorter(document)
    }

    /// Whether a rule has asked for the body.
    #[cfg(test)]
    pub(super) fn has_read_the_body(&self) -> bool {
        self.body.is_some()
    }
}

fn shorter<T>(kept: &mut Result<T, Missing>) -> Result<&mut T, Missing> {
    kept.as_mut().map_err(|why| *why)
}

fn some(text: Cow<'_, str>) -> Result<Cow<'_, str>, Missing> {
    if text.is_empty() { Err(Missing::Empty) } else { Ok(text) }
}

fn apply(transform: Transform, text: Cow<'_, str>) -> Cow<'_, str> {
    match (transform, text) {
        (Transform::Lower, text) => text.to_lowercase().into(),
        (Transform::Trim, Cow::Borrowed(text)) => text.trim().into(),
        (Transform::Trim, Cow::Owned(text)) => text.trim().to_owned().into(),
        (Transform::Sha256, text) => hex(&Sha256::digest(text.as_bytes())).into(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|n| char::from_digit(u32::from(n), 16)).collect()
}

impl Found {
    /// Itself, if its parts, their joints and `taken` further bytes are no longer than a key may be.
    fn fitting(self, taken: usize) -> Result<Self, Missing> {
        let joints = self.parts.len().saturating_sub(1);
        let bytes = self.parts.iter().map(String::len).sum::<usize>() + joints + taken;
        if bytes > KEY_BYTES_MAX { Err(Missing::TooLong) } else { Ok(self) }
    }
}
