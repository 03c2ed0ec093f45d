//! What is signed for a provider here is taken by a source for that provider, and with one byte changed it is not.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use fairlane::event::{Secret, Wall};
use fairlane::verify::scheme::Scheme;
use fairlane::verify::{Choice, Outgoing, Preset, SecretSpec, SignError, Spec, Verifier, preset, presets};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};

use super::bench::{Answer, Bench, Raw, literal};

const NOW: i64 = 1_767_225_600;
const HOST: &str = "hooks.example.com";

/// Where the body names what it needs, it is asked for one thing after another.
const STEPS_MAX: usize = 8;

/// The secrets that our own vectors use for a preset: of the right form, and no provider's.
pub(crate) fn secrets_of(preset: &str) -> Vec<String> {
    static SECRETS: OnceLock<BTreeMap<String, Vec<String>>> = OnceLock::new();
    let read = || {
        let text = std::fs::read_to_string("tests/vectors/own.jsonl").unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let valid = lines.filter(|line| line["expected"] == "valid");
        let mut secrets = BTreeMap::new();
        for line in valid {
            let own = serde_json::from_value(line["secrets"].clone()).unwrap();
            secrets.entry(line["scheme"].as_str().unwrap().to_owned()).or_insert(own);
        }
        secrets
    };
    SECRETS.get_or_init(read).get(preset).unwrap_or_else(|| panic!("no vector of our own for {preset}")).clone()
}

/// A request that is being signed.
pub(crate) struct Sending {
    preset: String,
    is_form: bool,
    headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Sending {
    pub(crate) fn new(preset: &str, body: &[u8], is_form: bool) -> Self {
        let mut headers = HeaderMap::new();
        let kind = if is_form { "application/x-www-form-urlencoded" } else { "application/json" };
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
        Self { preset: preset.to_owned(), is_form, headers, body: body.to_vec() }
    }

    pub(crate) fn header(&mut self, name: &str, value: &str) {
        self.headers.insert(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }

    /// Signs it, putting into the body what the scheme wants there, and posts it to `/in`.
    ///
    /// # Errors
    /// It cannot be signed here.
    pub(crate) fn post(&mut self, bench: &Bench) -> Result<Answer, SignError> {
        bench.at(NOW);
        self.sign()?;
        Ok(self.send(bench))
    }

    fn sign(&mut self) -> Result<(), SignError> {
        let secrets = secrets_of(&self.preset).into_iter().map(|text| SecretSpec::new(Secret::new(text)));
        let verifier = Verifier::new(Spec::new(Choice::Preset(self.preset.clone()), secrets.collect())).unwrap();
        for _ in 0..STEPS_MAX {
            let mut headers = self.headers.clone();
            let url = format!("http://{HOST}/in");
            let outgoing = Outgoing {
                method: &Method::POST,
                url: &url,
                body: &self.body,
                now: Wall::from_unix_s(NOW),
                id: "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W",
            };
            match verifier.sign(&outgoing, &mut headers) {
                Ok(()) => {
                    self.headers = headers;
                    return Ok(());
                }
                Err(SignError::BodyTime { path, example } | SignError::BodySignature { path, example }) => {
                    self.put(&path, &example);
                }
                Err(SignError::MissingHeader(name)) => {
                    self.headers.insert(name, HeaderValue::from_static("any"));
                }
                Err(other) => return Err(other),
            }
        }
        panic!("{}: asked for something more than {STEPS_MAX} times: {}", self.preset, self.body.escape_ascii())
    }

    /// Writes `value` at this place of the body.
    fn put(&mut self, path: &str, value: &str) {
        if self.is_form {
            let kept = form_urlencoded::parse(&self.body).filter(|(name, _)| name != path);
            let mut form = form_urlencoded::Serializer::new(String::new());
            self.body = form.extend_pairs(kept).append_pair(path, value).finish().into_bytes();
            return;
        }
        let mut document: Value = serde_json::from_slice(&self.body).unwrap();
        let mut place = &mut document;
        for part in path.split('.') {
            place = match part.parse::<usize>() {
                Ok(index) if place.is_array() => &mut place[index],
                _ => &mut place[part],
            };
        }
        *place = serde_json::from_str(value).ok().filter(Value::is_number).unwrap_or_else(|| json!(value));
        self.body = document.to_string().into_bytes();
    }

    fn send(&self, bench: &Bench) -> Answer {
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        let headers: Vec<_> =
            self.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
        bench.send(&Raw { method: "POST", target: "/in", host: HOST, headers: &headers, body: &self.body })
    }
}

/// A body that holds what the schemes look into; `order1` in it is covered by each.
fn body_for(preset: &Preset) -> (Vec<u8>, bool) {
    match preset.scheme {
        Scheme::Form(_) | Scheme::Posted(_) => (b"AccountSid=AC1&bt_payload=order1Aa".to_vec(), true),
        _ => {
            let item = json!({ "NotificationRequestItem": {
                "pspReference": "P1", "merchantAccountCode": "ours", "merchantReference": "order1", "success": "true",
                "eventCode": "AUTHORISATION", "amount": { "value": 1130, "currency": "EUR" }, "additionalData": { "hmacSignature": "x" }
            }});
            let body = json!({
                "signature": { "timestamp": NOW.to_string(), "token": "b0c5d0e5", "signature": "x" },
                "notificationItems": [item],
                "value": [{ "clientState": secrets_of(preset.name)[0] }],
                "text": "Grüße"
            });
            (body.to_string().into_bytes(), false)
        }
    }
}

#[test]
fn what_send_makes_for_any_provider_is_taken_and_refused_with_one_byte_changed() {
    let bench = Bench::new();
    let mut theirs_alone = Vec::new();
    let mut uncovered = Vec::new();
    for preset in presets() {
        if matches!(preset.scheme, Scheme::Fetched(_)) {
            theirs_alone.push(preset.name);
            continue;
        }
        let secrets: Vec<_> = secrets_of(preset.name).iter().map(|secret| literal(secret)).collect();
        let verify = json!({ "provider": preset.name, "secrets": secrets });
        bench.serve(&json!([{ "path": "/in", "verify": verify }])).unwrap();
        let (body, is_form) = body_for(preset);
        let mut sending = Sending::new(preset.name, &body, is_form);
        let answer = match sending.post(&bench) {
            Ok(answer) => answer,
            Err(SignError::PublicKeyOnly) => {
                theirs_alone.push(preset.name);
                continue;
            }
            Err(other) => panic!("{}: {other}", preset.name),
        };
        assert_eq!(answer.status, 200, "{}: {}\n{}", preset.name, answer.text, sending.body.escape_ascii());
        if !preset.scheme.covers_body() {
            uncovered.push(preset.name);
            continue;
        }
        let at = sending.body.windows(6).position(|window| window == b"order1").unwrap();
        sending.body[at] ^= 1;
        let answer = sending.send(&bench);
        assert_eq!(answer.status, 401, "{} with one byte changed: {}", preset.name, answer.text);
    }
    println!("only the provider can sign: {theirs_alone:?}\nthe signature does not cover the body: {uncovered:?}");
    assert!(theirs_alone.len() * 5 < presets().len(), "{theirs_alone:?}");
    assert!(preset("shopify").is_some() && !theirs_alone.contains(&"shopify") && !uncovered.contains(&"shopify"));
}
