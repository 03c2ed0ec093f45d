//! The dashboard of a real gateway: in a real browser, and as plain pages without one.
#![expect(clippy::unwrap_used, reason = "a test that cannot set up its world has failed")]
#![expect(clippy::expect_used, reason = "likewise")]
#![expect(clippy::panic, reason = "likewise")]
#![expect(clippy::indexing_slicing, reason = "likewise")]

#[path = "dashboard/browser.rs"]
mod browser;
#[path = "dashboard/html.rs"]
mod html;
#[path = "dashboard/pictures.rs"]
mod pictures;
#[path = "dashboard/presses.rs"]
mod presses;
mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use browser::browse;
use support::upstream::{Upstream, answer, upstream};
use support::{Client, Gateway, Request, Response, gateway, get, post};

const NOISY: &str = "noisy.myshopify.com";
const QUIET: &str = "quiet.myshopify.com";

/// What no page may hold anywhere but as text.
const SCRIPT: &str = "<script>document.title='owned'</script>";

/// A gateway before a receiver of eight slots that takes a tenth of a second for an event of the noisy store.
fn world() -> (Upstream, Gateway) {
    let upstream = upstream(|request| {
        let slow = request.group() == NOISY;
        answer(200).after(if slow { Duration::from_millis(100) } else { Duration::ZERO })
    });
    let yaml = format!(
        r#"
upstream: {{ url: "{}", concurrency: 8, retry: {{ never: [410] }} }}
sources:
  - path: /webhooks/shopify
    verify: {{ provider: shopify, secret: "{}" }}
"#,
        upstream.url(),
        support::SHOPIFY_SECRET,
    );
    (upstream, gateway(&yaml).start())
}

fn send(gateway: &Gateway, shop: &str, events: usize) {
    let mut client = gateway.client();
    for number in 0..events {
        let body = format!("{{\"id\":{number}}}");
        let response = client.send(&post("/webhooks/shopify", body.as_bytes()).shopify(shop));
        assert_eq!(response.status, 200, "{}", response.text());
    }
}

/// More events than the noisy store's share of the slots can deliver while a test runs.
fn flood(gateway: &Gateway) {
    std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(|| send(gateway, NOISY, 250)))));
}

/// A page as a browser asks for it.
fn page(path: &str) -> Request {
    get(path).header("Accept", "text/html").header("Sec-Fetch-Site", "none")
}

fn form(path: &str, body: &str) -> Request {
    let request = post(path, body.as_bytes()).without("Host").header("Host", "127.0.0.1");
    request.header("Content-Type", "application/x-www-form-urlencoded").header("Accept", "text/html")
}

