//! Every signature vector, the published ones and our own, as a request to a source that is configured for it.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fairlane::verify::preset;
use fairlane::verify::scheme::Scheme;
use serde::Deserialize;
use serde_json::{Value, json};

use super::bench::{Bench, Raw, literal};
use super::shared;

/// The fields of a vector that a request and a configuration are made of.
#[derive(Debug, Deserialize)]
struct Vector {
    id: String,
    scheme: String,
    kind: String,
    expected: String,
    method: Option<String>,
    url: Option<String>,
    headers: Vec<(String, String)>,
    body_b64: String,
    secrets: Vec<String>,
    now: Option<i64>,
    /// Left out: the provider's own window; null: none.
    #[serde(default, deserialize_with = "written")]
    tolerance_s: Option<Option<u64>>,
    #[serde(default)]
    opaque_ts: bool,
    /// What a gateway would fetch.
    #[serde(default)]
    keys: Vec<Key>,
    /// The topics that may send; left out: the one that the message names.
    topics: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct Key {
    #[serde(default)]
    url: String,
    #[serde(default)]
    pem: String,
    /// A key that is configured.
    pem_b64: Option<String>,
}

/// Tells a written null from a field that is left out.
fn written<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

fn read(path: &Path) -> Vec<Vector> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What the listener made of a vector.
enum Seen {
    Status(u16, String),
    /// The configuration does not take the secret.
    Refused(String),
    /// There is no way to send it, or no clock to judge it by.
    LeftOut(&'static str),
}

#[test]
fn our_own_vectors_get_their_verdict_from_the_listener() {
    judge(&read(Path::new("tests/vectors/own.jsonl")));
}

#[test]
fn the_published_vectors_get_their_verdict_from_the_listener() {
    let Some(path) = shared("vectors/vectors.jsonl") else { return };
    judge(&read(&path));
}

fn judge(vectors: &[Vector]) {
    let bench = Bench::new();
    let mut statuses: BTreeMap<(&str, u16), u32> = BTreeMap::new();
    let mut left_out: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for vector in vectors {
        match ask(&bench, vector) {
            Seen::LeftOut(why) => left_out.entry(why).or_default().push(&vector.id),
            Seen::Refused(why) if vector.expected == "valid" => wrong.push(format!("{}: {why}", vector.id)),
            Seen::Refused(_) => *statuses.entry((&vector.expected, 0)).or_default() += 1,
            Seen::Status(status, text) => {
                *statuses.entry((&vector.expected, status)).or_default() += 1;
                let right = match vector.expected.as_str() {
                    "valid" => status == 200,
                    // 400 where HTTP itself does not allow what stands in a header.
                    "invalid" => status == 401 || status == 400,
                    _ => (200..500).contains(&status),
                };
                if !right {
                    wrong.push(format!("{}: expected {}, got {text}", vector.id, vector.expected));
                }
            }
        }
    }
    println!("{} vectors by status (0: refused as configuration): {statuses:?}", vectors.len());
    for (why, ids) in &left_out {
        println!("LEFT OUT, {why}: {} {ids:?}", ids.len());
    }
    assert_eq!(wrong, [""; 0]);
    let sent: u32 = statuses.values().sum();
    let out: usize = left_out.values().map(Vec::len).sum();
    assert!(sent as usize > 20 * out, "{sent} judged, {out} left out");
}

fn ask(bench: &Bench, vector: &Vector) -> Seen {
    if vector.kind != "delivery" {
        return Seen::LeftOut("no delivery");
    }
    let scheme = preset(&vector.scheme).map(|preset| &preset.scheme);
    let Some(scheme) = scheme else { return Seen::LeftOut("no such scheme") };
    let (origin, target) = vector.url.as_deref().map_or((None, "/"), |url| {
        let (origin, target) = cut(url);
        (Some(origin), target)
    });
    let path = target.split(['?', '#']).next().unwrap_or("/");
    if path.contains("//") || !path.starts_with('/') {
        return Seen::LeftOut("a path that the listener takes from nobody");
    }
    let tolerance = match clock(vector, scheme) {
        Ok((now, tolerance)) => {
            bench.at(now);
            tolerance
        }
        Err(why) => return Seen::LeftOut(why),
    };
    let body = STANDARD.decode(&vector.body_b64).unwrap();
    let keys = vector.keys.iter().filter_map(|key| key.pem_b64.as_ref());
    let secrets: Vec<String> = vector.secrets.iter().chain(keys).map(|secret| literal(secret)).collect();
    let mut verify = json!({ "provider": vector.scheme, "secrets": secrets });
    if let Some(seconds) = tolerance {
        verify["tolerance"] = json!(format!("{seconds}s"));
    }
    if let Some(origin) = origin {
        verify["public_url"] = json!(origin);
    }
    bench.keys(vector.keys.iter().map(|key| (key.url.clone(), key.pem.clone())));
    if vector.scheme == "aws-sns" {
        verify["topics"] = vector.topics.as_ref().map_or_else(|| topic(&body), |topics| json!(topics));
    }
    let method = vector.method.as_deref().unwrap_or("POST");
    let source = json!([{ "path": "/*", "methods": [method], "verify": verify }]);
    if let Err(why) = bench.serve(&source) {
        return Seen::Refused(why);
    }
    let host = origin.and_then(|origin| origin.split_once("://")).map_or("hooks.example.com", |(_, host)| host);
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let answer = bench.send(&Raw { method, target, host, headers: &vector.headers, body: &body });
    Seen::Status(answer.status, answer.text)
}

/// The topic that a message of SNS names, as a list.
fn topic(body: &[u8]) -> Value {
    let message: Value = serde_json::from_slice(body).unwrap_or_default();
    json!([message["TopicArn"].as_str().unwrap_or("none")])
}

/// The clock and the tolerance that a vector is to be judged by.
fn clock(vector: &Vector, scheme: &Scheme) -> Result<(i64, Option<u64>), &'static str> {
    const ANY: i64 = 1_700_000_000;
    /// The longest tolerance that a configuration takes, for vectors whose age is not to be judged.
    const LONGEST_S: u64 = 30 * 24 * 3600;
    if scheme.time().is_none() {
        return Ok((vector.now.unwrap_or(ANY), None));
    }
    if vector.opaque_ts {
        return Err("a time that is no date");
    }
    let Some(now) = vector.now else { return Err("no clock to judge its time by") };
    let windowed = vector.tolerance_s.map_or_else(|| scheme.limits_age(), |own| own.is_some());
    Ok((now, if windowed { vector.tolerance_s.flatten() } else { Some(LONGEST_S) }))
}

/// Cuts an address before its path.
fn cut(url: &str) -> (&str, &str) {
    let host_at = url.find("://").map_or(0, |at| at + 3);
    let rest = url.get(host_at..).unwrap_or("");
    let path_at = rest.find(['/', '?', '#']).map_or(url.len(), |at| host_at + at);
    url.split_at(path_at)
}

/// The fields above name what the configuration may say; this one keeps the two spellings of a value apart.
#[test]
fn a_written_null_is_no_missing_field() {
    let of = |more: &str| -> Value { serde_json::from_str(more).unwrap() };
    let base =
        json!({ "id": "", "scheme": "", "kind": "", "expected": "", "headers": [], "body_b64": "", "secrets": [] });
    let with = |tolerance: Option<&str>| {
        let mut line = base.clone();
        if let Some(text) = tolerance {
            line["tolerance_s"] = of(text);
        }
        serde_json::from_value::<Vector>(line).unwrap().tolerance_s
    };
    assert_eq!([with(None), with(Some("null")), with(Some("5"))], [None, Some(None), Some(Some(5))]);
}
