//! `kill -9` under load, again and again: whatever got a 2xx is there, with its exact bytes.
//!
//! 20 rounds; `CRASH_ROUNDS=100` (`make crash`) for more, `CRASH_SEED=` to repeat one.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use support::{Client, Gateway, gateway, post};

const ANY: &str = r#"
upstream: http://127.0.0.1:9
sources:
  - path: /any
    verify: { provider: none }
    key: headers.x-key
"#;

/// Bodies of every size class: none, one write, several pages, more than a network buffer.
fn body(random: &mut SmallRng) -> Vec<u8> {
    let length = match random.random_range(0..10) {
        0 => 0,
        1..8 => random.random_range(1..4_000),
        8 => random.random_range(4_000..70_000),
        _ => random.random_range(70_000..400_000),
    };
    (0..length).map(|_| random.random()).collect()
}

/// Posts until the gateway is gone; what got a 2xx, by event id.
fn send(address: SocketAddr, seed: u64, answered: &AtomicUsize) -> HashMap<String, Vec<u8>> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut accepted = HashMap::new();
    let Ok(stream) = std::net::TcpStream::connect(address) else { return accepted };
    let mut client = Client { stream: std::io::BufReader::new(stream) };
    loop {
        let body = body(&mut random);
        let key = format!("shop-{}", random.random_range(0..50));
        let Some(response) = client.try_send(&post("/any", &body).header("x-key", key)) else { return accepted };
        assert_eq!(response.status, 200, "{}", response.text());
        accepted.insert(response.header("fairlane-event-id").unwrap().to_owned(), body);
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

fn check(gateway: &Gateway, accepted: &HashMap<String, Vec<u8>>) {
    let token = format!("Bearer {}", gateway.token());
    let mut client = Client::to(gateway.admin);
    for (id, body) in accepted {
        let stored = client.send(&support::get(&format!("/api/v1/events/{id}/body")).header("authorization", &token));
        assert_eq!(stored.status, 200, "{id} got a 2xx and is lost: {}", stored.text());
        assert!(stored.body == *body, "{id}: the stored body differs");
    }
}

#[test]
fn what_got_a_2xx_survives_kill_9() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let rounds = number("CRASH_ROUNDS").unwrap_or(20);
    let seed = number("CRASH_SEED").unwrap_or_else(rand::random);
    println!("{rounds} rounds, CRASH_SEED={seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let mut all = HashMap::new();
    let mut dir = None;
    for round in 0..rounds {
        let builder = gateway(ANY);
        let gateway = match dir.take() {
            Some(dir) => builder.again_in(dir).start(),
            None => builder.start(),
        };
        let answered = Arc::new(AtomicUsize::new(0));
        let senders: Vec<_> = (0..6)
            .map(|sender| {
                let (address, answered) = (gateway.address, Arc::clone(&answered));
                let seed = seed ^ (round << 8) ^ sender;
                std::thread::spawn(move || send(address, seed, &answered))
            })
            .collect();
        let until = random.random_range(1..150);
        while answered.load(Ordering::Relaxed) < until {
            std::thread::yield_now();
        }
        let folder = gateway.kill();
        let fresh: HashMap<_, _> = senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect();
        let gateway = support::gateway(ANY).again_in(folder).start();
        check(&gateway, &fresh);
        all.extend(fresh);
        dir = Some(gateway.kill());
    }
    let gateway = gateway(ANY).again_in(dir.unwrap()).start();
    check(&gateway, &all);
    let listed = gateway.events("").len();
    assert!(listed >= all.len(), "{listed} events are listed, {} got a 2xx", all.len());
    println!("{} events got a 2xx in {rounds} rounds; none is lost", all.len());
}
