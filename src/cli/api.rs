//! Commands that ask a running gateway: `groups`, `upstream`, `events`, `sources`, over its admin API.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, Subcommand};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use super::{FAILED, complain, print, with_causes};
use crate::app::{Options, TOKEN_FILE};

/// The gateway answers from memory or an index.
const TIMEOUT: Duration = Duration::from_secs(30);

/// More than any page of the API.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Where the gateway is, and how to print.
#[derive(Clone, Debug, Args)]
pub(super) struct Remote {
    /// The configuration file, for the address and the token
    #[arg(short = 'c', long = "config", value_name = "FILE", default_value = "gateway.yaml")]
    config: PathBuf,
    /// The admin address, where it is not the configuration's
    #[arg(long, value_name = "ADDRESS", value_parser = super::address)]
    admin: Option<SocketAddr>,
    /// The data directory, where it is not the configuration's; it holds the token
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `fairlane groups …`.
#[derive(Debug, Args)]
pub(super) struct Groups {
    #[command(subcommand)]
    action: Option<GroupAction>,
    /// By `age` of the oldest event, `depth`, worker `seconds` or arrival `rate`
    #[arg(long, default_value = "age")]
    sort: String,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum GroupAction {
    /// No further attempt of this group until it is resumed
    Pause(One),
    /// Attempts again
    Resume(One),
    /// Change weight, cap or rate, on queued events too
    Set(Set),
    /// Take all changes of this group back
    Restore(One),
    /// End its attempts in flight; their events are retried
    Cancel(One),
    /// Why it does not run, and how it is treated
    Why(One),
}

#[derive(Debug, Args)]
struct One {
    /// The group, as lists write it
    group: String,
    /// For how long: a time, a span such as 2h, or never; a day when left out
    #[arg(long)]
    expires: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Args)]
struct Set {
    #[command(flatten)]
    one: One,
    /// Its share relative to others
    #[arg(long)]
    weight: Option<f64>,
    /// Its attempts in flight
    #[arg(long)]
    concurrency: Option<u32>,
    /// Its attempts a time, e.g. 500/s
    #[arg(long)]
    rate: Option<String>,
}

/// `fairlane upstream …`.
#[derive(Debug, Args)]
pub(super) struct Upstream {
    #[command(subcommand)]
    action: Option<UpstreamAction>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum UpstreamAction {
    /// No attempt of anybody
    Pause(Whole),
    /// Attempts again
    Resume(Whole),
    /// Change slots or rate, on queued events too
    Set(SetUpstream),
    /// Take all changes back
    Restore(Remote),
}

#[derive(Debug, Args)]
struct Whole {
    /// For how long: a time, a span such as 2h, or never; a day when left out
    #[arg(long)]
    expires: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Args)]
#[group(id = "what", required = true, multiple = true, args = ["concurrency", "rate"])]
struct SetUpstream {
    #[command(flatten)]
    whole: Whole,
    /// Slots: attempts in flight
    #[arg(long)]
    concurrency: Option<u32>,
    /// Attempts a time, e.g. 500/s
    #[arg(long)]
    rate: Option<String>,
}

/// `fairlane events`.
#[derive(Debug, Args)]
pub(super) struct Events {
    /// Only of this group, as lists write it
    #[arg(long)]
    group: Option<String>,
    /// Only of this source
    #[arg(long)]
    source: Option<String>,
    /// Only in these: queued, in_flight, retrying, delivered, dead, suppressed, discarded
    #[arg(long)]
    status: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    remote: Remote,
}

/// `fairlane sources`.
#[derive(Debug, Args)]
pub(super) struct Sources {
    #[command(flatten)]
    remote: Remote,
}

pub(super) fn groups(groups: &Groups) -> u8 {
    let name = |one: &One| format!("/api/v1/group?name={}", encoded(&one.group));
    match &groups.action {
        None => {
            let path = format!("/api/v1/groups?sort={}&limit={}", encoded(&groups.sort), groups.limit);
            shown(&groups.remote, Method::GET, &path, None, |answer| table(answer, "groups", &GROUP_COLUMNS))
        }
        Some(GroupAction::Pause(one)) => changed(one, json!({ "paused": true })),
        Some(GroupAction::Resume(one)) => changed(one, json!({ "paused": false })),
        Some(GroupAction::Set(set)) => {
            let mut change = json!({});
            let fields =
                [("weight", json!(set.weight)), ("concurrency", json!(set.concurrency)), ("rate", json!(set.rate))];
            for (field, value) in fields.into_iter().filter(|(_, value)| !value.is_null()) {
                if let Some(change) = change.as_object_mut() {
                    change.insert(field.to_owned(), value);
                }
            }
            changed(&set.one, change)
        }
        Some(GroupAction::Restore(one)) => shown(&one.remote, Method::DELETE, &name(one), Some(json!({})), lines),
        Some(GroupAction::Cancel(one)) => {
            let path = format!("/api/v1/group/cancel?name={}", encoded(&one.group));
            shown(&one.remote, Method::POST, &path, Some(json!({})), lines)
        }
        Some(GroupAction::Why(one)) => shown(&one.remote, Method::GET, &name(one), None, lines),
    }
}

fn changed(one: &One, change: Value) -> u8 {
    let path = format!("/api/v1/group?name={}", encoded(&one.group));
    shown(&one.remote, Method::PATCH, &path, Some(until(change, one.expires.as_deref())), lines)
}

/// A change with its end, where one is given.
fn until(mut change: Value, expires: Option<&str>) -> Value {
    if let (Some(expires), Some(change)) = (expires, change.as_object_mut()) {
        change.insert("expires".to_owned(), json!(expires));
    }
    change
}

const UPSTREAM: &str = "/api/v1/upstream";

pub(super) fn upstream(upstream: &Upstream) -> u8 {
    let patched = |whole: &Whole, change| {
        shown(&whole.remote, Method::PATCH, UPSTREAM, Some(until(change, whole.expires.as_deref())), lines)
    };
    match &upstream.action {
        None => shown(&upstream.remote, Method::GET, UPSTREAM, None, lines),
        Some(UpstreamAction::Pause(whole)) => patched(whole, json!({ "paused": true })),
        Some(UpstreamAction::Resume(whole)) => patched(whole, json!({ "paused": false })),
        Some(UpstreamAction::Set(SetUpstream { whole, concurrency, rate })) => {
            let mut change = serde_json::Map::new();
            change.extend(concurrency.map(|slots| ("concurrency".to_owned(), json!(slots))));
            change.extend(rate.as_ref().map(|rate| ("rate".to_owned(), json!(rate))));
            patched(whole, Value::Object(change))
        }
        Some(UpstreamAction::Restore(remote)) => shown(remote, Method::DELETE, UPSTREAM, Some(json!({})), lines),
    }
}

pub(super) fn events(events: &Events) -> u8 {
    let mut path = format!("/api/v1/events?limit={}", events.limit);
    for (name, value) in [("group", &events.group), ("source", &events.source), ("status", &events.status)] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", encoded(value)));
        }
    }
    shown(&events.remote, Method::GET, &path, None, |answer| table(answer, "events", &EVENT_COLUMNS))
}

