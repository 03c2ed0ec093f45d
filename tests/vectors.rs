//! Signature vectors: our own always, the published ones where they are at hand, and twins of every
//! valid one with exactly one thing changed.
//!
//! `FAIRLANE_SHARED` names the folder that holds `vectors/vectors.jsonl`; without it `../shared`.
#![cfg(test)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use fairlane::cli::verify::{Judgement, Line, Verdict, judge};
use fairlane::event::Secret;
use fairlane::verify::handshake::{Asked, answer};
use fairlane::verify::scheme::{Headers, Scheme, WINDOW_DEFAULT, Window};
use fairlane::verify::{Agreed, Request, mac, preset, presets};

/// The providers that must be whole: nothing of theirs may be unsupported.
const NAMED: [&str; 7] = ["shopify", "stripe", "github", "github-sha1-legacy", "slack", "standard-webhooks", "svix"];

#[derive(Clone, Debug, Deserialize)]
struct Vector {
    #[serde(flatten)]
    line: Line,
    expected: String,
    /// The right answer to a handshake.
    response: Option<Response>,
}

#[derive(Clone, Debug, Deserialize)]
struct Response {
    status: u16,
    content_type: String,
    json: serde_json::Value,
}

fn read(path: &Path) -> Vec<Vector> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let vectors: Vec<Vector> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!vectors.is_empty(), "{} is empty", path.display());
    vectors
}

fn own() -> Vec<Vector> {
    read(Path::new("tests/vectors/own.jsonl"))
}

/// The published vectors; `None`, loudly, where they are not at hand.
fn published() -> Option<Vec<Vector>> {
    let shared = std::env::var_os("FAIRLANE_SHARED").map_or_else(|| PathBuf::from("../shared"), PathBuf::from);
    let path = shared.join("vectors/vectors.jsonl");
    if path.exists() {
        return Some(read(&path));
    }
    println!("LEFT OUT: all published vectors; {} does not exist (set FAIRLANE_SHARED)", path.display());
    None
}

fn verdict(line: &Line) -> Judgement {
    let body = STANDARD.decode(&line.body_b64).unwrap();
    judge(line, &body)
}

/// Judges all; gives what disagrees, and counts by verdict.
fn disagreements(vectors: &[Vector]) -> Vec<String> {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let mut unsupported: BTreeMap<&str, u32> = BTreeMap::new();
    let mut wrong = Vec::new();
    for Vector { line, expected, .. } in vectors {
        let got = verdict(line);
        let name = match got.verdict {
            Verdict::Valid => "valid",
            Verdict::Invalid => "invalid",
            Verdict::Unsupported => "unsupported",
        };
        *counts.entry(name).or_default() += 1;
        if got.verdict == Verdict::Unsupported {
            *unsupported.entry(&line.scheme).or_default() += 1;
            if preset(&line.scheme).is_some() || NAMED.contains(&&*line.scheme) {
                wrong.push(format!("{}: unsupported though there is a preset", line.id));
            }
        } else if expected != "unspecified" && expected != name {
            wrong.push(format!("{}: expected {expected}, got {name} ({})", line.id, got.reason));
        }
    }
    println!("{} vectors: {counts:?}; unsupported: {unsupported:?}", vectors.len());
    wrong
}

#[test]
fn our_own_vectors_are_judged_right() {
    assert_eq!(disagreements(&own()), [""; 0]);
}

#[test]
fn every_provider_has_vectors_of_our_own() {
    let vectors = own();
    for preset in presets() {
        let count = |expected: &str| {
            vectors.iter().filter(|one| one.line.scheme == preset.name && one.expected == expected).count()
        };
        assert!(count("valid") >= 1 && count("invalid") >= 5, "{}", preset.name);
    }
}

#[test]
fn the_published_vectors_are_judged_right() {
    let Some(vectors) = published() else { return };
    assert_eq!(disagreements(&vectors), [""; 0]);
    for name in NAMED {
        assert!(vectors.iter().any(|vector| vector.line.scheme == name), "no vector for {name}");
    }
}

#[test]
fn the_published_handshakes_are_answered() {
    let Some(vectors) = published() else { return };
    let mut answered = Vec::new();
    for Vector { line, response, .. } in &vectors {
        let Some(wanted) = response else { continue };
        let provider = line.scheme.split('-').next();
        let secret = Secret::new(line.secrets[0].as_str());
        let key = mac::Key::new(mac::Hash::Sha256, secret.expose());
        let hmac = |text: &[u8]| {
            let mut mac = key.start();
            mac.update(text);
            Some(mac.finish())
        };
        let (url, headers) = (line.url.as_deref().unwrap(), http::HeaderMap::new());
        let method = line.method.as_deref().unwrap().parse().unwrap();
        let request = Request { method: &method, target: url, seen_url: None, headers: &headers, body: b"" };
        let asked = Asked {
            request: &request,
            url: Some(url),
            verified: false,
            agreed: &Agreed { token: Some(secret.clone()), ..Agreed::default() },
            hmac: &hmac,
            key_name: None,
        };
        let reply = answer(provider, &asked).unwrap_or_else(|| panic!("{}: no answer", line.id));
        assert_eq!((reply.status, reply.content_type), (wanted.status, Some(&*wanted.content_type)), "{}", line.id);
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&reply.body).unwrap(), wanted.json, "{}", line.id);
        answered.push(line.scheme.as_str());
    }
    answered.sort_unstable();
    assert_eq!(answered, ["ebay-challenge", "x-crc"]);
}

