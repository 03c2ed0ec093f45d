//! What README, docs, examples and deploy show is true: configurations load, commands are known, API paths exist, links lead
//! somewhere, and what a new user pastes first really runs.
//!
//! A block says what it is: ```` ```yaml ````, `json`, `sh`, or `text` for output. `no-run` after `sh` marks what cannot be run in
//! a page that is run as a whole; its commands are checked all the same.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "docs/page.rs"]
mod page;
#[path = "docs/shell.rs"]
mod shell;
mod support;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use fairlane::config::Problem;
use page::{Block, Page, pages};
use serde_json::Value;
use support::upstream::{answer, upstream};
use support::{Client, Gateway, gateway, post};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn all() -> Vec<Page> {
    pages(root())
}

fn blocks(language: &str) -> Vec<Block> {
    let is = |block: &Block| block.info.split(' ').next() == Some(language);
    all().into_iter().flat_map(|page| page.blocks).filter(is).collect()
}

/// Fails with all of them at once.
fn none(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn every_block_says_what_it_is() {
    let known = ["yaml", "json", "sh", "sh no-run", "text", "rust", "python", "js"];
    let all: Vec<Block> = all().into_iter().flat_map(|page| page.blocks).collect();
    let faults: Vec<String> = all
        .iter()
        .filter(|block| !known.contains(&block.info.as_str()))
        .map(|block| format!("{}: a block of {:?}; one of {known:?} is known", block.place, block.info))
        .collect();
    none(&faults);
    // What is shown and not run stays little.
}

/// Blocks that nothing runs, or nothing reads, by page and heading, and why. What is not here is held by a test: `yaml` is loaded, `json`
/// parsed, of `sh` every command is looked up (below), README's ten lines and the whole of getting-started are run as they stand, and
/// `docs/cli.md` is made from the parser. The commands of blocks marked `no-run` are looked up all the same.
const EXCEPTIONS: [(&str, &str, &str); 11] = [
    (
        "README.md",
        "Fairlane",
        "a measured run of `make demo`; `tests/demo.rs` holds what it prints, not how fast this machine is",
    ),
    ("README.md", "Ten lines", "builds a release: minutes"),
    ("deploy/README.md", "systemd", "needs root and systemd; `tests/deploy.rs` judges the units"),
    (
        "deploy/README.md",
        "Containers",
        "needs an engine; `tests/deploy.rs` reads the files, `make image` carries out the image's steps",
    ),
    ("deploy/README.md", "Prometheus and Grafana", "the same; `tests/monitoring.rs` reads the rules and the dashboard"),
    ("docs/delivery.md", "Why an event waited", "an example of two header lines; `tests/delivery.rs` reads real ones"),
    ("docs/getting-started.md", "1. Build", "builds a release: minutes"),
    ("docs/hookdeck.md", "In five steps", "needs an account there; `tests/import.rs` imports recorded answers"),
    ("docs/keys.md", "Try it on your traffic", "a table of figures; `tests/keys.rs` holds its form"),
    (
        "docs/upgrading.md",
        "Without a pause",
        "commands of a running service and refusals; `tests/upgrade_running.rs`, `tests/upgrade.rs` and `tests/store/in_shards.rs` provoke them",
    ),
    ("examples/receivers/README.md", "Receivers", "servers that do not end; `tests/examples.rs` starts each"),
];

#[test]
fn every_block_is_held_by_a_test_or_says_why_not() {
    let all: Vec<Page> = all();
    let loose = |page: &Page| {
        let is_loose =
            |block: &&Block| ["text", "sh no-run"].contains(&block.info.as_str()) && page.name != "docs/cli.md";
        page.blocks.iter().filter(is_loose).map(|block| (page.name.clone(), block.heading.clone())).collect::<Vec<_>>()
    };
    let found: BTreeSet<(String, String)> = all.iter().flat_map(loose).collect();
    let named: BTreeSet<(String, String)> =
        EXCEPTIONS.iter().map(|(page, heading, _)| ((*page).to_owned(), (*heading).to_owned())).collect();
    assert_eq!(found, named);
}

/// What is typed, by program, and what holds it to the truth.
const PROGRAMS: &[(&str, &str)] = &[
    ("fairlane", "the parser takes it (`every_command_is_known`)"),
    ("make", "there is such a target (`every_command_is_known`)"),
    ("curl", "there is such a call of the API (`every_call_of_the_api_exists`), or it is run with its page"),
    ("cargo", "builds what it builds for every test"),
    ("docker", "the files that it names are there, and `tests/deploy.rs` reads them"),
    ("helm kubectl", "the files that they name are there, and `tests/kubernetes.rs` reads them"),
    (
        "sudo sh journalctl install systemctl",
        "the files that they name are there, and `tests/deploy.rs` reads the units",
    ),
    ("python3 node", "the files that they name are there, and `tests/examples.rs` starts them"),
    ("examples/", "`tests/examples.rs` runs them"),
    ("order", "a function of the page that is run"),
    ("pbpaste", "whatever gives a text; `tests/explain.rs` gives one"),
    (
        "[ . { base64 cat cd cp done echo exit export false grep head jobs kill mkdir pkill set sleep source tee wait }",
        "the shell's own, and what every machine has",
    ),
];

#[test]
fn every_program_is_known() {
    let known = |program: &str| {
        PROGRAMS.iter().any(|(names, _)| {
            names.split(' ').any(|name| name == program || name.ends_with('/') && program.starts_with(name))
        })
    };
    let mut faults = Vec::new();
    for block in blocks("sh") {
        for words in shell::commands(&block.text) {
            if !known(&words[0]) {
                faults.push(format!("{}: {}: PROGRAMS does not say what holds it", block.place, words.join(" ")));
            }
        }
    }
    none(&faults);
}

/// The order of the book: every page once, and nothing that is no page.
#[test]
fn the_summary_names_every_page_once() {
    let all = all();
    let summary = all.iter().find(|page| page.name == "docs/SUMMARY.md").unwrap();
    let name = |link: &str| link.strip_prefix("../").map_or_else(|| format!("docs/{link}"), str::to_owned);
    let named: Vec<String> = summary.links.iter().map(|(_, link)| name(link)).collect();
    let pages: BTreeSet<&str> =
        all.iter().map(|page| page.name.as_str()).filter(|name| *name != "docs/SUMMARY.md").collect();
    assert_eq!(named.iter().map(String::as_str).collect::<BTreeSet<_>>(), pages);
    assert_eq!(named.len(), pages.len(), "a page stands there twice");
}

/// Pages that are gathered for the book lead to each other, and to files, as they do where they are.
#[test]
fn every_link_of_the_book_leads_somewhere() {
    let gathered = Command::new(root().join("deploy/release/book")).arg("--gather").status().unwrap();
    assert!(gathered.success());
    let book = root().join("target/book/pages");
    let mut faults = Vec::new();
    for page in &pages(&book) {
        for (line, link) in page.links.iter().filter(|(_, link)| !link.contains("://") && !link.starts_with('#')) {
            let file = page.path.parent().unwrap().join(link.split('#').next().unwrap());
            if !file.exists() {
                faults.push(format!("{}:{line}: {link} is not gathered", page.name));
            }
        }
    }
    none(&faults);
    let order = std::fs::read_to_string(book.join("SUMMARY.md")).unwrap();
    let named: Vec<&str> = order.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()).collect();
    assert!(named.len() > 30 && named.iter().all(|file| book.join(file).is_file()), "{named:?}");
}

