//! JSONPath (RFC 9535) over a document. It needs a tree, so the document is bounded in size and depth.
//!
//! The tree only says *where* the first result stands; its text is then fetched from the document itself, so that a number
//! keeps the digits it was written with. A query that names one place (`$[0].portalId`) needs no tree at all.

use jsonpath_rust::parser::model::{JpQuery, Segment, Selector};
use jsonpath_rust::parser::{errors::JsonPathError, parse_json_path};
use jsonpath_rust::query::js_path_process;
use serde_json::{Map, Number, Value};

use super::json::{Cursor, Invalid, Span, decode};
use super::paths::{Paths, Step};

/// Largest document of which a tree is built: it takes ten times its size in memory and runs on the path of a request.
pub(super) const TREE_BYTES_MAX: usize = 1024 * 1024;

/// Most arrays and objects open at once in a document of which a tree is built: what serde_json's own tree takes.
pub(super) const TREE_DEPTH_MAX: usize = 127;

/// Most bytes that the paths of all of a tree's nodes may have together. `$..x` writes each of them out, so that a long member name
/// above many items would turn 1 MiB of document into gigabytes.
const TREE_PATH_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A compiled query.
#[derive(Clone, Debug)]
pub(super) struct JsonPath {
    query: JpQuery,
    /// The one place it names, if it names one.
    direct: Option<Paths>,
}

impl JsonPath {
    /// Reads a query; the error says in words what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let query = parse_json_path(text).map_err(|error| match error {
            JsonPathError::PestError(error) => error.variant.message().into_owned(),
            error => error.to_string(),
        })?;
        let direct = steps(&query).map(|steps| single(&steps));
        Ok(Self { query, direct })
    }

    /// The one place that it names, where it does.
    pub(super) fn direct(&self) -> Option<&Paths> {
        self.direct.as_ref()
    }

    /// Where its first result stands in `text`, of which `tree` was built.
    pub(super) fn first(&self, tree: &Value, text: &str) -> Option<Span> {
        let first = js_path_process(&self.query, tree).ok()?.into_iter().next()?;
        let place = steps(&parse_json_path(&first.path).ok()?)?;
        single(&place).scan(text).spot(0)
    }
}

fn single(steps: &[Step]) -> Paths {
    let mut paths = Paths::default();
    paths.add(steps);
    paths
}

/// The steps of a query that names one place, counted from the front.
fn steps(query: &JpQuery) -> Option<Vec<Step>> {
    query
        .segments
        .iter()
        .map(|segment| match segment {
            Segment::Selector(Selector::Name(name)) => Some(Step::Member(name.as_str().into())),
            Segment::Selector(Selector::Index(index)) => usize::try_from(*index).ok().map(Step::Item),
            _ => None,
        })
        .collect()
}

/// Builds the tree of a document that was read through before and is known to be valid and no deeper than [`TREE_DEPTH_MAX`]. `None`
/// when its paths would be too long.
pub(super) fn build(text: &str) -> Option<Value> {
    let mut builder = Builder { cursor: Cursor::new(text), path_bytes: 0 };
    builder.value(0).ok()
}

struct Builder<'t> {
    cursor: Cursor<'t>,
    path_bytes: usize,
}

impl Builder<'_> {
    fn value(&mut self, path: usize) -> Result<Value, Invalid> {
        self.path_bytes += path;
        if self.path_bytes > TREE_PATH_BYTES_MAX {
            return Err(Invalid);
        }
        match self.cursor.token()? {
            b'{' => self.object(path),
            b'[' => self.array(path),
            first => {
                let span = self.cursor.scalar(first)?;
                Ok(scalar(self.cursor.text_of(span)))
            }
        }
    }

    fn object(&mut self, path: usize) -> Result<Value, Invalid> {
        self.cursor.bump();
        let mut members = Map::new();
        if self.cursor.token()? != b'}' {
            loop {
                let name = self.cursor.name()?;
                let name = text_or_literal(self.cursor.text_of(name));
                let value = self.value(path + name.len() + "['']".len())?;
                members.insert(name, value);
                if self.cursor.token()? != b',' {
                    break;
                }
                self.cursor.bump();
            }
        }
        self.cursor.bump();
        Ok(Value::Object(members))
    }

    fn array(&mut self, path: usize) -> Result<Value, Invalid> {
        self.cursor.bump();
        let mut items = Vec::new();
        if self.cursor.token()? != b']' {
            loop {
                items.push(self.value(path + "[1234567]".len())?);
                if self.cursor.token()? != b',' {
                    break;
                }
                self.cursor.bump();
            }
        }
        self.cursor.bump();
        Ok(Value::Array(items))
    }
}

fn scalar(text: &str) -> Value {
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "null" => Value::Null,
        text if text.starts_with('"') => Value::String(text_or_literal(text)),
        text => Value::Number(number(text)),
    }
}

/// A number as filters compare it. One beyond the range of a double (`1e400`, which JSON allows and serde_json refuses) becomes the
/// largest there is.
fn number(text: &str) -> Number {
    serde_json::from_str(text).unwrap_or_else(|_| {
        let largest = if text.starts_with('-') { f64::MIN } else { f64::MAX };
        Number::from_f64(largest).expect("the largest double is finite")
    })
}

/// A string for filters to compare. Half a surrogate pair somewhere in a document is no reason to refuse all of it; such a
/// string stands as it was written.
fn text_or_literal(literal: &str) -> String {
    decode(literal).map_or_else(|| literal.to_owned(), std::borrow::Cow::into_owned)
}
