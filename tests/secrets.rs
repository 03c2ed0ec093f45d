//! Nothing that a gateway says holds a secret: not its log at its most talkative, no page, no answer of the API, no command, no refusal,
//! no file of its data directory. A run with a secret in every place that takes one, and then a search of all that came out of it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::indexing_slicing, reason = "likewise")]
#![expect(clippy::print_stdout, reason = "what is left out is told")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fairlane::config;
use memchr::memmem;
use support::upstream::{answer, upstream};
use support::{Client, Gateway, Request, gateway, get, hex, hmac_sha256, post};

/// What each secret is, by where it stands. No other text of a gateway has any of these words.
const SECRETS: &[(&str, &str)] = &[
    ("verify.secret", "hush-of-shopify-0001"),
    ("verify.secrets[0].value", "hush-of-github-0002"),
    ("verify.secrets[1].value", "hush-of-github-0003"),
    ("verify.secret of a token", "hush-of-token-0004"),
    ("verify.secret of basic", "hush-of-basic-0005"),
    ("verify.secret of bearer", "hush-of-bearer-0006"),
    ("verify.verify_token", "hush-of-meta-0007"),
    ("verify.secret of a handshake", "hush-of-meta-0008"),
    ("upstream.headers", "hush-of-headers-0009"),
    ("upstream.signing_secret", "aHVzaC1vZi1zaWduaW5nLTAwMTA="),
    ("admin.token", "hush-of-admin-0000011"),
    ("tenant_pages.secret", "hush-of-tenants-0012-0123456789abcdef"),
    ("tenant_pages.previous_secret", "hush-of-tenants-0013-0123456789abcdef"),
    ("alerts.webhook", "hush-of-alerts-0014"),
    ("a secret that came by a reload", "hush-of-reload-0015"),
    ("a secret of a file", "hush-of-file-0016"),
];

fn secret(number: usize) -> &'static str {
    SECRETS.iter().map(|(_, secret)| *secret).nth(number - 1).unwrap()
}

/// A configuration with all of them. Numbers 1 to 14 stand in it; the file of number 16 lies beside it.
fn yaml(upstream: &str, alerts: &str, github: &str, file: &Path) -> String {
    format!(
        r#"
upstream:
  url: {upstream}
  headers: {{ X-Team-Key: {headers} }}
  signing_secret: whsec_{signing}
admin: {{ address: "127.0.0.1:0", token: {admin} }}
tenant_pages: {{ address: "127.0.0.1:0", secret: {tenants}, previous_secret: {before} }}
alerts: {{ webhook: "{alerts}/services/{hook}" }}
log: {{ level: trace }}
sources:
  - path: /shopify
    verify: {{ provider: shopify, secret: {shopify} }}
  - path: /github
    verify: {{ provider: github, secrets: [{{ value: {github}, until: 2099-01-01 }}, {{ value: {second} }}] }}
  - path: /token
    verify: {{ token: {{ header: X-Api-Key }}, secret: {token} }}
  - path: /basic
    verify: {{ basic: {{ user: gate }}, secret: {basic} }}
  - path: /bearer
    verify: {{ bearer: {{}}, secret: {bearer} }}
  - path: /meta
    methods: [GET, POST]
    verify: {{ provider: meta, secret: {meta}, verify_token: {word} }}
  - path: /file
    verify: {{ provider: shopify, secret: "file:{file}" }}
"#,
        headers = secret(9),
        signing = secret(10),
        admin = secret(11),
        tenants = secret(12),
        before = secret(13),
        hook = secret(14),
        shopify = secret(1),
        second = secret(3),
        token = secret(4),
        basic = secret(5),
        bearer = secret(6),
        meta = secret(8),
        word = secret(7),
        file = file.display(),
    )
}

/// All that came out, by where it did.
#[derive(Default)]
struct Out(BTreeMap<String, Vec<u8>>);

impl Out {
    fn add(&mut self, place: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.0.entry(place.into()).or_default().extend(bytes.into());
    }

    /// Where a secret is, in itself or as base64 or hex.
    fn found(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, secret) in SECRETS {
            let forms = [
                secret.as_bytes().to_vec(),
                STANDARD.encode(secret).trim_end_matches('=').as_bytes().to_vec(),
                hex(secret.as_bytes()).into_bytes(),
                // The bytes of a text that is base64 already.
                STANDARD.decode(secret).unwrap_or_else(|_| secret.as_bytes().to_vec()),
            ];
            for (place, bytes) in &self.0 {
                if let Some(form) = forms.iter().find(|form| memmem::find(bytes, form).is_some()) {
                    found.push(format!("{name} is in {place}: {}", around(bytes, form)));
                }
            }
        }
        found
    }
}