#[test]
fn every_configuration_loads() {
    let mut faults = Vec::new();
    for block in blocks("yaml") {
        for part in variants(&block.text) {
            faults.extend(load(&whole(&part)).err().map(|problems| format!("{}:\n{problems}", block.place)));
        }
    }
    none(&faults);
}

/// A block may show the same field several times, one below the other: each is a part of its own.
fn variants(text: &str) -> Vec<String> {
    let first = text.split(':').next().unwrap_or_default();
    let mut parts: Vec<String> = Vec::new();
    for line in text.lines() {
        match parts.last_mut() {
            Some(part) if !line.starts_with(&format!("{first}:")) => part.push_str(&format!("{line}\n")),
            _ => parts.push(format!("{line}\n")),
        }
    }
    parts
}

/// A fragment as a whole configuration: a part of a source gets a source around it, and what lacks sources gets one.
fn whole(text: &str) -> String {
    const SOURCE: [&str; 6] = ["verify", "key", "within", "order", "dedupe", "respond"];
    let names: Vec<&str> = text.lines().filter_map(|l| l.split_once(':')).map(|(name, _)| name).collect();
    let has = |name: &str| names.contains(&name);
    if SOURCE.iter().any(|name| has(name)) {
        let path = if has("path") { "" } else { "    path: /in\n" };
        let verify = if has("verify") { "" } else { "    verify: none\n" };
        let inner: String = text.lines().map(|line| format!("    {line}\n")).collect();
        return format!("sources:\n  -\n{path}{verify}{inner}");
    }
    if has("sources") { text.to_owned() } else { format!("{text}\nsources: [{{ path: /in, verify: none }}]\n") }
}

