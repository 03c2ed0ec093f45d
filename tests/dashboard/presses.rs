//! What the buttons do, without a browser: each is on its page, does nothing without the session's word, and leaves a line about it.

use serde_json::Value;

use crate::support::upstream::{Upstream, answer, upstream};
use crate::support::{self, Client, Gateway, gateway, post};
use crate::{form, shown, sign_in, word_of};

/// A gateway that keeps repeats of a body's id from delivery; what the receiver refuses as gone is a dead letter at once.
fn world() -> (Upstream, Gateway) {
    let upstream = upstream(|_| answer(200));
    let yaml = format!(
        "upstream: {{ url: \"{}\", retry: {{ never: [410] }} }}\nsources:\n  - path: /any\n    verify: {{ provider: none }}\n    \
         key: headers.x-key\n    dedupe: {{ key: body.id, window: 1h }}\n",
        upstream.url()
    );
    (upstream, gateway(&yaml).start())
}

fn sent(client: &mut Client, key: &str, body: &str) -> String {
    let response = client.send(&post("/any", body.as_bytes()).header("X-Key", key));
    assert_eq!(response.status, 200, "{}", response.text());
    response.header("fairlane-event-id").unwrap().to_owned()
}

fn pause(gateway: &Gateway, group: &str, paused: bool) {
    let body = format!("{{\"paused\":{paused}}}");
    assert_eq!(gateway.change("PATCH", &format!("/api/v1/group?name={group}"), &body).status, 200);
}

fn changes(gateway: &Gateway) -> Vec<Value> {
    gateway.json("/api/v1/audit")["changes"].as_array().unwrap().clone()
}

fn status(gateway: &Gateway, id: &str) -> String {
    gateway.json(&format!("/api/v1/events/{id}"))["status"].as_str().unwrap().to_owned()
}

/// Somebody who is signed in.
struct Person<'a> {
    gateway: &'a Gateway,
    cookie: String,
}

impl Person<'_> {
    fn of(gateway: &Gateway) -> Person<'_> {
        Person { gateway, cookie: sign_in(gateway) }
    }

    fn send(&self, action: &str, body: &str) -> support::Response {
        Client::to(self.gateway.admin).send(&form(action, body).header("Cookie", &self.cookie))
    }

    /// Presses a button of a page; `more` is what its form holds besides. What the next page reads.
    fn press(&self, page: &str, (action, button): (&str, &str), more: &str) -> String {
        let text = shown(self.gateway, &self.cookie, page).text();
        assert!(text.contains(&format!("name=\"do\" value=\"{button}\"")), "{page} has no {button}: {text}");
        assert!(text.contains(&format!("action=\"{action}\"")), "{page} has no form for {action}: {text}");
        let (body, before) = (format!("do={button}&{more}"), changes(self.gateway).len());
        assert_eq!(self.send(action, &body).status, 403, "{button} without the word");
        assert_eq!(changes(self.gateway).len(), before, "{button} without the word");
        let done = self.send(action, &format!("{body}&word={}", word_of(&text)));
        assert_eq!(done.status, 303, "{button}: {}", done.text());
        let changes = changes(self.gateway);
        assert_eq!(
            (changes.len(), changes.first().unwrap()["way"].as_str()),
            (before + 1, Some("dashboard")),
            "{button}"
        );
        shown(self.gateway, &self.cookie, done.header("location").unwrap()).text()
    }
}

#[test]
fn one_event_is_skipped_discarded_released_or_replayed() {
    let (upstream, gateway) = world();
    let (person, mut client) = (Person::of(&gateway), gateway.client());
    pause(&gateway, "stuck", true);
    let mut send = |key, body| sent(&mut client, key, body);
    let (skipped, discarded) = (send("stuck", "{\"id\":1}"), send("stuck", "{\"id\":2}"));
    let (first, repeat) = (send("fine", "{\"id\":3}"), send("fine", "{\"id\":3}"));
    gateway.wait_for_status(&first, "delivered");
    let page = |id: &str| format!("/events/{id}");
    let press = |id: &str, button: &str| person.press(&page(id), ("/event", button), &format!("id={id}"));

    assert!(press(&skipped, "skip").contains("with the dead letters"));
    assert!(press(&discarded, "discard").contains("thrown away"));
    assert_eq!([status(&gateway, &skipped), status(&gateway, &discarded)], ["dead", "discarded"]);
    assert_eq!(status(&gateway, &repeat), "suppressed");
    assert!(press(&repeat, "release").contains("queued at the end of its lane"));
    gateway.wait_for_status(&repeat, "delivered");
    assert!(press(&first, "replay").contains("delivered once more"));
    upstream.wait_until(|all| all.iter().any(|one| one.header("fairlane-replay") == Some("1")));

    // What has ended cannot be ended once more; the page says why, and nothing is noted.
    let before = changes(&gateway).len();
    let word = word_of(&shown(&gateway, &person.cookie, &page(&skipped)).text());
    let refused = person.send("/event", &format!("do=skip&id={skipped}&word={word}"));
    assert_eq!((refused.status, changes(&gateway).len()), (409, before), "{}", refused.text());
    assert!(refused.text().contains("is dead already"), "{}", refused.text());
}

