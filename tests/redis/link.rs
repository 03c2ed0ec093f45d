//! The link against real servers: what it is asked is answered, whatever happens to servers and connections meanwhile.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use fairlane::clock::SystemClock;
use fairlane::store::redis::link::{Answer, Call, Link, Script, Tag, Unanswered};
use fairlane::store::redis::settings::{Ack, Address, Server, Tls, Topology, Url, User};
use redis::Value;

use crate::support::redis::{Guarded, Keys, MASTER, PASSWORD, cluster, guarded, redis, until};

/// Longer than any fault of these tests lasts.
const LONG: Duration = Duration::from_secs(30);

/// Puts its argument behind what its key holds, once: repeated with the same argument at the end it changes nothing.
static PUT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local list = redis.call('LRANGE', KEYS[1], -1, -1) \
         if list[1] ~= ARGV[1] then redis.call('RPUSH', KEYS[1], ARGV[1]) end \
         return redis.call('LLEN', KEYS[1])",
    )
});

static REFUSE: LazyLock<Script> = LazyLock::new(|| Script::new("return redis.error_reply('FENCED ' .. ARGV[1])"));

fn tag(number: usize) -> Tag {
    Tag::new(&format!("t:{number}"))
}

fn link_to(server: Server, ack: Ack) -> Link {
    Link::new(server, ack, Arc::new(SystemClock))
}

fn alone(url: &str) -> Link {
    link_to(Server::alone(url).unwrap(), Ack::Memory)
}

fn in_cluster(url: &str) -> Server {
    Server { topology: Topology::Cluster, ..Server::alone(url).unwrap() }
}

fn under_sentinels(guarded: &Guarded) -> Server {
    let mut addresses = guarded.addresses().into_iter().map(|address| address.parse::<Address>().unwrap());
    Server {
        address: addresses.next().unwrap(),
        others: addresses.collect(),
        topology: Topology::Sentinels { master: MASTER.into(), user: User::default() },
        user: User::default(),
        db: 0,
        tls: None,
    }
}

fn put(number: usize, what: &str) -> Call {
    let tag = tag(number);
    Call::script(&tag, &PUT, &[tag.key("list")]).arg(what).durable()
}

fn list(number: usize) -> Call {
    let tag = tag(number);
    Call::command(&tag, "LRANGE").arg(tag.key("list")).arg(0).arg(-1)
}

fn texts(answer: Answer) -> Vec<String> {
    ::redis::from_redis_value(answer.unwrap()).unwrap()
}