/// What is wrong with it. Variables and secrets' files have values that the test makes up; that one of them has not the form
/// which a scheme's secrets have is no fault.
fn load(text: &str) -> Result<(), String> {
    const SECRET: &str = "whsec_aHVzaC1hLXRlc3Qtc2VjcmV0";
    let env = |name: &str| {
        Some(match name {
            name if name.contains("UPSTREAM") || name.contains("URL") => "http://127.0.0.1:9".to_owned(),
            name if name.contains("UNTIL") => "2099-01-01".to_owned(),
            _ => SECRET.to_owned(),
        })
    };
    let files = |_: &Path| Ok(SECRET.to_owned());
    let problems = fairlane::config::load(text, "block", &env, &files).err().unwrap_or_default();
    // What is made up here is no key of a provider's, and no certificate.
    let made_up = |problem: &&Problem| {
        let secret = problem.found.contains("cannot be used: ") && problem.path.contains(".secret");
        secret || problem.path.contains(".tls.")
    };
    let all: Vec<String> = problems.iter().filter(|problem| !made_up(problem)).map(ToString::to_string).collect();
    if all.is_empty() { Ok(()) } else { Err(all.join("\n")) }
}

/// Configurations that are files: the examples', and what is deployed.
#[test]
fn every_configuration_file_loads() {
    let folders = std::fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = folders.map(|folder| folder.join("gateway.yaml")).filter(|file| file.is_file()).collect();
    assert!(files.len() >= 8, "{files:?}");
    for file in files {
        let file = file.display().to_string();
        load(&std::fs::read_to_string(&file).unwrap()).unwrap_or_else(|e| panic!("{file}: {e}"));
    }
}

#[test]
fn every_json_block_is_json() {
    for block in blocks("json") {
        let parsed: Result<Value, _> = serde_json::from_str(&block.text);
        assert!(parsed.is_ok(), "{}: {}", block.place, parsed.unwrap_err());
    }
}

#[test]
fn every_command_is_known() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    let target = |name: &str| makefile.lines().any(|line| line.starts_with(&format!("{name}:")));
    let mut faults = Vec::new();
    let mut seen = 0;
    for block in blocks("sh") {
        for words in shell::commands(&block.text) {
            seen += 1;
            let fault = match words[0].as_str() {
                "fairlane" => fairlane::cli::command().try_get_matches_from(&words).err().map(|e| e.to_string()),
                "make" => {
                    let unknown = words[1..].iter().find(|word| !word.contains('=') && !target(word));
                    unknown.map(|word| format!("make {word}: the Makefile has no such target"))
                }
                _ => words.iter().find_map(|word| missing(word)),
            };
            faults.extend(fault.map(|fault| format!("{}: {}\n  {fault}", block.place, words.join(" "))));
        }
    }
    none(&faults);
    assert!(seen > 60, "only {seen} commands were found: the blocks are not read right");
}

