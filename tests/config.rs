//! The exact text of every refusal, and of what accepted configurations come to.
//!
//! `tests/config/NAME.yaml` is checked as `gateway.yaml`; what `fairlane check` prints has to be `tests/config/NAME.expected`.
//! After a change that is meant, write them all again and read the difference:
//!
//! ```sh
//! UPDATE_EXPECTED=1 cargo test --test config
//! ```

#![cfg(test)]

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use fairlane::cli::check::{CONFIG, OK, Shape, check};
use fairlane::config::{self, Config, Problem};

/// No value of this may ever be printed.
const HUSH: &str = "hunter2";

fn env(name: &str) -> Option<String> {
    match name {
        "SHOPIFY_SECRET" => Some(format!("{HUSH}-of-shopify-0123456789")),
        "STRIPE_SECRET" => Some(format!("whsec_{HUSH}0123456789abcdef")),
        "PORT" => Some("8090".to_owned()),
        "BAD_PORT" => Some(format!("{HUSH}-port")),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn files(path: &Path) -> io::Result<String> {
    match path.to_str() {
        Some("/run/secrets/github") => Ok(format!("{HUSH}-of-github-0123456789\n")),
        Some("/run/secrets/empty") => Ok("\n".to_owned()),
        Some("/etc/fairlane/tls.crt" | "/etc/fairlane/tls.key") => Ok("PEM".to_owned()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn load(text: &str) -> Result<Config, Vec<Problem>> {
    config::load(text, "gateway.yaml", &env, &files)
}

fn loaded(text: &str) -> Config {
    load(text).unwrap_or_else(|problems| {
        let all: Vec<String> = problems.iter().map(Problem::text).collect();
        panic!("{}\n{text}", all.join("\n"))
    })
}

fn printed(text: &str, json: bool) -> (u8, String) {
    let mut out = Vec::new();
    let shape = if json { Shape::Json } else { Shape::Whole };
    let status = check(text, "gateway.yaml", &env, &files, shape, &mut out).unwrap();
    (status, String::from_utf8(out).unwrap())
}

fn cases() -> Vec<(String, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config");
    let mut cases: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path))
        .collect();
    cases.sort();
    cases
}

fn default_file() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("gateway.yaml")).unwrap()
}

#[test]
fn every_case_prints_what_is_expected() {
    let update = std::env::var_os("UPDATE_EXPECTED").is_some();
    let mut differ = Vec::new();
    for (name, path) in cases() {
        let text = std::fs::read_to_string(&path).unwrap();
        let (status, out) = printed(&text, false);
        let now = format!("exit {status}\n{out}");
        let expected = path.with_extension("expected");
        if update {
            std::fs::write(&expected, &now).unwrap();
        }
        let before = std::fs::read_to_string(&expected).unwrap_or_default();
        if before != now {
            differ.push(format!("--- {name}: expected\n{before}--- {name}: printed\n{now}"));
        }
        assert_eq!(status == OK, name.starts_with("ok-"), "{name}: good ones begin with ok-\n{now}");
    }
    assert!(differ.is_empty(), "{}\nUPDATE_EXPECTED=1 cargo test --test config writes them again", differ.join("\n"));
}

#[test]
fn there_are_refusals_enough_and_each_expected_text_has_its_case() {
    let names: BTreeSet<String> = cases().into_iter().map(|(name, _)| name).collect();
    let refused = names.iter().filter(|name| !name.starts_with("ok-")).count();
    assert!(refused >= 25, "{refused}");
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config")).unwrap() {
        let path = entry.unwrap().path();
        assert!(names.contains(path.file_stem().unwrap().to_str().unwrap()), "{} has no case", path.display());
    }
}

#[test]
fn no_secret_is_ever_printed() {
    for (name, path) in cases() {
        let text = std::fs::read_to_string(path).unwrap();
        for json in [false, true] {
            let (_, out) = printed(&text, json);
            assert!(!out.contains(HUSH), "{name}: {out}");
        }
        if let Ok(config) = load(&text) {
            assert!(!format!("{config:?}").contains(HUSH), "{name}");
        }
    }
}

