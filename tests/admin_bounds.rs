//! What strangers can do to the admin listener of a real gateway: open connections, and keep nobody out by that.
#![expect(clippy::unwrap_used, reason = "a test that cannot set up its world has failed")]

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use support::{Client, Gateway, gateway, get, post};

/// More connections than the listener keeps.
const MANY: usize = 300;

fn holding(gateway: &Gateway, bytes: &[u8]) -> Vec<Client> {
    let open = || {
        let mut client = Client::to(gateway.admin);
        // One that gave way meanwhile takes nothing.
        drop(client.write(bytes));
        client
    };
    std::iter::repeat_with(open).take(MANY).collect()
}

fn is_reached(gateway: &Gateway) {
    for path in ["/healthz", "/readyz"] {
        assert_eq!(Client::to(gateway.admin).send(&get(path)).status, 200, "{path}");
    }
    assert_eq!(gateway.get("/api/v1/status").status, 200);
}

fn cookie(gateway: &Gateway) -> String {
    let form = format!("token={}&to=/", gateway.token());
    let request = post("/sign-in", form.as_bytes()).without("Host").header("Host", "127.0.0.1");
    let request = request.header("Content-Type", "application/x-www-form-urlencoded").header("Accept", "text/html");
    let signed_in = Client::to(gateway.admin).send(&request);
    signed_in.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    let gateway = gateway(support::SHOPIFY).start();
    let mut silent = holding(&gateway, b"");
    is_reached(&gateway);
    assert!(silent.first_mut().unwrap().is_closed(), "the oldest has given way");
    let log = gateway.stderr();
    assert_eq!(log.matches("too many connections").count(), 1, "said once: {log}");
}

#[test]
fn requests_without_an_end_keep_nobody_out() {
    let gateway = gateway(support::SHOPIFY).start();
    let form = "POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 99\r\n\r\nt";
    let unfinished = holding(&gateway, form.as_bytes());
    is_reached(&gateway);
    drop(unfinished);
}

#[test]
fn live_pages_of_one_session_leave_room_for_others() {
    let gateway = gateway(support::SHOPIFY).start();
    let (one, other) = (cookie(&gateway), cookie(&gateway));
    let watch = |cookie: &str| {
        let mut stream = TcpStream::connect(gateway.admin).unwrap();
        write!(stream, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\nAccept: text/event-stream\r\n\r\n")
            .unwrap();
        let mut lines = BufReader::new(stream);
        let mut status = String::new();
        lines.read_line(&mut status).unwrap();
        (status.split(' ').nth(1).unwrap_or_default().to_owned(), lines)
    };
    let watched: Vec<_> = (0..MANY).map(|_| watch(&one)).collect();
    let live = watched.iter().filter(|(status, _)| status == "200").count();
    assert_eq!(live, 16);
    assert!(watched.iter().all(|(status, _)| status == "200" || status == "503"));
    is_reached(&gateway);
    assert_eq!(watch(&other).0, "200", "somebody else watches, too");
    let page = get("/").header("Accept", "text/html").header("Sec-Fetch-Site", "none").header("Cookie", one);
    assert_eq!(Client::to(gateway.admin).send(&page).status, 200, "the page itself is complete");
}

#[test]
fn the_last_day_of_all_is_a_time() {
    let gateway = gateway(support::SHOPIFY).start();
    assert!(gateway.events("since=9999-12-31T23:59:59Z").is_empty());
    assert!(gateway.events("until=9999-12-31T23:59:59Z").is_empty());
    let replay = gateway.change("POST", "/api/v1/replays", r#"{"plan":true,"since":"9999-12-31T23:59:59Z"}"#);
    assert_eq!(replay.status, 200, "{}", replay.text());
}
