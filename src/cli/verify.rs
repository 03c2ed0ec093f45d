//! `fairlane verify FILE.jsonl`: judges captured requests offline.
//!
//! One JSON object a line goes in (a complete request, the secrets, the moment), one comes out:
//! `{"id", "verdict": "valid"|"invalid"|"unsupported", "reason"}`. A line that cannot be read is told
//! with its number and spoils only itself.

use std::fmt;
use std::io::{self, BufRead, Read as _, Write};
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{FAILED, complain};
use crate::event::{Secret, Wall};
use crate::verify::fetched::Of;
use crate::verify::scheme::Scheme;
use crate::verify::{Agreed, Choice, Material, Rejection, Request, SecretSpec, Spec, Verifier, When, preset};

/// The longest line: a body of 26 MiB in base64, and its headers.
const LINE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bad lines that are told one by one; the rest is only counted.
const MALFORMED_TOLD_MAX: usize = 100;

/// One captured request. Fields that are not here are ignored.
#[derive(Clone, Debug, Deserialize)]
pub struct Line {
    /// Its name in the output; the number of its line where it is left out.
    #[serde(default)]
    pub id: String,
    /// The preset to judge by, or `none`.
    pub scheme: String,
    /// `delivery` (the default), or something that is no delivery.
    #[serde(default)]
    pub kind: Option<String>,
    /// The method; `POST` where it is left out.
    #[serde(default)]
    pub method: Option<String>,
    /// The public address as the provider knows it.
    #[serde(default)]
    pub url: Option<String>,
    /// Name and value, in order: a list of pairs, or an object.
    #[serde(deserialize_with = "header_lines")]
    pub headers: Vec<(String, String)>,
    /// The raw body, base64.
    pub body_b64: String,
    /// The configured secrets, as pasted.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Unix seconds to take as the current time; without it no age is judged.
    #[serde(default)]
    pub now: Option<i64>,
    /// The window in seconds; left out: the provider's documented one; null: none.
    #[serde(default, deserialize_with = "written")]
    pub tolerance_s: Option<Option<u64>>,
    /// Key material that a gateway would fetch; what is not here counts as not there.
    #[serde(default)]
    pub keys: Vec<FetchedKey>,
    /// The topics that may send; left out: the one that the request names.
    #[serde(default)]
    pub topics: Option<Vec<String>>,
    /// The signed time is no real date.
    #[serde(default)]
    pub opaque_ts: Option<bool>,
}

/// A key that a gateway would fetch.
#[derive(Clone, Debug, Deserialize)]
pub struct FetchedKey {
    /// From where.
    #[serde(default)]
    pub url: String,
    /// A certificate in PEM.
    #[serde(default)]
    pub pem: String,
    /// A public key that is configured, not fetched: the base64 of its DER. It stands beside the secrets.
    #[serde(default)]
    pub pem_b64: Option<String>,
}

/// Headers as a capture writes them: `[["X-A", "1"], ["X-A", "2"]]`, or `{"X-A": "1"}`, where a repeated one is a list of its values.
pub(super) fn header_lines<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
    struct Lines;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Values {
        One(String),
        Several(Vec<String>),
    }

    impl<'de> Visitor<'de> for Lines {
        type Value = Vec<(String, String)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("headers, as [[\"name\", \"value\"], …] or {\"name\": \"value\", …}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut pairs: A) -> Result<Self::Value, A::Error> {
            let mut lines = Vec::new();
            while let Some(pair) = pairs.next_element()? {
                lines.push(pair);
            }
            Ok(lines)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut lines = Vec::new();
            while let Some((name, values)) = map.next_entry::<String, Values>()? {
                match values {
                    Values::One(value) => lines.push((name, value)),
                    Values::Several(values) => lines.extend(values.into_iter().map(|value| (name.clone(), value))),
                }
            }
            Ok(lines)
        }
    }

    deserializer.deserialize_any(Lines)
}

/// Tells a written null from a field that is left out.
fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// What came of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Genuine.
    Valid,
    /// Not genuine.
    Invalid,
    /// There is no such scheme here.
    Unsupported,
}

/// A verdict and why, as one line of output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// The request's name.
    pub id: String,
    /// What came of it.
    pub verdict: Verdict,
    /// The matched secret, or the code and words of the refusal.
    pub reason: String,
}

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub problem: String,
}

