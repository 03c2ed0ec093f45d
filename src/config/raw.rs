//! YAML text to a tree of nodes that know where they stand. Nothing is interpreted here: `0x10`, `1e3`, `no` and `010` stay
//! the text that they are, because any of them may be somebody's secret; what a value means is for `check` to say.
//!
//! The parser is `serde-saphyr`. Its untyped face turns `0x10` into 16 before we see it, so a plain scalar that it took for
//! something else is cut out of the source by its span. Its errors can quote the document, so their text is never used
//! where it could hold a value.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Location, Options, Spanned};

use super::problem::{Place, Problem};

/// Largest configuration file, in bytes; ten thousand sources fit in it.
const FILE_BYTES_MAX: usize = 4 << 20;
/// Deepest nesting; the deepest field of the configuration stands at six.
const DEPTH_MAX: usize = 32;
/// Most values of a document, aliases expanded. A file of the largest size has fewer.
const NODES_MAX: usize = 500_000;
/// Most events replayed for aliases: enough to share blocks between sources, and an alias bomb ends at once.
const REPLAYED_MAX: usize = 50_000;

/// A value and where it stands.
pub(super) struct Node {
    /// Its first character; for an alias, the alias.
    pub(super) place: Place,
    /// What it is.
    pub(super) is: Is,
}

/// What a node is.
pub(super) enum Is {
    /// `null`, `~` or nothing.
    Null,
    /// Text; a plain scalar's is as it stands in the file.
    Scalar(String),
    /// `[…]` or lines with `-`.
    List(Vec<Node>),
    /// `{…}` or lines with `name:`, in their order.
    Map(Vec<Entry>),
}

/// One member of a map.
pub(super) struct Entry {
    /// Its name.
    pub(super) name: String,
    /// Where the name stands.
    pub(super) place: Place,
    /// Its value.
    pub(super) value: Node,
}

impl Node {
    /// What it is, in words, without its content.
    pub(super) fn kind(&self) -> &'static str {
        match self.is {
            Is::Null => "nothing",
            Is::Scalar(_) => "a plain value",
            Is::List(_) => "a list",
            Is::Map(_) => "a map",
        }
    }
}

/// Reads the one document of a file. The error is boxed only for its size.
pub(super) fn parse(text: &str, file: &str) -> Result<Node, Box<Problem>> {
    if text.len() > FILE_BYTES_MAX {
        let found = format!("the file is larger than {} MiB", FILE_BYTES_MAX >> 20);
        return Err(Box::new(Problem::new(file, Place::START, "", &found)));
    }
    match serde_saphyr::from_str_with_options::<Spanned<Seen>>(text, options()) {
        Ok(seen) => Ok(node(seen, text)),
        Err(error) => Err(Box::new(syntax(error.without_snippet(), file, text))),
    }
}

fn options() -> Options {
    let mut limits = serde_saphyr::options::AliasLimits::default();
    limits.max_total_replayed_events = REPLAYED_MAX;
    let mut budget = serde_saphyr::Budget::default();
    budget.max_depth = DEPTH_MAX;
    budget.flow_nesting_limit = DEPTH_MAX;
    budget.max_nodes = NODES_MAX;
    budget.max_documents = 1;
    let mut options = Options::default();
    options.budget = Some(budget);
    options.alias_limits = limits;
    options.emit_comments = false;
    // Each duplicate becomes a problem of its own beside the others, instead of the only one.
    options.duplicate_keys = DuplicateKeyPolicy::PassThrough;
    options.merge_keys = MergeKeyPolicy::Merge;
    options.strict_booleans = true;
    options.null_as_string = true;
    options.ignore_binary_tag_for_string = true;
    options.non_finite_float_policy = NonFiniteFloatPolicy::PassThrough;
    options.reject_unsupported_tags = true;
    options.with_snippet = false;
    options
}

/// What the parser shows of a value.
enum Seen {
    Null,
    Text(String),
    /// A plain scalar that was taken for a number or a boolean: its text is in the source.
    Plain,
    List(Vec<Spanned<Seen>>),
    Map(Vec<(Spanned<String>, Spanned<Seen>)>),
}

impl<'de> Deserialize<'de> for Seen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Look)
    }
}

struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = Seen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Seen, E> {
        Ok(Seen::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Seen, E> {
        Ok(Seen::Plain)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Seen, E> {
        Ok(Seen::Plain)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Seen, E> {
        Ok(Seen::Plain)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Seen, E> {
        Ok(Seen::Plain)
    }

    fn visit_str<E>(self, text: &str) -> Result<Seen, E> {
        Ok(Seen::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Seen, E> {
        Ok(Seen::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Seen, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Seen::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Seen, A::Error> {
        let mut map = Vec::new();
        while let Some(member) = members.next_entry()? {
            map.push(member);
        }
        Ok(Seen::Map(map))
    }
}

fn node(seen: Spanned<Seen>, text: &str) -> Node {
    let place = place(seen.referenced);
    let is = match seen.value {
        Seen::Null => Is::Null,
        Seen::Text(text) => Is::Scalar(text),
        Seen::Plain => Is::Scalar(plain(source(seen.defined, text)).to_owned()),
        Seen::List(items) => Is::List(items.into_iter().map(|item| node(item, text)).collect()),
        Seen::Map(members) => Is::Map(members.into_iter().map(|(name, value)| entry(name, value, text)).collect()),
    };
    Node { place, is }
}

fn entry(name: Spanned<String>, value: Spanned<Seen>, text: &str) -> Entry {
    Entry { place: place(name.referenced), name: name.value, value: node(value, text) }
}

fn place(location: Location) -> Place {
    // A document without any content has no location.
    if location.line() == 0 {
        return Place::START;
    }
    Place { line: location.line(), column: location.column() }
}

/// With a tag (`!!int "5"`) even a quoted scalar is taken for a number; the quotes are not part of it.
fn plain(text: &str) -> &str {
    text.trim_matches(['"', '\''])
}

/// The characters of a plain scalar, as they stand in the file.
fn source(location: Location, text: &str) -> &str {
    let span = location.span();
    let place = |n: Option<u64>| n.and_then(|n| usize::try_from(n).ok());
    let cut = place(span.byte_offset())
        .zip(place(span.byte_len()))
        .and_then(|(start, len)| text.get(start..start.checked_add(len)?));
    cut.map(str::trim).expect("invariant: the parser read this text from memory, so its spans are places in it")
}

/// The one problem of a file that is not YAML, or is too much of it.
fn syntax(error: &serde_saphyr::Error, file: &str, text: &str) -> Problem {
    use serde_saphyr::Error as E;

    let at = error.location().map_or(Place::START, place);
    let problem = |found: &str| Problem::new(file, at, "", found);
    match error {
        // The scanner's own words; they name characters of the syntax, never values.
        E::Message { msg, .. } | E::ExternalMessage { msg, .. } => {
            let problem = problem(&format!("this is not YAML: {msg}"));
            match syntax_hint(msg, at, text) {
                Some(hint) => problem.hint(hint),
                None => problem,
            }
        }
        E::UnknownAnchor { .. } => {
            problem("an alias (*name) refers to an anchor (&name) that does not stand before it")
        }
        E::RecursiveReferencesRequireWeakTypes { .. } => problem("an anchor holds an alias of itself"),
        E::MergeValueNotMapOrSeqOfMaps { .. } => problem("<< takes a map, or a list of maps"),
        E::Budget { breach: BudgetBreach::Documents { .. }, .. } => {
            problem("a second document begins here").expected("one document in the file")
        }
        E::AliasReplayLimitExceeded { .. } | E::AliasReplayStackDepthExceeded { .. } => {
            problem("aliases (*name) expand to more than a configuration may hold")
        }
        E::Budget { breach: BudgetBreach::Depth { .. }, .. } => {
            problem(&format!("nested deeper than {DEPTH_MAX} levels"))
        }
        E::Budget { .. } => problem("more values, or more aliases of them, than a configuration may hold"),
        E::AliasError { error, .. } => syntax(error, file, text),
        _ => {
            problem("a tag (!name), a name or a value that cannot stand here").expected("plain maps, lists and values")
        }
    }
}

/// What usually is behind the commonest ones.
fn syntax_hint(msg: &str, at: Place, text: &str) -> Option<&'static str> {
    let line = usize::try_from(at.line).ok().and_then(|n| text.lines().nth(n.saturating_sub(1))).unwrap_or_default();
    if line.contains("${") && msg.contains("flow") {
        Some("inside { … } and [ … ] quotes are needed: \"${NAME}\"")
    } else if line.matches('{').count() > 1 && msg.contains("flow") {
        Some("inside { … } and [ … ] a path with a {name} needs quotes")
    } else if msg.contains("mapping values are not allowed") {
        Some("the indentation may be off, or a value that holds \": \" needs quotes")
    } else if msg.contains("tab") {
        Some("indent with spaces")
    } else if msg.contains("unknown escape") {
        Some("in double quotes a backslash is written \\\\; in single quotes it stands for itself")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of a map of scalars, as text.
    fn values(text: &str) -> Vec<String> {
        let Is::Map(members) = parse(text, "f").unwrap_or_else(|p| panic!("{p}")).is else {
            panic!("not a map: {text}")
        };
        members.into_iter().map(|e| if let Is::Scalar(text) = e.value.is { text } else { "null".to_owned() }).collect()
    }

    #[test]
    fn a_scalar_stays_the_text_that_it_is() {
        let texts = [
            "0x10",
            "1e3",
            "no",
            "010",
            "1e999",
            ".nan",
            "-.inf",
            "1_000",
            "0b11",
            "+12e3",
            "-0",
            "true",
            "1.10",
            "äöü 5",
            "12345678901234567890123",
            "0o17",
            "yes",
            "12:30:45",
            "2026-01-01",
            "=",
            "$[0].id",
            "a#b",
            "é",
        ];
        for text in texts {
            assert_eq!(values(&format!("v: {text} # comment")), [text]);
            assert_eq!(values(&format!("v: \"{text}\"")), [text]);
            assert_eq!(values(&format!("\"é ä\": {{ v: 1 }}\nv: '{text}'"))[1], text);
            if !text.contains('[') {
                assert_eq!(values(&format!("{{ v: {text} }}")), [text]);
            }
        }
        assert_eq!(values("v: !!int \"5\"\nw: !!binary aGk=\nx: !!str 5"), ["5", "aGk=", "5"]);
        assert_eq!(values("\u{feff}v: 0x10\r\nw: 1e3 \r\nx: \"no\"\r\n"), ["0x10", "1e3", "no"]);
        assert_eq!(values("a: null\nb: ~\nc:\nd: \"null\""), ["null", "null", "null", "null"]);
        assert_eq!(values("null: 0x1\n010: a\n1e3: b").len(), 3);
    }

    #[test]
    fn places_count_characters_and_an_alias_stands_where_it_is_written() {
        let root = parse("äö: &a { k: v }\nb: *a\n", "f").unwrap_or_else(|p| panic!("{p}"));
        let Is::Map(members) = root.is else { panic!("not a map") };
        let places: Vec<_> = members.iter().map(|e| (e.value.place.line, e.value.place.column)).collect();
        assert_eq!(places, [(1, 8), (2, 4)]);
    }

    #[test]
    fn duplicates_reach_the_checker_and_merged_ones_are_none() {
        assert_eq!(values("a: 1\na: 2"), ["1", "2"]);
        let root = parse("x: &x { a: 1, b: 2 }\ny: { <<: *x, a: 3 }", "f").unwrap_or_else(|p| panic!("{p}"));
        let Is::Map(members) = root.is else { panic!("not a map") };
        let Is::Map(y) = &members[1].value.is else { panic!("not a map") };
        let texts: Vec<_> =
            y.iter().map(|e| (e.name.as_str(), matches!(&e.value.is, Is::Scalar(t) if t == "3"))).collect();
        assert_eq!(texts, [("a", true), ("b", false)]);
    }

    #[test]
    fn no_syntax_problem_quotes_a_value() {
        let broken = [
            "a: \"hunter2",
            "a: 'hunter2",
            "a: {secret: hunter2",
            "a: \"hunter2\\q\"",
            "secret: hunter2: x",
            "a: *hunter2",
            "a: !hunter2 x",
            "a: !!int hunter2",
            "a: @hunter2",
            "{ a: ${hunter2} }",
            "a: |\n  x\n hunter2",
            "hunter2\na: 1",
            "? [hunter2]\n: b",
            "a:\n\thunter2: 1",
            "a: 1\n---\nhunter2",
        ];
        for text in broken {
            let Err(problem) = parse(text, "f") else { panic!("{text} was read") };
            let shown = format!("{problem}{}", problem.json());
            assert!(!shown.contains("hunter2"), "{text}: {shown}");
        }
    }

    #[test]
    fn bombs_end_at_once_with_a_problem() {
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..12 {
            let last = format!("*a{}", i - 1);
            laughs.push_str(&format!("a{i}: &a{i} [{}]\n", [last.as_str(); 10].join(", ")));
        }
        for (text, why) in [
            (laughs, "aliases"),
            ("[".repeat(20_000), "recursion"),
            ("- ".repeat(20_000), "nested"),
            ("a: &a [*a]".to_owned(), "itself"),
            (format!("a: {}", "x".repeat(FILE_BYTES_MAX)), "larger than 4 MiB"),
        ] {
            let Err(problem) = parse(&text, "f") else { panic!("read: {why}") };
            assert!(problem.found.contains(why), "{why}: {problem}");
        }
    }
}
