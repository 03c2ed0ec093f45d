//! What can happen to a connection, and that one deadline covers all of it.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use fairlane::deliver::{BodyEnd, Follows, Job, Limit, Outcome};
use http::StatusCode;
use tokio::sync::mpsc;

use super::upstream::Upstream;
use super::world::{LONG, SHORT, World, closed_port, event, event_of, hurried, settings};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// Attempts once and checks outcome and words.
async fn fails(world: &World, outcome: Outcome, words: &[&str]) {
    let attempt = world.attempt().await;
    assert_eq!(attempt.outcome, outcome, "{}", attempt.error);
    assert_eq!(attempt.follows, Follows::Retried(Limit::Age));
    assert_eq!(attempt.answer, None);
    for word in words {
        assert!(attempt.error.contains(word), "{word:?} is not in {:?}", attempt.error);
    }
    assert_eq!(world.counted(outcome.name()), 1);
}

#[tokio::test]
async fn a_closed_port_is_refused() {
    let address = closed_port();
    let world = World::new(&format!("http://{address}"));
    fails(&world, Outcome::Refused, &[&address.to_string(), "refused", "running"]).await;
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_dns() {
    let world = World::new("http://nonexistent.invalid:8080");
    fails(&world, Outcome::Dns, &["nonexistent.invalid", "looked up"]).await;
}

#[tokio::test]
async fn a_name_is_told_with_its_addresses() {
    let port = closed_port().port();
    let world = World::new(&format!("http://localhost:{port}"));
    fails(&world, Outcome::Refused, &[&format!("localhost:{port} ("), "127.0.0.1"]).await;
}

#[tokio::test]
async fn a_reset_before_the_head_is_told_and_not_repeated() {
    let upstream = Upstream::new(|talk| talk.leave_unread());
    let world = World::new(&upstream.url());
    fails(&world, Outcome::Reset, &[&upstream.address.to_string(), "before the head"]).await;
}

#[tokio::test]
async fn a_new_connection_that_closes_is_not_repeated() {
    let upstream = Upstream::new(|talk| {
        talk.hear();
    });
    fails(&World::new(&upstream.url()), Outcome::Reset, &["before the head"]).await;
    assert_eq!(upstream.connections(), [0]);
}

#[tokio::test]
async fn half_a_head_is_a_reset() {
    let upstream = Upstream::new(|talk| {
        talk.hear();
        talk.say("HTTP/1.1 200 OK\r\nconte");
    });
    fails(&World::new(&upstream.url()), Outcome::Reset, &[]).await;
}

#[tokio::test]
async fn a_reset_after_the_head_costs_only_the_connection() {
    let upstream = Upstream::new(|talk| {
        talk.hear();
        talk.say("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc");
    });
    let attempt = World::new(&upstream.url()).attempt().await;
    assert!(attempt.outcome.is_delivered(), "{}", attempt.error);
    let answer = attempt.answer.unwrap();
    assert_eq!((answer.body.as_ref(), answer.end), (&b"abc"[..], BodyEnd::BrokeOff));
}

#[tokio::test]
async fn what_is_no_http_is_malformed() {
    for answer in [
        "SSH-2.0-OpenSSH_9.6\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    ] {
        let upstream = Upstream::answering(answer);
        let world = World::new(&upstream.url());
        fails(&world, Outcome::Malformed, &[&upstream.address.to_string()]).await;
        assert_eq!(upstream.seen().len(), 1, "{answer:?}");
    }
}

#[tokio::test]
async fn an_answer_that_does_not_come_ends_at_the_deadline() {
    let (closed, mut is_closed) = mpsc::channel(1);
    let upstream = Upstream::new(move |talk| {
        talk.hear();
        talk.wait_for_close();
        closed.blocking_send(()).unwrap();
    });
    let world = World::with(hurried(&upstream.url()));
    fails(&world, Outcome::TimeoutHead, &[&upstream.address.to_string(), "150ms"]).await;
    is_closed.recv().await.unwrap();
}

#[tokio::test]
async fn a_head_that_drips_does_not_move_the_deadline() {
    let upstream = Upstream::new(|talk| {
        talk.hear();
        talk.say("HTTP/1.1 200 OK\r\nx: ");
        while !talk.closes_within(Duration::from_millis(5)) && talk.say("y") {}
    });
    fails(&World::with(hurried(&upstream.url())), Outcome::TimeoutHead, &[]).await;
}

#[tokio::test]
async fn a_body_that_drips_costs_only_the_connection() {
    let (closed, mut is_closed) = mpsc::channel(1);
    let upstream = Upstream::new(move |talk| {
        talk.hear();
        talk.say("HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n");
        while !talk.closes_within(Duration::from_millis(5)) && talk.say("y") {}
        closed.blocking_send(()).unwrap();
    });
    let attempt = World::with(hurried(&upstream.url())).attempt().await;
    assert!(attempt.outcome.is_delivered(), "{}", attempt.error);
    assert_eq!(attempt.answer.unwrap().end, BodyEnd::Late);
    is_closed.recv().await.unwrap();
}

#[tokio::test]
async fn a_connection_that_nobody_takes_is_a_timeout_of_connecting() {
    // A queue of one that is full: the next handshake is not answered.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, SHORT) {
        queue.push(stream);
        assert!(queue.len() < 100, "the queue never fills");
    }
    let world = World::with(hurried(&format!("http://{address}")));
    fails(&world, Outcome::TimeoutConnect, &[&address.to_string(), "nobody answers"]).await;
}