/// Why a word names a file of the project that is not there.
fn missing(word: &str) -> Option<String> {
    let path = word.trim_start_matches("../").trim_start_matches("./");
    let ours =
        ["src/", "tests/", "docs/", "examples/", "deploy/", "benches/"].iter().any(|folder| path.starts_with(folder));
    // What a reader makes himself.
    let made = path == "deploy/.env";
    let plain = !path.contains(['*', '{', '<', '…', ':']);
    (ours && plain && !made && !root().join(path).exists()).then(|| format!("{path} is not there"))
}

/// In running text: `fairlane groups pause`, `src/lib.rs`, `GET /api/v1/events`.
#[test]
fn what_the_text_names_is_there() {
    let mut faults = Vec::new();
    for page in all() {
        // What was is told there, too.
        for (line, code) in page.code.iter().filter(|_| page.name != "CHANGELOG.md") {
            let fault = match code.strip_prefix("fairlane ") {
                Some(rest) => unknown_command(rest),
                None => missing(code).filter(|_| !code.contains(' ')),
            };
            faults.extend(fault.map(|fault| format!("{}:{line}: `{code}`: {fault}", page.name)));
        }
    }
    none(&faults);
}

/// Goes down the commands that `text` names, as far as it does, and looks for its flags.
fn unknown_command(text: &str) -> Option<String> {
    let mut command = fairlane::cli::command();
    let mut words = text.split_whitespace().peekable();
    while let Some(name) = words.next_if(|word| !word.starts_with('-') && command.has_subcommands()) {
        let choices = name.split(['|', ',']).map(|choice| choice.trim_matches(['[', ']', '…']));
        let choices: Vec<&str> = choices.filter(|choice| !choice.is_empty()).collect();
        if let Some(unknown) = choices.iter().find(|choice| command.find_subcommand(choice).is_none()) {
            return Some(format!("{} has no command {unknown}", command.get_name()));
        }
        let Some(first) = choices.first() else { break };
        command = command.find_subcommand(first)?.clone();
    }
    let mut flags = words.filter_map(|word| word.strip_prefix("--")).map(|flag| flag.split('=').next().unwrap());
    let known = |flag: &str| command.get_arguments().any(|argument| argument.get_long() == Some(flag));
    flags.find(|flag| !known(flag)).map(|flag| format!("{} has no --{flag}", command.get_name()))
}

/// Fields (`upstream.retry.max_age`, or its end, `retry.max_age`), metrics (`fairlane_…`) and headers (`Fairlane-…`).
#[test]
fn every_field_metric_and_header_exists() {
    let fields: Vec<String> = fairlane::config::paths().iter().map(|path| path.replace("[]", "")).collect();
    let tops: Vec<&str> = fields.iter().flat_map(|path| path.split('.').rev().skip(1)).collect();
    let sources = sources();
    let (mut faults, mut seen) = (Vec::new(), 0);
    for page in all().into_iter().filter(|page| page.name != "CHANGELOG.md") {
        for (line, code) in &page.code {
            let word = code.split(['{', ':', ' ']).next().unwrap();
            let top = word.split('.').next().unwrap();
            let is_field = word.contains('.')
                && word.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '.' | '_'))
                && tops.contains(&top)
                // A file of the data directory.
                && !word.ends_with(".json")
                // A key's expression, or a text that is signed.
                && !["body", "headers", "id"].contains(&top);
            let exists = if word.starts_with("fairlane_") && !word.contains(['*', '…']) {
                is_metric(word, &sources)
            } else if word.starts_with("Fairlane-") {
                sources.contains(&word.to_ascii_lowercase())
            } else if is_field {
                fields.iter().any(|path| path == word || path.ends_with(&format!(".{word}")))
            } else {
                continue;
            };
            seen += 1;
            if !exists {
                faults.push(format!("{}:{line}: `{code}` does not exist", page.name));
            }
        }
    }
    none(&faults);
    assert!(seen > 60, "only {seen} names were found");
}

/// Whether a metric of this name is registered; the registry puts these ends on by itself.
fn is_metric(name: &str, sources: &str) -> bool {
    let stem = name.strip_prefix("fairlane_").unwrap();
    let ends = ["", "_total", "_info", "_bucket", "_sum", "_count"];
    ends.iter().filter_map(|end| stem.strip_suffix(end)).any(|stem| sources.contains(&format!("\"{stem}\"")))
}