#[test]
fn a_queue_is_moved_aside_or_thrown_away() {
    let (_upstream, gateway) = world();
    let (person, mut client) = (Person::of(&gateway), gateway.client());
    pause(&gateway, "bad", true);
    let diverted = sent(&mut client, "bad", "{\"id\":1}");
    let page = person.press("/group?name=bad", ("/group", "divert"), "name=bad&back=/jobs");
    assert!(page.contains("Job 1 moves 1 event to the dead letters"), "{page}");
    gateway.wait_for_status(&diverted, "dead");
    let thrown = sent(&mut client, "bad", "{\"id\":2}");
    let word = word_of(&page);
    let refused = person.send("/group", &format!("do=discard&name=bad&confirm=good&word={word}"));
    assert_eq!((refused.status, status(&gateway, &thrown).as_str()), (400, "queued"), "{}", refused.text());
    let page = person.press("/group?name=bad", ("/group", "discard"), "name=bad&confirm=bad&back=/jobs");
    assert!(page.contains("Job 2 throws 1 event away"), "{page}");
    gateway.wait_for_status(&thrown, "discarded");
}

#[test]
fn a_job_is_called_off() {
    const EVENTS: usize = 2_000;
    let (_upstream, gateway) = world();
    let person = Person::of(&gateway);
    let word = word_of(&shown(&gateway, &person.cookie, "/").text());
    pause(&gateway, "bad", true);
    // A job may be done before anybody can call it off; then there is another.
    for job in 1..=20 {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut client = gateway.client();
                    (0..EVENTS / 8).for_each(|_| drop(sent(&mut client, "bad", "{}")));
                });
            }
        });
        assert_eq!(person.send("/group", &format!("do=divert&name=bad&word={word}")).status, 303);
        assert_eq!(person.send("/jobs", &format!("do=cancel&id={job}")).status, 403, "without the word");
        let answer = person.send("/jobs", &format!("do=cancel&id={job}&word={word}"));
        if answer.status == 303 {
            let page = shown(&gateway, &person.cookie, answer.header("location").unwrap()).text();
            assert!(page.contains(&format!("Job {job} is called off")), "{page}");
            assert_eq!(gateway.json(&format!("/api/v1/jobs/{job}"))["state"], "cancelled");
            let change = changes(&gateway).remove(0);
            assert!(
                change["what"].as_str().unwrap().contains("called off") && change["way"] == "dashboard",
                "{change}"
            );
            return;
        }
        assert_eq!(answer.status, 409, "{}", answer.text());
    }
    panic!("twenty jobs were done before they could be called off");
}