#[tokio::test]
async fn a_jobs_own_deadline_counts_where_it_is_earlier() {
    let upstream = Upstream::new(|talk| {
        talk.hear();
        talk.wait_for_close();
    });
    let world = World::new(&upstream.url());
    let job = Job { timeout: Some(SHORT), ..Job::new(Arc::new(event())) };
    assert_eq!(world.client.attempt(job).await.outcome, Outcome::TimeoutHead);
}

#[tokio::test]
async fn a_dropped_attempt_closes_its_connection_and_is_counted() {
    let (heard, mut is_heard) = mpsc::channel(1);
    let (closed, mut is_closed) = mpsc::channel(1);
    let upstream = Upstream::new(move |talk| {
        talk.hear();
        heard.blocking_send(()).unwrap();
        talk.wait_for_close();
        closed.blocking_send(()).unwrap();
    });
    let world = World::new(&upstream.url());
    tokio::select! {
        _ = world.client.attempt(Job::new(Arc::new(event()))) => panic!("nothing was answered"),
        _ = is_heard.recv() => {}
    }
    is_closed.recv().await.unwrap();
    assert_eq!(world.counted("cancelled"), 1);
}

#[tokio::test]
async fn a_connection_serves_many_attempts() {
    let body = "x".repeat(60_000);
    for answer in [OK.to_owned(), format!("HTTP/1.1 500 X\r\ncontent-length: 60000\r\n\r\n{body}")] {
        let upstream = Upstream::answering(answer);
        let world = World::new(&upstream.url());
        for _ in 0..20 {
            world.attempt().await;
        }
        assert_eq!(upstream.connections(), [0; 20]);
    }
}

#[tokio::test]
async fn a_body_above_64_kib_is_cut_and_its_connection_with_it() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(65_536));
    let chunked = format!("{head}{chunk}{chunk}{chunk}0\r\n\r\n");
    let announced = format!("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n{}", "x".repeat(1_000_000));
    for answer in [chunked, announced] {
        let upstream = Upstream::answering(answer);
        let world = World::new(&upstream.url());
        for _ in 0..2 {
            let attempt = world.attempt().await;
            assert!(attempt.outcome.is_delivered(), "{}", attempt.error);
            let answer = attempt.answer.unwrap();
            assert_eq!((answer.body.len(), answer.end), (4096, BodyEnd::TooLong));
        }
        assert_eq!(upstream.connections(), [0, 1]);
    }
}

#[tokio::test]
async fn an_answer_to_be_relayed_is_kept_whole() {
    let body = "x".repeat(900_000);
    let upstream = Upstream::answering(format!("HTTP/1.1 200 OK\r\ncontent-length: 900000\r\n\r\n{body}"));
    let job = Job { keep_bytes: 1024 * 1024, ..Job::new(Arc::new(event())) };
    let answer = World::new(&upstream.url()).client.attempt(job).await.answer.unwrap();
    assert_eq!((answer.body.len(), answer.end), (900_000, BodyEnd::Whole));
}

