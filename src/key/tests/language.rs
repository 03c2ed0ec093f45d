//! A row for every clause of the language.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

use super::super::content::{INFLATED_BYTES_MAX, INFLATED_RATIO_MAX};
use super::super::tree::{TREE_BYTES_MAX, TREE_DEPTH_MAX};
use super::super::{Place, Plan, Rule, RuleSpec};
use super::{Request, first, join, plan, rule};
use crate::event::{Group, KEY_BYTES_MAX, Missing};

fn ok(text: &str) -> Result<String, Missing> {
    Ok(text.to_owned())
}

#[test]
fn a_dotted_path_finds_members_and_items() {
    let body = r#" { "id" : 7, "a": {"b": {"c": "deep"}}, "items": [ {"id": "x"}, {"id": "y"} ], "0": "zero", "a.b": "dotted",
        "say \"hi\"": "quoted", "é": "accent", "tab\there": "tab", "list": {"1": "member"}, "n": [[1, [2, 3]]], "": "nameless", "007": "agent" } "#;
    let request = Request::json(body);
    for (expression, expected) in [
        ("body.id", ok("7")),
        ("body.a.b.c", ok("deep")),
        ("body.items.0.id", ok("x")),
        ("body.items.1.id", ok("y")),
        ("body.items.2.id", Err(Missing::Absent)),
        ("body.items.01.id", Err(Missing::Absent)),
        ("body.items.id", Err(Missing::Absent)),
        ("body.n.0.1.1", ok("3")),
        ("body.0", ok("zero")),
        ("body.list.1", ok("member")),
        ("body.007", ok("agent")),
        (r#"body."a.b""#, ok("dotted")),
        (r#"body."say \"hi\"""#, ok("quoted")),
        (r#"body."tab\there""#, ok("tab")),
        (r#"body."\u00e9""#, ok("accent")),
        ("body.é", ok("accent")),
        (r#"body."""#, ok("nameless")),
        (r#"body."items"."0".id"#, ok("x")),
        ("body.nothing", Err(Missing::Absent)),
        ("body.id.more", Err(Missing::Absent)),
        ("body.ID", Err(Missing::Absent)),
        ("body.a", Err(Missing::NotScalar)),
        ("body.items", Err(Missing::NotScalar)),
    ] {
        assert_eq!(request.key(expression), expected, "{expression}");
    }
    assert_eq!(Request::json(r#"[{"portalId": 62515}]"#).key("body.0.portalId"), ok("62515"));
}

#[test]
fn scalars_count_and_numbers_keep_their_digits() {
    for (value, expected) in [
        (r#""text""#, ok("text")),
        ("12345678901234567890", ok("12345678901234567890")),
        ("123456789012345678901234567890", ok("123456789012345678901234567890")),
        ("1.10", ok("1.10")),
        ("1E2", ok("1E2")),
        ("-0", ok("-0")),
        ("1e400", ok("1e400")),
        ("true", ok("true")),
        ("false", ok("false")),
        ("null", Err(Missing::Empty)),
        (r#""""#, Err(Missing::Empty)),
        (r#"" ""#, ok(" ")),
        ("{}", Err(Missing::NotScalar)),
        ("[1]", Err(Missing::NotScalar)),
        (r#""caf\u00e9 \ud83d\ude00\n""#, ok("café 😀\n")),
        (r#""\ud800""#, Err(Missing::BadEncoding)),
        (r#""x\udc00y""#, Err(Missing::BadEncoding)),
    ] {
        let request = Request::json(format!(r#"{{"k": {value} , "other": [0]}}"#));
        for expression in ["body.k", "$.k", "$['k']", "$..k", "$[?@ != 'other']"] {
            assert_eq!(request.key(expression), expected, "{expression} of {value}");
        }
    }
}

#[test]
fn of_duplicate_members_the_last_one_counts_whole() {
    for (body, expected) in [
        (r#"{"a": {"b": 1}, "a": {"b": 2}}"#, ok("2")),
        (r#"{"a": {"b": 1, "b": 3}}"#, ok("3")),
        (r#"{"a": {"b": 1}, "a": {"c": 2}}"#, Err(Missing::Absent)),
        (r#"{"a": {"b": 1}, "a": 5}"#, Err(Missing::Absent)),
        (r#"{"a": {"b": 1}, "a": null}"#, Err(Missing::Absent)),
        (r#"{"a": 5, "a": {"b": 1}}"#, ok("1")),
        (r#"{"a": {"b": 1}, "\u0061": {"b": "escaped"}}"#, ok("escaped")),
        (r#"{"a": {"b": {}}, "a": {"b": ""}}"#, Err(Missing::Empty)),
    ] {
        for expression in ["body.a.b", "$.a.b", "$.a..b"] {
            assert_eq!(Request::json(body).key(expression), expected, "{expression} of {body}");
        }
    }
}

#[test]
fn half_a_document_has_no_key() {
    let refused: &[&[u8]] = &[
        b"",
        b"  ",
        b"text",
        b"<xml/>",
        br#"{"k": "v""#,
        br#"{"k": "v"} x"#,
        br#"{"k": "v"}{}"#,
        br#"{"k": "v", }"#,
        br#"{"k": "v", "l": tru}"#,
        br#"{"k": "v", "l": 01}"#,
        br#"{"k": "v", "l": "\x"}"#,
        br#"{"k": "v", "l": [1 2]}"#,
        br#"{"k": "v", "l": [}]}"#,
        b"{\"k\": \"v\", \"l\": \"\n\"}",
        b"{\"k\": \"v\", \"l\": \"\xFF\"}",
        b"{\"k\": \"caf\xE9\"}",
        b"\xEF\xBB\xBF{\"k\": \"v\"}",
        "{\"k\": \"v\"}\u{a0}".as_bytes(),
    ];
    for body in refused {
        for expression in ["body.k", "$.k", "$..k"] {
            let key = Request::json(body).key(expression);
            assert_eq!(key, Err(Missing::NotJson), "{expression} of {:?}", String::from_utf8_lossy(body));
        }
    }
    // Half a surrogate pair elsewhere is the receiver's business, and so is a number that no double holds.
    for other in [r#""\ud800": 1"#, r#""l": "\udfff""#, r#""l": 1e999"#, r#""l": {"\ud800\ud800": [-1e999]}"#] {
        for body in [format!(r#"{{"k": "v", {other}}}"#), format!(r#"{{{other}, "k": "v"}}"#)] {
            for expression in ["body.k", "$.k", "$..k"] {
                assert_eq!(Request::json(&body).key(expression), ok("v"), "{expression} of {body}");
            }
        }
    }
}

#[test]
fn the_body_is_json_whatever_its_type_says_except_forms_and_multipart() {
    let with = |kind: &str| Request::json(r#"{"k": "v"}"#).header("content-type", kind.as_bytes());
    for kind in
        ["application/json", "text/plain", "application/xml", "application/cloudevents+json; charset=utf-8", "", ";"]
    {
        assert_eq!(with(kind).key("body.k"), ok("v"), "{kind}");
    }
    for kind in ["multipart/form-data; boundary=x", "Multipart/Mixed"] {
        assert_eq!(with(kind).key("body.k"), Err(Missing::NotJson), "{kind}");
        assert_eq!(with(kind).key("$.k"), Err(Missing::NotJson), "{kind}");
    }
    // A document that calls itself a form is not a form without the field.
    assert_eq!(with("application/x-www-form-urlencoded").key("body.k"), Err(Missing::NotJson));
}

#[test]
fn a_form_field_is_decoded() {
    let request = Request::form("a=1&b=caf%C3%A9+au%20lait&c=%2B&a=2&d&e=&f=x=y&g=%zz&h=%FF&i.j=dot&%6B=named&l[m]=n");
    for (expression, expected) in [
        ("body.a", ok("2")),
        ("body.b", ok("café au lait")),
        ("body.c", ok("+")),
        ("body.d", Err(Missing::Empty)),
        ("body.e", Err(Missing::Empty)),
        ("body.f", ok("x=y")),
        ("body.g", ok("%zz")),
        ("body.h", Err(Missing::BadEncoding)),
        (r#"body."i.j""#, ok("dot")),
        ("body.i.j", Err(Missing::Absent)),
        ("body.k", ok("named")),
        (r#"body."l[m]""#, ok("n")),
        ("body.zz", Err(Missing::Absent)),
        ("$.a", Err(Missing::NotJson)),
    ] {
        assert_eq!(request.key(expression), expected, "{expression}");
    }
    let parameters = Request::json("b=2").header("content-type", b"Application/X-WWW-Form-Urlencoded ; charset=utf-8");
    assert_eq!(parameters.key("body.b"), ok("2"));
}

#[test]
fn a_path_goes_on_inside_a_text() {
    let form = Request::form("payload=%7B%22team%22%3A%7B%22id%22%3A%22T1%22%7D%2C%22n%22%3A1.10%7D&plain=text&empty=");
    for (expression, expected) in [
        ("body.payload | json | team.id", ok("T1")),
        ("body.payload|json|team.id|lower", ok("t1")),
        ("body.payload | json | n", ok("1.10")),
        ("body.payload | json | $..id", ok("T1")),
        ("body.payload | json | team", Err(Missing::NotScalar)),
        ("body.payload | json | absent", Err(Missing::Absent)),
        ("body.plain | json | a", Err(Missing::NotJson)),
        ("body.empty | json | a", Err(Missing::Empty)),
        ("body.nothing | json | a", Err(Missing::Absent)),
    ] {
        assert_eq!(form.key(expression), expected, "{expression}");
    }
    let json = Request::json(r#"{"p": "{\"q\": \"{\\\"r\\\": [12345678901234567890]}\"}", "o": {"q": 1}, "n": 5}"#);
    assert_eq!(json.key("body.p | json | q | json | r.0"), ok("12345678901234567890"));
    assert_eq!(json.key("$.p | json | q | json | $.r[0]"), ok("12345678901234567890"));
    assert_eq!(json.key("body.o | json | q"), Err(Missing::NotScalar));
    assert_eq!(json.key("body.n | json | q"), Err(Missing::Absent));
    let query = Request { query: Some("state=%7B%22t%22:%22x%22%7D"), ..Request::default() };
    assert_eq!(query.key("query.state | json | t"), ok("x"));
}

#[test]
fn a_json_path_gives_its_first_result() {
    let request = Request::json(
        r#"[{"portalId": 62515, "tags": [{"k": "a|b", "v": 1.50}, {"k": "x", "v": "two"}]}, {"portalId": 2}, {"it's\n": "odd"}]"#,
    );
    for (expression, expected) in [
        ("$[0].portalId", ok("62515")),
        ("$[-1]..*", ok("odd")),
        ("$[1:].portalId", ok("2")),
        ("$..portalId", ok("62515")),
        ("$[*].tags[?@.k == 'a|b'].v", ok("1.50")),
        ("$[*].tags[?@.k == 'x' || @.k == 'y'].v | lower", ok("two")),
        (
            "$[*].tags[?(@.v == 1.5)]['k'] | sha256",
            ok("0eab8a0a3380abf4c7d1fb0b43b66aafbb64a4b953e4eb2dccca579461912d0c"),
        ),
        ("$[9].portalId", Err(Missing::Absent)),
        ("$[0]", Err(Missing::NotScalar)),
        ("$.portalId", Err(Missing::Absent)),
    ] {
        assert_eq!(request.key(expression), expected, "{expression}");
    }
    // JSONPath tells members from items.
    assert_eq!(Request::json(r#"{"0": "member"}"#).key("$[0]"), Err(Missing::Absent));
    assert_eq!(Request::json(r#"{"0": "member"}"#).key("$['0']"), ok("member"));
}

#[test]
fn a_tree_has_limits() {
    let of_size = |bytes: usize| Request::json(format!(r#"{{"k": "v", "pad": "{}"}}"#, "x".repeat(bytes - 21)));
    for expression in ["$.k", "$..k"] {
        assert_eq!(of_size(TREE_BYTES_MAX).body.len(), TREE_BYTES_MAX);
        assert_eq!(of_size(TREE_BYTES_MAX).key(expression), ok("v"), "{expression}");
        assert_eq!(of_size(TREE_BYTES_MAX + 1).key(expression), Err(Missing::TooBig), "{expression}");
        assert_eq!(of_size(TREE_BYTES_MAX + 1).key("body.k"), ok("v"));
        let deep = |levels: usize| {
            Request::json(format!(r#"{{"k": "v", "d": {}{}}}"#, "[".repeat(levels), "]".repeat(levels)))
        };
        assert_eq!(deep(TREE_DEPTH_MAX - 1).key(expression), ok("v"), "{expression}");
        assert_eq!(deep(TREE_DEPTH_MAX).key(expression), Err(Missing::TooDeep), "{expression}");
        assert_eq!(deep(TREE_DEPTH_MAX).key("body.k"), ok("v"));
        assert!(serde_json::from_slice::<serde_json::Value>(&deep(TREE_DEPTH_MAX - 1).body).is_ok());
        assert!(serde_json::from_slice::<serde_json::Value>(&deep(TREE_DEPTH_MAX).body).is_err());
        // A document that is too deep before it is broken is too deep.
        assert_eq!(Request::json("[".repeat(1000)).key(expression), Err(Missing::TooDeep), "{expression}");
        assert_eq!(Request::json("[".repeat(100)).key(expression), Err(Missing::NotJson), "{expression}");
    }
    // One long name above many items would be written out for each of them.
    let long = format!(r#"{{"{}": [{}0], "k": "v"}}"#, "n".repeat(500_000), "0,".repeat(200_000));
    assert_eq!(Request::json(&long).key("$..k"), Err(Missing::TooBig));
    assert_eq!(Request::json(&long).key("$.k"), ok("v"));
}

#[test]
fn headers_query_path_and_constants() {
    let request = Request {
        path: "/hooks/a%20b/caf%C3%A9/%2525/%FF/",
        names: vec![("store", "a%20b"), ("twice", "%2525"), ("bad", "%FF"), ("none", "")],
        query: Some("a=1&a=2&hub.mode=sub&sp=x+y%20z&bad=%C3&empty="),
        ..Request::default()
    }
    .header("x-shop", b"first")
    .header("x-shop", b"second")
    .header("x-utf8", "café".as_bytes())
    .header("x-latin", b"caf\xE9")
    .header("x-empty", b"");
    for (expression, expected) in [
        ("headers.x-shop", ok("first")),
        ("headers.X-SHOP", ok("first")),
        ("headers.x-utf8", ok("café")),
        ("headers.x-latin", Err(Missing::BadEncoding)),
        ("headers.x-empty", Err(Missing::Empty)),
        ("headers.x-other", Err(Missing::Absent)),
        ("query.a", ok("1")),
        ("query.hub.mode", ok("sub")),
        ("query.sp", ok("x y z")),
        ("query.bad", Err(Missing::BadEncoding)),
        ("query.empty", Err(Missing::Empty)),
        ("query.other", Err(Missing::Absent)),
        ("path.store", ok("a b")),
        ("path.twice", ok("%25")),
        ("path.bad", Err(Missing::BadEncoding)),
        ("path.none", Err(Missing::Empty)),
        ("path.other", Err(Missing::Absent)),
        ("path.0", ok("hooks")),
        ("path.2", ok("café")),
        ("path.3", ok("%25")),
        ("path.4", Err(Missing::BadEncoding)),
        ("path.5", Err(Missing::Absent)),
        ("const:all of them", ok("all of them")),
        ("const:a|b", ok("a|b")),
    ] {
        assert_eq!(request.key(expression), expected, "{expression}");
    }
}

#[test]
fn transforms_make_another_text() {
    let request = Request::json(r#"{"k": "  My-Shop.Example\n", "blank": "  ", "e": ""}"#);
    for (expression, expected) in [
        ("body.k | trim", ok("My-Shop.Example")),
        ("body.k | lower", ok("  my-shop.example\n")),
        ("body.k|trim|lower", ok("my-shop.example")),
        // echo -n my-shop.example | sha256sum
        ("body.k | lower | trim | sha256", ok("88d5157e300f78bf59ef8191a74f6509218b1c547ebc648260d327c9044d7b09")),
        ("body.blank | trim", Err(Missing::Empty)),
        ("body.blank | trim | sha256", Err(Missing::Empty)),
        ("body.e | sha256", Err(Missing::Empty)),
        ("body.none | lower", Err(Missing::Absent)),
    ] {
        assert_eq!(request.key(expression), expected, "{expression}");
    }
    // What is too long for a key may be hashed into one.
    let long = Request::json(format!(r#"{{"k": "{}"}}"#, "x".repeat(10_000)));
    assert_eq!(long.key("body.k"), Err(Missing::TooLong));
    assert_eq!(long.key("body.k | sha256").map(|hex| hex.len()), Ok(64));
}

#[test]
fn a_list_takes_the_first_that_finds_something() {
    let request = Request::json(r#"{"b": "two", "c": "three", "n": null, "o": {}}"#).header("x-h", b"head");
    let found = request.found(first(["body.a", "body.n", "body.b", "body.c"])).unwrap();
    assert_eq!((found.parts.join("~").as_str(), &*found.rule, found.body_only), ("two", "body.b", true));
    let found = request.found(first(["body.a", "headers.X-H", "body.b"])).unwrap();
    assert_eq!((found.parts.join("~").as_str(), &*found.rule, found.body_only), ("head", "headers.x-h", false));
    for (rules, reason) in [
        (first(["body.x", "body.y"]), Missing::Absent),
        (first(["body.x", "body.n", "body.o"]), Missing::Empty),
        (first(["body.o", "body.n", "body.x"]), Missing::NotScalar),
    ] {
        assert_eq!(request.key(rules), Err(reason));
    }
    // Lists in lists, and a composite among others.
    let nested = RuleSpec::First(vec![join(["body.x", "body.b"]), first(["body.y", "body.c"])]);
    assert_eq!(request.found(nested).map(|f| f.rule.to_string()), ok("body.c"));
}

#[test]
fn a_composite_needs_all_its_parts() {
    let request = Request::json(r#"{"a": "1", "b": 2, "e": ""}"#).header("x-h", b"h~h");
    let found = request.found(join(["body.a", "body.b"])).unwrap();
    assert_eq!((found.parts.clone(), found.body_only), (vec!["1".to_owned(), "2".to_owned()], true));
    assert_eq!(&*found.rule, "{ join: [body.a, body.b] }");
    assert_eq!(found.group(Some("ns")).as_str(), "ns~1~2");
    let found = request.found(join(["headers.x-h", "const:c"])).unwrap();
    assert_eq!((found.group(None).as_str(), found.body_only), ("h%7Eh~c", false));
    assert_eq!(request.key(join(["body.a", "body.x"])), Err(Missing::Absent));
    assert_eq!(request.key(join(["body.e", "body.x"])), Err(Missing::Empty));
    let choice = RuleSpec::Join(vec![first(["body.x", "body.a"]), "body.b".into()]);
    assert_eq!(request.key(choice), ok("1~2"));
}

#[test]
fn a_key_has_a_length() {
    let of = |n: usize| Request::json(format!(r#"{{"k": "{}", "l": "xy", "short": "s"}}"#, "x".repeat(n)));
    assert!(of(KEY_BYTES_MAX).key("body.k").is_ok());
    assert_eq!(of(KEY_BYTES_MAX + 1).key("body.k"), Err(Missing::TooLong));
    // Joints and namespaces count, bytes and not characters.
    assert!(of(KEY_BYTES_MAX - 3).key(join(["body.k", "body.l"])).is_ok());
    assert_eq!(of(KEY_BYTES_MAX - 2).key(join(["body.k", "body.l"])), Err(Missing::TooLong));
    assert_eq!(Request::json(format!(r#"{{"k": "{}"}}"#, "é".repeat(129))).key("body.k"), Err(Missing::TooLong));
    let namespaced = |n: usize| {
        let mut plan = Plan::new();
        plan.add(&rule("body.k"), Some("gh"));
        let request = of(n);
        plan.open(&request.input()).find(0).map(|found| found.group(Some("gh")).as_str().len())
    };
    assert_eq!(namespaced(KEY_BYTES_MAX - 3), Ok(KEY_BYTES_MAX));
    assert_eq!(namespaced(KEY_BYTES_MAX - 2), Err(Missing::TooLong));
    assert_eq!(of(300).key(first(["body.k", "body.short"])), ok("s"));
}

#[test]
fn hostile_keys_keep_their_written_form() {
    for (text, written) in [
        ("a\r\nX: y", "a%0D%0AX:%20y".to_owned()),
        ("café", "caf%C3%A9".to_owned()),
        ("\u{1b}[2J", "%1B%5B2J".to_owned()),
        ("\u{1f}", "%1F".to_owned()),
        ("~fallback", "%7Efallback".to_owned()),
        (&"%".repeat(256), "%25".repeat(256)),
    ] {
        let body = serde_json::to_vec(&serde_json::json!({ "k": text })).unwrap();
        let found = Request::json(body).found("body.k").unwrap();
        assert_eq!(found.group(None).as_str(), written);
        assert_eq!(Group::from_written(&written), Some(found.group(None)));
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::best());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut writer = ZlibEncoder::new(Vec::new(), Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut writer = DeflateEncoder::new(Vec::new(), Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

const PLAIN: &[u8] = br#"{"shop":"a.example"}"#;
/// `PLAIN` through a brotli encoder (RFC 7932).
const BROTLI: &[u8] = b"\x8b\x09\x80{\"shop\":\"a.example\"}\x03";

#[test]
fn a_content_encoding_is_undone_for_the_key() {
    let halves = [gzip(b"{\"shop\":"), gzip(b"\"a.example\"}")].concat();
    for (coding, body) in [
        ("", PLAIN.to_vec()),
        ("identity", PLAIN.to_vec()),
        ("gzip", gzip(PLAIN)),
        ("X-GZip", gzip(PLAIN)),
        ("gzip", halves),
        ("deflate", zlib(PLAIN)),
        ("deflate", deflate(PLAIN)),
        ("br", BROTLI.to_vec()),
        ("deflate, gzip", gzip(&zlib(PLAIN))),
        ("br , identity, gzip", gzip(BROTLI)),
    ] {
        let request = Request::json(&body).header("content-encoding", coding.as_bytes());
        assert_eq!(request.key("body.shop"), ok("a.example"), "{coding}");
        assert_eq!(request.key("$.shop"), ok("a.example"), "{coding}");
    }
    let lines =
        Request::json(gzip(&zlib(PLAIN))).header("content-encoding", b"deflate").header("content-encoding", b"gzip");
    assert_eq!(lines.key("body.shop"), ok("a.example"));
    let form = Request::form(gzip(b"shop=a.example")).header("content-encoding", b"gzip");
    assert_eq!(form.key("body.shop"), ok("a.example"));
}

#[test]
fn a_bad_encoding_has_no_key() {
    let cut = gzip(PLAIN);
    for (coding, body, reason) in [
        ("gzip", PLAIN.to_vec(), Missing::BadEncoding),
        ("gzip", cut[..cut.len() - 6].to_vec(), Missing::BadEncoding),
        ("br", PLAIN.to_vec(), Missing::BadEncoding),
        ("br", BROTLI[..10].to_vec(), Missing::BadEncoding),
        ("zstd", PLAIN.to_vec(), Missing::BadEncoding),
        ("gzip, gzip, gzip", gzip(&gzip(&gzip(PLAIN))), Missing::BadEncoding),
        ("deflate, gzip", zlib(&gzip(PLAIN)), Missing::BadEncoding),
        ("gzip", gzip(b"text"), Missing::NotJson),
        ("gzip", gzip(b"\xFF"), Missing::NotJson),
    ] {
        let request = Request::json(&body).header("content-encoding", coding.as_bytes());
        assert_eq!(request.key("body.shop"), Err(reason), "{coding}");
        // Rules that look elsewhere do not care.
        assert_eq!(request.key(first(["body.shop", "headers.content-encoding"])), ok(coding));
    }
}

/// A JSON document of `bytes` bytes that compresses badly enough to stay below the ratio.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut text = br#"{"k": "v", "n": ""#.to_vec();
    while text.len() < bytes - 2 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let letter = b'a' + u8::try_from(state >> 24).unwrap() % 26;
        let run = (bytes - 2 - text.len()).min(64);
        text.resize(text.len() + run, letter);
    }
    text.extend_from_slice(br#""}"#);
    text
}

#[test]
fn an_inflated_body_has_limits() {
    let encoded = |bytes: &[u8]| Request::json(gzip(bytes)).header("content-encoding", b"gzip");
    assert_eq!(encoded(&noise(INFLATED_BYTES_MAX)).key("body.k"), ok("v"));
    assert_eq!(encoded(&noise(INFLATED_BYTES_MAX + 1)).key("body.k"), Err(Missing::TooBig));
    // Without an encoding the limit of the listener is the only one.
    assert_eq!(Request::json(noise(INFLATED_BYTES_MAX + 1)).key("body.k"), ok("v"));
    // Spaces are valid JSON around a document, and compress a thousand to one.
    let bomb = [vec![b' '; 1 << 20], PLAIN.to_vec()].concat();
    assert!(gzip(&bomb).len() * INFLATED_RATIO_MAX < bomb.len());
    assert_eq!(encoded(&bomb).key("body.shop"), Err(Missing::TooBig));
    let twice = Request::json(gzip(&gzip(&bomb))).header("content-encoding", b"gzip, gzip");
    assert_eq!(twice.key("body.shop"), Err(Missing::TooBig));
    // 20 MiB of spaces in 40 bytes.
    let brotli = b"\xcb\xff\xff\x3f\xf8\x25\x40\xe2\xb1\x40\x20\xf7\xfe\x8f\xff\xff\x7f\xf0\x4b\x00\
                   \xc4\x61\x11\x80\xee\xfd\x5f\xfe\xff\xff\xe0\x97\x00\x88\xc3\x02\x00\xdd\xfb\x1f";
    let bomb = Request::json(brotli).header("content-encoding", b"br");
    assert_eq!(bomb.key("body.shop"), Err(Missing::TooBig));
}

#[test]
fn rules_of_one_source_share_one_reading() {
    let rules = [
        rule(first(["body.team_id", "body.payload | json | team.id", "body.payload | json | user.team_id"])),
        rule("headers.x-shop"),
        rule("body.payload | json | type"),
        rule("body.zz"),
        rule(join(["headers.x-shop", "body.payload | json | team.id"])),
    ];
    let request = Request::form("payload=%7B%22type%22%3A%22view%22%2C%22team%22%3A%7B%22id%22%3A%22T1%22%7D%7D")
        .header("x-shop", b"s");
    let (plan, input) = (plan(&rules), request.input());
    let mut reading = plan.open(&input);
    for (number, rule) in rules.iter().enumerate() {
        assert_eq!(reading.find(number), rule.evaluate(&input), "{rule}");
    }
    assert_eq!(reading.find(0).map(|f| f.parts.concat()), ok("T1"));
    assert_eq!(reading.find(99), Err(Missing::Absent));
}

#[test]
fn the_body_is_left_alone_until_a_rule_asks_for_it() {
    let rules =
        [rule("headers.x-shop"), rule(first(["query.shop", "body.shop"])), rule(first(["body.shop", "query.shop"]))];
    let request = Request { query: Some("shop=q"), ..Request::json(r#"{"shop": "b"}"#) }.header("x-shop", b"h");
    let (plan, input) = (plan(&rules), request.input());
    let mut reading = plan.open(&input);
    assert_eq!(reading.find(0).map(|f| f.parts.concat()), ok("h"));
    assert_eq!(reading.find(1).map(|f| f.parts.concat()), ok("q"));
    assert!(!reading.has_read_the_body());
    assert_eq!(reading.find(2).map(|f| f.parts.concat()), ok("b"));
    assert!(reading.has_read_the_body());
}

#[test]
fn a_rule_says_what_it_reads() {
    let both = rule(RuleSpec::First(vec![
        join(["path.store", "body.a"]),
        "headers.X-Y".into(),
        "query.q".into(),
        "path.0".into(),
    ]));
    let header = http::HeaderName::from_static("x-y");
    let expected =
        vec![Place::PathName("store"), Place::Body, Place::Header(&header), Place::Query("q"), Place::PathSegment(0)];
    assert_eq!(both.places(), expected);
    assert_eq!(both.path_names(), vec!["store"]);
    assert!(both.reads_body() && !both.body_only());
    for (spec, reads_body, body_only) in [
        ("body.a", true, true),
        ("$.a", true, true),
        ("body.a | json | b | lower", true, true),
        ("const:x", false, true),
        ("headers.a | json | b", false, false),
        ("path.0", false, false),
    ] {
        assert_eq!((rule(spec).reads_body(), rule(spec).body_only()), (reads_body, body_only), "{spec}");
    }
}

#[test]
fn a_rule_has_one_text() {
    for (written, text) in [
        ("  headers.X-Shop-Domain|lower ", "headers.x-shop-domain | lower"),
        (r#"body."a"."b.c"."d e".0."0".é"#, r#"body.a."b.c"."d e".0.0.é"#),
        (r#"body."\u0061|b""#, r#"body."a|b""#),
        ("body.payload |json| $.a[?@.b || @.c]|  trim", "body.payload | json | $.a[?@.b || @.c] | trim"),
        (r#"body.p | json | "$x".y"#, r#"body.p | json | "$x".y"#),
        ("const:  a  b ", "const:a  b"),
        ("query.hub.mode", "query.hub.mode"),
    ] {
        assert_eq!(rule(written).text(), text);
        assert_eq!(rule(text), rule(written), "{text} reads back as itself");
    }
    let nested =
        RuleSpec::First(vec!["body.a".into(), RuleSpec::Join(vec!["body.b".into(), first(["body.c", "body.d"])])]);
    assert_eq!(rule(nested).text(), "[body.a, { join: [body.b, [body.c, body.d]] }]");
    assert_ne!(rule("body.a"), rule("body.b"));
}

#[test]
fn an_error_says_what_was_expected_found_and_meant() {
    for (expression, offset, words) in [
        ("", 0, vec!["expected a place", "found the end"]),
        ("  ", 2, vec!["found the end"]),
        ("header.x-shop", 0, vec!["expected a place", "found `header`", "did you mean `headers.x-shop`?"]),
        ("boddy.a | lower", 0, vec!["did you mean `body.a | lower`?"]),
        ("Body.a", 0, vec!["did you mean `body.a`?"]),
        ("params.a", 0, vec!["expected a place", "found `params`"]),
        ("shop", 0, vec!["`body.…`", "found `shop`"]),
        ("body", 4, vec!["expected `.` and a name after `body`", "found the end"]),
        ("body.", 5, vec!["expected a member's name", "found the end"]),
        ("body.a..b", 7, vec!["expected a member's name", "found `.`"]),
        ("body.a.", 7, vec!["found the end"]),
        ("body[0].a", 4, vec!["expected `.`", "found `[`"]),
        ("body.items[0].id", 10, vec!["written `.0`", "JSONPath begins with `$`"]),
        ("body.\"a", 5, vec!["no closing quote"]),
        (r#"body."\q""#, 5, vec!["as JSON writes it"]),
        (r#"body."a"b"#, 8, vec!["expected `|`", "found `b`"]),
        ("body.a b", 7, vec!["expected `|`", "found `b`"]),
        ("body.a |", 8, vec!["expected `json`, `lower`, `trim` or `sha256`", "found the end"]),
        ("body.a | lowercase", 9, vec!["found `lowercase`", "did you mean `lower`?"]),
        ("body.a | sha265", 9, vec!["did you mean `sha256`?"]),
        ("body.a | upper", 9, vec!["found `upper`"]),
        ("body.a | json", 13, vec!["a path into the inner document", "found the end"]),
        ("body.a | json.team", 9, vec!["found `json.team`", "did you mean `json`?"]),
        ("headers.", 8, vec!["a name after `headers.`"]),
        ("headers.a(b)", 8, vec!["expected a header's name", "found `a(b)`"]),
        ("path.{store}", 5, vec!["`{store}`"]),
        ("path.99999999999999999999", 5, vec!["no segment"]),
        ("const:", 6, vec!["expected the text of the constant"]),
        ("const:Shop | lower", 6, vec!["takes no `| lower`"]),
        ("$[0", 0, vec!["expected a JSONPath of RFC 9535", "found `$[0`"]),
        ("body.a | json | $[", 16, vec!["JSONPath"]),
    ] {
        let error = Rule::parse(&expression.into()).expect_err(expression);
        assert_eq!((error.expression.as_str(), error.offset), (expression, offset), "{error}");
        for word in words {
            assert!(error.to_string().contains(word), "{expression}: no {word:?} in: {error}");
        }
    }
    let in_list = Rule::parse(&first(["body.a", "heders.b"])).unwrap_err();
    assert_eq!(in_list.expression, "heders.b");
    for (spec, word) in [
        (RuleSpec::First(vec![]), "at least one"),
        (RuleSpec::Join(vec![]), "at least one"),
        (RuleSpec::Join(vec![RuleSpec::First(vec![join(["body.a", "body.b"])])]), "inside a join"),
    ] {
        assert!(Rule::parse(&spec).unwrap_err().message.contains(word));
    }
}

#[test]
fn an_expression_has_limits() {
    assert!(Rule::parse(&format!("body{}", ".a".repeat(64)).as_str().into()).is_ok());
    let long = [
        format!("body{}", ".a".repeat(65)),
        format!("body.a{}", " | lower".repeat(9)),
        format!("body.{}", "a".repeat(1024)),
        format!("${}", "[(".repeat(200)),
    ];
    for expression in long {
        assert!(Rule::parse(&expression.as_str().into()).is_err(), "{expression}");
    }
}