#[test]
fn a_program_gets_the_same_problems() {
    for (name, path) in cases() {
        let text = std::fs::read_to_string(path).unwrap();
        let (status, out) = printed(&text, true);
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(json["ok"], status == OK, "{name}");
        if let Err(problems) = load(&text) {
            let listed = json["problems"].as_array().unwrap();
            assert_eq!(listed.len(), problems.len(), "{name}");
            for (listed, problem) in listed.iter().zip(&problems) {
                assert_eq!(listed["line"], problem.place.line, "{name}");
                assert_eq!(listed["problem"], problem.found, "{name}");
            }
            assert_eq!(status, CONFIG);
        }
    }
}

/// The effective configuration, secrets put back, is a configuration that means the same.
#[test]
fn the_effective_configuration_is_a_configuration() {
    let good = cases().into_iter().filter(|(name, _)| name.starts_with("ok-"));
    let files = good.map(|(_, path)| std::fs::read_to_string(path).unwrap()).chain([default_file()]);
    for text in files {
        let first = loaded(&text);
        // A URL is a secret of a form, so it gets its own back.
        let url = text.split('"').find(|part| part.starts_with("redis")).unwrap_or_default();
        let put_back = first.effective.replace("    url: \"***\"", &format!("    url: \"{url}\""));
        let put_back = put_back.replace("\"***\"", "\"user:hunter2-hunter2-hunter2\"");
        let second = loaded(&put_back);
        assert_eq!(first.effective, second.effective);
        assert_eq!(first.upstream.retry, second.upstream.retry);
        assert_eq!(first.groups, second.groups);
        assert_eq!(first.store, second.store);
        let names = |config: &Config| config.sources.iter().map(|s| s.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&first), names(&second));
        assert!(config::reload(&second, &loaded(&put_back)).unwrap().is_empty());
    }
}

#[test]
fn a_secret_is_the_text_that_stands_there() {
    for secret in ["0x10", "1e3", "no", "010", "1_000", "~tilde", "true", ".inf", "12345678901234567890123"] {
        let text = format!("sources:\n  - {{ path: /a, verify: {{ basic: {{ user: u }}, secret: {secret} }} }}\n");
        let config = loaded(&text);
        let header =
            format!("Basic {}", base64::Engine::encode(&base64::prelude::BASE64_STANDARD, format!("u:{secret}")));
        let mut headers = http::HeaderMap::new();
        headers.insert("authorization", header.parse().unwrap());
        assert!(judged(&config, &headers), "{secret}");
        headers.insert("authorization", "Basic dTp4".parse().unwrap());
        assert!(!judged(&config, &headers), "{secret}");
    }
}

fn judged(config: &Config, headers: &http::HeaderMap) -> bool {
    let request =
        fairlane::verify::Request { method: &http::Method::POST, target: "/a", seen_url: None, headers, body: b"" };
    config.sources[0].senders[0].verifier.judge(&request, fairlane::event::Wall::from_unix_s(1_700_000_000)).is_ok()
}

#[test]
fn the_default_file_says_every_default() {
    let file = loaded(&default_file());
    let bare =
        loaded("sources: [{ path: /webhooks/shopify, verify: { provider: shopify, secret: \"${SHOPIFY_SECRET}\" } }]");
    assert_eq!(file.effective, bare.effective);
    // With nothing set in the environment it loads as well: `fairlane run` on a fresh machine.
    let fresh = config::load(&default_file(), "gateway.yaml", &|_| None, &|_| Err(io::ErrorKind::NotFound.into()));
    let notes = fresh.unwrap().notes;
    assert!(notes.iter().any(|n| n.text.contains("replace it")), "{notes:?}");
}

