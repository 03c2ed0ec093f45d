//! `fairlane top` through the real binary: once for pipes and programs, and on a terminal, which it gives back.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use serde_json::Value;
use support::upstream::{answer, upstream};
use support::{Gateway, gateway, post};

/// A gateway with a group that waits, as a person paused it.
fn waiting() -> Gateway {
    let receiver = upstream(|_| answer(200));
    let yaml = format!(
        "upstream: {}\nsources:\n  - path: /any/*\n    verify: {{ provider: none }}\n    key: headers.x-key\n",
        receiver.url()
    );
    let gateway = gateway(&yaml).start();
    assert_eq!(gateway.change("PATCH", "/api/v1/group?name=quiet-store", "{\"paused\":true}").status, 200);
    assert_eq!(gateway.client().send(&post("/any/x", b"{}").header("X-Key", "quiet-store")).status, 200);
    gateway
}

fn arguments(gateway: &Gateway, more: &[&str]) -> Vec<String> {
    let data = gateway.dir().join("data").display().to_string();
    let config = gateway.config().display().to_string();
    let own = ["top", "-c", &config, "--data", &data, "--admin", &gateway.admin.to_string()].map(str::to_owned);
    own.into_iter().chain(more.iter().map(|&word| word.to_owned())).collect()
}

fn top(gateway: &Gateway, more: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_fairlane")).args(arguments(gateway, more)).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn where_nobody_looks_the_table_is_printed_once() {
    let gateway = waiting();
    for more in [&["--once"][..], &["--sort", "depth"][..]] {
        let text = top(&gateway, more);
        assert!(text.starts_with("fairlane ") && text.contains("1 events wait in 1 groups"), "{text}");
        let row = text.lines().find(|line| line.starts_with("quiet-store")).unwrap();
        assert!(row.contains("paused") && !text.contains('\u{1b}'), "{text}");
    }
    let answer: Value = serde_json::from_str(&top(&gateway, &["--json"])).unwrap();
    assert_eq!(answer["groups"][0]["group"], "quiet-store");
    assert_eq!(answer["upstream"]["breaker"]["state"], "closed");
    assert!(answer["status"]["alerts"].is_array());
}

#[test]
fn a_terminal_is_used_whole_and_given_back_after_q_and_after_ctrl_c() {
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("LEFT OUT: top on a terminal, for want of `script` (util-linux), which makes one");
        return;
    }
    let gateway = waiting();
    for key in [b"q", b"\x03"] {
        let words: Vec<String> = arguments(&gateway, &[]).iter().map(|word| format!("'{word}'")).collect();
        let line = format!("stty cols 120 rows 30; '{}' {}", env!("CARGO_BIN_EXE_fairlane"), words.join(" "));
        let mut terminal = Command::new("script")
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut keys, mut screen) = (terminal.stdin.take().unwrap(), terminal.stdout.take().unwrap());
        let mut shown = Vec::new();
        let mut byte = [0];
        // Its row stands there: keys are heard from now on.
        while !String::from_utf8_lossy(&shown).contains("quiet-store") {
            assert_eq!(screen.read(&mut byte).unwrap(), 1, "it ended: {}", String::from_utf8_lossy(&shown));
            shown.push(byte[0]);
        }
        keys.write_all(key).unwrap();
        screen.read_to_end(&mut shown).unwrap();
        assert!(terminal.wait().unwrap().success());
        let shown = String::from_utf8_lossy(&shown);
        let (entered, left) = (shown.find("\u{1b}[?1049h"), shown.rfind("\u{1b}[?1049l"));
        assert!(entered.is_some() && left > entered, "{shown:?}");
        assert!(shown.rfind("\u{1b}[?25h") > shown.find("\u{1b}[?25l"), "the cursor is shown again: {shown:?}");
    }
}