pub(super) fn sources(sources: &Sources) -> u8 {
    shown(&sources.remote, Method::GET, "/api/v1/sources", None, |answer| table(answer, "sources", &SOURCE_COLUMNS))
}

/// Asks, and prints the answer as JSON or as `text` makes it.
fn shown(remote: &Remote, method: Method, path: &str, body: Option<Value>, text: impl Fn(&Value) -> String) -> u8 {
    match ask(remote, method, path, body) {
        Ok(answer) if remote.json => print(format!("{answer:#}\n").as_bytes()),
        Ok(answer) => print(text(&answer).as_bytes()),
        Err(message) => complain(&message, FAILED),
    }
}

fn ask(remote: &Remote, method: Method, path: &str, body: Option<Value>) -> Result<Value, String> {
    let (address, token) = remote.find()?;
    let mut request = Request::builder().method(method).uri(format!("http://{address}{path}"));
    request = request.header(HOST, address.to_string()).header(AUTHORIZATION, format!("Bearer {token}"));
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let bytes = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
    let request = request.body(Full::new(bytes)).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let (status, answer) = runtime.block_on(exchange(request)).map_err(|error| {
        format!("no gateway answers at {address}: {error}; is it running? (another address: --admin, another file: -c)")
    })?;
    let answer: Value =
        serde_json::from_slice(&answer).map_err(|_| format!("{address} does not answer as a gateway does"))?;
    if status.is_success() {
        return Ok(answer);
    }
    let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default();
    Err(format!("{status}: {}; {}", text("error"), text("hint")))
}

async fn exchange(request: Request<Full<Bytes>>) -> Result<(http::StatusCode, Vec<u8>), String> {
    let client = Client::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(HttpConnector::new());
    let reading = async {
        let (head, mut body) = client.request(request).await.map_err(|error| with_causes(&error))?.into_parts();
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() {
                bytes.extend_from_slice(&data);
            }
            if bytes.len() > ANSWER_BYTES_MAX {
                return Err("the answer is too long".to_owned());
            }
        }
        Ok((head.status, bytes))
    };
    match tokio::time::timeout(TIMEOUT, reading).await {
        Ok(answer) => answer,
        Err(_elapsed) => Err(format!("no answer within {} s", TIMEOUT.as_secs())),
    }
}

