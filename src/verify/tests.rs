//! The judgement as a whole: what is accepted, what is refused and with which words.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use proptest::prelude::*;

use super::encoding::KeyForm;
use super::generic::{Future, GenericSpec, HmacSpec, PlaceSpec, TimestampSpec};
use super::inside::{Each, Inside, Proof};
use super::public::PublicAlg;
use super::scheme::{Alg, Place, Scheme};
use super::*;
use crate::event::{Secret, Wall};

const NOW: Wall = Wall(1_767_225_600_000_000);
const POST: Method = Method::POST;
/// Public keys whose private halves were thrown away.
const P256_KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEsW8XZ3jkkN22Y9MX9u54mxhJQ1tPNIWLStJeWTU19dmQvD7Adgh/eH5/7FYHaD5Wc4yNUiJdGhADV2hheOwHYg==";
const RSA_KEY: &str = "\
-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAvsp6A27D9JxK+aUqaPcc
YL7E5eKN96GlVstRE3JSbAZkx5HeK+q5E6MFHwLIRJvq+FsqGRfunZWKKU0PBJlV
vr4vtWeG6PdozWAYW0bKp3p/S/wpEtqb2korz+hV81T8YP2uahhFjUV+aJ6+DBy1
2Ou/k07Ha5thCGDhsMFFsZRE35yf2wN6UABpdGV5/FYqT5QbaFDeL64uNUxh5KjU
AvbdR6Y51xSifsza0Ikd8BH9mty4lm3bDIeMZW9m/EV9LEBQXuMdchbDFAD0+V/X
+iAhnOoV3pj87MEZXRP1mVXPdrFS+JkaNhvTZWTAkI3MbXlHQRUJ4T6CbHkHVcSL
SQIDAQAB
-----END PUBLIC KEY-----";

fn secrets(texts: &[&str]) -> Vec<SecretSpec> {
    texts.iter().map(|text| SecretSpec::new(Secret::new(*text))).collect()
}

fn provider(name: &str, texts: &[&str]) -> Spec {
    // SNS has topics in place of a secret.
    let (texts, topics) = if name == "aws-sns" { (&[][..], vec!["t".into()]) } else { (texts, Vec::new()) };
    let agreed = Agreed { topics, ..Agreed::default() };
    Spec { agreed, ..Spec::new(Choice::Preset(name.into()), secrets(texts)) }
}

fn generic(spec: &GenericSpec, texts: &[&str]) -> Verifier {
    Verifier::new(Spec::new(Choice::Scheme(spec.compile().unwrap()), secrets(texts))).unwrap()
}

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    lines
        .iter()
        .map(|(name, value)| (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap()))
        .collect()
}

fn request<'a>(headers: &'a HeaderMap, body: &'a [u8]) -> Request<'a> {
    Request { method: &POST, target: "/in/7?x=1", seen_url: Some("https://a.example"), headers, body }
}

/// A request that `verifier` itself signs, at [`NOW`].
fn sign(verifier: &Verifier, body: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let outgoing = Outgoing { method: &POST, url: "https://a.example/in/7?x=1", body, now: NOW, id: "msg_1" };
    verifier.sign(&outgoing, &mut headers).unwrap();
    headers
}

fn reason(verifier: &Verifier, lines: &[(&str, &str)]) -> &'static str {
    verifier.judge(&request(&headers(lines), b"{}"), NOW).unwrap_err().reason()
}

#[test]
fn a_verifier_is_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&Verifier::new(provider("none", &[])).unwrap());
}

#[test]
fn none_accepts_and_takes_no_secret() {
    let verifier = Verifier::new(provider("none", &[])).unwrap();
    let verified = verifier.judge(&request(&HeaderMap::new(), b""), NOW).unwrap();
    assert_eq!((&**verified.label(), verified.secret, verified.skew_s), ("none", None, None));
    assert_eq!(Verifier::new(provider("none", &["s"])).unwrap_err(), SpecError::SecretUnused);
}

#[test]
fn a_bearer_token_is_read_in_any_case_of_its_scheme() {
    let verifier = generic(&GenericSpec::Bearer, &["other", "t0ken"]);
    for value in ["Bearer t0ken", "bearer  t0ken", "BEARER t0ken "] {
        let verified = verifier.judge(&request(&headers(&[("authorization", value)]), b""), NOW).unwrap();
        assert_eq!(&**verified.label(), "bearer secret=1", "{value}");
    }
    for (value, code) in [
        ("Bearer T0ken", "bad_token"),
        ("Bearer t0ken t0ken", "bad_token"),
        ("Bearer", "malformed_header"),
        ("Bearert0ken", "malformed_header"),
        ("Basic t0ken", "malformed_header"),
        ("", "missing_header"),
    ] {
        assert_eq!(reason(&verifier, &[("authorization", value)]), code, "{value:?}");
    }
}

