//! Asking a running gateway over its admin API.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use super::table::escaped;
use super::{FAILED, complain, print, with_causes};
use crate::app::{Options, TOKEN_FILE};

/// The gateway answers from memory or an index.
const TIMEOUT: Duration = Duration::from_secs(30);

/// More than any page of the API.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Where the gateway is, and how to print. All of it may stand before an inner command and behind it.
#[derive(Clone, Debug, Args)]
pub(super) struct Remote {
    /// The configuration file, for the address and the token
    #[arg(short = 'c', long = "config", value_name = "FILE", default_value = "gateway.yaml", global = true)]
    config: PathBuf,
    /// The admin address, where it is not the configuration's: 127.0.0.1:8081, or with http:// before it
    #[arg(long, value_name = "ADDRESS", value_parser = admin_address, global = true)]
    admin: Option<SocketAddr>,
    /// The data directory, where it is not the configuration's; it holds the token
    #[arg(long, value_name = "DIR", global = true)]
    data: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

/// An address to ask: IP address or name, and port, as people copy it out of a browser too.
fn admin_address(text: &str) -> Result<SocketAddr, String> {
    if text.starts_with("https://") {
        return Err("the admin listener speaks plain http; through a proxy with TLS, ask with curl".to_owned());
    }
    let plain = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    let found = plain.to_socket_addrs().ok().and_then(|mut found| found.next());
    found.ok_or_else(|| "expected an address and a port, such as 127.0.0.1:8081 or http://localhost:8081".to_owned())
}

/// Refuses options of a list beside an inner command, where they would have no effect.
///
/// # Errors
/// Which ones, and what to do.
pub(super) fn only_for_the_list(given: &[(&str, bool)]) -> Result<(), String> {
    let given: Vec<&str> = given.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
    if given.is_empty() {
        return Ok(());
    }
    Err(format!("{} is for the list, and has no effect with a command behind it: leave it out", given.join(", ")))
}

/// Asks, and prints the answer as JSON or as `text` makes it.
pub(super) fn shown(
    remote: &Remote,
    method: Method,
    path: &str,
    body: Option<Value>,
    text: impl Fn(&Value) -> String,
) -> u8 {
    match ask(remote, method, path, body) {
        Ok(answer) if remote.json => print(format!("{answer:#}\n").as_bytes()),
        Ok(answer) => print(text(&answer).as_bytes()),
        Err(message) => complain(&message, FAILED),
    }
}

/// What the gateway answers to a call, as JSON.
pub(super) fn ask(remote: &Remote, method: Method, path: &str, body: Option<Value>) -> Result<Value, String> {
    let answer = fetch(remote, method, path, body)?;
    serde_json::from_slice(&answer).map_err(|_| "what answers there does not answer as a gateway does".to_owned())
}

/// The bytes that the gateway answers to a call.
pub(super) fn fetch(remote: &Remote, method: Method, path: &str, body: Option<Value>) -> Result<Vec<u8>, String> {
    let mut answer = Vec::new();
    call(remote, method, path, body, &mut |bytes: &[u8]| {
        answer.extend_from_slice(bytes);
        if answer.len() > ANSWER_BYTES_MAX { Err("the answer is too long".to_owned()) } else { Ok(true) }
    })?;
    Ok(answer)
}

/// Writes what the gateway answers as it comes, however much that is. Whoever reads `out` may stop before the end.
pub(super) fn stream(remote: &Remote, path: &str, out: &mut dyn std::io::Write) -> Result<(), String> {
    call(remote, Method::GET, path, None, &mut |bytes: &[u8]| match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("cannot write: {error}")),
    })
}

/// Takes a part of an answer; false when it wants no more.
type Take<'a> = dyn FnMut(&[u8]) -> Result<bool, String> + 'a;

