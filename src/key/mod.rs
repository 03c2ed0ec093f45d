//! Whose is it: the language in which a source says where in a request its fairness key stands.
//!
//! | expression | finds |
//! | --- | --- |
//! | `body.a.b`, `body.items.0.id`, `body."a.b"` | a member of the JSON body; a number indexes an array, or names a member; the last of duplicate members |
//! | `body.field` | a field of a form body, decoded; the last of repeated ones |
//! | `$.a[?@.b].c` | the first result of a JSONPath (RFC 9535) over the body |
//! | `headers.name` | a header, in any case; the first of repeated ones |
//! | `query.name` | a query parameter, decoded; the first of repeated ones |
//! | `path.name`, `path.0` | a `{name}` segment of the source's path, or a segment by its number; percent-decoded once |
//! | `const:text` | the text |
//!
//! `| lower`, `| trim` and `| sha256` (in hex) make another text of it; `| json | a.b` goes on inside a text that is a document
//! itself (`body.payload | json | team.id`, `query.state | json | $..id`). A list takes the first rule that finds something, `{ join: [a, b] }` needs all.
//!
//! Strings, booleans and numbers count; numbers keep the digits they were written with (`1.10`, `12345678901234567890`). Everything else
//! has a reason, [`Missing`]. Of a list in which nothing is found the reason is the first that is not `absent`.
//!
//! The body is tried as JSON whatever its type, except forms and multipart; a `Content-Encoding` is undone for the key alone. It is
//! read through to its end, so that half a document has no key, and read once for all rules of a [`Plan`]. A body that
//! is not UTF-8 is not JSON (RFC 8259 §8.1); half a surrogate pair matters only in the key itself (`bad_encoding`).
//!
//! Nothing here panics, recurses deeper than an expression is long, or takes more than linear time, whatever a sender sends.

mod content;
mod document;
mod fingerprint;
mod json;
mod parse;
mod paths;
mod plan;
mod text;
mod tree;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::{HeaderMap, HeaderName};

use crate::event::{Group, Missing};

use parse::{Expr, Root};

pub use crate::event::shard;
pub use fingerprint::fingerprint;
pub use parse::ParseError;
pub use plan::{Plan, Reading};

/// A rule as a configuration or a preset states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleSpec {
    /// One expression.
    Expr(String),
    /// A list: the first that finds something.
    First(Vec<RuleSpec>),
    /// A composite: all of them, each a part of the key.
    Join(Vec<RuleSpec>),
}

impl RuleSpec {
    /// The first of several expressions that finds something, as presets state them; `None` for none.
    #[must_use]
    pub fn any_of(expressions: &[&str]) -> Option<Self> {
        match expressions {
            [] => None,
            [one] => Some(Self::Expr((*one).to_owned())),
            several => Some(Self::First(several.iter().map(|text| Self::Expr((*text).to_owned())).collect())),
        }
    }
}

/// A rule that finds a key. Cheap to clone; two are equal when their texts are.
#[derive(Clone, Debug)]
pub struct Rule(Arc<Read>);

#[derive(Debug)]
struct Read {
    text: Arc<str>,
    shape: Shape,
    /// A plan of this rule alone.
    alone: Plan,
}

/// A rule as read.
#[derive(Clone, Debug)]
enum Shape {
    Expr(Expr),
    First(Arc<str>, Vec<Self>),
    Join(Arc<str>, Vec<Self>),
}

/// A place that a rule reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'r> {
    /// Somewhere in the body.
    Body,
    /// A header.
    Header(&'r HeaderName),
    /// A query parameter.
    Query(&'r str),
    /// A `{name}` segment of the path.
    PathName(&'r str),
    /// A segment of the path by its number, from 0.
    PathSegment(usize),
    /// No place: a constant.
    Const,
}

/// What a rule may look at: one request, its body as it came.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its path, percent-encoded, without the query.
    pub path: &'a str,
    /// The `{name}` segments of the source's path with what stands there, percent-encoded.
    pub names: &'a [(&'a str, &'a str)],
    /// Its query, without the question mark.
    pub query: Option<&'a str>,
    /// Its body, byte for byte.
    pub body: &'a [u8],
}

/// What a rule found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The key's parts: one, or those of a composite in their order; none is empty.
    pub parts: Vec<String>,
    /// The text of the rule that found it: of a list, the one of its rules that did.
    pub rule: Arc<str>,
    /// Whether all of it comes from the body (or from constants), which a signature over the body covers.
    pub body_only: bool,
}

impl Found {
    /// The group of this key, after `namespace` as a first part where there is one.
    #[must_use]
    pub fn group(&self, namespace: Option<&str>) -> Group {
        let parts: Vec<&str> = namespace.into_iter().chain(self.parts.iter().map(String::as_str)).collect();
        Group::of(&parts)
    }
}