#[test]
fn a_token_has_its_prefix_exactly() {
    let spec = GenericSpec::Token { header: "X-Api-Key".into(), prefix: "key=".into() };
    let verifier = generic(&spec, &["abc"]);
    assert!(verifier.judge(&request(&headers(&[("x-api-key", "key=abc")]), b""), NOW).is_ok());
    assert_eq!(reason(&verifier, &[("x-api-key", "KEY=abc")]), "malformed_header");
    assert_eq!(reason(&verifier, &[("x-api-key", "key=ab")]), "bad_token");
    assert_eq!(reason(&verifier, &[("x-api-key", "key=abc"), ("x-api-key", "key=abd")]), "malformed_header");
    assert_eq!(reason(&verifier, &[]), "missing_header");
}

#[test]
fn basic_is_split_once_at_its_first_colon() {
    let verifier = generic(&GenericSpec::Basic { user: Some("hooks".into()) }, &["a:b"]);
    let value = |text: &str| format!("Basic {}", Enc::Base64.encode(text.as_bytes()));
    assert!(verifier.judge(&request(&headers(&[("authorization", &value("hooks:a:b"))]), b""), NOW).is_ok());
    for (text, code) in
        [("hooks:a", "bad_token"), ("hook:a:b", "bad_token"), ("hooks:", "bad_token"), ("hooks", "malformed_header")]
    {
        assert_eq!(reason(&verifier, &[("authorization", &value(text))]), code, "{text}");
    }
    assert_eq!(reason(&verifier, &[("authorization", "Basic %%%")]), "malformed_header");
    let spec = Spec::new(Choice::Scheme(GenericSpec::Basic { user: None }.compile().unwrap()), secrets(&["nocolon"]));
    assert!(Verifier::new(spec).unwrap_err().to_string().contains("user:password"));
}

#[test]
fn a_generic_hmac_reads_what_another_program_signed() {
    // printf '%s' 'POST https://a.example/in/7?x=1 1767225600 msg_1 z {}' |
    //   openssl dgst -sha512 -hmac secret -binary | basenc --base64url
    let signature = "rEHZ6bBI0HcPItcsXpJvO2Zk20Ptjn9nXRIxt_uHw17XW2W_gtJ4NpdgtwjMvRHort_X6bUtx6CaB7D6_lHUYg==";
    let spec = GenericSpec::Hmac(Box::new(HmacSpec {
        header: "X-Sig".into(),
        algorithm: Some("sha512".into()),
        encoding: Some("base64url".into()),
        prefix: Some("p:".into()),
        template: Some("{method} {url} {ts} {id} {hdr:X-Zone} {body}".into()),
        key: Some("base64".into()),
        separator: Some(";".into()),
        pair: Some("=".into()),
        take: vec!["v2".into(), "v3".into()],
        timestamp: Some(TimestampSpec {
            place: PlaceSpec::Item("t".into()),
            unit: None,
            tolerance: None,
            future: Some(Future::Any),
        }),
        id: Some("X-Id".into()),
    }));
    let verifier = generic(&spec, &["c2VjcmV0"]);
    let sig = format!("v1=p:AAAA; v2=p:AAAA ; v3=p:{signature};t=1767225600");
    let lines = [("x-sig", &*sig), ("x-id", "msg_1"), ("x-zone", " z ")];
    let verified = verifier.judge(&request(&headers(&lines), b"{}"), Wall(NOW.0 + 7_000_000)).unwrap();
    assert_eq!((&**verified.label(), verified.skew_s), ("hmac secret=0", Some(-7)));
    assert!(verifier.judge(&request(&headers(&lines), b"{}"), Wall(0)).is_ok(), "any time to come");
    for (from, to, code) in [
        ("v3=", "v4=", "bad_signature"),
        ("v3=p:", "v3=q:", "bad_signature"),
        (";t=", ";u=", "malformed_header"),
        ("t=1", "t=x", "malformed_header"),
        ("t=1", "t=2", "bad_signature"),
    ] {
        let sig = sig.replace(from, to);
        assert_eq!(reason(&verifier, &[("x-sig", &sig), ("x-id", "msg_1"), ("x-zone", "z")]), code, "{from} {to}");
    }
    assert_eq!(reason(&verifier, &[("x-sig", &sig), ("x-id", "msg_1")]), "missing_header");
}