/// Everything below src, in one text.
fn sources() -> String {
    let (mut text, mut open) = (String::new(), vec![root().join("src")]);
    while let Some(folder) = open.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => open.push(path),
                false => text.push_str(&std::fs::read_to_string(path).unwrap()),
            }
        }
    }
    text
}

#[test]
fn every_link_leads_somewhere() {
    let all = all();
    let mut faults = Vec::new();
    for page in &all {
        for (line, link) in page.links.iter().filter(|(_, link)| !link.contains("://")) {
            let (file, anchor) =
                link.split_once('#').map_or((link.as_str(), None), |(file, anchor)| (file, Some(anchor)));
            let path = if file.is_empty() { page.path.clone() } else { page.path.parent().unwrap().join(file) };
            let Ok(path) = path.canonicalize() else {
                faults.push(format!("{}:{line}: {link} is not there", page.name));
                continue;
            };
            let target = all.iter().find(|other| other.path.canonicalize().unwrap() == path);
            if let (Some(anchor), Some(target)) = (anchor, target)
                && !target.anchors.contains(anchor)
            {
                faults.push(format!("{}:{line}: {} has no heading #{anchor}", page.name, target.name));
            }
        }
    }
    none(&faults);
}

/// Every page can be reached from README.
#[test]
fn no_page_is_lost() {
    let readme = all().into_iter().find(|page| page.name == "README.md").unwrap();
    let linked: Vec<_> = readme.links.iter().map(|(_, link)| link.split('#').next().unwrap().to_owned()).collect();
    let lost: Vec<String> = all()
        .into_iter()
        .map(|page| page.name)
        .filter(|name| name.starts_with("docs/") && name != "docs/SUMMARY.md" && !linked.contains(name))
        .collect();
    assert!(lost.is_empty(), "README does not lead to {lost:?}");
}