/// What stands around the first place of `form`.
fn around(bytes: &[u8], form: &[u8]) -> String {
    let at = memmem::find(bytes, form).unwrap_or(0);
    bytes.iter().skip(at.saturating_sub(120)).take(240).flat_map(|byte| byte.escape_ascii()).map(char::from).collect()
}

fn signed(path: &str, secret: &str, body: &[u8]) -> Request {
    let signature = hmac_sha256(secret, &[body]);
    let request = post(path, body).header("X-Shopify-Shop-Domain", "a.myshopify.com");
    let request = request.header("X-Shopify-Hmac-Sha256", STANDARD.encode(&signature));
    request.header("X-Hub-Signature-256", format!("sha256={}", hex(&signature)))
}

/// What senders send: genuine, wrong, and with secrets where none belong.
fn requests() -> Vec<(Request, u16)> {
    let body = br#"{"id":1,"installation":{"id":7}}"#;
    let basic = |password: &str| format!("Basic {}", STANDARD.encode(format!("gate:{password}")));
    let bare = |path: &str| post(path, body);
    let mut all = vec![
        (signed("/shopify", secret(1), body), 200),
        (signed("/github", secret(2), body), 200),
        (signed("/github", secret(3), body), 200),
        (signed("/file", secret(16), body), 200),
        (bare("/token").header("X-Api-Key", secret(4)), 200),
        (bare("/basic").header("Authorization", basic(secret(5))), 200),
        (bare("/bearer").header("Authorization", format!("Bearer {}", secret(6))), 200),
        (signed("/meta", secret(8), body), 200),
        (get(&format!("/meta?hub.mode=subscribe&hub.verify_token={}&hub.challenge=abc123", secret(7))), 200),
        (signed("/shopify", "another", body), 401),
        // Nearly right, and so kept in the list of rejections, what is secret masked.
        (bare("/token").header("X-Api-Key", format!("{} ", "another-of-token")), 401),
        (bare("/token").header("Authorization", format!("Bearer {}", secret(4))), 401),
        (bare("/basic").header("Authorization", basic("another")), 401),
        (bare("/basic").header("Authorization", format!("Bearer {}", secret(5))), 401),
        (bare("/bearer").header("Authorization", format!("Basic {}", secret(6))), 401),
        (bare("/bearer").header("Authorization", format!("bearer\t{}x", secret(6))), 401),
        (get("/meta?hub.mode=subscribe&hub.verify_token=another&hub.challenge=abc123"), 403),
    ];
    all.push((bare("/nowhere").header("X-Api-Key", secret(4)), 404));
    all
}

/// Every GET of the API, from its own description.
fn api(gateway: &Gateway, event: &str) -> Vec<String> {
    let document = gateway_json(gateway, "/api/v1/openapi.json");
    let paths = document["paths"].as_object().unwrap().iter();
    let gets = paths.filter(|(_, calls)| calls.get("get").is_some()).map(|(path, _)| path.as_str());
    let all: Vec<String> = gets
        .map(|path| match path {
            "/api/v1/group" => "/api/v1/group?name=a.myshopify.com".to_owned(),
            path if path.starts_with("/api/v1/events/") => path.replace("{id}", event),
            path => path.replace("{id}", "none"),
        })
        .collect();
    assert!(all.len() > 20, "{all:?}");
    all
}

fn asked(gateway: &Gateway, path: &str) -> Vec<u8> {
    let request = get(path).header("Authorization", format!("Bearer {}", secret(11)));
    let response = Client::to(gateway.admin).send(&request);
    let headers: Vec<String> = response.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    [headers.concat().into_bytes(), response.body].concat()
}

fn gateway_json(gateway: &Gateway, path: &str) -> serde_json::Value {
    let request = get(path).header("Authorization", format!("Bearer {}", secret(11)));
    serde_json::from_slice(&Client::to(gateway.admin).send(&request).body).unwrap()
}

const PAGES: [&str; 13] = [
    "/",
    "/groups",
    "/group?name=a.myshopify.com",
    "/events",
    "/dead",
    "/replays",
    "/jobs",
    "/alerts",
    "/rejections",
    "/sources",
    "/audit",
    "/configuration",
    "/sign-in",
];

