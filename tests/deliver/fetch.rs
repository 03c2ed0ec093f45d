//! Keys of providers, fetched over real TLS.

use std::sync::Arc;

use fairlane::clock::{Clock, TestClock};
use fairlane::deliver::{Fetcher, Resolve, Unfetched};
use fairlane::metrics::Metrics;

use super::tls::{certificate, roots};
use super::upstream::{Talk, Upstream};
use super::world::NOW;

const HOST: &str = "sns.eu-west-1.amazonaws.com";

/// A provider that answers so, and a fetcher for which its name leads there.
fn provider(script: impl Fn(&mut Talk) + Send + Sync + 'static) -> (Upstream, Fetcher, Arc<TestClock>) {
    let (server, ca) = certificate(HOST);
    let upstream = Upstream::tls(server, script);
    let address = upstream.address;
    let resolve: Resolve = Arc::new(move |_| Box::pin(std::future::ready(Ok(vec![address]))));
    let clock = Arc::new(TestClock::at(NOW));
    let watched: Arc<dyn Clock> = Arc::<TestClock>::clone(&clock);
    let fetcher = Fetcher::reaching(resolve, roots(&ca), watched, Arc::new(Metrics::new("fsync")));
    (upstream, fetcher, clock)
}

fn saying(answer: String) -> impl Fn(&mut Talk) + Send + Sync + 'static {
    move |talk| {
        while talk.hear() {
            talk.say(&answer);
        }
    }
}

fn url(path: &str) -> String {
    format!("https://{HOST}{path}")
}

fn failure(result: Result<bytes::Bytes, Unfetched>) -> String {
    match result {
        Err(Unfetched::Failed(words)) => words,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_key_is_fetched_once_and_kept() {
    let (upstream, fetcher, _) = provider(saying("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nkey".to_owned()));
    let all = (0..20).map(|_| fetcher.fetch(&url("/a.pem")));
    for result in futures_util::future::join_all(all).await {
        assert_eq!(result.unwrap(), "key");
    }
    assert_eq!(fetcher.fetch(&url("/a.pem")).await.unwrap(), "key");
    let seen = upstream.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!((seen[0].line.as_str(), seen[0].all("host")), ("GET /a.pem HTTP/1.1", vec![HOST]));
}

#[tokio::test]
async fn what_is_no_key_is_told_apart() {
    let (upstream, fetcher, _) = provider(saying("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n".to_owned()));
    let missing = Unfetched::NotThere { host: HOST.to_owned(), status: 403 };
    for _ in 0..3 {
        assert_eq!(fetcher.fetch(&url("/a.pem")).await, Err(missing.clone()));
    }
    assert_eq!(upstream.seen().len(), 1, "that there is none is kept too");

    let elsewhere = "HTTP/1.1 302 Found\r\nlocation: https://other.example/\r\ncontent-length: 0\r\n\r\n";
    let (upstream, fetcher, _) = provider(saying(elsewhere.to_owned()));
    assert_eq!(failure(fetcher.fetch(&url("/a.pem")).await), format!("{HOST} answered 302"));
    assert_eq!(upstream.seen().len(), 1, "a redirect is not followed");

    let long = "a".repeat(64 * 1024 + 1);
    let long = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{long}", long.len());
    let (_upstream, fetcher, _) = provider(saying(long));
    assert_eq!(failure(fetcher.fetch(&url("/a.pem")).await), format!("{HOST} answered more than 65536 bytes"));
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_does_not_answer_is_left_and_asked_again_later() {
    let (_upstream, fetcher, clock) = provider(|talk| {
        talk.hear();
        // Until the other side gives up.
        talk.hear();
    });
    let words = failure(fetcher.fetch(&url("/a.pem")).await);
    assert!(words.contains("within 3s"), "{words}");
    assert_eq!(failure(fetcher.fetch(&url("/a.pem")).await), words, "known without asking");
    drop(clock);
}

#[tokio::test]
async fn another_s_certificate_is_a_failure() {
    let (server, _) = certificate(HOST);
    let (_, ca) = certificate("other.example");
    let upstream = Upstream::tls(server, saying("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned()));
    let address = upstream.address;
    let resolve: Resolve = Arc::new(move |_| Box::pin(std::future::ready(Ok(vec![address]))));
    let fetcher = Fetcher::reaching(resolve, roots(&ca), Arc::new(TestClock::at(NOW)), Arc::new(Metrics::new("fsync")));
    let words = failure(fetcher.fetch(&url("/a.pem")).await);
    assert!(words.contains("certificate"), "{words}");
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn few_new_addresses_are_asked_for() {
    let (upstream, fetcher, _) = provider(saying("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nkey".to_owned()));
    for n in 0..50 {
        let result = fetcher.fetch(&url(&format!("/{n}.pem"))).await;
        assert_eq!(result.is_ok(), n < 10, "{n}: {result:?}");
    }
    assert_eq!(upstream.seen().len(), 10);
    assert_eq!(fetcher.fetch(&url("/3.pem")).await.unwrap(), "key", "known ones go on");
}

#[tokio::test]
async fn a_name_that_leads_inside_is_not_followed() {
    let fetcher = Fetcher::new(Arc::new(TestClock::at(NOW)), Arc::new(Metrics::new("fsync")));
    for inside in
        ["https://localhost/", "https://127.0.0.1/", "http://sns.eu-west-1.amazonaws.com/", "https://a.example:8443/"]
    {
        let words = failure(fetcher.fetch(inside).await);
        assert_eq!(words, format!("{inside} is no address of https on port 443"));
    }
}