#[test]
fn the_default_file_shows_every_field() {
    let text = default_file();
    for path in config::paths() {
        let name = path.rsplit('.').next().unwrap();
        let shown = text.lines().any(|line| {
            let at = line.find(&format!("{name}:"));
            at.is_some_and(|at| !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
        });
        assert!(shown || path == "sources[].verify.secrets[].value", "{path} does not stand in gateway.yaml");
    }
}

fn source_of(verify_and_more: &str, rest: &str) -> fairlane::listen::Source {
    let text = format!("{rest}\nsources: [{{ path: \"/in/{{store}}\", {verify_and_more} }}]");
    loaded(&text).sources.remove(0)
}

#[test]
fn a_key_is_the_source_s_then_the_provider_s_then_the_common_one() {
    let shopify = "verify: { provider: shopify, secret: \"${SHOPIFY_SECRET}\" }";
    let hmac = "verify: { hmac: { header: X-Sig }, secret: \"${SHOPIFY_SECRET}\" }";
    let common = "groups: { key: body.account }";
    let key = |source: &str, rest: &str| {
        let key = source_of(source, rest).senders[0].key.clone()?;
        Some((key.rule.text().to_owned(), key.namespace.map(|n| n.to_string()), key.signed))
    };
    let is =
        |rule: &str, namespace: Option<&str>, signed| Some((rule.to_owned(), namespace.map(str::to_owned), signed));
    assert_eq!(key(&format!("{shopify}, key: body.shop"), common), is("body.shop", None, true));
    assert_eq!(key(&format!("{shopify}, key: path.store"), common), is("path.store", None, false));
    assert_eq!(key(shopify, common), is("headers.x-shopify-shop-domain | lower", None, false));
    assert_eq!(key(hmac, common), is("body.account", None, true));
    assert_eq!(key("verify: none", common), is("body.account", None, false));
    assert_eq!(key(hmac, ""), None);
    // A provider's namespace belongs to its own key alone.
    let github = "verify: { provider: github, secret: \"${SHOPIFY_SECRET}\" }";
    let (_, namespace, signed) = key(github, "").unwrap();
    assert!(signed);
    assert_eq!(namespace.as_deref(), fairlane::verify::preset("github").unwrap().namespace);
    assert_eq!(key(&format!("{github}, key: body.id"), ""), is("body.id", None, true));
    assert_eq!(key(&format!("{github}, namespace: g, key: body.id"), ""), is("body.id", Some("g"), true));
    let stripe =
        source_of("verify: { provider: stripe, secret: \"${STRIPE_SECRET}\" }", "").senders[0].key.clone().unwrap();
    assert_eq!(stripe.reserved, Some("platform"));
}

#[test]
fn secrets_end_when_the_file_says() {
    let text = "sources: [{ path: /a, verify: { basic: { user: u }, secrets: [{ value: x, until: 2023-11-01 }, y] } }]";
    let config = loaded(text);
    let with = |password: &str| {
        let value = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, format!("u:{password}"));
        let mut headers = http::HeaderMap::new();
        headers.insert("authorization", format!("Basic {value}").parse().unwrap());
        headers
    };
    // `judged` is at 2023-11-14.
    assert!(!judged(&config, &with("x")));
    assert!(judged(&config, &with("y")));
}

#[test]
fn a_hold_is_found_by_the_source_s_name() {
    let config = loaded(
        "sources: [{ path: /a, verify: none }, { path: /b, name: b, verify: none, order: body.id, order_max_hold: 5m }]",
    );
    let minutes = |name: &str| config.order_max_hold[name].as_secs() / 60;
    assert_eq!((minutes("/a"), minutes("b")), (60, 5));
}

#[test]
fn a_thousand_sources_fit_in_one_file() {
    let mut text = "sources:\n".to_owned();
    for i in 0..1_000 {
        text.push_str(&format!("- {{ path: \"/hooks/{i}/{{store}}\", verify: none }}\n"));
    }
    assert_eq!(loaded(&text).sources.len(), 1_000);
}

#[test]
fn caps_come_from_the_slots() {
    let config = loaded(
        "upstream: { concurrency: 100 }\ngroups: { overrides: [{ match: a, weight: 3 }, { match: b, rate: 9/s }] }\nsources: [{ path: /a, verify: none }]",
    );
    assert_eq!(config.groups.defaults.concurrency, 12);
    assert_eq!(config.groups.fallback.concurrency, 12);
    assert_eq!(config.upstream.retry.concurrency, 25);
    let policies: Vec<_> = config
        .groups
        .overrides
        .iter()
        .map(|o| (o.policy.weight, o.policy.concurrency, o.policy.rate.map(|r| r.events)))
        .collect();
    assert_eq!(policies, [(3.0, 12, None), (1.0, 12, Some(9))]);
    let tiny = loaded("upstream: { concurrency: 1 }\nsources: [{ path: /a, verify: none }]");
    assert_eq!((tiny.groups.defaults.concurrency, tiny.upstream.retry.concurrency), (1, 1));
}

