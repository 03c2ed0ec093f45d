//! What a new user copies works: each example's `run.sh` with the built binary, each receiver behind a real gateway.
//!
//! Needs `bash`, `python3` and `node`, which `make setup` installs. The receivers' library versions need the packages that
//! it puts into `target/receivers`; without them those two are left out, and the test says so.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::panic, reason = "likewise")]
#![expect(clippy::indexing_slicing, reason = "likewise")]
#![expect(clippy::print_stdout, reason = "what is left out has to be seen")]

#[expect(dead_code, reason = "its main is for `cargo run --example receiver`")]
#[path = "../examples/receivers/rust/receiver.rs"]
mod receiver;
mod support;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use standardwebhooks::Webhook;
use support::{Client, Gateway, gateway, post};

/// The folders with a `run.sh`; a test sees that none is missing here.
const EXAMPLES: [&str; 8] =
    ["github", "order-keys", "plans", "several-providers", "shopify-multi-store", "slack", "stripe-connect", "twilio"];

/// The receivers' and the gateway's; base64 of a test's words.
const SECRET: &str = "whsec_YSBzaWduaW5nIHNlY3JldCBvZiBhIHRlc3Q=";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs an example with `fairlane` as its binary. Everything it makes is below a folder of ours, which has to be empty afterwards.
fn run(example: &str, fairlane: &str) -> Output {
    let stage = tempfile::tempdir().unwrap();
    let script = root().join("examples").join(example).join("run.sh");
    let output = Command::new("bash")
        .arg(script)
        .env("FAIRLANE", fairlane)
        .env("TMPDIR", stage.path())
        .current_dir(stage.path())
        .stdin(Stdio::null())
        .output()
        .expect("bash is there");
    let left: Vec<_> = std::fs::read_dir(stage.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{example} leaves {left:?}");
    output
}

fn shown(example: &str) -> String {
    let output = run(example, env!("CARGO_BIN_EXE_fairlane"));
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{example}: {}\n{out}\n{errors}", output.status);
    out.into_owned()
}

#[test]
fn no_example_is_forgotten() {
    let folders = std::fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = folders
        .filter(|folder| folder.join("run.sh").is_file())
        .map(|folder| folder.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, EXAMPLES);
    let page = std::fs::read_to_string(root().join("examples/README.md")).unwrap();
    for name in EXAMPLES {
        assert!(page.contains(&format!("({name}/README.md)")), "examples/README.md does not lead to {name}");
    }
}

/// The receiver's lines of `text`, as `status attempt group`.
fn answers(text: &str) -> Vec<String> {
    let words = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        (words.get(1) == Some(&"attempt")).then(|| format!("{} {} {}", words[0], words[2], words[3]))
    };
    text.lines().filter_map(words).collect()
}

/// The paragraphs of `text` that follow its `# headings`.
fn paragraphs(text: &str) -> Vec<&str> {
    text.split("\n# ").skip(1).collect()
}

#[test]
fn shopify_a_noisy_store_delays_nobody_and_is_paused() {
    let text = shown("shopify-multi-store");
    let [away, back, paused, on] = paragraphs(&text)[..] else { panic!("{text}") };
    for store in ["noisy-imports", "quiet-candles", "quiet-tea", "plus-shoes"] {
        assert!(away.lines().any(|l| l.starts_with(store) && l.contains("the upstream is paused")), "{away}");
    }
    let first = answers(back);
    assert_eq!(first.len(), 8, "{back}");
    for store in ["quiet-candles", "quiet-tea", "plus-shoes"] {
        assert!(first.contains(&format!("200 1 {store}.myshopify.com")), "{store} waits for the flood: {back}");
    }
    assert_eq!(answers(paused), ["200 1 quiet-tea.myshopify.com"]);
    // The row of the table; what the pause itself said comes before.
    let held = paused.lines().rfind(|line| line.starts_with("noisy") && line.contains("paused")).unwrap();
    assert_eq!(held.split_whitespace().nth(2), Some("2"), "{held}");
    assert_eq!(answers(on), ["200 1 noisy-imports.myshopify.com"; 2]);
    assert_eq!(on.matches(" delivered ").count(), 6, "{on}");
}

#[test]
fn stripe_accounts_have_lanes_and_both_secrets_count() {
    let text = shown("stripe-connect");
    let [lanes, old, forged, events] = paragraphs(&text)[..] else { panic!("{text}") };
    let mut groups = answers(lanes);
    groups.sort();
    assert_eq!(groups, ["200 1 acct_1QcExampleBakery", "200 1 acct_1QcExampleTeaShop", "200 1 ~platform"]);
    assert!(lanes.matches("(stripe secret=0)").count() == 3 && old.contains("(stripe secret=1)"), "{text}");
    assert!(forged.contains("401 Unauthorized") && forged.contains("nothing was stored"), "{forged}");
    assert_eq!(events.matches(" delivered ").count(), 4, "{events}");
    assert!(events.contains("~platform is idle") && events.contains("weight: 4.00\n"), "{events}");
}

