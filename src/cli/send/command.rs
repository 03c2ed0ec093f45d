//! The command itself: arguments in, words or JSON out.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use serde_json::{Value, json};

use super::signer::Signer;
use super::{Answer, Event, send};
use crate::cli::secret::Place;
use crate::cli::table::escaped;
use crate::cli::{FAILED, USAGE, complain, print};
use crate::event::EventId;
use crate::key::{Input, Rule, RuleSpec};
use crate::verify::{Preset, preset};

/// Longer than any gateway takes to answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The arguments of `fairlane send`.
#[derive(Debug, Args)]
pub(in crate::cli) struct Send {
    /// Who is imitated; `fairlane providers` lists them
    #[arg(long, value_name = "NAME")]
    provider: String,
    /// The provider's secret: env:NAME, file:PATH or - for standard input; a private key in PEM where it signs with one
    #[arg(long, value_name = "WHERE")]
    secret: Option<String>,
    /// Where to post
    #[arg(long, value_name = "URL")]
    to: Uri,
    /// The body; standard input where this is left out
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// What happened, where the provider says it in a header, e.g. orders/create
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// So many events, one after the other, each with an id of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// A further header, `Name: value`; may be repeated
    #[arg(long = "header", value_name = "HEADER", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The method
    #[arg(long, default_value = "POST")]
    method: Method,
    /// The receiver's `public_url`, where the signature covers the address and that is not where it is posted to: scheme, host and
    /// prefix as configured, to which the path of --to is added; or the whole address
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Show the answer's headers and body too
    #[arg(long)]
    verbose: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("expected `Name: value`")?;
    let name = name.trim().parse().map_err(|_| format!("{name:?} is not a header's name"))?;
    let value = value.trim().parse().map_err(|_| format!("{value:?} is not a header's value"))?;
    Ok((name, value))
}

/// Why nothing was sent, or nothing came back.
enum Refused {
    Usage(String),
    Failed(String),
}

/// `fairlane send`; the answer is the exit code: 0 where every answer is a 2xx, else 1.
pub(in crate::cli) fn run(arguments: &Send) -> u8 {
    match prepare(arguments).and_then(|prepared| post(arguments, &prepared, &mut Report::begin(arguments))) {
        Ok(code) => code,
        Err(Refused::Usage(message)) => complain(&message, USAGE),
        Err(Refused::Failed(message)) => complain(&message, FAILED),
    }
}

/// All that is the same in every event.
struct Prepared {
    signer: Signer,
    preset: Option<&'static Preset>,
    headers: HeaderMap,
    body: Bytes,
    /// The group by the provider's own natural key, where it has one and it was there.
    group: Option<String>,
    public_url: Option<String>,
}

fn prepare(arguments: &Send) -> Result<Prepared, Refused> {
    let failed = |error: &dyn std::fmt::Display| Refused::Failed(error.to_string());
    let usage = |error: &dyn std::fmt::Display| Refused::Usage(error.to_string());
    let place = arguments.secret.as_deref().map(Place::parse).transpose().map_err(|e| usage(&e))?;
    if place == Some(Place::Stdin) && arguments.body.is_none() {
        return Err(Refused::Usage(
            "standard input cannot be the secret and the body: name the body with --body FILE".into(),
        ));
    }
    let environment = |name: &str| std::env::var(name).ok();
    let secret = place.map(|place| place.read(environment, std::io::stdin())).transpose().map_err(|e| failed(&e))?;
    let signer = Signer::new(&arguments.provider, secret).map_err(Refused::Usage)?;
    let preset = preset(&arguments.provider);
    let mut headers: HeaderMap = HeaderMap::new();
    for (name, value) in &arguments.headers {
        headers.append(name, value.clone());
    }
    if let Some(kind) = &arguments.event_type {
        let (name, value) = event_type(preset, kind).map_err(Refused::Usage)?;
        headers.insert(name, value);
    }
    let body = body(arguments.body.as_deref()).map_err(Refused::Failed)?;
    let group = preset.and_then(|preset| group(preset, &headers, &body));
    let public_url = arguments.public_url.as_deref().map(|url| with_target(url, &arguments.to));
    Ok(Prepared { signer, preset, headers, body, group, public_url })
}