fn signed_in(gateway: &Gateway) -> String {
    let form = format!("token={}&to=/", secret(11));
    let request = post("/sign-in", form.as_bytes()).without("Host").header("Host", "127.0.0.1");
    let request = request.header("Content-Type", "application/x-www-form-urlencoded").header("Accept", "text/html");
    let response = Client::to(gateway.admin).send(&request);
    response.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

/// What commands print, on both channels, of a gateway that runs and of its file.
fn commands(config: &Path, event: &str, out: &mut Out) {
    let all: &[&[&str]] = &[
        &["check"],
        &["check", "--json"],
        &["groups"],
        &["groups", "why", "a.myshopify.com"],
        &["groups", "link", "a.myshopify.com", "--expires", "1h"],
        &["events", "--json"],
        &["events", "show", event],
        &["rejections"],
        &["rejections", "--json"],
        &["sources"],
        &["sources", "list", "--json"],
        &["upstream"],
        &["alerts"],
        &["doctor"],
    ];
    for arguments in all {
        let output = Command::new(env!("CARGO_BIN_EXE_fairlane"))
            .args(*arguments)
            .arg("-c")
            .arg(config)
            .env("RUST_BACKTRACE", "full")
            .output()
            .unwrap();
        let place = format!("fairlane {}", arguments.join(" "));
        assert_ne!(output.status.code(), Some(64), "{place}: {}", String::from_utf8_lossy(&output.stderr));
        out.add(place, [output.stdout, output.stderr].concat());
    }
}

#[test]
fn nothing_that_comes_out_of_a_run_holds_a_secret() {
    let (receiver, pager) = (upstream(|_| answer(500).body("no")), upstream(|_| answer(500)));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, secret(16)).unwrap();
    let text = yaml(&receiver.url(), &pager.url(), secret(2), &file);
    let mut gateway = gateway(&text).start();
    let mut out = Out::default();
    let mut ids = Vec::new();
    for (request, status) in requests() {
        let response = gateway.client().send(&request);
        assert_eq!(response.status, status, "{}", response.text());
        ids.extend(response.header("fairlane-event-id").map(str::to_owned));
        out.add("an answer to a sender", response.body);
    }
    receiver.wait_for(ids.len());
    assert_eq!(receiver.received()[0].header("x-team-key"), Some(secret(9)), "the receiver gets what is meant for it");
    let test = post("/api/v1/alerts/test", b"{}").without("Host").header("Host", "127.0.0.1");
    let test =
        test.header("Content-Type", "application/json").header("Authorization", format!("Bearer {}", secret(11)));
    out.add("an answer about alerts", Client::to(gateway.admin).send(&test).body);

    // A change of a secret, and one that is refused.
    std::fs::write(gateway.config(), text.replace(secret(2), secret(15))).unwrap();
    gateway.signal("HUP");
    while gateway.client().send(&signed("/github", secret(15), b"{}")).status != 200 {
        std::thread::yield_now();
    }
    std::fs::write(gateway.config(), text.replace("secret: hush", "secrte: hush")).unwrap();
    gateway.signal("HUP");
    while gateway.metric("fairlane_config_ok ") != Some(0.0) {
        std::thread::yield_now();
    }

    for path in ids.iter().flat_map(|id| api(&gateway, id)) {
        out.add(format!("GET {path}"), asked(&gateway, &path));
    }
    let wrong = get("/api/v1/status").header("Authorization", format!("Basic {}", secret(11)));
    out.add("an answer to a wrong token", Client::to(gateway.admin).send(&wrong).body);
    let cookie = signed_in(&gateway);
    out.add("the cookie", cookie.as_str());
    for path in PAGES.map(str::to_owned).into_iter().chain(ids.iter().map(|id| format!("/events/{id}"))) {
        let request = get(&path).header("Accept", "text/html").header("Cookie", &cookie);
        let response = Client::to(gateway.admin).send(&request);
        assert_eq!(response.status, 200, "{path}");
        out.add(format!("the page {path}"), response.body);
    }
    // The commands find it where it really is.
    let config = folder.path().join("gateway.yaml");
    std::fs::write(&config, text.replacen("127.0.0.1:0", &gateway.admin.to_string(), 1)).unwrap();
    commands(&config, &ids[0], &mut out);
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    out.add("the log", gateway.stderr());
    assert!(gateway.stderr().lines().any(|line| line.contains("TRACE") || line.contains("DEBUG")), "it says little");

    let found = out.found();
    assert!(found.is_empty(), "{found:#?}");
    assert!(Out(BTreeMap::from([("x".into(), STANDARD.encode(secret(1)).into_bytes())])).found().len() == 1);
}

