//! Several addresses over real sockets: an attempt that finds one closed goes on to another, one that was sent does not, and addresses
//! are asked how they are.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairlane::deliver::{Address, AddressState, Health, Outcome, Settings};

use super::upstream::Upstream;
use super::world::{LONG, World, closed_port, settings};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

fn several(urls: &[String]) -> Settings {
    let addresses = urls.iter().map(|url| Address { url: url.parse().unwrap(), weight: 1 }).collect();
    Settings { addresses, ..settings("http://unused") }
}

fn closed() -> String {
    format!("http://{}", closed_port())
}

/// How each address stands.
fn states(world: &World) -> Vec<AddressState> {
    world.client.addresses().views().iter().map(|view| view.state).collect()
}

#[tokio::test]
async fn an_attempt_that_finds_an_address_closed_goes_on_to_another() {
    let upstream = Upstream::answering(OK);
    let world = World::with(several(&[closed(), upstream.url()]));
    for _ in 0..20 {
        let attempt = world.attempt().await;
        assert!(attempt.outcome.is_delivered(), "{}", attempt.error);
    }
    assert_eq!(upstream.seen().len(), 20, "each was sent once");
    assert_eq!(world.counted("delivered"), 20, "and is one attempt");
    assert!(matches!(states(&world)[..], [AddressState::Ejected(_), AddressState::Used]));
}

#[tokio::test]
async fn an_attempt_that_finds_all_of_them_closed_says_so_of_each() {
    let urls = [closed(), closed()];
    let world = World::with(several(&urls));
    let attempt = world.attempt().await;
    assert_eq!(attempt.outcome, Outcome::Refused);
    for url in urls {
        assert!(attempt.error.contains(url.strip_prefix("http://").unwrap()), "{}", attempt.error);
    }
    assert!(attempt.error.contains("tried before it"), "{}", attempt.error);
}

#[tokio::test]
async fn an_attempt_that_was_sent_does_not_go_to_another_address() {
    let resets = || {
        Upstream::new(|talk| {
            talk.hear();
        })
    };
    let (one, other) = (resets(), resets());
    let world = World::with(several(&[one.url(), other.url()]));
    let attempt = world.attempt().await;
    assert_eq!(attempt.outcome, Outcome::Reset, "{}", attempt.error);
    assert_eq!(one.seen().len() + other.seen().len(), 1);
}

#[tokio::test]
async fn a_kept_connection_whose_address_died_leads_to_another_address() {
    // Serves one request, and the next time it is spoken to, it and its port are gone.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dying = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(listener);
        let mut bytes = [0; 4096];
        for answers in [true, false] {
            let read = std::io::Read::read(&mut stream, &mut bytes).unwrap();
            assert!(read > 0);
            if answers {
                std::io::Write::write_all(&mut stream, OK.as_bytes()).unwrap();
            }
        }
    });
    let upstream = Upstream::answering(OK);
    let world = World::with(several(&[dying, upstream.url()]));
    for number in 0..4 {
        let attempt = world.attempt().await;
        assert!(attempt.outcome.is_delivered(), "{number}: {}", attempt.error);
    }
    assert_eq!(upstream.seen().len(), 3);
}

#[tokio::test]
async fn weights_share_the_attempts_out() {
    let (one, other) = (Upstream::answering(OK), Upstream::answering(OK));
    let mut settings = several(&[one.url(), format!("{}/base", other.url())]);
    settings.addresses[0].weight = 3;
    let world = World::with(settings);
    for _ in 0..40 {
        world.attempt().await;
    }
    assert_eq!((one.seen().len(), other.seen().len()), (30, 10));
    assert_eq!(other.seen()[0].line, "POST /base/hooks?a=%20b&c HTTP/1.1");
    assert_eq!(one.seen()[0].all("host"), [one.address.to_string()]);
    assert_eq!(other.seen()[0].all("host"), [other.address.to_string()]);
    assert_eq!(one.connections().into_iter().collect::<BTreeSet<_>>().len(), 1, "each keeps its connections");
}

/// Answers `/up` by what `well` says, and everything else with 200.
fn asked(well: Arc<AtomicBool>) -> Upstream {
    Upstream::new(move |talk| {
        while talk.hear() {
            let asks = talk.last().line.starts_with("GET /up ");
            let fails = asks && !well.load(Ordering::SeqCst);
            talk.say(if fails { "HTTP/1.1 503 Down\r\ncontent-length: 0\r\n\r\n" } else { OK });
        }
    })
}

fn watched(urls: &[String]) -> Settings {
    let health = Health {
        path: "/up".parse().unwrap(),
        interval: Duration::from_millis(1),
        timeout: LONG,
        failures: 2,
        successes: 1,
    };
    let mut settings = several(urls);
    settings.headers = vec![super::header("authorization", "Bearer us")];
    Settings { health: Some(health), ..settings }
}

/// Lets `world` ask until its addresses stand so.
async fn until(world: &World, stands: impl Fn(&[AddressState]) -> bool) {
    let reached = async {
        while !stands(&states(world)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        () = world.client.watch() => panic!("there was nothing to ask"),
        within = tokio::time::timeout(LONG, reached) => within.expect("the addresses never stood so"),
    }
}

#[tokio::test]
async fn addresses_are_asked_left_out_and_used_again() {
    let well = Arc::new(AtomicBool::new(false));
    let (one, other) = (asked(Arc::clone(&well)), asked(Arc::new(AtomicBool::new(true))));
    let world = World::with(watched(&[one.url(), format!("{}/base", other.url())]));
    until(&world, |states| states == [AddressState::Unwell, AddressState::Used]).await;
    for _ in 0..10 {
        world.attempt().await;
    }
    assert!(one.seen().iter().all(|seen| seen.line == "GET /up HTTP/1.1"), "no event goes there");
    assert!(other.seen().iter().any(|seen| seen.line == "GET /up HTTP/1.1"), "from the root of the host");
    let question = &one.seen()[0];
    assert_eq!(question.all("authorization"), ["Bearer us"], "asked as events are sent");
    assert_eq!(question.all("host"), [one.address.to_string()]);
    let view = &world.client.addresses().views()[0];
    assert_eq!(view.check, Some(Err("/up answered 503 Service Unavailable".into())));

    well.store(true, Ordering::SeqCst);
    until(&world, |states| states == [AddressState::SlowStart, AddressState::Used]).await;
    assert_eq!(world.client.addresses().views()[0].check, Some(Ok(())));
}

#[tokio::test]
async fn with_every_check_failing_all_addresses_are_used() {
    let (one, other) = (asked(Arc::default()), asked(Arc::default()));
    let world = World::with(watched(&[one.url(), other.url()]));
    until(&world, |states| states == [AddressState::Unwell; 2]).await;
    for _ in 0..4 {
        assert!(world.attempt().await.outcome.is_delivered());
    }
    let events = |upstream: &Upstream| upstream.seen().iter().filter(|seen| seen.line.starts_with("POST")).count();
    assert_eq!((events(&one), events(&other)), (2, 2));
}

#[tokio::test]
async fn one_address_is_not_asked() {
    let upstream = asked(Arc::default());
    let world = World::with(watched(&[upstream.url()]));
    world.client.watch().await;
    assert_eq!(upstream.seen(), []);
}

#[tokio::test]
async fn a_successor_knows_what_was_known() {
    let upstream = Upstream::answering(OK);
    let settings = several(&[closed(), upstream.url()]);
    let world = World::with(settings.clone());
    while !states(&world)[0].is_out() {
        world.attempt().await;
    }
    let successor = world.client.successor(settings).unwrap();
    assert!(successor.addresses().views()[0].state.is_out());
}