/// Calls of the admin API: `GET /api/v1/…` in running text, and `curl` in blocks.
#[test]
fn every_call_of_the_api_exists() {
    let gateway =
        gateway("upstream: http://127.0.0.1:9\nsources: [{ path: /in, verify: none, key: body.a }]\n").start();
    let event = gateway.client().send(&post("/in", br#"{"a":"a"}"#)).header("fairlane-event-id").unwrap().to_owned();
    let mut calls = Vec::new();
    for page in all() {
        for (line, code) in page.code {
            if let Some((method, target)) = code.split_once(' ')
                && ["GET", "POST", "PATCH", "DELETE"].contains(&method)
                && ["/api/", "/healthz", "/readyz", "/metrics"].iter().any(|start| target.starts_with(start))
            {
                calls.push((format!("{}:{line}", page.name), method.to_owned(), target.to_owned()));
            }
        }
    }
    let named = calls.len();
    for block in blocks("sh") {
        for words in shell::commands(&block.text).into_iter().filter(|words| words[0] == "curl") {
            let url = words.iter().find_map(|word| word.strip_prefix("http://127.0.0.1:8081"));
            let after_x = words.iter().position(|word| word == "-X").map(|at| words[at + 1].clone());
            let sends = words.iter().any(|word| word == "-d");
            let method = after_x.unwrap_or_else(|| if sends { "POST" } else { "GET" }.to_owned());
            calls.extend(url.map(|url| (block.place.clone(), method, url.to_owned())));
        }
    }
    assert!(named >= 10 && calls.len() >= named + 3, "the calls are not read right: {calls:?}");
    assert_eq!((call(&gateway, "GET", "/api/v1/nothing"), call(&gateway, "POST", "/api/v1/events")), (404, 405));
    let mut faults = Vec::new();
    for (place, method, target) in calls {
        let target = target.replace("{id}", &event).replace("name=", "name=a").replace("{", "").replace('}', "");
        let status = call(&gateway, &method, &target);
        if [404, 405].contains(&status) {
            faults.push(format!("{place}: {method} {target} is answered with {status}"));
        }
    }
    none(&faults);
}

fn call(gateway: &Gateway, method: &str, target: &str) -> u16 {
    let body: &[u8] = if method == "GET" { b"" } else { b"{}" };
    let request = post(target, body)
        .method(method)
        .without("Host")
        .header("Host", "127.0.0.1")
        .header("Content-Type", "application/json")
        .header("Authorization", format!("Bearer {}", gateway.token()));
    Client::to(gateway.admin).send(&request).status
}

/// The commands of `page` below the heading (everywhere without one), in their order, as a user pastes them: in a folder of
/// their own, with the built binary in the PATH and free ports in place of those that are shown. Gives what they print.
fn pasted(page: &str, heading: Option<&str>, upstream_port: u16) -> String {
    let page = all().into_iter().find(|p| p.name == page).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root().join("examples"), folder.path().join("examples")).unwrap();
    let (listen, admin) = (free_port(), free_port());
    let place = |text: &str| {
        text.replace("127.0.0.1:8080", &format!("127.0.0.1:{listen}"))
            .replace("127.0.0.1:8081", &format!("127.0.0.1:{admin}"))
            .replace("127.0.0.1:3000", &format!("127.0.0.1:{upstream_port}"))
            .replace("PORT=3000", &format!("PORT={upstream_port}"))
            .replace("\nupstream:", &format!("\nadmin: {{ address: \"127.0.0.1:{admin}\" }}\nupstream:"))
    };
    let mut script = "set -euo pipefail\n".to_owned();
    for block in page.blocks.iter().filter(|block| heading.is_none_or(|heading| block.heading == heading)) {
        match block.info.as_str() {
            "yaml" if block.text.starts_with("# gateway.yaml\n") => {
                std::fs::write(folder.path().join("gateway.yaml"), place(&block.text)).unwrap();
            }
            "sh" => script.push_str(&place(&block.text)),
            _ => {}
        }
    }
    let binaries = Path::new(env!("CARGO_BIN_EXE_fairlane")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
    let out = folder.path().join("out");
    let printed = std::fs::File::create(&out).unwrap();
    // A loop that waits for what does not come would wait for ever.
    let mut child = Command::new("timeout")
        .args(["120", "bash", "-c", &script])
        .env("PATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(printed.try_clone().unwrap())
        .stderr(printed)
        .process_group(0)
        .spawn()
        .expect("bash is there");
    let status = child.wait().unwrap();
    // What it left in the background ends with it.
    drop(Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).stderr(Stdio::null()).status());
    let printed = std::fs::read_to_string(out).unwrap();
    assert!(status.success(), "{}: {status}\n{printed}", page.name);
    printed
}

/// Below those that the system gives to others that ask for any, so that nobody else gets them before the gateway does.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + u16::try_from(std::process::id() % 8_000).unwrap();
    let mut ports = std::iter::from_fn(|| Some(first + NEXT.fetch_add(1, Ordering::Relaxed) % 4_000));
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

#[test]
fn the_ten_lines_of_the_readme_run_as_they_stand() {
    let receiver = upstream(|_| answer(200));
    let printed = pasted("README.md", Some("Ten lines"), receiver.address.port());
    let got = receiver.wait_for(1).remove(0);
    assert_eq!((got.target.as_str(), got.group()), ("/webhooks/shopify", "quiet-store.myshopify.com"));
    assert_eq!(got.body, b"{\"id\":820982911946154508}\n");
    for part in ["has no problems", "200 OK", "accepted as evt_", r#""events":["#, r#""rejections":[]"#] {
        assert!(printed.contains(part), "{part} is not in\n{printed}");
    }
}

#[test]
fn getting_started_runs_as_it_stands() {
    let printed = pasted("docs/getting-started.md", None, free_port());
    assert_eq!(printed.matches("200 OK").count(), 4, "{printed}");
    for part in [
        "has no problems",
        "401 Unauthorized",
        "refused, as it should be",
        "bad_signature",
        "noisy-store.myshopify.com",
        "paused: true",
        "paused: false",
        "200 attempt 1 quiet-store.myshopify.com (shopify secret=0): done",
    ] {
        assert!(printed.contains(part), "{part} is not in\n{printed}");
    }
}