/// What senders bring lies on the disk as it came; what signs and opens does not.
#[test]
fn no_secret_that_signs_or_opens_lies_in_the_data_directory() {
    let (receiver, pager) = (upstream(|_| answer(200)), upstream(|_| answer(200)));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, secret(16)).unwrap();
    let gateway = gateway(&yaml(&receiver.url(), &pager.url(), secret(2), &file)).start();
    for (request, status) in requests() {
        assert_eq!(gateway.client().send(&request).status, status);
    }
    let (_, dir) = gateway.stop();
    let mut out = Out::default();
    let mut open = vec![dir.path().join("data")];
    while let Some(folder) = open.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                open.push(path);
            } else if path.is_file() {
                // All but the socket of `run --upgrade`, which holds nothing.
                out.add(path.display().to_string(), std::fs::read(&path).unwrap());
            }
        }
    }
    let brought = ["verify.secret of a token", "verify.secret of basic", "verify.secret of bearer"];
    let found: Vec<String> =
        out.found().into_iter().filter(|found| !brought.iter().any(|name| found.starts_with(name))).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// Whatever prints a configuration for a developer prints no secret either; nor does a problem about one.
#[test]
fn no_debug_form_and_no_problem_holds_a_secret() {
    let text = yaml("http://127.0.0.1:9", "http://127.0.0.1:9", secret(2), Path::new("/run/secret"));
    let env = |_: &str| None;
    let files = |_: &Path| Ok(secret(16).to_owned());
    let config = config::load(&text, "gateway.yaml", &env, &files).unwrap_or_else(|problems| panic!("{problems:?}"));
    let mut out = Out::default();
    out.add("the debug form of a configuration", format!("{config:#?}{config:?}"));
    out.add("its effect", format!("{}{}", config.effective, config.json()));
    for (number, (name, secret)) in SECRETS.iter().enumerate() {
        // Too long, of another kind, with a line end in it, under a name that nobody knows.
        for wrong in [
            text.replace(secret, &format!("{secret}{}", secret.repeat(100_000))),
            text.replace(secret, &format!("[{secret}]")),
            text.replace(secret, &format!("{{ {secret}: {secret} }}")),
            text.replace(secret, &format!("\"{secret}\\n{secret}\"")),
            text.replace(secret, &format!("!!int {secret}")),
            text.replace(secret, &format!("*{secret}")),
            text.replace(secret, &format!("\"{secret}")),
            text.replace(&format!(": {secret}"), &format!(":{secret}")),
        ] {
            if let Err(problems) = config::load(&wrong, "gateway.yaml", &env, &files) {
                let said: Vec<String> =
                    problems.iter().map(|problem| format!("{problem}{problem:?}{}", problem.json())).collect();
                out.add(format!("a problem of {name} ({number})"), said.concat());
            }
        }
    }
    let found = out.found();
    assert!(found.is_empty(), "{found:#?}");
}

/// There is no admin side without a token, wherever it listens: one is made where none is configured.
#[test]
fn beyond_the_loopback_nobody_is_let_in_without_a_token() {
    let here = local_address();
    let gateway = gateway(support::SHOPIFY).with(&["--admin", &format!("{here}:0")]).start();
    assert_eq!(gateway.admin.ip(), here);
    assert!(gateway.token().len() >= 32);
    let document = gateway.json("/api/v1/openapi.json");
    let mut tried = 0;
    for (path, calls) in document["paths"].as_object().unwrap() {
        for method in ["get", "post", "patch", "delete"].into_iter().filter(|method| calls.get(*method).is_some()) {
            let request = |authorization: Option<String>| {
                let request = post(&path.replace("{id}", "x"), b"{}").method(&method.to_ascii_uppercase());
                let request = request.without("Host").header("Host", gateway.admin.to_string());
                let request = request.header("Content-Type", "application/json");
                match authorization {
                    Some(value) => request.header("Authorization", value),
                    None => request,
                }
            };
            let open = ["/healthz", "/readyz", "/metrics"].contains(&path.as_str());
            let status = Client::to(gateway.admin).send(&request(None)).status;
            assert!(open || status == 401, "{method} {path}: {status}");
            tried += 1;
            // Wrong ones are answered later and later, so a few must do.
            if path == "/api/v1/status" {
                for wrong in ["Bearer ".to_owned(), format!("Bearer {}x", gateway.token())] {
                    assert_eq!(Client::to(gateway.admin).send(&request(Some(wrong))).status, 401);
                }
            }
        }
    }
    assert!(tried > 35, "{tried}");
}

/// An address of this machine that is not the loopback; one of the loopback's others where there is none.
fn local_address() -> std::net::IpAddr {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // Nothing is sent: connecting alone has the system choose the address that it would send from.
    match socket.connect("198.51.100.1:9").and_then(|()| socket.local_addr()) {
        Ok(address) if !address.ip().is_loopback() => address.ip(),
        _ => {
            println!("LEFT OUT: this machine has no address beyond the loopback; 127.0.0.2 stands in");
            std::net::IpAddr::from([127, 0, 0, 2])
        }
    }
}