#[test]
fn github_a_failing_event_is_tried_again_and_a_hopeless_one_is_dead() {
    let text = shown("github");
    let [retried, hopeless, events, dead] = paragraphs(&text)[..] else { panic!("{text}") };
    let all = answers(retried);
    let of = |group: &str| all.iter().filter(|line| line.ends_with(group)).cloned().collect::<Vec<_>>();
    assert_eq!(of("77000101"), ["500 1 github~77000101", "500 2 github~77000101", "200 3 github~77000101"]);
    assert_eq!(of("77000202"), ["200 1 github~77000202"]);
    assert_eq!(answers(hopeless), ["422 1 github~77000101"]);
    assert_eq!((events.matches(" delivered ").count(), events.matches(" dead ").count()), (2, 1), "{events}");
    let dead: serde_json::Value = serde_json::from_str(dead.split_once('\n').unwrap().1).unwrap();
    assert_eq!(dead["events"].as_array().unwrap().len(), 1);
    assert_eq!(dead["events"][0]["key_source"]["rule"], "body.installation.id");
}

#[test]
fn slack_is_answered_and_told_what_the_application_says() {
    let text = shown("slack");
    let [asked, mentions, again, command, events] = paragraphs(&text)[..] else { panic!("{text}") };
    assert!(asked.contains("a-word-that-slack-made-up-Qz81") && asked.contains("nothing stored"), "{asked}");
    let mut groups = answers(mentions);
    groups.sort();
    assert_eq!(groups, ["200 1 T0LANTERN", "200 1 T0TEAHOUSE"]);
    assert!(again.contains("fairlane-duplicate-of: evt_"), "{again}");
    assert!(command.contains("Order 1042 left the warehouse this morning, mina."), "{command}");
    assert_eq!((events.matches(" delivered ").count(), events.matches(" suppressed ").count()), (2, 1), "{events}");
}

#[test]
fn twilio_gets_the_answer_of_the_application_and_reports_keep_their_order() {
    let text = shown("twilio");
    let [message, kept, away, reports] = paragraphs(&text)[..] else { panic!("{text}") };
    assert!(message.contains("<Response><Message>You asked: Is the green tea back?"), "{message}");
    assert!(message.contains("content-type: text/xml") && kept.contains("no events"), "{message}{kept}");
    assert!(away.contains("503 Service Unavailable"), "{away}");
    assert!(reports.ends_with("queued\nsent\ndelivered\n"), "{reports}");
}

#[test]
fn several_providers_have_one_receiver() {
    let text = shown("several-providers");
    let [all, stranger, lists] = paragraphs(&text)[..] else { panic!("{text}") };
    let groups = ["acct_1QcExampleTeaShop", "github~77000101", "harbour.myshopify.com", "own~1207"];
    assert_eq!(answers(all), groups.map(|group| format!("200 1 {group}")));
    assert!(stranger.contains("bad_signature"), "{stranger}");
    assert_eq!(lists.matches(" delivered ").count(), 4, "{lists}");
}

#[test]
fn an_order_keeps_its_order_and_holds_no_other() {
    let text = shown("order-keys");
    let [tries, done, hopeless] = paragraphs(&text)[..] else { panic!("{text}") };
    let statuses: Vec<String> = answers(tries).iter().map(|line| line[..5].to_owned()).collect();
    assert_eq!(statuses.iter().filter(|status| *status == "500 1" || *status == "500 2").count(), 2, "{tries}");
    let done: Vec<&str> = done.lines().filter(|line| line.starts_with("order ")).collect();
    let of = |order: &str| done.iter().filter(|line| line.contains(order)).copied().collect::<Vec<_>>();
    assert_eq!(of("1042"), ["order 1042: pending", "order 1042: paid", "order 1042: refunded"]);
    assert_eq!(done.first(), Some(&"order 1043: pending"), "it waits for nobody: {done:?}");
    assert!(hopeless.contains("order 1044: paid") && hopeless.contains(" dead "), "{hopeless}");
}