impl Rule {
    /// Reads a rule.
    ///
    /// # Errors
    ///
    /// The first expression that cannot be read, a list or composite without rules, a composite inside another one.
    pub fn parse(spec: &RuleSpec) -> Result<Self, ParseError> {
        let shape = Shape::read(spec, Within::Rule)?;
        let mut alone = Plan::new();
        alone.add_shape(&shape, None);
        Ok(Self(Arc::new(Read { text: shape.text(), shape, alone })))
    }

    /// Its canonical text: header names in lower case, one space around `|`, quotes only where they are needed.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Whether it tries several expressions in turn.
    #[must_use]
    pub fn is_list(&self) -> bool {
        matches!(self.0.shape, Shape::First(..))
    }

    /// Every place it reads, list by list and part by part, in the order in which they are tried.
    #[must_use]
    pub fn places(&self) -> Vec<Place<'_>> {
        let mut places = Vec::new();
        self.0.shape.visit(&mut |expr| places.push(Place::of(&expr.root)));
        places
    }

    /// The names of `path.name` in it, which the source's path has to have.
    #[must_use]
    pub fn path_names(&self) -> Vec<&str> {
        let name = |place| if let Place::PathName(name) = place { Some(name) } else { None };
        self.places().into_iter().filter_map(name).collect()
    }

    /// Whether it may read the body.
    #[must_use]
    pub fn reads_body(&self) -> bool {
        self.places().contains(&Place::Body)
    }

    /// Whether it reads nothing but the body (and constants), so that a signature over the body covers every key it finds.
    #[must_use]
    pub fn body_only(&self) -> bool {
        self.places().iter().all(|place| matches!(place, Place::Body | Place::Const))
    }

    /// Runs it alone. Where several rules read one event, a [`Plan`] reads its body once for all of them.
    ///
    /// # Errors
    ///
    /// Why it found nothing.
    pub fn evaluate(&self, input: &Input<'_>) -> Result<Found, Missing> {
        self.0.alone.open(input).find(0)
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Rule {}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

impl<'r> Place<'r> {
    fn of(root: &'r Root) -> Self {
        match root {
            Root::Body(_) => Self::Body,
            Root::Header(name) => Self::Header(name),
            Root::Query(name) => Self::Query(name),
            Root::Name(name) => Self::PathName(name),
            Root::Segment(index) => Self::PathSegment(*index),
            Root::Const(_) => Self::Const,
        }
    }
}

/// Where in a rule a part of it stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Rule,
    Join,
}

impl Shape {
    fn read(spec: &RuleSpec, within: Within) -> Result<Self, ParseError> {
        let refused = |expression: &str, message: &str| {
            Err(ParseError { expression: expression.to_owned(), offset: 0, message: message.to_owned() })
        };
        match spec {
            RuleSpec::Expr(text) => parse::expression(text).map(Self::Expr),
            RuleSpec::First(rules) if rules.is_empty() => refused("[]", "a list needs at least one expression"),
            RuleSpec::Join(rules) if rules.is_empty() => {
                refused("{ join: [] }", "a join needs at least one expression")
            }
            RuleSpec::First(rules) => {
                let rules: Vec<_> = rules.iter().map(|r| Self::read(r, within)).collect::<Result<_, _>>()?;
                Ok(Self::First(format!("[{}]", texts(&rules)).into(), rules))
            }
            // Parts would run into one another: `a, (b, c)` and `(a, b), c` would be one key.
            RuleSpec::Join(_) if within == Within::Join => refused("{ join: … }", "a join cannot stand inside a join"),
            RuleSpec::Join(rules) => {
                let rules: Vec<_> = rules.iter().map(|r| Self::read(r, Within::Join)).collect::<Result<_, _>>()?;
                Ok(Self::Join(format!("{{ join: [{}] }}", texts(&rules)).into(), rules))
            }
        }
    }

    fn text(&self) -> Arc<str> {
        match self {
            Self::Expr(expr) => Arc::clone(&expr.text),
            Self::First(text, _) | Self::Join(text, _) => Arc::clone(text),
        }
    }

    fn visit<'s>(&'s self, see: &mut impl FnMut(&'s Expr)) {
        match self {
            Self::Expr(expr) => see(expr),
            Self::First(_, rules) | Self::Join(_, rules) => {
                for rule in rules {
                    rule.visit(see);
                }
            }
        }
    }
}

fn texts(rules: &[Shape]) -> String {
    let texts: Vec<_> = rules.iter().map(Shape::text).collect();
    texts.join(", ")
}