/// What came of a whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Genuine requests.
    pub valid: u64,
    /// Refused ones.
    pub invalid: u64,
    /// Those whose scheme is not known here.
    pub unsupported: u64,
    /// Lines that could not be read; the command ends with 1 when there are any.
    pub malformed: u64,
    /// The first hundred of them.
    pub malformed_lines: Vec<Malformed>,
}

/// Judges every line of `reader` and writes one line of JSON each to `out`. Blank lines are skipped.
///
/// # Errors
/// Reading or writing failed. A line that cannot be understood is no error: see [`Tally`].
pub fn run(mut reader: impl BufRead, mut out: impl Write) -> io::Result<Tally> {
    let mut tally = Tally::default();
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        let read = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut text)?;
        if read == 0 {
            break;
        }
        let too_long = text.last() != Some(&b'\n') && u64::try_from(read).is_ok_and(|read| read == LINE_BYTES_MAX);
        if too_long {
            // What has no line ends (a device, another kind of file) may have no end either.
            tally.bad(
                number,
                format!(
                    "longer than {} MiB, so this is no list of requests, one a line; reading ends here",
                    LINE_BYTES_MAX >> 20
                ),
            );
            break;
        }
        if text.trim_ascii().is_empty() {
            continue;
        }
        match read_line(&text, number) {
            Ok((line, body)) => {
                let judgement = judge(&line, &body);
                tally.count(judgement.verdict);
                serde_json::to_writer(&mut out, &judgement)?;
                out.write_all(b"\n")?;
            }
            Err(problem) => tally.bad(number, problem),
        }
    }
    out.flush()?;
    Ok(tally)
}

impl Tally {
    fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Valid => self.valid += 1,
            Verdict::Invalid => self.invalid += 1,
            Verdict::Unsupported => self.unsupported += 1,
        }
    }

    fn bad(&mut self, line: u64, problem: String) {
        self.malformed += 1;
        if self.malformed_lines.len() < MALFORMED_TOLD_MAX {
            self.malformed_lines.push(Malformed { line, problem });
        }
    }
}

/// `fairlane verify FILE`; the answer is the exit code.
pub(super) fn run_file(path: &Path) -> u8 {
    let judged = if path == Path::new("-") {
        run(io::stdin().lock(), io::stdout().lock())
    } else {
        match std::fs::File::open(path) {
            Ok(file) => run(io::BufReader::new(file), io::BufWriter::new(io::stdout().lock())),
            Err(error) => return complain(&format!("{}: {error}", path.display()), FAILED),
        }
    };
    match judged {
        Ok(tally) if tally.malformed == 0 => 0,
        Ok(tally) => {
            let told = tally.malformed_lines.iter().map(|bad| format!("line {}: {}\n", bad.line, bad.problem));
            let told: String = told.collect();
            complain(&format!("{} lines could not be read\n{}", tally.malformed, told.trim_end()), FAILED)
        }
        // Whoever reads the output may stop before its end.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => complain(&format!("{}: {error}", path.display()), FAILED),
    }
}

fn read_line(text: &[u8], number: u64) -> Result<(Line, Vec<u8>), String> {
    let mut line: Line = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if line.id.is_empty() {
        line.id = number.to_string();
    }
    let body = base64::engine::general_purpose::STANDARD
        .decode(&line.body_b64)
        .map_err(|error| format!("body_b64 is not base64: {error}"))?;
    Ok((line, body))
}

/// Judges one captured request whose body is `body`.
#[must_use]
pub fn judge(line: &Line, body: &[u8]) -> Judgement {
    let (verdict, reason) = match decide(line, body) {
        Ok(label) => (Verdict::Valid, label),
        Err((verdict, reason)) => (verdict, reason),
    };
    Judgement { id: line.id.clone(), verdict, reason }
}