/// The whole address that is signed: a base as the configuration's `public_url` has it gets the target's path and query.
fn with_target(url: &str, to: &Uri) -> String {
    let target = to.path_and_query().map_or("/", |target| target.as_str());
    let path = to.path();
    let is_whole = url.split(['?', '#']).next().is_some_and(|before| path != "/" && before.ends_with(path));
    if is_whole { url.to_owned() } else { format!("{}{target}", url.trim_end_matches('/')) }
}

/// Posts one after the other, each told as it is answered; the answer is the exit code.
fn post(arguments: &Send, prepared: &Prepared, report: &mut Report<'_>) -> Result<u8, Refused> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Refused::Failed(error.to_string()))?;
    for _ in 0..arguments.count {
        let now = crate::app::wall();
        let id = EventId::new(now, &rand::random()).to_string();
        let event = Event {
            signer: &prepared.signer,
            to: &arguments.to,
            signed_url: prepared.public_url.as_deref(),
            method: arguments.method.clone(),
            headers: with_own_id(prepared.preset, prepared.headers.clone(), &id),
            body: prepared.body.clone(),
            now,
            id: &format!("msg_{}", id.trim_start_matches("evt_")),
            timeout: TIMEOUT,
        };
        match runtime.block_on(send(event)) {
            Ok(answer) => report.tell(&Sent { answer, group: prepared.group.as_deref() }),
            Err(error) => return Ok(report.end(Some(&error.to_string()))),
        }
    }
    Ok(report.end(None))
}

/// The header in which the provider says what happened, with this in it.
fn event_type(preset: Option<&Preset>, kind: &str) -> Result<(HeaderName, HeaderValue), String> {
    let place = preset.and_then(|preset| preset.event_type);
    let Some(name) = place.and_then(header_of) else {
        return Err(match place {
            Some(place) => format!("this provider says what happened at {place}: write it into the body"),
            None => "where this provider says what happened is not documented: use --header, or write it into the body"
                .to_owned(),
        });
    };
    let value = kind.parse().map_err(|_| "the event's type cannot stand in a header".to_owned())?;
    Ok((name, value))
}

/// The id of its own that the provider gives each event, where it stands in a header that nobody wrote.
fn with_own_id(preset: Option<&Preset>, mut headers: HeaderMap, id: &str) -> HeaderMap {
    let name = preset.and_then(|preset| preset.event_id).and_then(header_of);
    if let (Some(name), Ok(value)) = (name, HeaderValue::from_str(id.trim_start_matches("evt_"))) {
        headers.entry(name).or_insert(value);
    }
    headers
}

/// The header that an expression names and nothing else.
fn header_of(expression: &str) -> Option<HeaderName> {
    expression.strip_prefix("headers.")?.parse().ok()
}

/// The group by the provider's natural key.
fn group(preset: &Preset, headers: &HeaderMap, body: &[u8]) -> Option<String> {
    let keys = preset.natural_key.iter().map(|text| RuleSpec::Expr((*text).to_owned())).collect();
    let rule = Rule::parse(&RuleSpec::First(keys)).ok()?;
    let found = rule.evaluate(&Input { headers, path: "/", names: &[], query: None, body }).ok()?;
    Some(found.group(preset.namespace).to_string())
}

fn body(path: Option<&Path>) -> Result<Bytes, String> {
    let mut body = Vec::new();
    let read = match path {
        Some(path) => std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut body)),
        None => std::io::stdin().lock().read_to_end(&mut body),
    };
    let name = path.map_or_else(|| "standard input".to_owned(), |path| path.display().to_string());
    read.map_err(|error| format!("the body cannot be read from {name}: {error}"))?;
    Ok(body.into())
}

/// What is said while events are sent. As JSON it is one document, whose list grows as answers come.
struct Report<'a> {
    arguments: &'a Send,
    answered: u32,
    accepted: u32,
    /// The worst of writing.
    written: u8,
}

impl<'a> Report<'a> {
    fn begin(arguments: &'a Send) -> Self {
        Self { arguments, answered: 0, accepted: 0, written: 0 }
    }

    fn print(&mut self, text: &str) {
        self.written = self.written.max(print(text.as_bytes()));
    }

    /// One that was answered.
    fn tell(&mut self, sent: &Sent<'_>) {
        let text = if self.arguments.json {
            let before = if self.answered == 0 { "{\"events\": [\n" } else { ",\n" };
            format!("{before}{:#}", sent.json())
        } else {
            sent.text(self.arguments.verbose)
        };
        self.print(&text);
        self.answered += 1;
        self.accepted += u32::from(sent.answer.status.is_success());
    }

