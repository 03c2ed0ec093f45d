//! Requests: judged by every scheme, asked whether they are handshakes, read for their key. What is said of a refusal and what a group is
//! called stays printable.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fairlane::event::{Secret, Wall};
use fairlane::key::{Input, Rule, RuleSpec};
use fairlane::verify::generic::HmacSpec;
use fairlane::verify::{
    Agreed, Choice, GenericSpec, Material, Rejection, Request, SecretSpec, Spec, Verifier, When, presets,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

use crate::{each_seed, mutate};

/// Requests in an ordinary run: some seconds of a debug build.
const ROUNDS: u64 = 30_000;

/// What takes a reader of headers, forms, JSON, JWTs and dates to its edges.
const NASTY: &[&[u8]] = &[
    b"",
    b" ",
    b",",
    b",,,,,,,,",
    b"=",
    b"t=",
    b"v1=",
    b"t=1,v1=,v1",
    b"sha256=",
    b"%",
    b"%f",
    b"%00",
    b"&&==&",
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\"\\ud800\"",
    b"{\"a\":",
    b"[[[[[[[[[[[[[[[[",
    b"-0",
    b"1e999",
    b"99999999999999999999",
    b"-9223372036854775808",
    b"0000-00-00T00:00:00Z",
    b"9999-12-31T23:59:60+23:59",
    b"Thu, 31 Feb 2026 25:61:61 GMT",
    b"..",
    b"e30.e30.",
    b"eyJhbGciOiJub25lIn0.e30.",
    "ı\u{130}\u{212a}\u{202e}".as_bytes(),
];

/// Keys beside the presets' own.
const KEYS: &[&str] = &[
    "body.a.b.0",
    "body.payload | json | team.id",
    "$..id",
    "$[0].portalId",
    "headers.x-shopify-shop-domain | lower | trim | sha256",
    "query.crc_token",
    "path.0",
    "body.\"a.b\"",
];

/// A right request and the verifier that takes it.
#[derive(Clone)]
struct Case {
    id: String,
    scheme: usize,
    method: Method,
    url: String,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
    now: i64,
}

struct Fuzz {
    verifiers: Vec<Verifier>,
    cases: Vec<Case>,
    rules: Vec<Rule>,
    /// What a gateway would fetch, by address.
    keys: HashMap<String, String>,
}

#[test]
fn no_request_makes_it_panic() {
    let fuzz = Fuzz::new();
    let mut genuine = 0;
    let tried = each_seed(ROUNDS, |seed| fuzz.round(seed), |is_genuine| genuine += u64::from(is_genuine));
    println!("{tried} requests, {genuine} of them still genuine");
    // Mutations that touch nothing that is covered are common; if none were genuine, nothing but the first check would be tried.
    assert!(tried < 1_000 || genuine > tried / 100, "{genuine} of {tried}");
}

impl Fuzz {
    /// Every preset with its secrets and its right requests of `tests/vectors/own.jsonl`.
    fn new() -> Self {
        let text = std::fs::read_to_string("tests/vectors/own.jsonl").unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut fuzz = Self { verifiers: Vec::new(), cases: Vec::new(), rules: rules(), keys: HashMap::new() };
        for line in lines.filter(|line| line["expected"] == "valid") {
            let secrets: Vec<String> = serde_json::from_value(line["secrets"].clone()).unwrap();
            let secrets: Vec<_> = secrets.into_iter().map(|text| SecretSpec::new(Secret::new(text))).collect();
            let choice = Choice::Preset(line["scheme"].as_str().unwrap().to_owned());
            let topics: Vec<Box<str>> = serde_json::from_value(line["topics"].clone()).unwrap_or_default();
            let agreed = |token| Agreed { token, topics: topics.clone(), ..Agreed::default() };
            let spec = |agreed| Spec { agreed, ..Spec::new(choice.clone(), secrets.clone()) };
            // A word for handshakes where the provider has one.
            let verifier = Verifier::new(spec(agreed(Some(Secret::new("token")))));
            fuzz.verifiers.push(verifier.or_else(|_| Verifier::new(spec(agreed(None)))).unwrap());
            for key in line["keys"].as_array().into_iter().flatten() {
                let text = |name: &str| key[name].as_str().unwrap().to_owned();
                fuzz.keys.insert(text("url"), text("pem"));
            }
            fuzz.cases.push(Case::of(&line, fuzz.verifiers.len() - 1));
        }
        assert!(presets().len() <= fuzz.cases.len(), "every preset has a right request to begin with");
        // Schemes of an operator's own.
        for template in ["{method}{url}{id}{body}", "{hdr:content-type}.{body}{id}", "{secret}{body}{id}"] {
            let hmac = HmacSpec {
                header: "x-sig".into(),
                template: Some(template.into()),
                separator: Some(", ".into()),
                pair: Some("=".into()),
                take: vec!["v1".into()],
                id: Some("webhook-id".into()),
                ..HmacSpec::default()
            };
            let scheme = GenericSpec::Hmac(Box::new(hmac)).compile().unwrap();
            let secrets = vec![SecretSpec::new(Secret::new("own"))];
            fuzz.verifiers.push(Verifier::new(Spec::new(Choice::Scheme(scheme), secrets)).unwrap());
        }
        fuzz
    }

    /// One mutated request through everything that reads requests; whether it was genuine.
    fn round(&self, seed: u64) -> bool {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut case = self.cases.choose(&mut random).unwrap().clone();
        for _ in 0..random.random_range(0..4) {
            case.mutate(&mut random, &self.cases);
        }
        // Now and then by a scheme that it was not made for.
        let own = random.random_range(0..8) != 0;
        let at = if own { case.scheme } else { random.random_range(0..self.verifiers.len()) };
        let verifier = &self.verifiers[at];
        let headers = case.header_map();
        let (origin, target) = case.cut();
        let request = Request {
            method: &case.method,
            target,
            seen_url: (!origin.is_empty()).then_some(origin),
            headers: &headers,
            body: &case.body,
        };
        let at = When::At(Wall::from_unix_s(case.now));
        let genuine = match verifier.judge_when(&request, at) {
            Err(Rejection::KeyNeeded { url }) => match self.keys.get(&*url) {
                Some(pem) => verifier.judge_with(&request, at, Some(Material { url: &url, pem: pem.as_bytes() })),
                None => Err(Rejection::KeyNeeded { url }),
            },
            judged => judged,
        };
        if let Err(rejection) = &genuine {
            let text = rejection.to_string();
            assert!(text.chars().all(|c| !c.is_control()), "{}: {text:?}", case.id);
        }
        if let Some(reply) = verifier.handshake(&request, at) {
            assert!(reply.body.len() <= 64 * 1024, "{}: {} bytes echoed", case.id, reply.body.len());
        }
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let input = Input { headers: &headers, path, names: &[], query, body: &case.body };
        for rule in &self.rules {
            if let Ok(found) = rule.evaluate(&input) {
                let group = found.group(None).to_string();
                assert!(group.bytes().all(|b| b.is_ascii_graphic()), "{}: {group:?}", case.id);
            }
        }
        genuine.is_ok()
    }
}

fn rules() -> Vec<Rule> {
    let natural = presets().iter().flat_map(|preset| preset.natural_key.iter().copied());
    let mut texts: Vec<&str> = natural.chain(KEYS.iter().copied()).collect();
    texts.sort_unstable();
    texts.dedup();
    texts.into_iter().map(|text| Rule::parse(&RuleSpec::Expr(text.to_owned())).unwrap()).collect()
}

impl Case {
    fn of(line: &Value, scheme: usize) -> Self {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let headers: Vec<(String, String)> = serde_json::from_value(line["headers"].clone()).unwrap();
        Self {
            id: text("id"),
            scheme,
            method: text("method").parse().unwrap_or(Method::POST),
            url: text("url"),
            headers: headers.into_iter().map(|(name, value)| (name.into_bytes(), value.into_bytes())).collect(),
            body: STANDARD.decode(text("body_b64")).unwrap(),
            now: line["now"].as_i64().unwrap_or(1_700_000_000),
        }
    }

    fn mutate(&mut self, random: &mut SmallRng, all: &[Self]) {
        let other = all.choose(random).unwrap();
        match random.random_range(0..10) {
            0..=2 => mutate::bytes(&mut self.body, &other.body, NASTY, random),
            3..=5 => {
                if let Some(at) = self.some_header(random) {
                    let from = other.headers.first().map_or(&b""[..], |(_, value)| value);
                    mutate::bytes(&mut self.headers[at].1, from, NASTY, random);
                }
            }
            6 => self.headers.extend(other.headers.choose(random).cloned()),
            7 => {
                if let Some(at) = self.some_header(random) {
                    let (name, value) = self.headers.remove(at);
                    match random.random_range(0..3) {
                        0 => {}
                        1 => self.headers.extend([(name.clone(), value.clone()), (name, value)]),
                        _ => self.headers.extend(NASTY.choose(random).map(|nasty| (name, nasty.to_vec()))),
                    }
                }
            }
            8 => {
                let mut url = std::mem::take(&mut self.url).into_bytes();
                mutate::bytes(&mut url, other.url.as_bytes(), NASTY, random);
                self.url = String::from_utf8_lossy(&url).into_owned();
            }
            _ => {
                self.now =
                    [0, -1, i64::MAX / 2, i64::MIN / 2, self.now + 299, self.now - 301][random.random_range(0..6)]
            }
        }
    }

    fn some_header(&self, random: &mut SmallRng) -> Option<usize> {
        (!self.headers.is_empty()).then(|| random.random_range(0..self.headers.len()))
    }

    /// As HTTP lets them through.
    fn header_map(&self) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in &self.headers {
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                map.append(name, value);
            }
        }
        map
    }

    /// The address before its path, and from it on.
    fn cut(&self) -> (&str, &str) {
        let host = self.url.find("://").map_or(0, |at| at + 3);
        let rest = self.url.get(host..).unwrap_or_default();
        let at = rest.find(['/', '?']).map_or(self.url.len(), |at| host + at);
        let (origin, target) = self.url.split_at(at);
        (origin, if target.is_empty() { "/" } else { target })
    }
}
