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
    /// The address that is signed, where the receiver's `public_url` is not where it is posted to
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
    match post(arguments) {
        Ok(sent) => show(arguments, &sent),
        Err(Refused::Usage(message)) => complain(&message, USAGE),
        Err(Refused::Failed(message)) => complain(&message, FAILED),
    }
}

/// An event that was answered.
struct Sent {
    answer: Answer,
    /// The group by the provider's own natural key, where it has one and it was there.
    group: Option<String>,
}

fn post(arguments: &Send) -> Result<Vec<Sent>, Refused> {
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| failed(&e))?;
    let mut sent = Vec::new();
    for _ in 0..arguments.count {
        let now = crate::app::wall();
        let id = EventId::new(now, &rand::random()).to_string();
        let event = Event {
            signer: &signer,
            to: &arguments.to,
            signed_url: arguments.public_url.as_deref(),
            method: arguments.method.clone(),
            headers: with_own_id(preset, headers.clone(), &id),
            body: body.clone(),
            now,
            id: &format!("msg_{}", id.trim_start_matches("evt_")),
            timeout: TIMEOUT,
        };
        let answer = runtime.block_on(send(event)).map_err(|e| failed(&e))?;
        sent.push(Sent { answer, group: group.clone() });
    }
    Ok(sent)
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

fn show(arguments: &Send, sent: &[Sent]) -> u8 {
    let accepted = sent.iter().filter(|one| one.answer.status.is_success()).count();
    let text = if arguments.json {
        let events: Vec<Value> = sent.iter().map(Sent::json).collect();
        format!("{:#}\n", json!({ "sent": sent.len(), "accepted": accepted, "events": events }))
    } else {
        let mut text: String = sent.iter().map(|one| one.text(arguments.verbose)).collect();
        if sent.len() > 1 {
            text.push_str(&format!("{} sent, {accepted} accepted\n", sent.len()));
        }
        text
    };
    let written = print(text.as_bytes());
    if accepted == sent.len() { written } else { FAILED }
}

impl Sent {
    fn header(&self, name: &str) -> Option<String> {
        self.answer.headers.get(name).map(|value| escaped(&String::from_utf8_lossy(value.as_bytes())))
    }

    fn text(&self, verbose: bool) -> String {
        let Answer { status, headers, body, cut } = &self.answer;
        let group =
            self.group.as_ref().map_or_else(String::new, |group| format!(", group {group} by the provider's own key"));
        let id = self.header("fairlane-event-id");
        let mut text = match (status.is_success(), id, self.header("fairlane-duplicate-of")) {
            (true, Some(id), Some(first)) => format!("{status}: accepted as {id}, a duplicate of {first}{group}\n"),
            (true, Some(id), None) => format!("{status}: accepted as {id}{group}\n"),
            (true, None, _) => format!(
                "{status}: accepted; it has no Fairlane-Event-Id, so nothing was stored, or no gateway answered\n"
            ),
            (false, ..) => format!("{status}: not accepted\n"),
        };
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