/// The cookie of a new session, as a browser sends it.
fn sign_in(gateway: &Gateway) -> String {
    let body = format!("token={}&to=/", gateway.token());
    let response = Client::to(gateway.admin).send(&form("/sign-in", &body));
    assert_eq!(response.status, 303, "{}", response.text());
    response.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

fn shown(gateway: &Gateway, cookie: &str, path: &str) -> Response {
    Client::to(gateway.admin).send(&page(path).header("Cookie", cookie))
}

/// The word that the forms of a page carry.
fn word_of(page: &str) -> String {
    let at = page.split_once("name=\"word\" value=\"").expect("a form with a word").1;
    at.split('"').next().unwrap().to_owned()
}

#[test]
fn a_noisy_group_is_seen_paused_and_resumed_and_others_go_on() {
    let (upstream, gateway) = world();
    flood(&gateway);
    browse(&gateway, async |browser| {
        browser.sign_in(&gateway, "/").await;
        browser.see_text("verdict", &format!("{NOISY} is noisy"), true).await;
        browser.press(&format!("#noisy button[aria-label='Pause {NOISY}']")).await;
        browser.see_text("main", &format!("{NOISY} is paused"), true).await;

        browser.press("#noisy tbody th a").await;
        browser.see_text("why", "paused", true).await;
        // What was in flight at that moment has ended when the page says so.
        browser.see_text("in-flight", "0", true).await;
        let before = browser.text("#backlog").await;
        send(&gateway, QUIET, 20);
        upstream.wait_until(|received| received.iter().filter(|request| request.group() == QUIET).count() == 20);
        browser.client.refresh().await.unwrap();
        assert_eq!(browser.text("#backlog").await, before, "a paused group's backlog moves");

        browser.press("#press button[value=resume]").await;
        browser.see_text("main", &format!("{NOISY} runs again"), true).await;
        // By itself: nobody loads the page again.
        browser.see_text("backlog", &before, false).await;
        assert_eq!(browser.text("#live-state").await, "live");
    });
}

#[test]
fn an_event_is_found_by_the_providers_id_read_replayed_and_seen_to_arrive() {
    let (upstream, gateway) = world();
    upstream.rule(|_| answer(410).body("no such order"));
    send(&gateway, QUIET, 1);
    let event = gateway.events("").remove(0);
    let id = event["id"].as_str().unwrap();
    gateway.wait_for_status(id, "dead");
    upstream.rule(|_| answer(200));
    browse(&gateway, async |browser| {
        browser.sign_in(&gateway, "/").await;
        browser.write("#find", event["provider_event_id"].as_str().unwrap()).await;
        browser.press("form.find button").await;
        browser.press("tbody th a.id").await;
        browser.see_text("main", "no such order", true).await;
        assert!(browser.text("#body").await.contains("\"id\": 0"), "the body is there to read");
        browser.press("button[value=replay]").await;
        browser.see_text("main", "The event is queued, to be delivered once more", true).await;
        let again = upstream.wait_for(2).pop().unwrap();
        assert_eq!((again.header("fairlane-event-id"), again.header("fairlane-replay")), (Some(id), Some("1")));
        gateway.wait_for_status(id, "delivered");
        browser.client.refresh().await.unwrap();
        browser.see(".verdict.good").await;
    });
    let change = &gateway.json("/api/v1/audit")["changes"][0];
    assert_eq!((change["about"].as_str(), change["way"].as_str()), (Some(id), Some("dashboard")), "{change}");
}

#[test]
fn a_page_that_was_refused_a_stream_gets_one_when_there_is_room() {
    let (_upstream, gateway) = world();
    let cookie = sign_in(&gateway);
    // As many as may be watched: half of them by the token, half by another session.
    let watch = |header: (&str, &str)| {
        let mut stream = TcpStream::connect(gateway.admin).unwrap();
        let request = get("/alerts").header("Accept", "text/event-stream").header(header.0, header.1);
        stream.write_all(&request.bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        stream
    };
    let token = format!("Bearer {}", gateway.token());
    let watched: Vec<TcpStream> =
        (0..16).flat_map(|_| [watch(("Authorization", &token)), watch(("Cookie", &cookie))]).collect();
    browse(&gateway, async |browser| {
        browser.sign_in(&gateway, "/alerts").await;
        browser.see_text("live-state", "not live for now; trying again", true).await;
        drop(watched);
        browser.see_text("live-state", "not live", false).await;
        assert_eq!(browser.text("#live-state").await, "live");
    });
}

#[test]
fn dead_letters_of_a_group_are_replayed_by_a_plan() {
    let (upstream, gateway) = world();
    upstream.rule(|_| answer(410));
    send(&gateway, QUIET, 5);
    send(&gateway, NOISY, 2);
    let dead = |group: &str| gateway.events(&format!("group={group}"));
    let ids = |group: &str| -> Vec<String> {
        dead(group).iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect()
    };
    let (quiet, noisy) = (ids(QUIET), ids(NOISY));
    quiet.iter().chain(&noisy).for_each(|id| drop(gateway.wait_for_status(id, "dead")));
    upstream.rule(|_| answer(200));
    browse(&gateway, async |browser| {
        browser.sign_in(&gateway, "/dead").await;
        browser.write("#group", QUIET).await;
        browser.press("button[formaction='/replays/plan']").await;
        let plan = format!("5 events would be delivered once more: dead events of {QUIET}. Nothing is changed yet");
        browser.see_text("main", &plan, true).await;
        assert_eq!(upstream.count(), 7, "a plan delivers nothing");
        browser.press("button[value=begin]").await;
        browser.see_text("main", "replay-1 is begun: 5 events", true).await;
        // By itself: nobody loads the page again.
        browser.see_text("replay-1", "5 of 5 delivered", true).await;
        browser.see_text("replay-1", "done", true).await;
    });
    quiet.iter().for_each(|id| drop(gateway.wait_for_status(id, "delivered")));
    noisy.iter().for_each(|id| drop(gateway.wait_for_status(id, "dead")));
}

#[test]
fn what_strangers_wrote_stays_text() {
    let (upstream, gateway) = world();
    let body = format!("{{\"note\":\"{SCRIPT}\"}}");
    let sent = post("/webhooks/shopify", body.as_bytes())
        .shopify(SCRIPT)
        .without("X-Shopify-Topic")
        .without("X-Shopify-Webhook-Id")
        .header("X-Shopify-Topic", SCRIPT)
        .header("X-Shopify-Webhook-Id", SCRIPT)
        .header("X-Note", SCRIPT);
    assert_eq!(gateway.client().send(&sent).status, 200);
    upstream.wait_for(1);
    let event = gateway.events("")[0].clone();
    browse(&gateway, async |browser| {
        browser.sign_in(&gateway, &format!("/events/{}", event["id"].as_str().unwrap())).await;
        assert!(browser.text("#body").await.contains(SCRIPT), "the body is shown as it is");
        for path in [
            "/events",
            "/",
            "/rejections",
            "/events?provider_event_id=%3Cscript%3Edocument.title%3D'owned'%3C/script%3E",
        ] {
            browser.open_page(path).await;
            let (scripts, title) = (
                browser.client.execute("return document.scripts.length", vec![]).await.unwrap(),
                browser.client.title().await.unwrap(),
            );
            assert_eq!((scripts.as_u64(), title.contains("owned")), (Some(1), false), "{path}");
        }
        // The last one found the event by an id that is a script.
        assert_eq!(browser.client.find_all(fantoccini::Locator::Css("tbody tr")).await.unwrap().len(), 1);
    });
}

#[test]
fn what_is_all_in_flight_does_not_grow_and_a_change_says_by_which_way_it_came() {
    let upstream = upstream(|_| answer(200).after(Duration::from_secs(60)));
    let yaml =
        format!("upstream: {}\nsources: [{{ path: /in, verify: none, key: headers.x-tenant }}]\n", upstream.url());
    let gateway = gateway(&yaml).start();
    assert_eq!(gateway.client().send(&post("/in", b"{}").header("X-Tenant", QUIET)).status, 200);
    while gateway.json(&format!("/api/v1/group?name={QUIET}"))["in_flight"] != 1 {
        std::thread::yield_now();
    }
    let data = gateway.dir().join("data");
    let admin = gateway.admin.to_string();
    let mut pause = std::process::Command::new(env!("CARGO_BIN_EXE_fairlane"));
    pause.args(["groups", "set", QUIET, "--weight", "2", "--admin", &admin, "--data"]).arg(data).arg("-c");
    let paused = pause.arg(gateway.config()).output().unwrap();
    assert!(paused.status.success(), "{}", String::from_utf8_lossy(&paused.stderr));
    let cookie = sign_in(&gateway);
    let page = |path: &str| shown(&gateway, &cookie, path).text();
    let groups = page("/groups");
    assert!(groups.contains("state in_flight") && !groups.contains("grows"), "{groups}");
    let audit = page("/audit");
    assert!(audit.contains("through the command line from 127.0.0.1") && audit.contains("before a restart"), "{audit}");
}

#[test]
fn where_a_source_expects_its_secret_no_page_shows_it() {
    let receiver = upstream(|_| answer(200));
    let yaml = format!(
        "upstream: {{ url: \"{}\" }}\nsources:\n  \
         - {{ path: /one, verify: {{ token: {{ header: X-Api }}, secret: first-door }}, key: headers.x-shop }}\n  \
         - {{ path: /two, verify: {{ any_of: [{{ token: {{ header: X-Own }}, secret: second-door }}, {{ bearer: {{}}, secret: third-door }}] }}, \
         key: headers.x-shop }}\n",
        receiver.url()
    );
    let gateway = gateway(&yaml).start();
    let mut client = gateway.client();
    for (path, header, value) in [
        ("/one", "X-Api", "first-door"),
        ("/two", "X-Own", "second-door"),
        ("/two", "Authorization", "Bearer third-door"),
    ] {
        let sent = client.send(&post(path, b"{}").header(header, value).header("X-Shop", "a-shop"));
        assert_eq!(sent.status, 200, "{}", sent.text());
    }
    assert_eq!(client.send(&post("/one/s3cret", b"{}")).status, 404);
    let cookie = sign_in(&gateway);
    for event in gateway.events("") {
        let page = shown(&gateway, &cookie, &format!("/events/{}", event["id"].as_str().unwrap())).text();
        assert!(page.contains("a-shop"), "{page}");
        assert!(!page.contains("-door"), "{page}");
    }
    let rejections = shown(&gateway, &cookie, "/rejections").text();
    assert!(rejections.contains("/one/*** (6 bytes)") && !rejections.contains("s3cret"), "{rejections}");
}

#[test]
fn every_page_reads_without_a_script_and_asks_nobody_else() {
    let (upstream, gateway) = world();
    send(&gateway, QUIET, 3);
    let refused = post("/webhooks/shopify", b"{}").header("X-Shopify-Hmac-Sha256", "AAAA");
    assert_eq!(gateway.client().send(&refused).status, 401);
    upstream.wait_for(3);
    let cookie = sign_in(&gateway);
    let id = gateway.events("")[0]["id"].as_str().unwrap().to_owned();
    let paths = [
        "/",
        "/groups",
        "/groups?sort=age&filter=quiet",
        "/events",
        "/events?status=delivered",
        "/dead",
        "/rejections",
        "/sources",
        "/jobs",
        "/replays",
        "/replays/plan?status=delivered",
        "/alerts",
        "/audit",
        "/configuration",
    ];
    let one = [format!("/group?name={QUIET}"), format!("/events/{id}")];
    for path in paths.into_iter().chain(one.iter().map(String::as_str)) {
        let response = shown(&gateway, &cookie, path);
        let text = response.text();
        assert_eq!(response.status, 200, "{path}: {text}");
        assert!(response.header("content-security-policy").unwrap().starts_with("default-src 'none'"), "{path}");
        assert_eq!(response.header("cache-control"), Some("no-store"), "{path}");
        assert_eq!(html::fault(&text), None, "{path}: {text}");
        let values = text.split("=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let outside = values.filter(|value| value.starts_with("http") || value.starts_with("//"));
        let outside: Vec<&str> = outside.filter(|value| *value != "http://www.w3.org/2000/svg").collect();
        assert!(outside.is_empty(), "{path} names another place: {outside:?}");
        assert!(!text.contains("style=") && !text.contains("<style"), "{path}: the policy forbids styles in a page");
        assert!(!text.contains(support::SHOPIFY_SECRET) && !text.contains(&gateway.token()), "{path} holds a secret");
    }
    let unknown = shown(&gateway, &cookie, "/nowhere");
    assert_eq!((unknown.status, html::fault(&unknown.text())), (404, None));
}

#[test]
fn pages_need_a_session_and_forms_their_word() {
    let (_upstream, gateway) = world();
    let ask = |request: &Request| Client::to(gateway.admin).send(request);
    let led = ask(&page("/groups?sort=age"));
    assert_eq!((led.status, led.header("location")), (303, Some("/sign-in?to=%2Fgroups%3Fsort%3Dage")));
    assert_eq!(ask(&get("/groups")).status, 401, "a program is told");
    assert_eq!(gateway.get("/groups").status, 200, "the token reads, too");
    assert_eq!(ask(&page("/sign-in")).status, 200);

    assert_eq!(ask(&form("/sign-in", "token=wrong")).status, 401);
    let away = format!("token={}&to=//evil.example", gateway.token());
    assert_eq!(ask(&form("/sign-in", &away)).header("location"), Some("/"));
    let signed_in = ask(&form("/sign-in", &format!("token={}", gateway.token())));
    let set = signed_in.header("set-cookie").unwrap();
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict") && !set.contains(&gateway.token()), "{set}");

    let cookie = sign_in(&gateway);
    let word = word_of(&shown(&gateway, &cookie, "/").text());
    let pause = |body: &str| form("/group", &format!("name={QUIET}&do=pause{body}"));
    let is_paused = || gateway.json(&format!("/api/v1/group?name={QUIET}"))["paused"] == true;
    let signed = format!("&word={word}");
    let token = format!("Bearer {}", gateway.token());
    for (what, request, status) in [
        ("no session", pause(&signed), 303),
        ("no word", pause("").header("Cookie", &cookie), 403),
        ("a wrong word", pause("&word=x").header("Cookie", &cookie), 403),
        ("another session's word", pause(&signed).header("Cookie", sign_in(&gateway)), 403),
        ("from elsewhere", pause(&signed).header("Cookie", &cookie).header("Origin", "http://evil.example"), 403),
        ("the token instead of a session", pause(&signed).header("Authorization", &token), 403),
    ] {
        assert_eq!((ask(&request).status, is_paused()), (status, false), "{what}");
    }
    let done = ask(&pause(&signed).header("Cookie", &cookie).header("Origin", "http://127.0.0.1"));
    assert_eq!((done.status, is_paused()), (303, true), "{}", done.text());

    let followed = page("/groups").header("Sec-Fetch-Mode", "navigate").without("Sec-Fetch-Site");
    let followed = ask(&followed.header("Sec-Fetch-Site", "cross-site").header("Cookie", &cookie));
    assert_eq!(followed.status, 403);
    assert!(followed.text().contains("href=\"/groups\""), "a person may go on: {}", followed.text());

    assert_eq!(ask(&form("/sign-out", &format!("word={word}")).header("Cookie", &cookie)).status, 303);
    assert_eq!(shown(&gateway, &cookie, "/").status, 303, "signed out");
}