#[test]
fn a_replay_is_begun_paused_resumed_and_called_off() {
    let (upstream, gateway) = world();
    let (person, mut client) = (Person::of(&gateway), gateway.client());
    upstream.rule(|_| answer(410));
    let ids: Vec<String> = (0..3).map(|number| sent(&mut client, "a", &format!("{{\"id\":{number}}}"))).collect();
    ids.iter().for_each(|id| drop(gateway.wait_for_status(id, "dead")));
    upstream.rule(|_| answer(200));
    // Nothing goes on in the group, so the replay stays as it is put.
    pause(&gateway, "a", true);
    let state = || gateway.json("/api/v1/replays/replay-1")["state"].as_str().unwrap().to_owned();
    let page = person.press("/replays/plan?group=a", ("/replays", "begin"), "group=a");
    assert!(page.contains("replay-1 is begun: 3 events"), "{page}");
    for (button, said, then) in [
        ("pause", "replay-1 is paused", "paused"),
        ("resume", "replay-1 goes on", "running"),
        ("cancel", "called off", "cancelled"),
    ] {
        let page = person.press("/replays", ("/replays", button), "id=1");
        assert!(page.contains(said) && state() == then, "{button}: {page}");
    }
    ids.iter().for_each(|id| drop(gateway.wait_for_status(id, "dead")));
    assert_eq!(upstream.count(), 3, "nothing was delivered");

    // The same through the API leaves the same lines.
    pause(&gateway, "a", false);
    let replay = gateway.change("POST", "/api/v1/replays", "{\"group\":\"a\"}");
    assert_eq!(replay.status, 201, "{}", replay.text());
    ids.iter().for_each(|id| drop(gateway.wait_for_status(id, "delivered")));
    let id = ids.first().unwrap();
    assert_eq!(gateway.change("POST", &format!("/api/v1/events/{id}/replay"), "{}").status, 200);
    let lines: Vec<(String, String)> = changes(&gateway)
        .iter()
        .filter(|change| change["way"] == "api")
        .take(2)
        .map(|change| (change["about"].as_str().unwrap().to_owned(), change["what"].as_str().unwrap().to_owned()))
        .collect();
    let expected =
        [(id.as_str(), "replayed"), ("replay-2", "begun, 3 events: {\"group\":\"a\",\"status\":[\"dead\"]}")];
    assert_eq!(lines, expected.map(|(about, what)| (about.to_owned(), what.to_owned())));
}

#[test]
fn a_source_is_paused_resumed_and_runs_dry() {
    let (_upstream, gateway) = world();
    let person = Person::of(&gateway);
    let state = || gateway.json("/api/v1/sources")["sources"][0]["state"].as_str().unwrap().to_owned();
    for (button, said, then) in [
        ("pause", "is paused: its events are accepted, kept, and wait", "paused"),
        ("resume", "runs again", "running"),
        ("drain", "runs dry: its requests are refused with 503", "draining"),
    ] {
        let expires = if button == "resume" { "" } else { "&expires=1h" };
        let page = person.press("/sources", ("/sources", button), &format!("name=%2Fany{expires}"));
        assert!(page.contains(said) && state() == then, "{button}: {page}");
    }
    assert_eq!(gateway.client().send(&post("/any", b"{}")).status, 503);
    assert_eq!(gateway.json("/api/v1/sources")["sources"][0]["held"]["by"], "dashboard, from 127.0.0.1");
}

#[test]
fn a_breaker_is_closed_and_the_curl_command_goes_where_events_go() {
    let (upstream, gateway) = world();
    let (person, mut client) = (Person::of(&gateway), gateway.client());
    upstream.rule(|_| answer(500));
    let ids: Vec<String> = (0..10).map(|number| sent(&mut client, "a", &format!("{{\"id\":{number}}}"))).collect();
    while gateway.json("/api/v1/group?name=a")["state"] != "broken" {
        std::thread::yield_now();
    }
    upstream.rule(|_| answer(200));
    let page = person.press("/group?name=a", ("/group", "close-breaker"), "name=a");
    assert!(page.contains("The breaker of a is closed"), "{page}");
    let next = sent(&mut client, "a", "{\"id\":99}");
    gateway.wait_for_status(&next, "delivered");
    let page = shown(&gateway, &person.cookie, &format!("/events/{}", ids.first().unwrap())).text();
    assert!(page.contains(&upstream.url()), "where events go: {page}");
    assert!(!page.contains("127.0.0.1:3000"), "{page}");
}

#[test]
fn wrong_tokens_keep_nobody_out_who_has_the_right_one() {
    let (_upstream, gateway) = world();
    // More than are answered at once; their answers are waited for by nobody.
    let guesses: Vec<Client> = (0..14)
        .map(|_| {
            let mut client = Client::to(gateway.admin);
            client.write(&form("/sign-in", "token=wrong").bytes()).unwrap();
            client
        })
        .collect();
    drop(sign_in(&gateway));
    assert_eq!(gateway.get("/api/v1/status").status, 200);
    for mut client in guesses {
        assert_eq!(client.receive().unwrap().status, 401);
    }
}