#[test]
fn a_time_means_nothing_until_its_signature_is_right() {
    let verifier = Verifier::new(provider("slack", &["s"])).unwrap();
    let good = sign(&verifier, b"{}");
    let late = NOW.plus(Duration::from_secs(400));
    assert_eq!(verifier.judge(&request(&good, b"{}"), late).unwrap_err().reason(), "stale");
    assert_eq!(verifier.judge(&request(&good, b"{ }"), late).unwrap_err().reason(), "bad_signature");
    let early = Wall(NOW.0 - 400_000_000);
    assert_eq!(verifier.judge(&request(&good, b"{}"), early).unwrap_err().reason(), "future");
}

#[test]
fn the_window_is_the_providers_unless_configured() {
    let after = |spec: Spec, seconds: u64| {
        let verifier = Verifier::new(spec).unwrap();
        let headers = sign(&verifier, b"{}");
        verifier.judge(&request(&headers, b"{}"), NOW.plus(Duration::from_secs(seconds))).map(|ok| ok.skew_s)
    };
    assert_eq!(after(provider("paddle", &["s"]), 5), Ok(Some(-5)));
    assert!(after(provider("paddle", &["s"]), 6).is_err());
    let longer = Spec { tolerance: Some(Duration::from_secs(60)), ..provider("paddle", &["s"]) };
    assert_eq!(after(longer, 60), Ok(Some(-60)));
    assert!(after(provider("sanity", &["s"]), 301).is_err(), "300 s where the provider names no window");
    let unused = Spec { tolerance: Some(Duration::from_secs(60)), ..provider("shopify", &["s"]) };
    assert_eq!(Verifier::new(unused).unwrap_err().field(), "tolerance");
}

#[test]
fn a_secret_is_tried_until_its_end_of_use() {
    let until = |seconds| SecretSpec { value: Secret::new("old"), until: Some(NOW.plus(Duration::from_secs(seconds))) };
    let spec = Spec { secrets: vec![until(10), SecretSpec::new(Secret::new("new"))], ..provider("github", &[]) };
    let verifier = Verifier::new(spec).unwrap();
    let by_old = sign(&Verifier::new(provider("github", &["old"])).unwrap(), b"{}");
    let by_new = sign(&Verifier::new(provider("github", &["new"])).unwrap(), b"{}");
    let judged = |headers: &HeaderMap, seconds| {
        verifier.judge(&request(headers, b"{}"), NOW.plus(Duration::from_secs(seconds))).map(|ok| ok.secret)
    };
    assert_eq!(judged(&by_old, 9), Ok(Some(0)));
    assert_eq!(judged(&by_old, 10).unwrap_err().reason(), "bad_signature");
    assert_eq!(judged(&by_new, 10), Ok(Some(1)), "the index is that of the configuration");
    let ended = Verifier::new(Spec { secrets: vec![until(10)], ..provider("github", &[]) }).unwrap();
    let late = NOW.plus(Duration::from_secs(10));
    assert_eq!(ended.judge(&request(&by_old, b"{}"), late).unwrap_err(), Rejection::SecretsExpired);
}

#[test]
fn the_signed_address_is_the_configured_one_else_the_one_seen() {
    let public = Spec { public_url: Some("https://b.example/base/".into()), ..provider("trello", &["s"]) };
    let public = Verifier::new(public).unwrap();
    let seen = Verifier::new(provider("trello", &["s"])).unwrap();
    let good = sign(&seen, b"{}");
    assert!(seen.judge(&request(&good, b"{}"), NOW).is_ok());
    let words = public.judge(&request(&good, b"{}"), NOW).unwrap_err().to_string();
    assert!(words.contains("https://b.example/base/in/7?x=1"), "{words}");
    let unknown = Request { seen_url: None, ..request(&good, b"{}") };
    assert_eq!(seen.judge(&unknown, NOW).unwrap_err(), Rejection::UnknownUrl);

    let mut by_provider = HeaderMap::new();
    let outgoing = Outgoing { method: &POST, url: "https://b.example/base/in/7?x=1", body: b"{}", now: NOW, id: "" };
    seen.sign(&outgoing, &mut by_provider).unwrap();
    assert!(public.judge(&request(&by_provider, b"{}"), NOW).is_ok());
}

