//! A receiver behind Fairlane, verifying with the crate `standardwebhooks`.
//!
//! ```sh
//! FAIRLANE_SIGNING_SECRET=whsec_... PORT=3000 LEDGER=ledger.jsonl cargo run --example receiver
//! ```
//!
//! It makes sure that a request comes from the gateway, does each event's work once, and answers so that the gateway knows
//! what to do: 2xx it is done, 5xx try again later, `Retry-After: -1` never try again.
//!
//! The secret is the gateway's `upstream.signing_secret`. The work here is one line in a file; put yours in its place.
#![expect(clippy::print_stdout, reason = "a line on standard output is this program's log")]

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tokio::net::TcpListener;
use tokio::sync::Mutex;

/// The gateway's own limit for a body (`listen.limits.body`); axum's 2 MB would refuse what a sender may send.
const BODY_BYTES_MAX: usize = 26 * 1024 * 1024;

/// What became of a request.
enum Done {
    /// The work is done.
    Now,
    /// It was done at an earlier attempt.
    Before,
    /// The request does not come from the gateway.
    NotGenuine(String),
    /// The event can never be worked on, however often it is tried.
    Hopeless(String),
    /// Not this time: the gateway keeps the event and comes again.
    Failed(String),
}

struct Receiver {
    webhook: Webhook,
    ledger: Mutex<Ledger>,
}

impl Receiver {
    async fn receive(&self, headers: &HeaderMap, body: &Bytes) -> Done {
        if let Err(error) = self.webhook.verify(body, &standard(headers)) {
            return Done::NotGenuine(error.to_string());
        }
        let id = text(headers, "fairlane-event-id");
        let mut ledger = self.ledger.lock().await;
        if ledger.done.contains(id) {
            return Done::Before;
        }
        let content: Value = match serde_json::from_slice(body) {
            Ok(content) => content,
            Err(error) => return Done::Hopeless(format!("the body is not JSON: {error}")),
        };
        let line = json!({ "id": id, "group": text(headers, "fairlane-group"), "content": content });
        match ledger.write(id, &line) {
            Ok(()) => Done::Now,
            Err(error) => Done::Failed(error.to_string()),
        }
    }
}

/// The three headers by the names that the Standard Webhooks specification gives them, which the crate looks for.
fn standard(headers: &HeaderMap) -> HeaderMap {
    let names = [
        ("fairlane-event-id", "webhook-id"),
        ("fairlane-timestamp", "webhook-timestamp"),
        ("fairlane-signature", "webhook-signature"),
    ];
    names.into_iter().filter_map(|(ours, theirs)| Some((theirs.parse().ok()?, headers.get(ours)?.clone()))).collect()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("-")
}

/// What was done. An event's id is written together with its work: after a crash both are there, or neither.
///
/// With a database, give the id a unique column and insert it in the transaction that does the work.
struct Ledger {
    path: PathBuf,
    done: HashSet<String>,
}

impl Ledger {
    fn open(path: PathBuf) -> io::Result<Self> {
        let text = if path.exists() { std::fs::read_to_string(&path)? } else { String::new() };
        // A line without its end was cut off by a crash: that work was not done.
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let done = whole
            .filter_map(|line| serde_json::from_str::<Value>(line).ok()?.get("id")?.as_str().map(str::to_owned))
            .collect();
        Ok(Self { path, done })
    }

    fn write(&mut self, id: &str, line: &Value) -> io::Result<()> {
        let mut file: File = OpenOptions::new().append(true).create(true).open(&self.path)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_all()?;
        self.done.insert(id.to_owned());
        Ok(())
    }
}

async fn handle(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, body: Bytes) -> Response {
    let done = receiver.receive(&headers, &body).await;
    let (status, said) = match &done {
        Done::Now => (StatusCode::OK, "done"),
        Done::Before => (StatusCode::OK, "done before"),
        Done::NotGenuine(why) => (StatusCode::UNAUTHORIZED, why.as_str()),
        Done::Hopeless(why) => (StatusCode::UNPROCESSABLE_ENTITY, why.as_str()),
        Done::Failed(why) => (StatusCode::INTERNAL_SERVER_ERROR, why.as_str()),
    };
    let of = |name| text(&headers, name);
    let (attempt, group, verified) = (of("fairlane-attempt"), of("fairlane-group"), of("fairlane-verified"));
    println!("{} attempt {attempt} {group} ({verified}): {said}", status.as_u16());
    let mut response = (status, said.to_owned()).into_response();
    if let Done::Hopeless(_) = done {
        response.headers_mut().insert("retry-after", HeaderValue::from_static("-1"));
    }
    response
}

/// Serves on `listener`; `secret` is the gateway's `upstream.signing_secret`, `ledger` the file of what was done.
pub(crate) async fn serve(
    listener: TcpListener,
    secret: &str,
    ledger: PathBuf,
) -> Result<(), Box<dyn std::error::Error>> {
    let receiver = Receiver { webhook: Webhook::new(secret)?, ledger: Mutex::new(Ledger::open(ledger)?) };
    let routes = Router::new().fallback(post(handle)).layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    axum::serve(listener, routes.with_state(Arc::new(receiver))).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let set = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let secret = std::env::var("FAIRLANE_SIGNING_SECRET").map_err(|_| "FAIRLANE_SIGNING_SECRET is not set")?;
    let listener = TcpListener::bind(format!("{}:{}", set("HOST", "127.0.0.1"), set("PORT", "3000"))).await?;
    println!("listening on http://{}", listener.local_addr()?);
    serve(listener, &secret, set("LEDGER", "ledger.jsonl").into()).await
}