    /// The sum of it, and why it stopped before the end; the answer is the exit code.
    fn end(&mut self, stopped: Option<&str>) -> u8 {
        let (count, answered, accepted) = (self.arguments.count, self.answered, self.accepted);
        if self.arguments.json {
            let before = if answered == 0 { "{\"events\": [" } else { "\n" };
            let error = stopped.map_or(Value::Null, |why| json!(why));
            self.print(&format!(
                "{before}], \"to_send\": {count}, \"sent\": {answered}, \"accepted\": {accepted}, \"error\": {error}}}\n"
            ));
        }
        match stopped {
            Some(why) if count > 1 => {
                let number = answered + 1;
                let sum = format!("{count} to send, {accepted} accepted, stopped at number {number}: {why}");
                return complain(&sum, FAILED);
            }
            Some(why) => return complain(why, FAILED),
            None if count > 1 && !self.arguments.json => {
                self.print(&format!("{answered} sent, {accepted} accepted\n"));
            }
            None => {}
        }
        if accepted == count { self.written } else { FAILED }
    }
}

/// An event that was answered.
struct Sent<'a> {
    answer: Answer,
    /// The group by the provider's own natural key, where it has one and it was there.
    group: Option<&'a str>,
}

impl Sent<'_> {
    fn header(&self, name: &str) -> Option<String> {
        self.answer.headers.get(name).map(|value| escaped(&String::from_utf8_lossy(value.as_bytes())))
    }

    fn text(&self, verbose: bool) -> String {
        let Answer { status, headers, body, cut } = &self.answer;
        let group = self.group.map_or_else(String::new, |group| format!(", group {group} by the provider's own key"));
        let id = self.header("fairlane-event-id");
        let mut text = match (status.is_success(), id, self.header("fairlane-duplicate-of")) {
            (true, Some(id), Some(first)) => format!("{status}: accepted as {id}, a duplicate of {first}{group}\n"),
            (true, Some(id), None) => format!("{status}: accepted as {id}{group}\n"),
            (true, None, _) => format!(
                "{status}: accepted, and nothing stored (no Fairlane-Event-Id): answered by the receiver itself, directly or through a source with `respond: upstream`\n"
            ),
            (false, ..) => format!("{status}: not accepted\n"),
        };
        if status.is_client_error() {
            text.push_str("  which part did not fit: see `fairlane rejections` at the gateway\n");
        }
        if verbose {
            for (name, value) in headers {
                text.push_str(&format!("{name}: {}\n", escaped(&String::from_utf8_lossy(value.as_bytes()))));
            }
        }
        // What the other side says may try to command the terminal.
        if (verbose || !status.is_success()) && !body.is_empty() {
            text.extend(String::from_utf8_lossy(body).lines().map(|line| format!("  {}\n", escaped(line))));
        }
        if *cut && verbose {
            text.push_str("  (cut after 64 KiB)\n");
        }
        text
    }

    fn json(&self) -> Value {
        let Answer { status, headers, body, cut } = &self.answer;
        let lines: Vec<Value> = headers
            .iter()
            .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]))
            .collect();
        json!({
            "status": status.as_u16(),
            "accepted": status.is_success(),
            "event_id": self.header("fairlane-event-id"),
            "duplicate_of": self.header("fairlane-duplicate-of"),
            "group": self.group,
            "headers": lines,
            "body": String::from_utf8_lossy(body),
            "cut": cut,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_url_is_the_configuration_s_base_or_the_whole_address() {
        let to: Uri = "http://127.0.0.1:8080/webhooks/twilio?x=1".parse().unwrap();
        for (url, signed) in [
            ("https://a.example", "https://a.example/webhooks/twilio?x=1"),
            ("https://a.example/", "https://a.example/webhooks/twilio?x=1"),
            ("https://a.example/in", "https://a.example/in/webhooks/twilio?x=1"),
            ("https://a.example/webhooks/twilio", "https://a.example/webhooks/twilio"),
            ("https://a.example/webhooks/twilio?y=2", "https://a.example/webhooks/twilio?y=2"),
        ] {
            assert_eq!(with_target(url, &to), signed, "{url}");
        }
        let root: Uri = "http://127.0.0.1:8080".parse().unwrap();
        assert_eq!(with_target("https://a.example/", &root), "https://a.example/");
        assert_eq!(with_target("https://a.example", &root), "https://a.example/");
    }
}