/// Calls, and gives a good answer to `take` part by part.
fn call(remote: &Remote, method: Method, path: &str, body: Option<Value>, take: &mut Take<'_>) -> Result<(), String> {
    let (address, token) = remote.find()?;
    let mut request = Request::builder().method(method).uri(format!("http://{address}{path}"));
    request = request.header(HOST, address.to_string()).header(AUTHORIZATION, format!("Bearer {token}"));
    request = request.header(USER_AGENT, concat!("fairlane-cli/", env!("CARGO_PKG_VERSION")));
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let bytes = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
    let request = request.body(Full::new(bytes)).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let refused = runtime.block_on(exchange(request, take)).map_err(|error| {
        format!("no gateway answers at {address}: {error}; is it running? (another address: --admin, another file: -c)")
    })?;
    let Some((status, answer)) = refused else { return Ok(()) };
    let answer: Value =
        serde_json::from_slice(&answer).map_err(|_| format!("{address} does not answer as a gateway does"))?;
    let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default();
    Err(format!("{status}: {}; {}", text("error"), text("hint")))
}

/// Has a good answer taken; gives one that is not.
async fn exchange(
    request: Request<Full<Bytes>>,
    take: &mut Take<'_>,
) -> Result<Option<(http::StatusCode, Vec<u8>)>, String> {
    let client = Client::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(HttpConnector::new());
    let answering = async { client.request(request).await.map_err(|error| with_causes(&error)) };
    let (head, mut body) = in_time(answering).await?.into_parts();
    let mut refusal = Vec::new();
    while let Some(frame) = in_time(async { Ok(body.frame().await) }).await? {
        let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() else { continue };
        if !head.status.is_success() {
            refusal.extend_from_slice(&data);
        } else if !take(&data)? {
            return Ok(None);
        }
        if refusal.len() > ANSWER_BYTES_MAX {
            return Err("the answer is too long".to_owned());
        }
    }
    Ok((!head.status.is_success()).then_some((head.status, refusal)))
}

/// Between two parts of an answer the gateway may take so long.
async fn in_time<T>(part: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match tokio::time::timeout(TIMEOUT, part).await {
        Ok(answer) => answer,
        Err(_elapsed) => Err(format!("no answer within {} s", TIMEOUT.as_secs())),
    }
}

impl Remote {
    /// The address and the token of the gateway.
    fn find(&self) -> Result<(SocketAddr, String), String> {
        let options =
            Options { config: self.config.clone(), data: self.data.clone(), admin: self.admin, ..Options::default() };
        let found = options.whereabouts().map_err(|problems| {
            let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
            format!("the configuration says where the gateway is, and has problems\n{}", list.join("\n"))
        })?;
        let mut address = found.admin;
        if address.ip().is_unspecified() {
            address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        if let Some(token) = &found.token {
            return Ok((address, String::from_utf8_lossy(token.expose()).into_owned()));
        }
        let path = found.data.join(TOKEN_FILE);
        let token = std::fs::read_to_string(&path).map_err(|error| {
            format!("the admin token cannot be read from {}: {error} (--data names the folder)", path.display())
        })?;
        Ok((address, token.trim().to_owned()))
    }
}

/// Says what the gateway remarks about its answer, on standard error: the lines of a list may be read by another program.
pub(super) fn noted(answer: &Value) {
    if let Some(note) = answer.get("note").and_then(Value::as_str) {
        writeln!(std::io::stderr().lock(), "note: {}", escaped(note)).ok();
    }
}

/// A value as it stands in a query or a path.
pub(super) fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_copied_out_of_a_browser() {
        let expected: SocketAddr = "127.0.0.1:8081".parse().unwrap();
        for text in ["127.0.0.1:8081", "http://127.0.0.1:8081", "http://127.0.0.1:8081/"] {
            assert_eq!(admin_address(text), Ok(expected), "{text}");
        }
        assert!(admin_address("http://localhost:8081").unwrap().ip().is_loopback());
        assert!(admin_address("https://127.0.0.1:8081").unwrap_err().contains("plain http"));
        assert!(admin_address("127.0.0.1").unwrap_err().contains("http://localhost:8081"));
    }
}