#[test]
fn what_cannot_verify_is_refused_at_the_start() {
    for (spec, words) in [
        (provider("shopfy", &["s"]), "did you mean \"shopify\""),
        (provider("shopify", &[]), "needs at least one secret"),
        (provider("shopify", &["s", ""]), "secret 1 cannot be used"),
        (provider("svix", &["whsec_not base64"]), "whsec_ followed by base64"),
        (provider("adyen-header", &["xyz"]), "hexadecimal digits"),
        (provider("discord", &["00ff"]), "an Ed25519 public key, 32 bytes"),
        (provider("standard-webhooks-ed25519", &["whpk_AAAA"]), "an Ed25519 public key, 32 bytes"),
        (provider("sendgrid", &[RSA_KEY]), "a P-256 public key"),
        (provider("wise", &[P256_KEY]), "an RSA public key of 2048 to 8192 bits"),
        (provider("braintree", &["no-pair"]), "public key:private key"),
        (provider("wise", &["not a key"]), "-----BEGIN PUBLIC KEY-----"),
        (Spec { public_url: Some("a.example".into()), ..provider("square", &["s"]) }, "public_url"),
    ] {
        let told = Verifier::new(spec).unwrap_err().to_string();
        assert!(told.contains(words), "{told}");
        assert!(!told.contains("not base64\"") && !told.contains("xyz"), "the secret is told: {told}");
    }
}

#[test]
fn the_signatures_tried_against_a_public_key_are_few() {
    let verifier = Verifier::new(provider(
        "standard-webhooks-ed25519",
        &[secret_for(&preset("standard-webhooks-ed25519").unwrap().scheme)],
    ))
    .unwrap();
    let at = |count| {
        let list = format!("v1a,{} ", Enc::Base64.encode(&[7; 64])).repeat(count);
        reason(&verifier, &[("webhook-id", "a"), ("webhook-timestamp", "1767225600"), ("webhook-signature", &list)])
    };
    assert_eq!((at(4), at(5)), ("bad_signature", "malformed_header"));
}

#[test]
fn a_form_is_signed_with_its_address_and_its_decoded_fields() {
    let twilio = Verifier::new(provider("twilio", &["s"])).unwrap();
    let (good, body) = signed(&twilio, "1");
    assert_eq!(body, b"b=1&a=x1");
    let judged = |body: &[u8], target, host| {
        let request = Request { target, seen_url: Some(host), ..request(&good, body) };
        twilio.judge(&request, NOW).map_err(|no| no.reason())
    };
    let host = "https://a.example";
    assert!(judged(b"a=x1&b=1&b=%31", "/in/7?x=1", host).is_ok(), "order, encoding and repeats do not count");
    assert!(judged(&body, "/in/7?x=1", "https://a.example:443").is_ok());
    assert_eq!(judged(b"a=x1&b=1&b=2", "/in/7?x=1", host), Err("bad_signature"));
    assert_eq!(judged(&body, "/in/7?x=2", host), Err("bad_signature"));
    assert_eq!(judged(&body, "/in/7?x=1", "https://b.example"), Err("bad_signature"));
    assert_eq!(judged("a&".repeat(1_001).as_bytes(), "/in/7?x=1", host), Err("malformed_body"));

    let json = headers(&[("content-type", "application/json"), ("x-twilio-signature", "AAAA")]);
    assert_eq!(twilio.judge(&request(&json, b"{}"), NOW).unwrap_err().reason(), "malformed_body");
    let outgoing = |url| Outgoing { method: &POST, url, body: b"{}", now: NOW, id: "" };
    let told = twilio.sign(&outgoing("https://a.example/?bodySHA256=00"), &mut HeaderMap::new()).unwrap_err();
    let hash = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    assert_eq!(told.to_string(), format!("this cannot be signed: the address must say bodySHA256={hash}"));
    let url = format!("https://a.example/?bodySHA256={hash}");
    let mut lines = HeaderMap::new();
    twilio.sign(&outgoing(&url), &mut lines).unwrap();
    let target = url.strip_prefix(host).unwrap();
    let judged = |body| twilio.judge(&Request { target, ..request(&lines, body) }, NOW).map_err(|no| no.reason());
    assert!(judged(b"{}").is_ok());
    assert_eq!(judged(b"{ }"), Err("body_hash"));
}

#[test]
fn a_place_among_keys_may_be_empty_where_each_has_its_header() {
    let lines = |verifier: &Verifier| sign(verifier, b"{}");
    let second = Verifier::new(provider("box", &["", "b"])).unwrap();
    let headers = lines(&second);
    assert!(headers.contains_key("box-signature-secondary") && !headers.contains_key("box-signature-primary"));
    assert_eq!(second.judge(&request(&headers, b"{}"), NOW).unwrap().secret, Some(1));
    let swapped = Verifier::new(provider("box", &["b", ""])).unwrap();
    assert_eq!(swapped.judge(&request(&headers, b"{}"), NOW).unwrap_err().reason(), "bad_signature");
    assert_eq!(Verifier::new(provider("box", &["", ""])).unwrap_err(), SpecError::NoSecret { scheme: "box".into() });
    assert!(Verifier::new(provider("box", &["a", "b", "c"])).unwrap_err().to_string().contains("no further secret"));
}