#[test]
fn a_reload_says_what_changed_and_masks_secrets() {
    let old = loaded(
        "upstream: { concurrency: 8 }\nsources:\n- { path: /a, verify: none }\n- { path: /b, name: b, verify: { bearer: {}, secret: hunter2-hunter2-hunter2 } }\n- { path: /c, verify: none }",
    );
    let new = loaded(
        "upstream: { concurrency: 16, headers: { x-team: hunter2 } }\nsources:\n- { path: /d, verify: none }\n- { path: /b2, name: b, verify: { bearer: {}, secret: hunter2-hunter2-hunter3 } }\n- { path: /a, verify: none, key: body.id }",
    );
    let lines = config::reload(&old, &new).unwrap();
    assert_eq!(
        lines,
        [
            "upstream.concurrency: 8 → 16",
            "upstream.headers.x-team: added",
            "sources[/d]: added",
            "sources[b].path: /b → /b2",
            "sources[b].verify.secret.value: changed",
            "sources[/a].key: null → body.id",
            "sources[/c]: removed",
        ]
    );
    assert!(config::reload(&old, &old).unwrap().is_empty());
}

#[test]
fn a_reload_refuses_what_needs_a_restart() {
    let base = "sources: [{ path: /a, verify: none }]\n";
    let old = loaded(base);
    let tls = "{ cert: /etc/fairlane/tls.crt, key: /etc/fairlane/tls.key }";
    for (change, path, line) in [
        ("listen: { address: 127.0.0.1:1 }", "listen.address", 2),
        (&format!("listen:\n  tls: {tls}"), "listen.tls", 3),
        ("listen: { h2c: true }", "listen.h2c", 2),
        ("admin: { address: 127.0.0.1:1 }", "admin.address", 2),
        ("store: { embedded: { path: ./x } }", "store", 2),
        ("store: { retention: { dead: 1d } }", "store", 2),
    ] {
        let problems = config::reload(&old, &loaded(&format!("{base}{change}"))).unwrap_err();
        let found: Vec<_> = problems.iter().map(|p| (p.path.as_str(), p.place.line)).collect();
        assert_eq!(found, [(path, line)], "{change}");
        assert!(problems[0].text().contains("restart"), "{}", problems[0]);
    }
    // Other files of the same listener are read when they change.
    let one = loaded(&format!("{base}listen: {{ tls: {tls} }}"));
    let other = loaded(&format!(
        "{base}listen: {{ tls: {} }}",
        tls.replace("tls.key }", "tls.key, client_ca: /etc/fairlane/tls.crt }")
    ));
    assert_eq!(config::reload(&one, &other).unwrap(), ["listen.tls.client_ca: null → /etc/fairlane/tls.crt"]);
}

/// Whatever stands in a field, the answer is problems or settings: every line of a full configuration, once with each of these.
#[test]
fn no_value_anywhere_makes_it_panic() {
    let full = loaded(
        &std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/ok-many.yaml")).unwrap(),
    );
    let text = full.effective.replace("\"***\"", &format!("{HUSH}-{HUSH}-{HUSH}"));
    let lines: Vec<&str> = text.lines().collect();
    let (mut refused, mut taken) = (0, 0);
    // The sources share their fields: each once.
    let mut seen = BTreeSet::new();
    for (at, line) in lines.iter().enumerate() {
        let Some((name, _)) = line.split_once(':').filter(|(name, _)| seen.insert(*name)) else { continue };
        for value in ["", "[{}]", "{ a: [b] }", "x"] {
            let changed = format!("{name}: {value}");
            // What is indented deeper went with the value that held it.
            let indent = |line: &str| line.len() - line.trim_start_matches([' ', '-']).len();
            let rest = lines.iter().skip(at + 1).skip_while(|below| indent(below) > indent(line));
            let whole: Vec<&str> =
                lines.iter().take(at).copied().chain([changed.as_str()]).chain(rest.copied()).collect();
            match load(&whole.join("\n")) {
                Ok(_) => taken += 1,
                Err(problems) => {
                    refused += 1;
                    let shown: String = problems.iter().map(Problem::text).collect();
                    assert!(!shown.is_empty() && !shown.contains(HUSH), "{changed}: {shown}");
                }
            }
        }
    }
    assert!(refused > 300 && taken > 30, "{refused} refused, {taken} taken");
}