#[tokio::test]
async fn an_answer_that_comes_before_the_body_was_sent_counts() {
    let upstream = Upstream::new(|talk| {
        talk.leave_unread();
        talk.say("HTTP/1.1 413 Content Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        talk.wait_for_close();
    });
    let body = vec![b'x'; 8 * 1024 * 1024];
    let attempt = World::new(&upstream.url()).attempt_of(event_of("text/plain", &body)).await;
    assert_eq!(attempt.outcome, Outcome::Status(StatusCode::PAYLOAD_TOO_LARGE), "{}", attempt.error);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_attempts_at_once_share_connections() {
    let upstream = Upstream::answering(OK);
    let world = World::new(&upstream.url());
    let sender = || async {
        for _ in 0..20 {
            let attempt = world.attempt().await;
            assert!(attempt.outcome.is_delivered(), "{}", attempt.error);
        }
    };
    futures_util::future::join_all((0..32).map(|_| sender())).await;
    let connections: BTreeSet<usize> = upstream.connections().into_iter().collect();
    assert_eq!(upstream.seen().len(), 640);
    assert!(connections.len() < 320, "{} connections for 640 requests of 32 senders", connections.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_connections_cost_no_delivery_among_many() {
    // Each connection serves three requests and closes while it says that it does not.
    let upstream = Upstream::new(|talk| {
        for _ in 0..3 {
            if talk.hear() {
                talk.say(OK);
            }
        }
    });
    let world = World::new(&upstream.url());
    let sender = || async {
        for _ in 0..20 {
            let attempt = world.client.attempt(Job::new(Arc::new(event()))).await;
            assert!(attempt.outcome.is_delivered(), "{}", attempt.error);
        }
    };
    futures_util::future::join_all((0..16).map(|_| sender())).await;
    assert_eq!(upstream.seen().len(), 320, "what was heard was answered");
}

/// Answers the first request of the first connection, then hears another and closes; later connections do as `later` says.
fn stale(last_words: &'static str, later_answers: bool) -> Upstream {
    Upstream::new(move |talk| {
        if talk.connection == 0 {
            talk.hear();
            talk.say(OK);
            talk.hear();
            talk.say(last_words);
        } else {
            while talk.hear() && later_answers {
                talk.say(OK);
            }
        }
    })
}

#[tokio::test]
async fn a_kept_connection_that_closes_is_replaced_once_within_the_attempt() {
    let upstream = stale("", true);
    let world = World::new(&upstream.url());
    world.attempt().await;
    let attempt = world.attempt().await;
    assert!(attempt.outcome.is_delivered(), "{}", attempt.error);
    assert_eq!(upstream.connections(), [0, 0, 1]);
    let seen = upstream.seen();
    assert_eq!((&seen[1].headers, &seen[1].body), (&seen[2].headers, &seen[2].body), "the same attempt, word by word");
    assert_eq!(world.counted("delivered"), 2);
}

#[tokio::test]
async fn the_replacement_is_not_replaced() {
    let upstream = stale("", false);
    let world = World::new(&upstream.url());
    world.attempt().await;
    fails(&world, Outcome::Reset, &["before the head"]).await;
    assert_eq!(upstream.connections(), [0, 0, 1]);
}

#[tokio::test]
async fn a_kept_connection_that_said_anything_is_not_replaced() {
    for last_words in ["H", "HTTP/1.1 100 Continue\r\n\r\n"] {
        let upstream = stale(last_words, true);
        let world = World::new(&upstream.url());
        world.attempt().await;
        fails(&world, Outcome::Reset, &[]).await;
        assert_eq!(upstream.connections(), [0, 0]);
    }
}

#[tokio::test]
async fn a_kept_connection_that_hangs_is_not_replaced() {
    let upstream = Upstream::new(|talk| {
        talk.hear();
        talk.say(OK);
        talk.hear();
        talk.wait_for_close();
    });
    let world = World::with(hurried(&upstream.url()));
    world.attempt().await;
    fails(&world, Outcome::TimeoutHead, &[]).await;
    assert_eq!(upstream.connections(), [0, 0]);
}

#[tokio::test]
async fn an_upstream_that_closes_after_every_answer_costs_no_delivery() {
    // It says keep-alive and closes: our next request races with the close.
    let upstream = Upstream::new(|talk| {
        talk.hear();
        talk.say(OK);
    });
    let world = World::new(&upstream.url());
    for number in 0..200 {
        let attempt = world.client.attempt(Job::new(Arc::new(event()))).await;
        assert!(attempt.outcome.is_delivered(), "{number}: {}", attempt.error);
    }
    assert_eq!(upstream.seen().len(), 200, "what was heard was answered");
}

#[tokio::test]
async fn idle_connections_are_closed_by_us_first() {
    let (closed, mut is_closed) = mpsc::channel(1);
    let upstream = Upstream::new(move |talk| {
        while talk.hear() {
            talk.say(OK);
        }
        closed.blocking_send(()).unwrap();
    });
    let mut settings = settings(&upstream.url());
    settings.idle = SHORT;
    let world = World::with(settings);
    world.attempt().await;
    tokio::time::timeout(LONG, is_closed.recv()).await.unwrap().unwrap();
}

#[tokio::test]
async fn ipv6_works_where_there_is_any() {
    let Ok(upstream) = Upstream::on("[::1]:0", None, |talk| {
        while talk.hear() {
            talk.say(OK);
        }
    }) else {
        println!("LEFT OUT: this machine has no IPv6 loopback");
        return;
    };
    let attempt = World::new(&upstream.url()).attempt().await;
    assert!(attempt.outcome.is_delivered(), "{}", attempt.error);
    assert_eq!(upstream.seen().pop().unwrap().all("host"), [upstream.address.to_string()]);
}

/// What would put the next event among the dead letters, were it taken for its answer.
const GONE: &str = "HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n";

/// Its first connection answers one request, and answers it again when that is asked for; the second is told when that was written.
fn answers_late(
    tls: Option<rustls::ServerConfig>,
) -> (Upstream, std::sync::mpsc::SyncSender<()>, std::sync::mpsc::Receiver<()>) {
    let ((ask, asked), (tell, told)) = (std::sync::mpsc::sync_channel(1), std::sync::mpsc::sync_channel(1));
    let first = parking_lot::Mutex::new((asked, tell));
    let script = move |talk: &mut super::upstream::Talk| {
        if talk.connection > 0 {
            while talk.hear() {
                talk.say(OK);
            }
            return;
        }
        talk.hear();
        talk.say(OK);
        let (asked, tell) = &*first.lock();
        asked.recv().unwrap();
        talk.say(GONE);
        tell.send(()).unwrap();
        talk.wait_for_close();
    };
    let upstream = match tls {
        Some(config) => Upstream::tls(config, script),
        None => Upstream::new(script),
    };
    (upstream, ask, told)
}

#[tokio::test]
async fn a_second_answer_that_comes_late_is_not_taken_for_the_next_one() {
    let (config, ca) = super::tls::certificate("localhost");
    for tls in [None, Some(config)] {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (upstream, ask, told) = answers_late(tls);
        let world = World::trusting(settings(&format!("{scheme}://localhost:{}", upstream.address.port())), &ca);
        assert!(world.attempt().await.outcome.is_delivered());
        // This thread waits, and its runtime with it: nobody looks at the connection before the next request wants to use it.
        ask.send(()).unwrap();
        told.recv().unwrap();
        let attempt = world.attempt().await;
        assert!(attempt.outcome.is_delivered(), "{scheme}: {:?} {}", attempt.outcome, attempt.error);
        assert_eq!(upstream.connections(), [0, 1], "{scheme}");
    }
}

#[tokio::test]
async fn a_connection_is_given_up_after_a_while_however_busy_it_is() {
    for (renew, connections) in [(Duration::ZERO, [0, 1, 2]), (LONG, [0, 0, 0])] {
        let upstream = Upstream::answering(OK);
        let world = World::with(fairlane::deliver::Settings { renew, ..settings(&upstream.url()) });
        for _ in 0..3 {
            assert!(world.attempt().await.outcome.is_delivered());
        }
        assert_eq!(upstream.connections(), connections);
    }
}