fn unavailable(answer: Answer) -> String {
    match answer {
        Err(Unanswered::Unavailable(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// As many names as there are calls of a test that goes on during a fault.
fn numbered(prefix: &str) -> impl Iterator<Item = String> {
    (0..).map(move |n| format!("{prefix}{n}"))
}

/// Puts one after another until `enough`; what was answered has to be there afterwards, once and in order.
async fn put_while(link: &Link, number: usize, mut enough: impl FnMut() -> bool) -> Vec<String> {
    let mut answered = Vec::new();
    for name in numbered("n") {
        link.call(put(number, &name), LONG).await.unwrap();
        answered.push(name);
        if enough() {
            break;
        }
    }
    answered
}

#[tokio::test]
async fn calls_of_one_run_are_answered_in_their_order_and_refusals_are_the_callers() {
    let server = redis().start();
    let link = alone(&server.url());
    let before = link.last_answer();
    let refuse = Call::script(&tag(1), &REFUSE, &[]).arg(7);
    let calls = vec![put(1, "a"), list(1), refuse.clone(), Call::command(&tag(2), "GET").arg(tag(2).key("none"))];
    let answers = link.run(calls, LONG).await;
    let refused = Unanswered::Refused { code: "FENCED".into(), detail: "7".into() };
    assert_eq!(answers[0], Ok(Value::Int(1)));
    assert_eq!((&answers[2], &answers[3]), (&Err(refused), &Ok(Value::Nil)));
    assert_eq!(texts(link.call(list(1), LONG).await), ["a"]);
    assert!(link.last_answer() > before);
    assert!(link.run(Vec::new(), LONG).await.is_empty());
}

#[tokio::test]
async fn scripts_and_connections_that_are_gone_come_back_by_themselves() {
    let server = redis().start();
    let link = alone(&server.url());
    link.call(put(1, "a"), LONG).await.unwrap();
    let () = server.ask(&["SCRIPT", "FLUSH"]);
    link.call(put(1, "b"), LONG).await.unwrap();
    server.cut();
    link.call(put(1, "c"), LONG).await.unwrap();
    assert_eq!(texts(link.call(list(1), LONG).await), ["a", "b", "c"]);
    let () = server.ask(&["FLUSHALL"]);
    assert_eq!(texts(link.call(list(1), LONG).await), [""; 0]);
}

#[tokio::test]
async fn a_restart_is_waited_for_and_what_was_answered_is_there() {
    let mut server = redis().start();
    let link = alone(&server.url());
    link.call(put(1, "before"), LONG).await.unwrap();
    server.kill();
    let why = unavailable(link.call(put(1, "gone"), Duration::from_millis(300)).await);
    assert!(why.contains(&format!("Redis at 127.0.0.1:{} did not answer within 300 ms", server.port())), "{why}");
    assert!(why.contains("nothing listens there"), "{why}");
    let asked = link.call(put(1, "during"), LONG);
    let revived = async { tokio::task::spawn_blocking(move || (server.revive(), server)).await.unwrap().1 };
    let (answer, _server) = tokio::join!(asked, revived);
    answer.unwrap();
    assert_eq!(texts(link.call(list(1), LONG).await), ["before", "during"]);
}

#[tokio::test]
async fn a_server_that_stands_still_costs_the_callers_time_and_no_more() {
    let server = redis().start();
    let link = alone(&server.url());
    link.call(put(1, "a"), LONG).await.unwrap();
    server.pause();
    let why = unavailable(link.call(put(1, "b"), Duration::from_millis(500)).await);
    assert!(why.contains("no answer within"), "{why}");
    server.resume();
    link.call(put(1, "c"), LONG).await.unwrap();
    // What was not answered may have been done all the same.
    let list = texts(link.call(list(1), LONG).await);
    assert!(list == ["a", "b", "c"] || list == ["a", "c"], "{list:?}");
}

#[tokio::test]
async fn a_replica_is_not_written_to() {
    let server = redis().start();
    let replica = redis().line(format!("replicaof 127.0.0.1 {}", server.port())).start();
    let link = alone(&replica.url());
    let why = unavailable(link.call(put(1, "a"), Duration::from_millis(300)).await);
    assert!(why.contains("it is a replica"), "{why}");
    // It becomes one while it is connected.
    let link = alone(&server.url());
    link.call(put(1, "a"), LONG).await.unwrap();
    until("the replica has it", || replica.ask::<i64>(&["LLEN", &tag(1).key("list")]) == 1);
    let () = replica.ask(&["REPLICAOF", "NO", "ONE"]);
    let () = server.ask(&["REPLICAOF", "127.0.0.1", &replica.port().to_string()]);
    let why = unavailable(link.call(put(1, "b"), Duration::from_millis(500)).await);
    assert!(why.contains("it is a replica") || why.contains("READONLY"), "{why}");
    let () = server.ask(&["REPLICAOF", "NO", "ONE"]);
    link.call(put(1, "c"), LONG).await.unwrap();
}

#[tokio::test]
async fn users_and_tls_are_as_they_are_told() {
    let keys = Keys::new();
    let server = redis().user("fair").tls(&keys, true).start();
    let mut settings = Server::alone(&server.tls_url()).unwrap();
    let identity = Some((keys.file("client.crt"), keys.file("client.key")));
    settings.tls = Some(Tls { ca: Some(keys.file("ca.crt")), identity });
    link_to(settings.clone(), Ack::Aof).call(put(1, "a"), LONG).await.unwrap();

    let fails = |change: &dyn Fn(&mut Server)| {
        let mut wrong = settings.clone();
        change(&mut wrong);
        async move { unavailable(link_to(wrong, Ack::Memory).call(list(1), Duration::from_millis(300)).await) }
    };
    let why = fails(&|s| s.user.password = None).await;
    assert!(why.contains("asks for a user and a password"), "{why}");
    let why = fails(&|s| s.user = "redis://fair:wrong@a".parse::<Url>().unwrap().user).await;
    assert!(why.contains("user or password is wrong") && !why.contains(PASSWORD), "{why}");
    let why = fails(&|s| s.tls = Some(Tls::default())).await;
    assert!(why.contains("certificate"), "{why}");
    let why = fails(&|s| s.tls.as_mut().unwrap().identity = None).await;
    assert!(why.contains("ertificate") || why.contains("the connection was lost"), "{why}");
    let why = fails(&|s| s.tls.as_mut().unwrap().ca = Some("/nowhere/ca.crt".into())).await;
    assert!(why.contains("/nowhere/ca.crt cannot be read"), "{why}");
}

#[tokio::test]
async fn an_ack_that_nothing_backs_is_none() {
    let lazy = redis().line("appendfsync everysec").start();
    let link = link_to(Server::alone(&lazy.url()).unwrap(), Ack::Aof);
    let why = unavailable(link.call(put(1, "a"), Duration::from_millis(300)).await);
    assert!(why.contains("appendfsync always"), "{why}");
    let () = lazy.ask(&["CONFIG", "SET", "appendfsync", "always"]);
    link.call(put(1, "b"), LONG).await.unwrap();

    let link = link_to(Server::alone(&lazy.url()).unwrap(), Ack::Replicas(1));
    let why = unavailable(link.call(put(1, "c"), Duration::from_secs(2)).await);
    assert!(why.contains("0 of 1 replicas confirmed the write"), "{why}");
    let _replica =
        redis().line(format!("replicaof 127.0.0.1 {}", lazy.port())).line("repl-diskless-sync-delay 0").start();
    link.call(put(1, "d"), LONG).await.unwrap();
    // A call that finds nothing to write any more is not durable for that.
    link.call(put(1, "d"), LONG).await.unwrap();
    assert_eq!(texts(link.call(list(1), LONG).await).last().unwrap(), "d");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_is_heard_again_after_a_cut() {
    let server = redis().start();
    let link = alone(&server.url());
    let mut hearing = link.hear("news");
    for word in ["first", "second"] {
        // Nobody tells when it listens.
        until("somebody listens", || server.ask::<i64>(&["PUBLISH", "news", word]) == 1);
        assert_eq!(hearing.next().await, word.as_bytes());
        server.cut();
    }
}

#[tokio::test]
async fn a_failover_by_sentinels_is_followed_without_a_loss() {
    let guarded = guarded(3);
    let link = link_to(under_sentinels(&guarded), Ack::Replicas(1));
    link.call(put(1, "first"), LONG).await.unwrap();
    let guarded = Arc::new(guarded);
    let failing = { Arc::clone(&guarded) };
    let fault = tokio::task::spawn_blocking(move || failing.fail_over());
    let mut answered = put_while(&link, 1, || fault.is_finished()).await;
    fault.await.unwrap();
    answered.insert(0, "first".into());
    assert_eq!(guarded.master(), 1);
    assert_eq!(texts(link.call(list(1), LONG).await), answered);
}

#[tokio::test]
async fn a_master_that_dies_or_stands_still_is_replaced() {
    let mut guarded = guarded(1);
    let link = link_to(under_sentinels(&guarded), Ack::Memory);
    link.call(put(1, "a"), LONG).await.unwrap();
    until("the replica has it", || guarded.servers[1].ask::<i64>(&["LLEN", &tag(1).key("list")]) == 1);
    guarded.servers[0].kill();
    link.call(put(1, "b"), LONG).await.unwrap();
    assert_eq!(guarded.master(), 1);
    guarded.servers[0].revive();
    until("the old master follows", || {
        // The Sentinels cut its clients when they make it a replica.
        let info = guarded.servers[0].try_ask::<String>(&["INFO", "replication"]);
        info.is_ok_and(|info| info.contains("master_link_status:up"))
    });
    guarded.servers[1].pause();
    link.call(put(1, "c"), LONG).await.unwrap();
    guarded.servers[1].resume();
    assert_eq!(texts(link.call(list(1), LONG).await), ["a", "b", "c"]);
    let unknown = Topology::Sentinels { master: "nobody".into(), user: User::default() };
    let link = link_to(Server { topology: unknown, ..under_sentinels(&guarded) }, Ack::Memory);
    let why = unavailable(link.call(list(1), Duration::from_millis(300)).await);
    assert!(why.contains("no Sentinel knows a master \"nobody\""), "{why}");
}

#[tokio::test]
async fn a_cluster_is_followed_through_the_loss_of_a_master_and_a_slot_that_moves() {
    let mut cluster = cluster();
    let link = link_to(in_cluster(&cluster.url()), Ack::Memory);
    let all = |what: &str| (0..64).map(|n| put(n, what)).collect::<Vec<_>>();
    let done = |answers: Vec<Answer>| answers.into_iter().for_each(|answer| drop(answer.unwrap()));
    done(link.run(all("a"), LONG).await);
    cluster.replicated();

    let lost = cluster.master_of(&tag(0).key("list"));
    cluster.servers[lost].kill();
    done(link.run(all("b"), LONG).await);
    cluster.servers[lost].revive();
    cluster.settle();

    let (key, new) = (tag(0).key("list"), tag(0).key("new"));
    let moving = cluster.begin_move(&key);
    // What is there is answered as before; of what is not, the new server is asked.
    link.call(put(0, "c"), LONG).await.unwrap();
    link.call(Call::command(&tag(0), "SET").arg(&new).arg(1), LONG).await.unwrap();
    cluster.migrate(&moving, &key);
    link.call(put(0, "d"), LONG).await.unwrap();
    cluster.end_move(moving);
    link.call(put(0, "e"), LONG).await.unwrap();
    assert_eq!(texts(link.call(list(0), LONG).await), ["a", "b", "c", "d", "e"]);
    for n in 1..64 {
        assert_eq!(texts(link.call(list(n), LONG).await), ["a", "b"], "{n}");
    }
}

#[tokio::test]
async fn a_cluster_s_master_that_stands_still_is_replaced() {
    let cluster = cluster();
    let link = link_to(in_cluster(&cluster.url()), Ack::Memory);
    link.call(put(0, "a"), LONG).await.unwrap();
    cluster.replicated();
    let still = cluster.master_of(&tag(0).key("list"));
    cluster.servers[still].pause();
    link.call(put(0, "b"), LONG).await.unwrap();
    cluster.servers[still].resume();
    assert_eq!(texts(link.call(list(0), LONG).await), ["a", "b"]);
}
