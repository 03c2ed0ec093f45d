//! `make bench-verify`: what judging and grouping a request costs by the size of its body, 1 KB to 10 MB, for the schemes that read
//! headers, forms and JSON. Nothing may grow faster than the body: the last column compares a byte's price at 10 MB with 10 KB.

#![expect(clippy::print_stdout, reason = "it prints a table")]

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use fairlane::clock::{Clock as _, SystemClock};
use fairlane::event::{Secret, Wall};
use fairlane::key::{Input, Rule, RuleSpec};
use fairlane::verify::{Choice, Outgoing, Request, SecretSpec, SignError, Spec, Verifier, When};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

const SIZES: [usize; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// A row is measured so often, or for so long; the median counts.
const TIMES: usize = 15;
const ENOUGH: Duration = Duration::from_millis(800);

const NOW: Wall = Wall(1_767_225_600_000_000);
const TARGET: &str = "/in";
const ORIGIN: &str = "https://hooks.example.com";

/// What is measured: a name, and what it does with a body of about this size.
type Row = (&'static str, fn(usize) -> anyhow::Result<Box<dyn Fn() -> bool>>);

const ROWS: &[Row] = &[
    ("shopify: HMAC of the body", |size| genuine("shopify", "hush", filler(size), &[])),
    ("github, sha1", |size| genuine("github-sha1-legacy", "hush", filler(size), &[])),
    ("stripe, 60 KB of signatures in its header", |size| {
        genuine("stripe", "hush", filler(size), &["stripe-signature"])
    }),
    ("standard-webhooks, 60 KB of signatures", |size| {
        genuine("standard-webhooks", "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz", filler(size), &["webhook-signature"])
    }),
    ("twilio: 1,000 fields", |size| genuine("twilio", "hush", form(size, "k"), &[])),
    ("twilio: one long field, escaped", |size| genuine("twilio", "hush", escaped(size), &[])),
    ("mandrill: 1,000 fields", |size| genuine("mandrill", "hush", form(size, "k"), &[])),
    ("plivo: 1,000 fields of one name", |size| genuine("plivo", "hush", form(size, ""), &[])),
    ("linear: time at the end of the JSON", |size| genuine("linear", "hush", timed(size), &[])),
    ("messagebird: JWT with the body's hash", |size| genuine("messagebird-jwt", "hush", filler(size), &[])),
    ("adyen: 1,000 items, each signed", |size| genuine("adyen-payload", ADYEN_KEY, adyen(size)?, &[])),
    ("key: a member at the end", |size| found("body.webhookTimestamp", timed(size), "application/json")),
    ("key: deep nesting", |size| refused("body.a", "[".repeat(size).into_bytes())),
    ("key: JSONPath, any depth", |size| found("$..last", timed(size.min(900_000)), "application/json")),
    ("key: JSON inside a form", |size| {
        let inside: String = form_urlencoded::byte_serialize(&timed(size / 2)).collect();
        let form = format!("payload={inside}").into_bytes();
        found("body.payload | json | last", form, "application/x-www-form-urlencoded")
    }),
];

fn main() -> anyhow::Result<()> {
    println!("| µs | 1 KB | 10 KB | 100 KB | 1 MB | 10 MB | a byte at 10 MB : 10 KB |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (name, make) in ROWS {
        let mut line = format!("| {name} |");
        let mut each = Vec::new();
        for size in SIZES {
            let work = make(size).with_context(|| format!("{name}, {size} bytes"))?;
            ensure!(work(), "{name}, {size} bytes: not what it should be");
            let took = median(&*work);
            write!(line, " {:.1} |", took.as_secs_f64() * 1e6)?;
            each.push(took.as_secs_f64() / size as f64);
        }
        let [_, small, .., large] = each.as_slice() else { continue };
        println!("{line} {:.2} |", large / small);
    }
    Ok(())
}

fn median(work: &dyn Fn() -> bool) -> Duration {
    let began = SystemClock.now().mono;
    let mut all = Vec::with_capacity(TIMES);
    while all.len() < TIMES && (all.len() < 3 || SystemClock.now().mono.since(began) < ENOUGH) {
        // So many at once that the clock's own price is nothing.
        let mut times = 0;
        let start = SystemClock.now().mono;
        let took = loop {
            std::hint::black_box(work());
            times += 1;
            let took = SystemClock.now().mono.since(start);
            if took > Duration::from_millis(2) {
                break took;
            }
        };
        all.push(took / times);
    }
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// A request that is signed right, judged. A header named in `longer` is made about 60 KB long with further signatures, which are
/// too many.
fn genuine(scheme: &str, secret: &str, body: Vec<u8>, longer: &[&str]) -> anyhow::Result<Box<dyn Fn() -> bool>> {
    let verifier = verifier(scheme, secret)?;
    let mut headers = HeaderMap::new();
    if body.starts_with(b"k") || body.starts_with(b"=") {
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(http::header::CONTENT_TYPE, form);
    }
    verifier.sign(&outgoing(&body), &mut headers)?;
    for name in longer {
        let name: HeaderName = name.parse()?;
        let text = headers.get(&name).context("it is signed")?.to_str()?.to_owned();
        let more = if text.contains("v1=") { ",v1=00" } else { " v1,AAAA" };
        headers.insert(name, format!("{text}{}", more.repeat(60_000 / more.len())).parse()?);
    }
    let may_be = longer.is_empty();
    Ok(Box::new(move || {
        let request =
            Request { method: &Method::POST, target: TARGET, seen_url: Some(ORIGIN), headers: &headers, body: &body };
        verifier.judge_when(&request, When::At(NOW)).is_ok() == may_be
    }))
}

fn verifier(scheme: &str, secret: &str) -> anyhow::Result<Verifier> {
    let secrets = vec![SecretSpec::new(Secret::new(secret))];
    Ok(Verifier::new(Spec::new(Choice::Preset(scheme.to_owned()), secrets))?)
}

fn outgoing(body: &[u8]) -> Outgoing<'_> {
    Outgoing { method: &Method::POST, url: "https://hooks.example.com/in", body, now: NOW, id: "msg_1" }
}

/// A key that is there, found.
fn found(rule: &str, body: Vec<u8>, kind: &'static str) -> anyhow::Result<Box<dyn Fn() -> bool>> {
    let work = evaluated(rule, body, kind)?;
    Ok(Box::new(work))
}

/// A body in which there is no key.
fn refused(rule: &str, body: Vec<u8>) -> anyhow::Result<Box<dyn Fn() -> bool>> {
    let work = evaluated(rule, body, "application/json")?;
    Ok(Box::new(move || !work()))
}

fn evaluated(rule: &str, body: Vec<u8>, kind: &'static str) -> anyhow::Result<impl Fn() -> bool + 'static> {
    let rule = Rule::parse(&RuleSpec::Expr(rule.to_owned()))?;
    let mut headers = HeaderMap::new();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(move || {
        let input = Input { headers: &headers, path: TARGET, names: &[], query: None, body: &body };
        rule.evaluate(&input).is_ok()
    })
}

fn filler(size: usize) -> Vec<u8> {
    b"{\"line\": 0123456789}\r\n".iter().copied().cycle().take(size).collect()
}

/// As many fields as are read (more are refused), all of other names, or of one and the same (none).
fn form(size: usize, name: &str) -> Vec<u8> {
    const FIELDS_MAX: usize = 1_000;
    const SHORTEST: usize = 12;
    let fields = (size / SHORTEST).clamp(1, FIELDS_MAX);
    let value = "v".repeat((size / fields).saturating_sub(SHORTEST - 3));
    let mut text = String::new();
    for n in 0..fields {
        let end = if name.is_empty() { String::new() } else { format!("{name}{:06}", (n * 7919) % 1_000_003) };
        write!(text, "{end}={value}&").expect("a String takes every write");
    }
    text.pop();
    text.into_bytes()
}

fn escaped(size: usize) -> Vec<u8> {
    format!("k={}", "%C3%BC".repeat(size / 6)).into_bytes()
}

/// A document whose last members are the time and a text.
fn timed(size: usize) -> Vec<u8> {
    let items = "{\"id\":12345,\"name\":\"w\"},".repeat(size / 24);
    let items = items.trim_end_matches(',');
    format!("{{\"items\":[{items}],\"webhookTimestamp\":{},\"last\":\"x\"}}", NOW.unix_ms()).into_bytes()
}

const ADYEN_KEY: &str = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";

/// The same item over and over, its signature found once; as many as are read, with fillers in them.
fn adyen(size: usize) -> anyhow::Result<Vec<u8>> {
    const ITEMS_MAX: usize = 1_000;
    const SHORTEST: usize = 300;
    let items = (size / SHORTEST).clamp(1, ITEMS_MAX);
    let filler = "x".repeat((size / items).saturating_sub(SHORTEST));
    let item = |signature: &str| {
        format!(
            "{{\"NotificationRequestItem\":{{\"pspReference\":\"P1\",\"merchantAccountCode\":\"ours\",\
             \"merchantReference\":\"order1\",\"success\":\"true\",\"eventCode\":\"AUTHORISATION\",\
             \"amount\":{{\"value\":1130,\"currency\":\"EUR\"}},\
             \"additionalData\":{{\"hmacSignature\":\"{signature}\",\"more\":\"{filler}\"}}}}}}"
        )
    };
    let batch = |items: &str| format!("{{\"notificationItems\":[{items}]}}").into_bytes();
    let asked = verifier("adyen-payload", ADYEN_KEY)?.sign(&outgoing(&batch(&item("x"))), &mut HeaderMap::new());
    let Err(SignError::BodySignature { example, .. }) = asked else { anyhow::bail!("it was signed wrong") };
    let item = item(&example);
    Ok(batch(&vec![item.as_str(); items].join(",")))
}