#[test]
fn every_item_of_a_body_must_be_right() {
    let graph = Verifier::new(provider("microsoft-graph", &["old", "state"])).unwrap();
    let judged = |body: &str| {
        graph.judge(&request(&HeaderMap::new(), body.as_bytes()), NOW).map(|ok| ok.secret).map_err(|no| no.to_string())
    };
    assert_eq!(judged(r#"{"value":[{"clientState":"state"},{"clientState":"old"}]}"#), Ok(Some(1)));
    let told = judged(r#"{"value":[{"clientState":"state"},{"clientState":"stat"}]}"#).unwrap_err();
    assert!(told.starts_with("the signature in value.1.clientState was not made with any of the 2"), "{told}");
    for (body, words) in [
        (r#"{"value":[{"clientState":"state"},{}]}"#, "nothing stands at value.1.clientState, which carries"),
        (r#"{"value":[{"clientState":{"state":1}}]}"#, "what stands at value.0.clientState is no single value"),
        (r#"{"value":[]}"#, "it holds no signed item"),
        (r#"{"value":{}}"#, "is no list of at most 1000 items"),
        ("{}", "nothing stands at value"),
        ("", "it is not a JSON document"),
    ] {
        let told = judged(body).unwrap_err();
        assert!(told.contains(words), "{body}: {told}");
    }
    let outgoing = Outgoing { method: &POST, url: "", body: br#"{"value":[{"clientState":"x"}]}"#, now: NOW, id: "" };
    let told = graph.sign(&outgoing, &mut HeaderMap::new()).unwrap_err().to_string();
    assert_eq!(told, "this cannot be signed: the body must hold the secret at value.0.clientState");
}

#[test]
fn a_list_of_signed_headers_must_hold_what_is_relied_on() {
    let verifier = Verifier::new(provider("contentful", &["s"])).unwrap();
    let good = sign(&verifier, b"{}");
    let list = HeaderName::from_static("x-contentful-signed-headers");
    assert_eq!(good[&list], "x-contentful-timestamp,x-contentful-signed-headers");
    let with = |value: &str| {
        let mut lines = good.clone();
        lines.insert(list.clone(), HeaderValue::from_str(value).unwrap());
        verifier.judge(&request(&lines, b"{}"), NOW).unwrap_err().to_string()
    };
    assert!(with("x-contentful-signed-headers").contains("does not list x-contentful-timestamp"));
    assert!(with("x-contentful-timestamp").contains("does not list x-contentful-signed-headers"));
    assert!(with("x-contentful-timestamp,a b").contains("not a header's name"));
    assert!(with(&"x,".repeat(65)).contains("more than 64 names"));
    assert!(with("x-contentful-timestamp,x-contentful-signed-headers,x").contains("header x is missing"));
}

#[test]
fn a_token_must_be_true_of_its_request() {
    let bird = Verifier::new(provider("messagebird-jwt", &["s"])).unwrap();
    let good = sign(&bird, b"{}");
    let token = good["messagebird-signature-jwt"].to_str().unwrap().to_owned();
    let judged = |token: &str, body: &[u8], target, seconds: u64| {
        let lines = headers(&[("messagebird-signature-jwt", token)]);
        let request = Request { target, ..request(&lines, body) };
        bird.judge(&request, Wall(NOW.0 + 1_000_000 * seconds)).map_err(|no| (no.reason(), no.to_string()))
    };
    let (here, there) = ("/in/7?x=1", "/in/8");
    for seconds in [0, 1, 61] {
        assert!(judged(&token, b"{}", here, seconds).is_ok(), "{seconds}");
    }
    let refusal = |token: &str, body: &[u8], target, seconds| judged(token, body, target, seconds).unwrap_err();
    let (code, words) = refusal(&token, b"{}", here, 62);
    assert_eq!(code, "bad_claim");
    assert!(words.ends_with("it ended at 2026-01-01T00:01:00Z, it is 2026-01-01T00:01:02Z now"), "{words}");
    let (code, words) = refusal(&token, b"{}", there, 0);
    assert!(code == "bad_claim" && words.ends_with("its url_hash is not that of https://a.example/in/8"), "{words}");
    assert_eq!(refusal(&token, b"", here, 0).0, "body_hash");
    assert_eq!(refusal(&token, b"{ }", here, 0).0, "body_hash");

    let part = |text: &str| Enc::Base64Url.encode(text.as_bytes());
    let rest = token.split_once('.').unwrap().1;
    for (head, words) in [
        (r#"{"alg":"none"}"#, "must be HS256 or HS384 or HS512; found: none"),
        (r#"{"alg":"HS1"}"#, "found: HS1"),
        (r#"{"alg":"HS256","crit":["x"]}"#, "critical extensions"),
        ("x", "not JSON"),
    ] {
        let (code, told) = refusal(&format!("{}.{rest}", part(head)), b"{}", here, 0);
        assert!(code == "malformed_header" && told.contains(words), "{head}: {told}");
    }
    for text in ["", ".", "a.b", &format!("{token}."), &format!("{token}="), &format!("{token}.e30")] {
        assert!(judged(text, b"{}", here, 0).is_err(), "{text}");
    }
    let (head, claims) = (part(r#"{"alg":"HS384"}"#), rest.split('.').next().unwrap());
    assert_eq!(refusal(&format!("{head}.{claims}.AAAA"), b"{}", here, 0).0, "bad_signature");
}

#[test]
fn a_hub_may_choose_the_hash() {
    let verifier = Verifier::new(provider("websub", &["secret"])).unwrap();
    for (alg, hash) in mac::Hash::NAMED {
        let mut mac = mac::Key::new(hash, b"secret").start();
        mac.update(b"{}");
        let signature = Enc::Hex.encode(mac.finish().as_bytes());
        let judged = |alg| {
            let lines = headers(&[("x-hub-signature", &format!("{alg}={signature}"))]);
            verifier.judge(&request(&lines, b"{}"), NOW).map_err(|no| no.reason())
        };
        assert!(judged(alg).is_ok(), "{alg}");
        assert_eq!(judged(if alg == "sha1" { "sha256" } else { "sha1" }), Err("bad_signature"));
        assert_eq!(judged("md5"), Err("malformed_header"));
    }
}

#[test]
fn nothing_that_is_printed_holds_a_secret() {
    let secret = "s3cr3t-value";
    let spec = provider("stripe", &[secret]);
    let spec_text = format!("{spec:?}");
    let verifier = Verifier::new(spec).unwrap();
    let good = sign(&verifier, b"{}");
    let rejection = verifier.judge(&request(&good, b"{ }"), NOW).unwrap_err();
    for text in [spec_text, format!("{verifier:?}"), format!("{rejection:?} {rejection}")] {
        assert!(!text.contains(secret), "{text}");
    }
    assert_eq!(
        rejection.to_string(),
        "the signature in stripe-signature was not made with the secret over this request"
    );
}

#[test]
fn foreign_text_in_a_rejection_is_escaped() {
    let verifier = Verifier::new(provider("stripe", &["s"])).unwrap();
    let value = HeaderValue::from_bytes(b"t\xe2\x80\xae=1,v0\xff=2").unwrap();
    let lines: HeaderMap = [(HeaderName::from_static("stripe-signature"), value)].into_iter().collect();
    let words = verifier.judge(&request(&lines, b""), NOW).unwrap_err().to_string();
    assert_eq!(words, "header stripe-signature: it has no item v1; found: t\\u{202e} v0\\xff");
}

/// A secret of the form that the scheme wants.
fn secret_for(scheme: &Scheme) -> &'static str {
    match scheme {
        Scheme::Basic(_) => "user:word",
        Scheme::Signed(signed) => match (signed.alg, signed.key) {
            // Keys whose other half nobody has.
            (Alg::Public(PublicAlg::Ed25519), KeyForm::Hex) => {
                "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
            }
            (Alg::Public(PublicAlg::Ed25519), _) => "PUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=",
            (Alg::Public(PublicAlg::EcdsaP256 | PublicAlg::EcdsaP256Sha1), _) => P256_KEY,
            (Alg::Public(PublicAlg::RsaPkcs1 | PublicAlg::RsaPkcs1Sha1), _) => RSA_KEY,
            (Alg::Hmac(_) | Alg::HmacNamed | Alg::Digest(_), _) => "00112233445566778899aabbccddeeff",
        },
        Scheme::Posted(_) => "public:private",
        Scheme::None | Scheme::Token(_) | Scheme::Form(_) | Scheme::Inside(_) | Scheme::Jwt(_) | Scheme::Fetched(_) => {
            "00112233445566778899aabbccddeeff"
        }
    }
}

/// Where a body's signature will stand.
const PLACE: &str = "SIGNATURE";

/// A body of the form that the scheme wants, its signature still missing where it stands in the body.
fn body_for(scheme: &Scheme, rest: &str) -> Vec<u8> {
    let plain: String = rest.chars().filter(char::is_ascii_alphanumeric).collect();
    match scheme {
        Scheme::Form(_) => format!("b={plain}&a=x{plain}").into_bytes(),
        Scheme::Posted(posted) => format!("{}={PLACE}&{}=x{plain}", posted.signature, posted.payload).into_bytes(),
        Scheme::Inside(inside) => inside_body(inside, &plain),
        Scheme::Signed(_)
        | Scheme::Jwt(_)
        | Scheme::None
        | Scheme::Token(_)
        | Scheme::Basic(_)
        | Scheme::Fetched(_) => match scheme.time().map(|time| (&time.place, time.unit)) {
            Some((Place::Body(path), unit)) => {
                let rest = serde_json::to_string(rest).unwrap();
                format!("{{{:?}:{},\"rest\":{rest}}}", path[0], unit.write(NOW)).into_bytes()
            }
            _ => rest.as_bytes().to_vec(),
        },
    }
}

/// A body whose items hold a signature, and `rest` in every signed member but the time.
fn inside_body(inside: &Inside, rest: &str) -> Vec<u8> {
    let mut item = serde_json::json!({});
    let mut put = |path: &[&str], text: &str| {
        let (last, outer) = path.split_last().unwrap();
        let at = outer.iter().fold(&mut item, |at, name| &mut at[*name]);
        at[*last] = text.into();
    };
    for path in inside.text {
        put(path, rest);
    }
    let equal = inside.proof == Proof::Equal;
    put(inside.signature, if equal { "00112233445566778899aabbccddeeff" } else { PLACE });
    if let Some(Place::Body(path)) = inside.time.as_ref().map(|time| &time.place) {
        let path: Vec<&str> = path.iter().map(|name| &**name).collect();
        put(&path, &inside.time.as_ref().unwrap().unit.write(NOW));
    }
    let whole = match inside.each {
        None => item,
        Some(Each { list, envelope: Some(envelope) }) => serde_json::json!({ list: [{ envelope: item }] }),
        Some(Each { list, envelope: None }) => serde_json::json!({ list: [item] }),
    };
    whole.to_string().into_bytes()
}

/// A whole request that `verifier` signs at [`NOW`], wherever its signature stands.
fn signed(verifier: &Verifier, rest: &str) -> (HeaderMap, Vec<u8>) {
    let mut headers = HeaderMap::new();
    let mut write = |body: &[u8]| {
        let outgoing = Outgoing { method: &POST, url: "https://a.example/in/7?x=1", body, now: NOW, id: "msg_1" };
        verifier.sign(&outgoing, &mut headers)
    };
    let mut body = body_for(verifier.scheme(), rest);
    if let Err(told) = write(&body) {
        let SignError::BodySignature { example, .. } = told else { panic!("{told}") };
        body = String::from_utf8(body).unwrap().replace(PLACE, &example).into_bytes();
        write(&body).unwrap();
    }
    (headers, body)
}

fn signature_header(scheme: &Scheme) -> Option<HeaderName> {
    match scheme {
        Scheme::Signed(_) | Scheme::Form(_) | Scheme::Jwt(_) => header_names(scheme).into_iter().next(),
        Scheme::None
        | Scheme::Token(_)
        | Scheme::Basic(_)
        | Scheme::Posted(_)
        | Scheme::Inside(_)
        | Scheme::Fetched(_) => None,
    }
}

/// The headers that a scheme reads; of numbered ones the first.
fn header_names(scheme: &Scheme) -> Vec<HeaderName> {
    let headers = scheme.headers();
    let names = headers.carriers.into_iter().chain(headers.others);
    names.map(|name| if name.ends_with('-') { format!("{name}1") } else { name }.parse().unwrap()).collect()
}

/// Whether the secret is a public key, so that only the provider can sign.
fn is_public(scheme: &Scheme) -> bool {
    matches!(scheme, Scheme::Fetched(_))
        || matches!(scheme, Scheme::Signed(signed) if matches!(signed.alg, Alg::Public(_)))
}

fn every_preset() -> impl Strategy<Value = &'static Preset> {
    (0..presets().len()).prop_map(|at| &presets()[at])
}

fn every_signing_preset() -> impl Strategy<Value = &'static Preset> {
    every_preset().prop_filter("the provider alone can sign", |preset| !is_public(&preset.scheme))
}

#[test]
fn every_preset_signs_what_it_accepts() {
    for preset in presets() {
        let verifier = Verifier::new(provider(preset.name, &[secret_for(&preset.scheme)])).unwrap();
        if is_public(&preset.scheme) {
            let outgoing = Outgoing { method: &POST, url: "", body: b"", now: NOW, id: "" };
            assert_eq!(verifier.sign(&outgoing, &mut HeaderMap::new()), Err(SignError::PublicKeyOnly));
            continue;
        }
        // A blank: a text that a handshake would sign is no event.
        let (headers, body) = signed(&verifier, "x and long enough for Braintree to be no challenge");
        let verified = verifier.judge(&request(&headers, &body), NOW).unwrap();
        assert_eq!(&**verified.label(), format!("{} secret=0", preset.name));
        assert_eq!(verified.skew_s, preset.scheme.time().map(|_| 0), "{}", preset.name);
    }
    let linear = Verifier::new(provider("linear", &["s"])).unwrap();
    let outgoing = Outgoing { method: &POST, url: "", body: b"{}", now: NOW, id: "" };
    let told = linear.sign(&outgoing, &mut HeaderMap::new()).unwrap_err().to_string();
    assert_eq!(told, "the body must hold the signed time at webhookTimestamp, e.g. 1767225600000");
}

proptest! {
    #[test]
    fn what_is_signed_is_accepted_and_one_flipped_bit_is_refused(
        preset in every_signing_preset(),
        rest in ".{0,60}",
        at in any::<prop::sample::Index>(),
        bit in 0..7u8,
    ) {
        let verifier = Verifier::new(provider(preset.name, &[secret_for(&preset.scheme)])).unwrap();
        let (good, body) = signed(&verifier, &rest);
        // Such a text is no event of X's, whoever signed it.
        prop_assume!(!verifier.has_signed_on_demand(&request(&good, &body)));
        prop_assert!(verifier.judge(&request(&good, &body), NOW).is_ok());

        if preset.scheme.covers_body() && !body.is_empty() {
            let mut other = body.clone();
            other[at.index(body.len())] ^= 1 << bit;
            prop_assert!(verifier.judge(&request(&good, &other), NOW).is_err());
        }
        if let Some(name) = signature_header(&preset.scheme) {
            let mut value = good[&name].as_bytes().to_vec();
            // The signature is the header's last part in every preset.
            let len = value.len();
            value[len - 1 - at.index(20)] ^= 1 << bit;
            // What HTTP does not allow in a header never gets here; a letter's other case is the same hex digit.
            let hex = matches!(&preset.scheme, Scheme::Signed(signed) if signed.enc == Enc::Hex);
            let same_digit = hex && value.eq_ignore_ascii_case(good[&name].as_bytes());
            if let (Ok(value), false) = (HeaderValue::from_bytes(&value), same_digit) {
                let mut other = good;
                other.insert(name, value);
                prop_assert!(verifier.judge(&request(&other, &body), NOW).is_err());
            }
        }
    }

    #[test]
    fn arbitrary_headers_and_bodies_never_panic_and_never_pass(
        preset in every_preset(),
        values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..6),
        shapes in prop::collection::vec("[tvhs10=,; .]{0,40}", 0..6),
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            "[abt_signaturepyload=&%|+0-9]{0,80}".prop_map(String::into_bytes),
            r#"[\[{"]{0,3}((value|signature|notificationItems|NotificationRequestItem|clientState|"|:|\{|\}|\[|,|1)){0,20}"#
                .prop_map(String::into_bytes),
        ],
        seconds in any::<u32>(),
        url in any::<bool>(),
    ) {
        let verifier = Verifier::new(provider(preset.name, &[secret_for(&preset.scheme)])).unwrap();
        let names = header_names(&preset.scheme);
        let values = values.into_iter().chain(shapes.into_iter().map(String::into_bytes));
        let lines: HeaderMap = names
            .iter()
            .cycle()
            .zip(values)
            .filter_map(|(name, value)| Some((name.clone(), HeaderValue::from_bytes(&value).ok()?)))
            .collect();
        let now = Wall::from_unix_s(seconds.into());
        let request = Request { seen_url: Some("https://a.example").filter(|_| url), ..request(&lines, &body) };
        let rejection = verifier.judge(&request, now).unwrap_err();
        prop_assert!(Rejection::REASONS.contains(&rejection.reason()));
        prop_assert!(rejection.to_string().chars().all(|c| !c.is_control()));
    }

    #[test]
    fn a_template_of_any_text_is_read_or_refused(text in ".{0,40}") {
        let _read = template::Template::parse(&text);
    }
}
