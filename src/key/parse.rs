//! Reads key expressions, and says to people what is wrong with one.
//!
//! ```text
//! expression = place *( "|" stage )
//! place      = "body" 1*segment | "headers." name | "query." name | "path." ( name / index ) | "const:" text | JSONPath
//! segment    = "." ( bare / quoted )
//! stage      = "lower" / "trim" / "sha256" / "json" "|" ( bare *segment / JSONPath )
//! ```

use std::sync::Arc;

use http::HeaderName;

use super::paths::Step;
use super::text::canonical;
use super::tree::JsonPath;

/// Longest expression, in bytes. Nobody writes one; it bounds what a path may cost.
const EXPRESSION_BYTES_MAX: usize = 1024;

/// Most segments of a path. The reader goes one call deeper for each.
const SEGMENTS_MAX: usize = 64;

/// Most stages of an expression. Each `json` is a document of its own.
const STAGES_MAX: usize = 8;

/// An expression that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (in `{expression}`, at byte {offset})")]
pub struct ParseError {
    /// The expression, as given; of a list without rules, the list.
    pub expression: String,
    /// Where in it, in bytes from its beginning.
    pub offset: usize,
    /// What was expected there, what stands there, and what may have been meant.
    pub message: String,
}

/// One expression.
#[derive(Clone, Debug)]
pub(super) struct Expr {
    /// Its canonical text.
    pub(super) text: Arc<str>,
    pub(super) root: Root,
    pub(super) stages: Vec<Stage>,
}

/// Where in a request an expression begins.
#[derive(Clone, Debug)]
pub(super) enum Root {
    Body(Route),
    Header(HeaderName),
    Query(Box<str>),
    Name(Box<str>),
    Segment(usize),
    Const(Box<str>),
}

/// Where a value stands in a document.
#[derive(Clone, Debug)]
pub(super) enum Route {
    Dotted(Vec<Step>),
    JsonPath(Arc<JsonPath>, Box<str>),
}

/// What is done with a value.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    Json(Route),
    Transform(Transform),
}

/// What makes another text of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transform {
    Lower,
    Trim,
    Sha256,
}

const ROOTS: [&str; 6] = ["body", "headers", "query", "path", "const", "$"];
const STAGES: [&str; 4] = ["json", "lower", "trim", "sha256"];