#[test]
fn a_valid_request_with_one_thing_changed_is_refused() {
    let mut vectors = own();
    vectors.extend(published().unwrap_or_default());
    let mut made = BTreeMap::new();
    let mut accepted = Vec::new();
    for vector in vectors.iter().filter(|vector| vector.expected == "valid") {
        let Some(preset) = preset(&vector.line.scheme) else { continue };
        for (change, twin) in twins(&preset.scheme, &vector.line) {
            *made.entry(change).or_insert(0) += 1;
            let got = verdict(&twin);
            if got.verdict != Verdict::Invalid {
                accepted.push(format!("{}: {change}: {:?}", twin.id, got.verdict));
            }
        }
    }
    println!("twins: {made:?}");
    assert_eq!(accepted, [""; 0]);
    for change in ["header dropped", "body bit", "signature changed", "other secret", "too late", "too early"] {
        assert!(made.contains_key(change), "no twin with {change}");
    }
}

/// `line` with one thing changed, in every way that its scheme must notice.
fn twins(scheme: &Scheme, line: &Line) -> Vec<(&'static str, Line)> {
    let Headers { carriers, others: read } = scheme.headers();
    let mut out = Vec::new();
    // One carrier may stand in for another, so they go together.
    for names in read.iter().map(std::slice::from_ref).chain([carriers.as_slice()]) {
        let mut twin = line.clone();
        twin.headers.retain(|(own, _)| !names.iter().any(|name| is(name, own)));
        if twin.headers.len() < line.headers.len() {
            out.push(("header dropped", twin));
        }
    }
    let mut twin = line.clone();
    for (own, value) in &mut twin.headers {
        if carriers.iter().any(|name| is(name, own)) {
            *value = broken(value);
        }
    }
    // Where the signature stands in the body, the vectors themselves change it.
    if !carriers.is_empty() {
        out.push(("signature changed", twin));
    }
    if line.secrets.is_empty() {
        // SNS: what counts is the topic.
        return [out, out_of_time(scheme, line)].concat();
    }
    let mut twin = line.clone();
    twin.secrets.iter_mut().for_each(|secret| *secret = swapped(secret, secret.len() / 2));
    out.push(("other secret", twin));
    if scheme.covers_body() {
        let mut body = STANDARD.decode(&line.body_b64).unwrap();
        let middle = body.len() / 2;
        match body.get_mut(middle) {
            Some(byte) => *byte ^= 1,
            None => body.push(b' '),
        }
        out.push(("body bit", Line { body_b64: STANDARD.encode(body), ..line.clone() }));
    }
    out.extend(out_of_time(scheme, line));
    out
}

fn out_of_time(scheme: &Scheme, line: &Line) -> Vec<(&'static str, Line)> {
    let (Some(time), Some(now)) = (scheme.time(), line.now) else { return Vec::new() };
    let own = line.tolerance_s.flatten().map(Duration::from_secs);
    let documented = time.window;
    if line.opaque_ts == Some(true) || (own.is_none() && documented.is_none()) {
        return Vec::new();
    }
    let window = documented.unwrap_or(Window::both(WINDOW_DEFAULT));
    // The request's time lies within the window of `now`; twice the window away it cannot.
    let far = |span: Duration| i64::try_from(own.unwrap_or(span).as_secs()).unwrap() * 2 + 2;
    // Where any time to come is accepted, the request's own may be: then `now` says nothing.
    let Some(future) = window.future else {
        return vec![("too late", Line { now: Some(now + 2_000_000 + far(window.old)), ..line.clone() })];
    };
    vec![
        ("too late", Line { now: Some(now + far(window.old)), ..line.clone() }),
        ("too early", Line { now: Some(now - far(window.old) - far(future)), ..line.clone() }),
    ]
}

/// Whether `own` is the header `name`, where `x-` is every header that begins so.
fn is(name: &str, own: &str) -> bool {
    let own = own.to_ascii_lowercase();
    if name.ends_with('-') { own.starts_with(name) } else { own == name }
}

/// Every signature in a header's value with one character changed: each run of at least twenty
/// characters that encodings use (a time is shorter), or the last character where there is none.
fn broken(value: &str) -> String {
    let coded = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '-' | '_');
    let mut out = value.to_owned();
    let mut start = 0;
    let mut any = false;
    for (at, c) in value.char_indices().chain([(value.len(), ' ')]) {
        if coded(c) {
            continue;
        }
        if at - start >= 20 {
            out = swapped(&out, start + (at - start) / 2);
            any = true;
        }
        start = at + c.len_utf8();
    }
    if any { out } else { swapped(&out, out.len().saturating_sub(1)) }
}

/// The text with the first letter or digit at or after byte `from` replaced by another one that every alphabet here has.
fn swapped(text: &str, from: usize) -> String {
    let at = text.char_indices().find(|(at, c)| *at >= from && c.is_ascii_alphanumeric());
    let Some((at, c)) = at else { return format!("{text}0") };
    let other = if c == '1' { '2' } else { '1' };
    format!("{}{other}{}", &text[..at], &text[at + 1..])
}
