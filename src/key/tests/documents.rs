//! The reader against a model that knows each value's text, against serde_json, and against hostile documents.

use proptest::collection::vec;
use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::super::paths::{Paths, Step};
use super::{Request, plan, rule};
use crate::event::{KEY_BYTES_MAX, Missing};

/// A document that remembers how its numbers are written and which members it repeats.
#[derive(Clone, Debug)]
enum Doc {
    Word(&'static str),
    Number(String),
    Text(String),
    Array(Vec<Doc>),
    Object(Vec<(String, Doc)>),
}

/// Few enough that members repeat and paths meet them.
const NAMES: [&str; 12] = ["a", "b", "0", "1", "01", "é", "a.b", "", "\"", "\\u", "\u{1f}\n", "😀"];

fn name() -> impl Strategy<Value = String> {
    (0..NAMES.len()).prop_map(|i| NAMES[i].to_owned())
}

fn document() -> impl Strategy<Value = Doc> {
    let leaf = prop_oneof![
        prop_oneof![Just("null"), Just("true"), Just("false")].prop_map(Doc::Word),
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,9})?([eE][+-]?[0-9]{1,3})?".prop_map(Doc::Number),
        "\\PC{0,8}".prop_map(Doc::Text),
        vec(any::<char>(), 0..4).prop_map(|chars| Doc::Text(chars.into_iter().collect())),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![vec(inner.clone(), 0..5).prop_map(Doc::Array), vec((name(), inner), 0..6).prop_map(Doc::Object),]
    })
}

/// Writes documents with white space and escapes that a seed chooses.
struct Writer {
    seed: u64,
    out: String,
}

impl Writer {
    fn write(doc: &Doc, seed: u64) -> String {
        let mut writer = Self { seed: seed | 1, out: String::new() };
        writer.value(doc);
        writer.space();
        writer.out
    }

    /// A number below `n` (xorshift).
    fn pick(&mut self, n: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % n
    }

    fn space(&mut self) {
        while self.pick(4) == 0 {
            let space = [" ", "\n", "\t", "\r"][usize::try_from(self.pick(4)).unwrap()];
            self.out.push_str(space);
        }
    }

    fn mark(&mut self, mark: char) {
        self.space();
        self.out.push(mark);
    }