/// Reads one expression.
pub(super) fn expression(text: &str) -> Result<Expr, ParseError> {
    let mut parser = Parser { text, at: 0 };
    if text.len() > EXPRESSION_BYTES_MAX {
        return Err(
            parser.error(0, format!("an expression has at most {EXPRESSION_BYTES_MAX} bytes, this has {}", text.len()))
        );
    }
    parser.space();
    let root = parser.root()?;
    let mut stages = Vec::new();
    while parser.pipe()? {
        if stages.len() == STAGES_MAX {
            return Err(parser.error(parser.at, format!("an expression has at most {STAGES_MAX} stages")));
        }
        stages.push(parser.stage()?);
    }
    Ok(Expr { text: canonical(&root, &stages).into(), root, stages })
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Parser<'t> {
    fn root(&mut self) -> Result<Root, ParseError> {
        let start = self.at;
        if self.rest().starts_with('$') {
            return self.json_path().map(Root::Body);
        }
        if let Some(text) = self.rest().strip_prefix("const:") {
            return self.constant(text);
        }
        let root = self.word(|c| c != '.' && c != ':' && c != '[');
        let body = match root {
            "body" => true,
            "headers" | "query" | "path" => false,
            _ => return Err(self.unknown_root(start, root)),
        };
        if !self.take('.') {
            return Err(self.expected(&format!("`.` and a name after `{root}`")));
        }
        if body {
            return self.segments().map(|steps| Root::Body(Route::Dotted(steps)));
        }
        let at = self.at;
        let name = self.word(|_| true);
        if name.is_empty() {
            return Err(self.expected(&format!("a name after `{root}.`")));
        }
        match root {
            "headers" => HeaderName::from_bytes(name.as_bytes())
                .map(Root::Header)
                .map_err(|_| self.error(at, format!("expected a header's name, found `{name}`"))),
            "query" => Ok(Root::Query(name.into())),
            _ => self.path_segment(at, name),
        }
    }

    fn path_segment(&self, at: usize, name: &str) -> Result<Root, ParseError> {
        if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            let message = format!(
                "expected the name of a {{name}} segment of the source's path, or a number from 0, found `{name}`"
            );
            return Err(self.error(at, message));
        }
        if name.bytes().all(|b| b.is_ascii_digit()) {
            let index = name.parse().map_err(|_| self.error(at, format!("`{name}` is no segment of any path")))?;
            return Ok(Root::Segment(index));
        }
        Ok(Root::Name(name.into()))
    }

    fn constant(&mut self, text: &str) -> Result<Root, ParseError> {
        let start = self.text.len() - text.len();
        let value = text.trim();
        if value.is_empty() {
            return Err(self.error(start, "expected the text of the constant after `const:`, found the end".to_owned()));
        }
        if let Some((_, stage)) = value.rsplit_once('|')
            && STAGES.contains(&stage.trim())
        {
            let message = format!("a constant takes no `| {}`: write it as it is to be", stage.trim());
            return Err(self.error(start, message));
        }
        self.at = self.text.len();
        Ok(Root::Const(value.into()))
    }

    fn stage(&mut self) -> Result<Stage, ParseError> {
        let start = self.at;
        let stage = match self.word(|_| true) {
            "lower" => Stage::Transform(Transform::Lower),
            "trim" => Stage::Transform(Transform::Trim),
            "sha256" => Stage::Transform(Transform::Sha256),
            "json" => {
                if !self.pipe()? {
                    return Err(
                        self.expected("`| ` and a path into the inner document after `json`, like `json | team.id`")
                    );
                }
                Stage::Json(if self.rest().starts_with('$') {
                    self.json_path()?
                } else {
                    Route::Dotted(self.segments()?)
                })
            }
            word => return Err(self.unknown_stage(start, word)),
        };
        Ok(stage)
    }

    fn segments(&mut self) -> Result<Vec<Step>, ParseError> {
        let mut steps = Vec::new();
        loop {
            if steps.len() == SEGMENTS_MAX {
                return Err(self.error(self.at, format!("a path has at most {SEGMENTS_MAX} segments")));
            }
            let segment = if self.rest().starts_with('"') { self.quoted()? } else { self.bare()?.to_owned() };
            steps.push(Step::segment(&segment));
            if !self.take('.') {
                return Ok(steps);
            }
        }
    }

    fn bare(&mut self) -> Result<&'t str, ParseError> {
        let start = self.at;
        let segment = self.word(|c| c != '.' && c != '"');
        if segment.is_empty() {
            return Err(self.expected("a member's name, an item's number, or a name in double quotes"));
        }
        if let Some(bracket) = segment.find(['[', ']']) {
            let message = "expected a plain name, found a bracket: an item is written `.0`, a name with brackets in double quotes, and \
                           a JSONPath begins with `$`";
            return Err(self.error(start + bracket, message.to_owned()));
        }
        Ok(segment)
    }

    fn quoted(&mut self) -> Result<String, ParseError> {
        let start = self.at;
        let mut escaped = false;
        let inside = self.rest().get(1..).unwrap_or_default();
        let end = inside.find(|c| {
            let end = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            end
        });
        let Some(end) = end else {
            return Err(self.error(start, "expected a name in double quotes, found no closing quote".to_owned()));
        };
        let literal = self.rest().get(..end + 2).unwrap_or_default();
        self.at += literal.len();
        serde_json::from_str(literal).map_err(|_| {
            self.error(start, format!("expected a name in double quotes as JSON writes it, found {literal}"))
        })
    }

    /// Up to a `|` outside brackets, parentheses and strings.
    fn json_path(&mut self) -> Result<Route, ParseError> {
        let start = self.at;
        let (mut depth, mut quote, mut escaped) = (0_usize, None, false);
        let end = self.rest().find(|c| {
            match (quote, c) {
                (Some(_), _) if escaped => escaped = false,
                (Some(_), '\\') => escaped = true,
                (Some(open), c) if open == c => quote = None,
                (Some(_), _) => {}
                (None, '\'' | '"') => quote = Some(c),
                (None, '[' | '(') => depth += 1,
                (None, ']' | ')') => depth = depth.saturating_sub(1),
                (None, '|') if depth == 0 => return true,
                (None, _) => {}
            }
            false
        });
        let rest = self.rest();
        let text = end.and_then(|end| rest.get(..end)).unwrap_or(rest);
        self.at += text.len();
        let text = text.trim_end();
        JsonPath::parse(text).map(|path| Route::JsonPath(Arc::new(path), text.into())).map_err(|why| {
            self.error(start, format!("expected a JSONPath of RFC 9535, like `$[0].portalId`, found `{text}`: {why}"))
        })
    }

    /// Whether another stage follows; takes the `|`.
    fn pipe(&mut self) -> Result<bool, ParseError> {
        self.space();
        if self.rest().is_empty() {
            return Ok(false);
        }
        if !self.take('|') {
            return Err(self.expected("`|` and a transform, or the end"));
        }
        self.space();
        Ok(true)
    }

    /// As many characters as neither end a word nor fail `inner`.
    fn word(&mut self, inner: impl Fn(char) -> bool) -> &'t str {
        let text = self.rest();
        let ends = |c: char| c == '|' || c.is_whitespace() || c.is_control() || !inner(c);
        let word = text.get(..text.find(ends).unwrap_or(text.len())).unwrap_or_default();
        self.at += word.len();
        word
    }

    fn take(&mut self, c: char) -> bool {
        let taken = self.rest().starts_with(c);
        self.at += if taken { c.len_utf8() } else { 0 };
        taken
    }

    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn unknown_root(&self, at: usize, root: &str) -> ParseError {
        if root.is_empty() {
            return self.expected("a place, like `body.shop_id` or `headers.x-shop-domain`");
        }
        let mut message =
            "expected a place: `body.…`, `headers.…`, `query.…`, `path.…`, `const:…` or a JSONPath `$…`; ".to_owned();
        message.push_str(&format!("found `{root}`"));
        if let Some(near) = nearest(root, &ROOTS) {
            let rest = self.text.get(at + root.len()..).unwrap_or_default();
            message.push_str(&format!("; did you mean `{near}{}`?", rest.trim_end()));
        }
        self.error(at, message)
    }

    fn unknown_stage(&self, at: usize, word: &str) -> ParseError {
        if word.is_empty() {
            return self.expected("`json`, `lower`, `trim` or `sha256`");
        }
        let mut message = format!("expected `json`, `lower`, `trim` or `sha256`, found `{word}`");
        if let Some(near) = nearest(word, &STAGES) {
            message.push_str(&format!("; did you mean `{near}`?"));
        }
        self.error(at, message)
    }

    /// `what` was expected here.
    fn expected(&self, what: &str) -> ParseError {
        let found = match self.rest().chars().next() {
            Some(c) => format!("`{}`", c.escape_debug()),
            None => "the end".to_owned(),
        };
        self.error(self.at, format!("expected {what}, found {found}"))
    }

    fn error(&self, offset: usize, message: String) -> ParseError {
        ParseError { expression: self.text.to_owned(), offset, message }
    }
}

/// The known word that was probably meant.
fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word = word.to_lowercase();
    let far =
        |k: &str| if word.starts_with(k) || k.starts_with(&word) { 1 } else { strsim::damerau_levenshtein(k, &word) };
    known.iter().map(|k| (far(k), *k)).filter(|(far, k)| *far <= 2 && *far < k.len()).min().map(|(_, k)| k)
}