#[test]
fn plans_get_their_weights() {
    let text = shown("plans");
    let [waiting, first, all] = paragraphs(&text)[..] else { panic!("{text}") };
    assert_eq!(waiting.matches(" 40 ").count(), 3, "{waiting}");
    let count = |text: &str, group: &str| -> u32 {
        let line = text.lines().find(|line| line.contains(group)).unwrap_or_else(|| panic!("{group}: {text}"));
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let [gold, silver, free] = ["gold~cedar", "silver~birch", "free~acorn"].map(|group| count(first, group));
    assert_eq!(gold + silver + free, 28);
    assert!((15..=17).contains(&gold) && (7..=9).contains(&silver) && (3..=5).contains(&free), "{first}");
    for group in ["gold~cedar", "silver~birch", "free~acorn"] {
        assert_eq!(count(all, group), 40, "{all}");
    }
}

/// A gateway that ends at once: the script says so, and the receiver it had started is gone with its folder.
#[test]
fn an_example_that_fails_says_so_and_cleans_up() {
    for example in EXAMPLES {
        let output = run(example, "false");
        assert_eq!(output.status.code(), Some(1), "{example}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("it ended while waiting for a gateway"), "{errors}");
        let port = errors.split("listening on http://").nth(1).unwrap().split_whitespace().next().unwrap();
        assert!(std::net::TcpStream::connect(port).is_err(), "{example}: its receiver still listens on {port}");
        assert_eq!(run(example, "no-such-binary").status.code(), Some(1), "{example}");
    }
}

/// One receiver, running.
trait Receiver {
    fn address(&self) -> SocketAddr;
}

/// In a process of its own; killed when dropped.
struct Process(Child, SocketAddr);

impl Receiver for Process {
    fn address(&self) -> SocketAddr {
        self.1
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn process(program: &str, script: &Path, ledger: &Path) -> Process {
    let mut child = Command::new(program)
        .arg(script)
        .env("FAIRLANE_SIGNING_SECRET", SECRET)
        .env("PORT", "0")
        .env("LEDGER", ledger)
        .env("PYTHONPATH", packages("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} cannot be run ({error}); `make setup` installs it"));
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on http://").unwrap_or_else(|| panic!("{program}: {line:?}"));
    let address = address.parse().unwrap();
    // A full pipe would stop it.
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    Process(child, address)
}

/// The Rust receiver, in a thread that serves until the test ends.
struct Thread(SocketAddr);

impl Receiver for Thread {
    fn address(&self) -> SocketAddr {
        self.0
    }
}

fn thread(ledger: &Path) -> Thread {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let (address, ledger) = (listener.local_addr().unwrap(), ledger.to_owned());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            receiver::serve(tokio::net::TcpListener::from_std(listener).unwrap(), SECRET, ledger).await.unwrap();
        });
    });
    Thread(address)
}

/// Where `make setup` puts a language's packages.
fn packages(language: &str) -> PathBuf {
    root().join("target/receivers").join(language)
}

fn receivers() -> PathBuf {
    root().join("examples/receivers")
}

#[test]
fn the_rust_receiver() {
    behaves("rust", &|ledger| Box::new(thread(ledger)));
}

#[test]
fn the_python_receiver() {
    behaves("python", &|ledger| Box::new(process("python3", &receivers().join("python/receiver.py"), ledger)));
}

#[test]
fn the_python_receiver_with_its_library() {
    if !packages("python/standardwebhooks").is_dir() {
        return left_out("python");
    }
    behaves("python library", &|ledger| {
        Box::new(process("python3", &receivers().join("python/with_library.py"), ledger))
    });
}

#[test]
fn the_node_receiver() {
    behaves("node", &|ledger| Box::new(process("node", &receivers().join("node/receiver.mjs"), ledger)));
}

/// Node looks for packages beside the file that names them.
#[test]
fn the_node_receiver_with_its_library() {
    let folder = packages("node");
    if !folder.join("node_modules/standardwebhooks").is_dir() {
        return left_out("node");
    }
    for file in ["receiver.mjs", "with-library.mjs"] {
        std::fs::copy(receivers().join("node").join(file), folder.join(file)).unwrap();
    }
    behaves("node library", &|ledger| Box::new(process("node", &folder.join("with-library.mjs"), ledger)));
}

fn left_out(language: &str) {
    println!(
        "LEFT OUT: the {language} receiver with its library; `make setup` installs its package where pip and npm are"
    );
}