    fn value(&mut self, doc: &Doc) {
        self.space();
        match doc {
            Doc::Word(text) => self.out.push_str(text),
            Doc::Number(text) => self.out.push_str(text),
            Doc::Text(text) => self.text(text),
            Doc::Array(items) => {
                self.out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        self.mark(',');
                    }
                    self.value(item);
                }
                self.mark(']');
            }
            Doc::Object(members) => {
                self.out.push('{');
                for (i, (name, value)) in members.iter().enumerate() {
                    if i > 0 {
                        self.mark(',');
                    }
                    self.space();
                    self.text(name);
                    self.mark(':');
                    self.value(value);
                }
                self.mark('}');
            }
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            let short = match c {
                '"' => Some('"'),
                '\\' => Some('\\'),
                '/' => Some('/'),
                '\n' => Some('n'),
                '\r' => Some('r'),
                '\t' => Some('t'),
                '\u{8}' => Some('b'),
                '\u{c}' => Some('f'),
                _ => None,
            };
            let must = c < ' ' || c == '"' || c == '\\';
            match (short, self.pick(3)) {
                (Some(short), 0) => self.out.extend(['\\', short]),
                (_, 1) => self.units(c),
                _ if must => self.units(c),
                _ => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn units(&mut self, c: char) {
        for unit in c.encode_utf16(&mut [0; 2]) {
            let hex = if self.pick(2) == 0 { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") };
            self.out.push_str(&hex);
        }
    }
}

/// What a path finds in the model.
fn expected(doc: &Doc, path: &[String]) -> Result<String, Missing> {
    let mut at = doc;
    for segment in path {
        at = match at {
            Doc::Object(members) => members.iter().rev().find(|(name, _)| name == segment).map(|(_, value)| value),
            Doc::Array(items) => segment
                .parse::<usize>()
                .ok()
                .filter(|index| index.to_string() == *segment)
                .and_then(|index| items.get(index)),
            _ => None,
        }
        .ok_or(Missing::Absent)?;
    }
    let text = match at {
        Doc::Word("null") => return Err(Missing::Empty),
        Doc::Word(text) => (*text).to_owned(),
        Doc::Number(text) => text.clone(),
        Doc::Text(text) if text.is_empty() => return Err(Missing::Empty),
        Doc::Text(text) => text.clone(),
        Doc::Array(_) | Doc::Object(_) => return Err(Missing::NotScalar),
    };
    if text.len() > KEY_BYTES_MAX { Err(Missing::TooLong) } else { Ok(text) }
}

/// Where `picks` lead: mostly along the document, sometimes astray.
fn path(doc: &Doc, picks: &[(u8, usize)]) -> Vec<String> {
    let mut at = Some(doc);
    let mut path = Vec::new();
    for (astray, pick) in picks {
        let (segment, next) = match at {
            Some(Doc::Object(members)) if *astray > 30 && !members.is_empty() => {
                let (name, value) = &members[pick % members.len()];
                (name.clone(), Some(value))
            }
            Some(Doc::Array(items)) if *astray > 30 && !items.is_empty() => {
                let index = pick % items.len();
                (index.to_string(), items.get(index))
            }
            _ if *astray > 120 && !path.is_empty() => break,
            _ => (NAMES[pick % NAMES.len()].to_owned(), None),
        };
        path.push(segment);
        at = next;
    }
    path
}

fn picks() -> impl Strategy<Value = Vec<(u8, usize)>> {
    vec((any::<u8>(), any::<usize>()), 1..6)
}

fn dotted(path: &[String]) -> String {
    let quoted: Vec<_> = path.iter().map(|segment| serde_json::to_string(segment).unwrap()).collect();
    format!("body.{}", quoted.join("."))
}

/// The same place as a JSONPath, which has to say what is a member and what an item; `None` where the model has neither.
fn json_path(doc: &Doc, path: &[String]) -> Option<String> {
    let mut at = Some(doc);
    let mut text = "$".to_owned();
    for segment in path {
        at = match at? {
            Doc::Array(items) => {
                let index = segment.parse().ok().filter(|i: &usize| i.to_string() == *segment)?;
                text.push_str(&format!("[{index}]"));
                items.get(index)
            }
            Doc::Object(members) => {
                text.push_str(&format!("[{}]", serde_json::to_string(segment).unwrap()));
                members.iter().rev().find(|(name, _)| name == segment).map(|(_, value)| value)
            }
            _ => return None,
        };
    }
    at.map(|_| text)
}

/// What serde_json says about a value of a document, as far as a `Value` can know it.
fn by_serde(document: &str, path: &[String]) -> Option<Result<String, Missing>> {
    let tree: Value = serde_json::from_str(document).ok()?;
    let mut at = &tree;
    for segment in path {
        let next = match at {
            Value::Object(members) => members.get(segment),
            Value::Array(items) => {
                segment.parse().ok().filter(|i: &usize| i.to_string() == *segment).and_then(|i| items.get(i))
            }
            _ => None,
        };
        let Some(next) = next else { return Some(Err(Missing::Absent)) };
        at = next;
    }
    match at {
        Value::Null => Some(Err(Missing::Empty)),
        Value::Bool(value) => Some(Ok(value.to_string())),
        // A tree has lost the text; the model knows it.
        Value::Number(_) => None,
        Value::String(text) if text.is_empty() => Some(Err(Missing::Empty)),
        Value::String(text) => Some(Ok(text.clone())),
        Value::Array(_) | Value::Object(_) => Some(Err(Missing::NotScalar)),
    }
}

fn is_json(bytes: &[u8]) -> bool {
    // `from_slice` does not look for invalid UTF-8 in what it ignores.
    std::str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

fn cases(n: u32) -> ProptestConfig {
    ProptestConfig { cases: n, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn a_path_finds_what_the_model_and_serde_json_have_there(doc in document(), picks in picks(), seed in any::<u64>()) {
        let text = Writer::write(&doc, seed);
        let path = path(&doc, &picks);
        let request = Request::json(&text);
        let key = request.key(&dotted(&path));
        prop_assert_eq!(&key, &expected(&doc, &path), "{:?} of {}", path, text);
        if let Some(by_serde) = by_serde(&text, &path) {
            prop_assert_eq!(&key, &by_serde, "{:?} of {}", path, text);
        }
    }

    #[test]
    fn a_json_path_finds_the_same_with_and_without_a_tree(doc in document(), picks in picks(), seed in any::<u64>()) {
        let text = Writer::write(&doc, seed);
        let path = path(&doc, &picks);
        if let Some(query) = json_path(&doc, &path) {
            let request = Request::json(&text);
            let expected = expected(&doc, &path);
            prop_assert_eq!(&request.key(&query), &expected, "{} of {}", query, text);
            // A selection of two names no single place, so that this one needs the tree.
            let first = query.replacen("$[", "$['no such name', ", 1);
            if first != query {
                prop_assert_eq!(request.key(&first), expected, "{} of {}", first, text);
            }
        }
    }

    #[test]
    fn one_pass_for_several_rules_gives_what_each_gives_alone(
        doc in document(), all in vec(picks(), 1..6), seed in any::<u64>()
    ) {
        let request = Request::json(Writer::write(&doc, seed));
        let rules: Vec<_> = all.iter().map(|picks| rule(&dotted(&path(&doc, picks)))).collect();
        let (plan, input) = (plan(&rules), request.input());
        let mut reading = plan.open(&input);
        for (number, rule) in rules.iter().enumerate() {
            prop_assert_eq!(reading.find(number), rule.evaluate(&input), "{}", rule);
        }
    }

    #[test]
    fn a_document_inside_a_text_is_read_like_any_other(doc in document(), picks in picks(), seed in any::<u64>()) {
        let inner = Writer::write(&doc, seed);
        let outer = Writer::write(&Doc::Object(vec![("p".to_owned(), Doc::Text(inner))]), seed);
        let path = path(&doc, &picks);
        let expression = dotted(&path).replacen("body.", "body.p | json | ", 1);
        prop_assert_eq!(Request::json(outer).key(&expression), expected(&doc, &path));
    }

    #[test]
    fn a_damaged_document_is_json_exactly_when_serde_json_says_so(
        doc in document(), seed in any::<u64>(), damage in vec((any::<usize>(), 0..3_u8, any::<u8>()), 1..4)
    ) {
        let mut bytes = Writer::write(&doc, seed).into_bytes();
        for (place, kind, byte) in damage {
            let place = place % (bytes.len() + 1);
            let byte = if byte % 2 == 0 { b"[]{}\",:\\u0-.eE "[usize::from(byte / 2) % 15] } else { byte };
            match kind {
                0 => bytes.insert(place, byte),
                1 => bytes.truncate(place),
                _ => bytes.splice(place..(place + 1).min(bytes.len()), [byte]).for_each(drop),
            }
        }
        let key = Request::json(&bytes).key("body.never.there");
        prop_assert_eq!(key == Err(Missing::NotJson), !is_json(&bytes), "{}", String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in vec(any::<u8>(), 0..200), query in "\\PC{0,20}", kind in 0..5_usize, expression in "\\PC{0,30}"
    ) {
        let coding = ["identity", "gzip", "deflate", "br", "br, deflate"][kind].as_bytes();
        prop_assert_eq!(Request::json(&bytes).key("body.never") == Err(Missing::NotJson), !is_json(&bytes));
        let requests = [Request::json(&bytes), Request::form(&bytes), Request::json(&bytes).header("content-encoding", coding)];
        for request in &requests {
            let input = super::Input { query: Some(&query), path: &query, names: &[("n", &query)], ..request.input() };
            for rule in ["body.a.0", "$..a", "$[0]", "body.a | json | b", "query.a", "path.n", "path.0"].map(rule) {
                if let Ok(found) = rule.evaluate(&input) {
                    prop_assert!(!found.parts.concat().is_empty());
                }
            }
        }
        if let Ok(read) = super::Rule::parse(&(&expression).into()) {
            prop_assert_eq!(super::Rule::parse(&read.text().into()), Ok(read.clone()), "{}", read.text());
        }
    }

    #[test]
    fn an_expression_reads_back_from_its_text(
        root in prop_oneof![Just("body."), Just("$."), Just("headers."), Just("query."), Just("path."), Just("const:"), Just("")],
        rest in "[a-z0-9._|\"\\\\ \\[\\]$-]{1,24}", stage in prop_oneof![Just(""), Just(" | lower"), Just("|json|"), Just(" | sha265")]
    ) {
        let written = format!("{root}{rest}{stage}");
        match super::Rule::parse(&(&written).into()) {
            Ok(read) => prop_assert_eq!(super::Rule::parse(&read.text().into()), Ok(read.clone()), "{}", read.text()),
            Err(error) => {
                prop_assert!(error.offset <= written.len());
                prop_assert!(written.is_char_boundary(error.offset));
                prop_assert!(error.message.contains("expected") || error.message.contains('`'), "{}", error);
            }
        }
    }
}

#[test]
fn a_string_is_read_the_same_wherever_a_byte_falls_in_a_word() {
    for filler in ["x", "é", "\u{7f}", "\u{ffff}"] {
        for place in 0..20 {
            for byte in 0..=0x7F_u8 {
                let body = format!("[\"{}{}{}\"]", filler.repeat(place), char::from(byte), filler.repeat(20 - place));
                let key = Request::json(&body).key("body.0.never");
                assert_eq!(key == Err(Missing::NotJson), !is_json(body.as_bytes()), "{byte:#x} at {place} in {filler}");
            }
        }
    }
}

#[test]
fn what_is_open_is_closed_in_order_however_deep() {
    for depth in 1..200 {
        // Kinds in an order that no shift of a word hides.
        let kinds: Vec<bool> = (0..depth).map(|level: u32| (level * level / 7 + level / 3).is_multiple_of(3)).collect();
        let open: String = kinds.iter().map(|object| if *object { "{\"b\":" } else { "[" }).collect();
        let mut close: Vec<u8> = kinds.iter().rev().map(|object| if *object { b'}' } else { b']' }).collect();
        let document = |close: &[u8]| format!("{open}0{}", String::from_utf8_lossy(close));
        assert_eq!(Request::json(document(&close)).key("body.never"), Err(Missing::Absent), "{depth}");
        for place in 0..close.len() {
            close[place] ^= b'}' ^ b']';
            assert_eq!(Request::json(document(&close)).key("body.never"), Err(Missing::NotJson), "{depth}, {place}");
            close[place] ^= b'}' ^ b']';
        }
    }
}

/// Documents of about `n` bytes that have been the end of other readers.
fn hostile(n: usize) -> Vec<(&'static str, String)> {
    let times = |piece: &str| piece.repeat(n / piece.len());
    vec![
        ("open arrays", times("[")),
        ("open objects", times("{\"a\":")),
        ("nested arrays", format!("{}{}", "[".repeat(n / 2), "]".repeat(n / 2))),
        ("nested objects", format!("{}0{}", "{\"a\":".repeat(n / 6), "}".repeat(n / 6))),
        ("nested off the path", format!("{{\"b\":{}0{}}}", "[{\"a\":".repeat(n / 8), "}]".repeat(n / 8))),
        ("one member again and again", format!("{{{}\"a\":0}}", times("\"a\":{\"a\":0},"))),
        ("escaped names", format!("{{{}\"a\":0}}", times("\"\\u0061\\u0061\":0,"))),
        ("one long escaped name", format!("{{\"{}\":0}}", times("\\u0061"))),
        ("one long string", format!("\"{}\"", times("x"))),
        ("quotes and backslashes", format!("\"{}\"", times("\\\"\\\\"))),
        ("no end of a string", format!("\"{}", times("\\\\"))),
        ("digits", times("1")),
        ("digits after a point", format!("0.{}", times("0"))),
        ("white space", times(" \n")),
        ("many items", format!("[{}0]", times("[],"))),
        ("many scalars", format!("[{}0]", times("0,"))),
        ("accents", format!("\"{}\"", times("é"))),
    ]
}

#[test]
fn work_on_hostile_documents_is_linear() {
    let mut paths = Paths::default();
    for depth in 1..=64 {
        paths.add(&vec![Step::segment("a"); depth]);
    }
    paths.add(&[Step::segment("0"), Step::segment("0")]);
    // Every byte may be looked at by the white-space loop, by the token after it, and by whatever it belongs to.
    const LOOKS_A_BYTE: usize = 4;
    for n in [1 << 10, 1 << 14, 1 << 20] {
        for (what, document) in hostile(n) {
            let scan = paths.scan(&document);
            assert!(scan.looks <= LOOKS_A_BYTE * document.len() + 16, "{what}: {} looks at {n} bytes", scan.looks);
            assert_eq!(scan.valid, is_json(document.as_bytes()), "{what}");
        }
    }
}

#[test]
fn hostile_documents_have_reasons() {
    for (what, document) in hostile(1 << 20) {
        let request = Request::json(&document);
        let key = request.key("body.never.there");
        assert_eq!(key == Err(Missing::NotJson), !is_json(document.as_bytes()), "{what}: {key:?}");
        assert!(request.key("$.never.there").is_err(), "{what}");
        assert!(request.key("body.a.a.a.a | json | a").is_err(), "{what}");
    }
}

/// Payloads of real senders, where they are at hand: every expression that a preset uses finds the documented tenant.
#[test]
fn real_payloads_have_their_natural_keys() {
    let shared = std::env::var("FAIRLANE_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../shared").to_owned());
    for (file, expression, expected) in [
        ("stripe/connect_account_event.json", "body.account", "acct_123"),
        ("slack/interactive_block_actions.form", "body.payload | json | team.id", "T111"),
        ("slack/interactive_block_actions.form", "body.payload | json | $.user.team_id", "T111"),
    ] {
        let Ok(body) = std::fs::read(format!("{shared}/payloads/{file}")) else {
            println!("LEFT OUT: {file} is not at hand (set FAIRLANE_SHARED)");
            continue;
        };
        let request = if file.ends_with(".form") { Request::form(body) } else { Request::json(body) };
        assert_eq!(request.key(expression).as_deref(), Ok(expected), "{file}");
    }
}