fn decide(line: &Line, body: &[u8]) -> Result<String, (Verdict, String)> {
    let unsupported = |reason: String| (Verdict::Unsupported, reason);
    let invalid = |reason: String| (Verdict::Invalid, reason);
    if let Some(kind) = line.kind.as_deref().filter(|kind| *kind != "delivery") {
        return Err(unsupported(format!("a {kind} is not judged here")));
    }
    let scheme = match (line.scheme.as_str(), preset(&line.scheme)) {
        (_, Some(preset)) => &preset.scheme,
        ("none", None) => &Scheme::None,
        (other, None) => return Err(unsupported(format!("unknown scheme {other:?}"))),
    };
    let verifier = verifier(line, scheme, body).map_err(|reason| invalid(format!("configuration: {reason}")))?;
    let method = match &line.method {
        Some(method) => Method::from_bytes(method.as_bytes()).map_err(|_| invalid("method: not one of HTTP".into()))?,
        None => Method::POST,
    };
    let headers = headers(&line.headers).map_err(invalid)?;
    let (seen_url, target) = match &line.url {
        Some(url) => {
            let (origin, target) = split_url(url);
            (Some(origin), target)
        }
        None => (None, "/"),
    };
    let request = Request { method: &method, target, seen_url, headers: &headers, body };
    let when = when(line, scheme);
    let judged = match verifier.judge_when(&request, when) {
        Err(Rejection::KeyNeeded { url }) => match line.keys.iter().find(|key| *key.url == *url) {
            Some(key) => verifier.judge_with(&request, when, Some(Material { url: &key.url, pem: key.pem.as_bytes() })),
            None => Err(Rejection::KeyNeeded { url }),
        },
        judged => judged,
    };
    match judged {
        Ok(verified) => Ok(verified.label().to_string()),
        Err(rejection) => Err(invalid(format!("{}: {rejection}", rejection.reason()))),
    }
}

fn verifier(line: &Line, scheme: &Scheme, body: &[u8]) -> Result<Verifier, crate::verify::SpecError> {
    let keys = line.keys.iter().filter_map(|key| key.pem_b64.as_ref());
    let secrets = line.secrets.iter().chain(keys).map(|text| SecretSpec::new(Secret::new(text.as_str()))).collect();
    let tolerance = line.tolerance_s.flatten().filter(|_| scheme.time().is_some()).map(Duration::from_secs);
    let topics = match &line.topics {
        Some(topics) => topics.iter().map(|topic| topic.as_str().into()).collect(),
        None => topic(scheme, body).into_iter().collect(),
    };
    let agreed = Agreed { topics, ..Agreed::default() };
    Verifier::new(Spec { tolerance, agreed, ..Spec::new(Choice::Preset(line.scheme.clone()), secrets) })
}

/// The topic that a message of SNS names; a line says which are the operator's only where that is what is tried.
fn topic(scheme: &Scheme, body: &[u8]) -> Option<Box<str>> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(rename = "TopicArn", default)]
        topic: Box<str>,
    }
    let sns = matches!(scheme, Scheme::Fetched(fetched) if fetched.of == Of::Sns);
    sns.then(|| serde_json::from_slice::<Named>(body).map_or_else(|_| "none".into(), |named| named.topic))
}

/// A captured request is judged by its own clock, and only by a window that is documented or its own.
fn when(line: &Line, scheme: &Scheme) -> When {
    let windowed = line.tolerance_s.map_or_else(|| scheme.limits_age(), |own| own.is_some());
    match line.now {
        _ if line.opaque_ts == Some(true) => When::Opaque,
        Some(now) if windowed => When::At(Wall::from_unix_s(now)),
        Some(_) | None => When::AnyAge,
    }
}

fn headers(lines: &[(String, String)]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("malformed_header: {name:?} cannot be a header's name"))?;
        let value = HeaderValue::from_bytes(value.as_bytes())
            .map_err(|_| format!("malformed_header: the value of {name} cannot stand in a header"))?;
        headers.try_append(name, value).map_err(|_| "malformed_header: too many headers".to_owned())?;
    }
    Ok(headers)
}

