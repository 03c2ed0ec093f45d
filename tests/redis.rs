//! The Redis servers of these tests themselves (what they are asked to be, they are), and the link to them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::panic, reason = "likewise")]
#![expect(clippy::indexing_slicing, reason = "likewise")]

#[path = "support/between.rs"]
mod between;
#[path = "redis/checkup.rs"]
mod checkup;
#[path = "redis/link.rs"]
mod link;
#[path = "redis/start.rs"]
mod start;
mod support;

use support::redis::{Keys, cluster, guarded, redis, until};

#[test]
fn a_server_has_after_a_kill_what_it_was_told_before() {
    let mut server = redis().start();
    let () = server.ask(&["SET", "a", "1"]);
    server.restart();
    assert_eq!(server.ask::<String>(&["GET", "a"]), "1");
    server.stop();
    assert!(server.try_ask::<String>(&["PING"]).is_err());
    server.revive();
    assert_eq!(server.ask::<String>(&["GET", "a"]), "1");
}

#[test]
fn a_user_is_asked_for_the_password() {
    let server = redis().user("fair").start();
    assert_eq!(server.ask::<String>(&["ACL", "WHOAMI"]), "fair");
    let mut stranger = ::redis::Client::open(format!("redis://127.0.0.1:{}", server.port())).unwrap();
    let refused = ::redis::cmd("PING").query::<String>(&mut stranger).unwrap_err();
    assert_eq!(refused.code(), Some("NOAUTH"));
    let server = redis().user("default").start();
    assert_eq!(server.ask::<String>(&["ACL", "WHOAMI"]), "default");
}

#[test]
fn a_server_with_keys_speaks_tls() {
    let keys = Keys::new();
    let server = redis().tls(&keys, true).start();
    let address = server.tls_url().replace("rediss://", "");
    let port = address.split(':').next_back().unwrap().to_owned();
    let ask = |with: &[&str]| {
        let mut command = std::process::Command::new("redis-cli");
        command.args(["-h", "127.0.0.1", "-p", &port, "--tls", "--cacert"]).arg(keys.file("ca.crt")).args(with);
        String::from_utf8(command.arg("ping").output().unwrap().stdout).unwrap()
    };
    let (cert, key) = (keys.file("client.crt"), keys.file("client.key"));
    assert_eq!(ask(&["--cert", cert.to_str().unwrap(), "--key", key.to_str().unwrap()]).trim(), "PONG");
    assert_eq!(ask(&[]).trim(), "");
}

#[test]
fn sentinels_fail_over_when_the_master_is_gone() {
    let mut guarded = guarded(3);
    assert_eq!(guarded.master(), 0);
    guarded.fail_over();
    assert_eq!(guarded.master(), 1);
    guarded.servers[1].kill();
    until("the first one is master again", || guarded.master() == 0);
}

#[test]
fn a_cluster_replaces_a_master_that_is_gone() {
    let mut cluster = cluster();
    assert_eq!(cluster.masters().len(), 3);
    let lost = cluster.master_of("a");
    cluster.servers[lost].kill();
    until("three masters again", || cluster.masters().len() == 3 && !cluster.masters().contains(&lost));
    cluster.settle();
    let next = cluster.master_of("a");
    let () = cluster.servers[next].ask(&["SET", "a", "1"]);
    cluster.servers[lost].revive();
    cluster.settle();
}