impl Remote {
    /// The address and the token of the gateway.
    fn find(&self) -> Result<(SocketAddr, String), String> {
        let options =
            Options { config: self.config.clone(), data: self.data.clone(), admin: self.admin, ..Options::default() };
        let config = options.load().map_err(|problems| {
            let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
            format!("the configuration says where the gateway is, and has problems\n{}", list.join("\n"))
        })?;
        let mut address = config.admin.address;
        if address.ip().is_unspecified() {
            address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        if let Some(token) = &config.admin.token {
            return Ok((address, String::from_utf8_lossy(token.expose()).into_owned()));
        }
        let path = config.store.path.join(TOKEN_FILE);
        let token = std::fs::read_to_string(&path).map_err(|error| {
            format!("the admin token cannot be read from {}: {error} (--data names the folder)", path.display())
        })?;
        Ok((address, token.trim().to_owned()))
    }
}

/// A column: its head, the field it shows, and whether it stands to the right.
type Column = (&'static str, &'static str, bool);

const GROUP_COLUMNS: [Column; 11] = [
    ("GROUP", "group", false),
    ("STATE", "state", false),
    ("QUEUED", "queued", true),
    ("RETRYING", "retrying", true),
    ("IN FLIGHT", "in_flight", true),
    ("OLDEST s", "oldest_age_s", true),
    ("P99 WAIT ms", "wait_p99_ms", true),
    ("SHARE", "share", true),
    ("IN/s", "arrival_rate", true),
    ("OUT/s", "drain_rate", true),
    ("WHY", "reason", false),
];

const EVENT_COLUMNS: [Column; 7] = [
    ("ID", "id", false),
    ("RECEIVED", "received_at", false),
    ("GROUP", "group", false),
    ("SOURCE", "source", false),
    ("STATUS", "status", false),
    ("ATTEMPTS", "attempts", true),
    ("TYPE", "type", false),
];

const SOURCE_COLUMNS: [Column; 5] = [
    ("SOURCE", "name", false),
    ("PATH", "path", false),
    ("VERIFY", "verify", false),
    ("ACCEPTED", "accepted", true),
    ("KEY", "key", false),
];

/// A list as a table; the last column is not padded.
fn table(answer: &Value, list: &str, columns: &[Column]) -> String {
    let rows: Vec<&Value> = answer.get(list).and_then(Value::as_array).into_iter().flatten().collect();
    if rows.is_empty() {
        return format!("no {list}\n");
    }
    let cells: Vec<Vec<String>> = rows.iter().map(|row| columns.iter().map(|c| cell(row.get(c.1))).collect()).collect();
    let width = |at: usize, head: &str| {
        let widest = cells.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
        widest.unwrap_or(0).max(head.chars().count())
    };
    let mut text = String::new();
    let heads: Vec<String> = columns.iter().map(|column| column.0.to_owned()).collect();
    for row in std::iter::once(&heads).chain(&cells) {
        let mut line = String::new();
        for (at, ((head, _, right), cell)) in columns.iter().zip(row).enumerate() {
            let width = width(at, head);
            line.push_str(&if *right { format!("{cell:>width$}  ") } else { format!("{cell:<width$}  ") });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// An object as lines of `name: value`.
fn lines(answer: &Value) -> String {
    let Some(object) = answer.as_object() else { return format!("{answer}\n") };
    object.iter().map(|(name, value)| format!("{name}: {}\n", cell(Some(value)))).collect()
}

/// What stands in a table's cell. Values come from strangers, so what could command a terminal is escaped.
fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.escape_debug().to_string(),
        Some(Value::Number(number)) if number.is_f64() => format!("{:.2}", number.as_f64().unwrap_or_default()),
        Some(Value::Object(object)) => {
            let parts: Vec<String> =
                object.iter().map(|(name, value)| format!("{name} {}", cell(Some(value)))).collect();
            parts.join(", ")
        }
        Some(other) => other.to_string(),
    }
}

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lines_up_and_escapes_what_strangers_wrote() {
        let answer = json!({ "events": [
            { "id": "evt_1", "group": "a", "attempts": 3, "type": "\u{1b}[2J" },
            { "id": "evt_22", "group": "bb", "attempts": 10, "type": null },
        ]});
        let columns =
            [("ID", "id", false), ("GROUP", "group", false), ("ATTEMPTS", "attempts", true), ("TYPE", "type", false)];
        let expected =
            "ID      GROUP  ATTEMPTS  TYPE\nevt_1   a             3  \\u{1b}[2J\nevt_22  bb           10  -\n";
        assert_eq!(table(&answer, "events", &columns), expected);
        assert_eq!(table(&json!({ "events": [] }), "events", &columns), "no events\n");
    }
}