/// Cuts an address before its path; both parts together are the address again.
fn split_url(url: &str) -> (&str, &str) {
    let host_at = url.find("://").map_or(0, |at| at + 3);
    let path_at = url.get(host_at..).and_then(|rest| rest.find(['/', '?', '#'])).map_or(url.len(), |at| host_at + at);
    url.split_at_checked(path_at).unwrap_or((url, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &str = r#"{"id":"a","scheme":"bitbucket","headers":[["X-Hub-Signature","sha256=a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9"]],"body_b64":"SGVsbG8gV29ybGQh","secrets":["It's a Secret to Everybody"]}"#;

    fn output(input: &str) -> (Tally, String) {
        let mut out = Vec::new();
        let tally = run(input.as_bytes(), &mut out).unwrap();
        (tally, String::from_utf8(out).unwrap())
    }

    #[test]
    fn each_line_gets_its_verdict_and_bad_ones_spoil_only_themselves() {
        let forged = HELLO.replace("SGVsbG8", "SGVsbG9").replace("\"a\"", "\"b\"");
        let unknown = HELLO.replace("bitbucket", "nobody").replace("\"a\"", "\"c\"");
        let handshake = HELLO.replace("{\"id\":\"a\"", "{\"kind\":\"handshake\",\"id\":\"d\"");
        let (tally, out) = output(&format!("{HELLO}\n\n{{\n{forged}\n{unknown}\n{handshake}\nnull\n"));
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], r#"{"id":"a","verdict":"valid","reason":"bitbucket secret=0"}"#);
        assert!(lines[1].starts_with(r#"{"id":"b","verdict":"invalid","reason":"bad_signature: "#), "{}", lines[1]);
        assert_eq!(lines[2], r#"{"id":"c","verdict":"unsupported","reason":"unknown scheme \"nobody\""}"#);
        assert!(lines[3].contains(r#""d","verdict":"unsupported""#), "{}", lines[3]);
        assert_eq!((tally.valid, tally.invalid, tally.unsupported, tally.malformed), (1, 1, 2, 2));
        let bad: Vec<u64> = tally.malformed_lines.iter().map(|bad| bad.line).collect();
        assert_eq!(bad, [3, 7]);
    }

    #[test]
    fn headers_may_be_an_object_and_a_line_needs_no_name() {
        let pairs = r#"[["X-Hub-Signature","sha256="#;
        let object = HELLO.replace(pairs, r#"{"x-a":["1","2"],"X-Hub-Signature":"sha256="#).replace("\"]],", "\"},");
        assert_ne!(object, HELLO);
        let nameless = HELLO.replace(r#""id":"a","#, "");
        let (tally, out) = output(&format!("{object}\n{nameless}\n{}\n", HELLO.replace(r#"[["X"#, r#"7,"h":[["X"#)));
        assert_eq!((tally.valid, tally.malformed), (2, 1), "{out} {tally:?}");
        assert!(out.lines().nth(1).unwrap().starts_with(r#"{"id":"2","#), "{out}");
        let problem = &tally.malformed_lines[0].problem;
        assert!(
            problem.contains(r#"expected headers, as [["name", "value"], …] or {"name": "value", …}"#),
            "{problem}"
        );
    }

    #[test]
    fn what_a_line_may_hold_and_http_may_not_is_refused() {
        for (from, to) in [
            ("\"X-Hub-Signature\",\"", "\"X-Hub-Signature\",\"\\n"),
            ("X-Hub-Signature", "X Hub"),
            ("\"secrets\"", "\"method\":\"a b\",\"secrets\""),
            ("It's a Secret to Everybody", ""),
        ] {
            let (tally, out) = output(&HELLO.replace(from, to));
            assert_eq!(tally.invalid, 1, "{out}");
        }
        let (tally, _) = output(&HELLO.replace("SGVsbG8", "%"));
        assert!(tally.malformed_lines[0].problem.contains("body_b64"), "{tally:?}");
    }

    #[test]
    fn a_file_without_line_ends_is_not_read_for_ever() {
        let (tally, out) = {
            let mut out = Vec::new();
            let endless = io::BufReader::new(HELLO.as_bytes().chain(&b"\n"[..]).chain(io::repeat(0)));
            (run(endless, &mut out).unwrap(), out)
        };
        assert_eq!((tally.valid, tally.malformed), (1, 1), "{}", String::from_utf8_lossy(&out));
        assert!(tally.malformed_lines[0].problem.contains("longer than 64 MiB"), "{tally:?}");
    }

    #[test]
    fn an_address_is_cut_before_its_path_and_nothing_is_lost() {
        for (url, at) in
            [("https://a.example/x?y=1", 17), ("https://a.example", 17), ("http://a?b", 8), ("/x", 0), ("", 0)]
        {
            let (origin, target) = split_url(url);
            assert_eq!(origin.len(), at, "{url}");
            assert_eq!(format!("{origin}{target}"), url);
        }
    }
}