/// What every receiver has to do, told by what the gateway and the ledger say.
fn behaves(name: &str, start: &dyn Fn(&Path) -> Box<dyn Receiver>) {
    let folder = tempfile::tempdir().unwrap();
    // Work fails while this folder is not there.
    let ledger = folder.path().join("not-yet/ledger.jsonl");
    let receiver = start(&ledger);
    let gateway = gateway(&format!(
        "upstream: {{ url: \"http://{}\", signing_secret: {SECRET}, retry: {{ backoff: {{ initial: 50ms, max: 100ms }} }} }}\n\
         sources: [{{ path: /in, verify: none, key: body.tenant }}]\n",
        receiver.address()
    ))
    .start();
    let accepted = |body: &str| {
        let answer = gateway.client().send(&post("/in", body.as_bytes()));
        assert_eq!(answer.status, 200, "{name}");
        answer.header("fairlane-event-id").unwrap().to_owned()
    };

    let id = accepted(r#"{"tenant":"café","n":12}"#);
    until(name, || of(&gateway, &id, "attempts").as_u64() >= Some(2));
    assert!(gateway.json(&format!("/api/v1/events/{id}"))["tries"].to_string().contains("500"), "{name}");
    std::fs::create_dir(ledger.parent().unwrap()).unwrap();
    until(name, || of(&gateway, &id, "status") == "delivered");
    let lines = done(&ledger);
    assert_eq!(lines.len(), 1, "{name}: {lines:?}");
    assert_eq!((&lines[0]["id"], &lines[0]["group"]), (&id.as_str().into(), &"caf%C3%A9".into()), "{name}");
    assert_eq!(lines[0]["content"]["n"], 12, "{name}");

    let hopeless = accepted("no JSON at all");
    until(name, || of(&gateway, &hopeless, "status") == "dead");
    assert_eq!(of(&gateway, &hopeless, "attempts"), 1, "{name}: Retry-After: -1 ends it at once");

    only_the_gateway_is_heard(name, receiver.address());
    assert_eq!(done(&ledger).len(), 2, "{name}");
    drop(receiver);
    // What was done is known after a restart.
    let again = start(&ledger);
    assert_eq!(sent(again.address(), &Sent::now("evt_direct")), (200, "done before".into()), "{name}");
    assert_eq!(done(&ledger).len(), 2, "{name}");
}

/// Straight to the receiver: a forged request of each kind is refused, a genuine one is worked on once.
fn only_the_gateway_is_heard(name: &str, address: SocketAddr) {
    let unsigned = Client::to(address).send(&post("/in", b"{}"));
    assert_eq!(unsigned.status, 401, "{name}: unsigned");
    let genuine = Sent::now("evt_direct");
    let forged = [
        ("body", Sent { body: br#"{"n":2}"#.to_vec(), ..genuine.clone() }),
        ("id", Sent { id: "evt_other".into(), ..genuine.clone() }),
        ("time", Sent { timestamp: genuine.timestamp + 1, ..genuine.clone() }),
        ("signature", Sent { signature: "v1,AAAA".into(), ..genuine.clone() }),
        ("version", Sent { signature: genuine.signature.replace("v1,", "v2,"), ..genuine.clone() }),
        ("an hour old", Sent::at("evt_direct", genuine.timestamp - 3600)),
        ("an hour ahead", Sent::at("evt_direct", genuine.timestamp + 3600)),
    ];
    for (what, forged) in forged {
        assert_eq!(sent(address, &forged).0, 401, "{name}: {what}");
    }
    assert_eq!(sent(address, &genuine), (200, "done".into()), "{name}");
    assert_eq!(sent(address, &genuine), (200, "done before".into()), "{name}");
    // While a secret is changed there may be a second signature.
    let two = Sent { signature: format!("v1,AAAA {}", genuine.signature), ..genuine };
    assert_eq!(sent(address, &two), (200, "done before".into()), "{name}");
}

/// A request as the gateway signs it.
#[derive(Clone)]
struct Sent {
    id: String,
    timestamp: i64,
    signature: String,
    body: Vec<u8>,
}

impl Sent {
    fn now(id: &str) -> Self {
        Self::at(id, UNIX_EPOCH.elapsed().unwrap().as_secs().try_into().unwrap())
    }

    fn at(id: &str, timestamp: i64) -> Self {
        let body = br#"{"n":1}"#.to_vec();
        let signature = Webhook::new(SECRET).unwrap().sign(id, timestamp, &body).unwrap();
        Self { id: id.into(), timestamp, signature, body }
    }
}

fn sent(address: SocketAddr, what: &Sent) -> (u16, String) {
    let request = post("/in", &what.body)
        .header("Fairlane-Event-Id", &what.id)
        .header("Fairlane-Timestamp", what.timestamp.to_string())
        .header("Fairlane-Signature", &what.signature)
        .header("Fairlane-Group", "direct")
        .header("Fairlane-Attempt", "1");
    let answer = Client::to(address).send(&request);
    (answer.status, answer.text())
}

fn of(gateway: &Gateway, id: &str, field: &str) -> serde_json::Value {
    gateway.json(&format!("/api/v1/events/{id}"))[field].clone()
}

fn done(ledger: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(ledger).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Asks again until it is so.
fn until(name: &str, mut what: impl FnMut() -> bool) {
    let patience = Duration::from_secs(60);
    let deadline = UNIX_EPOCH.elapsed().unwrap() + patience;
    while !what() {
        assert!(UNIX_EPOCH.elapsed().unwrap() < deadline, "{name}: it did not happen within {patience:?}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
