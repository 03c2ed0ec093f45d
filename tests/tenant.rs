//! Pages for tenants, of a real gateway: what a link shows, and that nothing but a good link shows anything.
#![expect(clippy::unwrap_used, reason = "a test that cannot set up its world has failed")]
#![expect(clippy::expect_used, reason = "likewise")]
#![expect(clippy::indexing_slicing, reason = "likewise")]

mod support;

use std::process::Command;

use support::upstream::{answer, upstream};
use support::{Client, Gateway, Response, gateway, get, post};

const SHOP: &str = "acme.myshopify.com";
const BODY: &str = "{\"secret-of-the-order\":1}";

fn yaml(upstream: &str, pages: &str) -> String {
    format!(
        "upstream: {upstream}\n{pages}\nsources:\n  - path: /webhooks/shopify\n    verify: {{ provider: shopify, secret: {} }}\n",
        support::SHOPIFY_SECRET
    )
}

/// A free port: a link names it, so it has to be known before.
fn pages(address: std::net::SocketAddr, secrets: &str) -> String {
    format!("tenant_pages: {{ address: \"{address}\", {secrets} }}")
}

fn free() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn link(gateway: &Gateway, group: &str, expires: &str) -> Response {
    gateway.change("POST", &format!("/api/v1/group/link?name={group}"), &format!("{{\"expires\":\"{expires}\"}}"))
}

fn path_of(link: &Response) -> String {
    assert_eq!(link.status, 200, "{}", link.text());
    let link: serde_json::Value = serde_json::from_slice(&link.body).unwrap();
    let url = link["url"].as_str().unwrap();
    url[url.find("/t/").expect("a link to a page")..].to_owned()
}

#[test]
fn a_link_shows_its_group_and_nothing_of_an_event() {
    let receiver = upstream(|_| answer(200));
    let address = free();
    let gateway = gateway(&yaml(&receiver.url(), &pages(address, "secret: a-secret-of-sixteen"))).start();
    for shop in [SHOP, SHOP, "other.myshopify.com"] {
        let sent = post("/webhooks/shopify", BODY.as_bytes()).shopify(shop);
        assert_eq!(gateway.client().send(&sent).status, 200);
    }
    receiver.wait_for(3);
    gateway
        .events("")
        .iter()
        .for_each(|event| drop(gateway.wait_for_status(event["id"].as_str().unwrap(), "delivered")));

    let printed = Command::new(env!("CARGO_BIN_EXE_fairlane"))
        .args(["groups", "link", SHOP, "--expires", "30d", "--admin", &gateway.admin.to_string(), "-c"])
        .arg(gateway.config())
        .arg("--data")
        .arg(gateway.dir().join("data"))
        .output()
        .unwrap();
    let url = String::from_utf8(printed.stdout).unwrap();
    assert!(url.starts_with(&format!("http://{address}/t/")), "{url}{}", String::from_utf8_lossy(&printed.stderr));
    let page = Client::to(address).send(&get(url.trim().split_once(&address.to_string()).unwrap().1));
    let text = page.text();
    assert_eq!(page.status, 200, "{text}");
    assert!(text.contains(SHOP) && text.contains("Nothing waits") && text.contains("<dd>2</dd>"), "{text}");
    for foreign in
        ["other.myshopify", "secret-of-the-order", "orders/create", "evt_", "127.0.0.1", "a-secret-of-sixteen"]
    {
        assert!(!text.contains(foreign), "{foreign} is nobody's business: {text}");
    }
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(page.header("cache-control"), Some("no-store"));

    gateway.change("PATCH", &format!("/api/v1/group?name={SHOP}"), "{\"paused\":true}");
    let paused = Client::to(address).send(&get(&path_of(&link(&gateway, SHOP, "1h")))).text();
    assert!(paused.contains("Delivery is paused by the operator"), "{paused}");
}

#[test]
fn everything_but_a_good_link_gets_the_same_answer() {
    let address = free();
    let running = gateway(&yaml("http://127.0.0.1:9", &pages(address, "secret: a-secret-of-sixteen"))).start();
    let good = path_of(&link(&running, SHOP, "1h"));
    let ask = |request: &support::Request| Client::to(address).send(request);
    assert_eq!(ask(&get(&good)).status, 200);
    let nothing = ask(&get("/"));
    assert_eq!(nothing.status, 404);
    let forged = format!("{}A", &good[..good.len() - 1]);
    let other = if forged == good { format!("{}B", &good[..good.len() - 1]) } else { forged };
    for request in [
        get(&other),
        get("/t/"),
        get("/t/AAAA"),
        get(&format!("/t/{}", "A".repeat(3_000))),
        get(&format!("{good}/events")),
        get("/api/v1/groups"),
        post(&good, b"x"),
        get(&good).method("DELETE"),
    ] {
        let answer = ask(&request);
        assert_eq!((answer.status, &answer.body), (404, &nothing.body));
        assert_eq!(answer.headers.len(), nothing.headers.len(), "{:?}", answer.headers);
    }
    for (expires, why) in
        [("never", "cannot be called back"), ("400d", "a year"), ("1s", "a minute"), ("soon", "expected a time")]
    {
        let refused = link(&running, SHOP, expires);
        assert_eq!(refused.status, 400, "{expires}");
        assert!(refused.text().contains(why), "{expires}: {}", refused.text());
        assert!(!refused.text().contains("or never"), "{expires}: {}", refused.text());
    }
    // Strangers use nothing up.
    let mut stranger = Client::to(address);
    assert!((0..1_000).all(|_| stranger.send(&get(&other)).status == 404));
    assert_eq!(ask(&get(&good)).status, 200);
    // Far more than the allowance of a second.
    let mut client = Client::to(address);
    assert!((0..1_000).any(|_| client.send(&get(&good)).status == 429), "there is a limit to asking");
}

#[test]
fn another_secret_kills_links_unless_the_old_one_is_kept() {
    let address = free();
    let config = |secrets: &str| yaml("http://127.0.0.1:9", &pages(address, secrets));
    let running = gateway(&config("secret: the-first-long-secret")).start();
    let first = path_of(&link(&running, SHOP, "1h"));
    let status = |path: &str| Client::to(address).send(&get(path)).status;
    // Asking that often also meets the limit to asking.
    let until = |path: &str, wanted: u16| {
        while status(path) != wanted {
            std::thread::yield_now();
        }
    };
    let reload = |secrets: &str, path: &str, wanted: u16| {
        std::fs::write(running.config(), config(secrets)).unwrap();
        running.signal("HUP");
        until(path, wanted);
    };
    until(&first, 200);
    reload("secret: the-second-long-secret", &first, 404);
    reload("secret: the-second-long-secret, previous_secret: the-first-long-secret", &first, 200);
    let second = path_of(&link(&running, SHOP, "1h"));
    reload("secret: the-second-long-secret", &first, 404);
    // It was signed with the new one.
    until(&second, 200);
}

#[test]
fn without_pages_there_are_no_links() {
    let running = gateway(support::SHOPIFY).start();
    let refused = link(&running, SHOP, "1h");
    assert_eq!(refused.status, 409);
    assert!(refused.text().contains("tenant_pages.address"), "{}", refused.text());
}
