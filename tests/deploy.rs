//! The files under `deploy/` agree with each other, with the command line and with the project: ports, paths, variables, what is
//! copied. Units are judged by systemd itself where it is there; no container is built here.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::panic, reason = "likewise")]
#![expect(clippy::indexing_slicing, reason = "likewise")]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use support::{Gateway, gateway};

const LISTEN_PORT: &str = "8080";
const ADMIN_PORT: &str = "8081";
const DATA: &str = "/var/lib/fairlane";
const CONFIG: &str = "/etc/fairlane/gateway.yaml";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn deploy(name: &str) -> PathBuf {
    root().join("deploy").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(deploy(name)).unwrap_or_else(|error| panic!("deploy/{name}: {error}"))
}

fn yaml(name: &str) -> Value {
    serde_saphyr::from_str(&text(name)).unwrap()
}

/// `NAME=value` of env.example.
fn example_variables() -> Vec<String> {
    let set = |line: &&str| !line.starts_with('#') && line.contains('=');
    text("env.example").lines().filter(set).map(str::to_owned).collect()
}

/// The instructions of the Dockerfile, continued lines joined.
fn instructions() -> Vec<(String, String)> {
    let joined = text("Dockerfile").replace("\\\n", " ");
    let lines = joined.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| line.split_once(' ').map(|(word, rest)| (word.to_owned(), rest.trim().to_owned())).unwrap())
        .collect()
}

fn instruction(word: &str) -> Vec<String> {
    instructions().into_iter().filter(|(w, _)| w == word).map(|(_, rest)| rest).collect()
}

/// The last word in `[...]`, as a list.
fn exec_form(rest: &str) -> Vec<String> {
    serde_json::from_str(&rest[rest.find('[').unwrap()..]).unwrap()
}

/// The values of a unit's key, section and all.
fn unit(file: &str, section: &str, key: &str) -> Vec<String> {
    let text = text(file);
    let body = text.split(&format!("[{section}]\n")).nth(1).unwrap_or_else(|| panic!("{file} has no [{section}]"));
    let body = body.split("\n[").next().unwrap();
    let values = body.lines().filter_map(|line| line.strip_prefix(&format!("{key}=")));
    values.map(str::to_owned).collect()
}

/// The arguments are `run` with the configuration and data directory that all agree on; the command line takes them.
fn is_a_run(arguments: &[&str]) {
    let after = |flag: &str| arguments.iter().position(|a| *a == flag).map(|at| arguments[at + 1]);
    assert_eq!((arguments[0], after("-c"), after("--data")), ("run", Some(CONFIG), Some(DATA)), "{arguments:?}");
    // With a file that is not there it ends with 78; a flag that it does not know would be 64.
    let here = arguments.iter().map(|argument| if *argument == CONFIG { "no-such-file.yaml" } else { argument });
    let output = Command::new(env!("CARGO_BIN_EXE_fairlane")).args(here).output().unwrap();
    assert_eq!(output.status.code(), Some(78), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A gateway with the configuration that is deployed, and the example's variables.
fn deployed() -> Gateway {
    let variables = example_variables();
    let mut through = vec!["env"];
    through.extend(variables.iter().map(String::as_str));
    gateway(&text("gateway.yaml")).through(&through).start()
}

#[test]
fn the_deployed_configuration_serves_with_the_variables_of_the_example() {
    let gateway = deployed();
    assert_eq!(gateway.json("/api/v1/sources")["sources"][0]["path"], "/webhooks/shopify");
    let yaml = yaml("gateway.yaml");
    assert_eq!(yaml["listen"]["address"], format!("0.0.0.0:{LISTEN_PORT}"));
    assert_eq!(yaml["admin"]["address"], format!("127.0.0.1:{ADMIN_PORT}"));
    assert_eq!(yaml["store"]["embedded"]["path"], DATA);
}

#[test]
fn the_health_check_asks_a_real_gateway() {
    let mut gateway = deployed();
    let port = gateway.admin.port().to_string();
    let healthy = || Command::new(deploy("healthcheck")).env("ADMIN_PORT", &port).output().unwrap().status.success();
    assert!(healthy());
    gateway.signal("KILL");
    gateway.wait();
    assert!(!healthy());
    assert!(
        text("healthcheck").contains(&format!("ADMIN_PORT:-{ADMIN_PORT}")),
        "its default is the image's admin port"
    );
}

/// One that cannot commit says 503 at `/readyz`; the status decides, not that somebody answers.
#[test]
fn the_health_check_is_red_on_anything_but_200() {
    let upstream = support::upstream::upstream(|_| support::upstream::answer(503));
    let mut check = Command::new(deploy("healthcheck"));
    check.env("ADMIN_PORT", upstream.address.port().to_string());
    assert!(!check.output().unwrap().status.success());
    assert_eq!(upstream.received()[0].target, "/readyz");
    upstream.rule(|_| support::upstream::answer(200));
    assert!(check.output().unwrap().status.success());
}

#[test]
fn the_units_start_what_is_there() {
    let start = unit("fairlane.service", "Service", "ExecStart").remove(0);
    let words: Vec<&str> = start.split_whitespace().collect();
    assert_eq!(words[0], "/usr/local/bin/fairlane");
    is_a_run(&words[1..]);
    // It is replaced by the same command, in the background; systemd learns which process is the main one from that one itself.
    let reload = unit("fairlane.service", "Service", "ExecReload").remove(0);
    let reload: Vec<&str> = reload.split_whitespace().collect();
    is_a_run(&reload[1..]);
    let plain: Vec<&str> = reload.iter().copied().filter(|word| !["--upgrade", "--detach"].contains(word)).collect();
    assert_eq!((reload.len(), plain), (words.len() + 2, words));
    assert_eq!(unit("fairlane.service", "Service", "Type"), ["notify"]);
    assert_eq!(unit("fairlane.service", "Service", "NotifyAccess"), ["main"]);
    assert_eq!(format!("/var/lib/{}", unit("fairlane.service", "Service", "StateDirectory")[0]), DATA);
    assert_eq!(unit("fairlane.socket", "Socket", "ListenStream"), [format!("0.0.0.0:{LISTEN_PORT}")]);
    // The admin side binds its own: a second inherited socket would become it.
    let drain = fairlane_default("shutdown", "drain").trim_end_matches('s').parse::<u64>().unwrap();
    let stop: u64 = unit("fairlane.service", "Service", "TimeoutStopSec")[0].parse().unwrap();
    assert!(stop >= drain + 10, "systemd would kill it while it drains: {stop} s for {drain} s");
    let codes = &unit("fairlane.service", "Service", "RestartPreventExitStatus")[0];
    assert_eq!(codes.as_str(), format!("{} {}", fairlane::cli::USAGE, fairlane::cli::CONFIG));
}

/// The default of a field, from the schema.
fn fairlane_default(map: &str, field: &str) -> String {
    let schema = fairlane::config::schema();
    let fields = schema["properties"][map]["anyOf"][0].clone();
    fields["properties"][field]["default"].as_str().unwrap().to_owned()
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else {
        println!("LEFT OUT: systemd's own judgement of the units, for want of systemd-analyze");
        return;
    };
    assert!(version.status.success());
    let folder = tempfile::tempdir().unwrap();
    for name in ["fairlane.service", "fairlane.socket"] {
        let here = text(name).replace("/usr/local/bin/fairlane", env!("CARGO_BIN_EXE_fairlane"));
        std::fs::write(folder.path().join(name), here).unwrap();
    }
    let judged = |arguments: &[&str]| {
        let output = Command::new("systemd-analyze").args(arguments).current_dir(folder.path()).output().unwrap();
        let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.success(), format!("{out}{errors}"))
    };
    let (fine, said) = judged(&["verify", "--man=no", "./fairlane.service", "./fairlane.socket"]);
    assert!(fine && !said.contains("fairlane."), "{said}");
    // 0 is nothing to fear, 10 everything; without the hardening it is above 9. Judging files needs systemd 250.
    let (fine, said) = judged(&["security", "--offline=true", "--threshold=20", "--no-pager", "./fairlane.service"]);
    assert!(fine || said.contains("unrecognized option"), "{said}");
}

#[test]
fn the_dockerfile_copies_what_is_there_and_what_is_needed() {
    let ignore = text("Dockerfile.dockerignore");
    let let_in: BTreeSet<&str> = ignore.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let mut copied = BTreeSet::new();
    let mut stages = BTreeSet::new();
    for (word, rest) in instructions() {
        let words: Vec<&str> = rest.split_whitespace().collect();
        match word.as_str() {
            "FROM" if words.len() == 3 => drop(stages.insert(words[2].to_owned())),
            "COPY" => match words[0].strip_prefix("--from=") {
                Some(stage) => assert!(stages.contains(stage), "{rest}"),
                None => copied.extend(words[..words.len() - 1].iter().map(|word| (*word).to_owned())),
            },
            _ => {}
        }
    }
    for path in &copied {
        assert!(root().join(path).exists(), "{path} is copied and not there");
        assert!(let_in.contains(path.as_str()), "{path} is copied and ignored");
    }
    assert_eq!(copied.len(), let_in.len(), "nothing is let in that is not copied");
    // cargo reads Cargo.toml as a whole, and every file that it names has to be there.
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    for path in manifest.lines().filter_map(|line| line.strip_prefix("path = \"")) {
        let path = path.trim_end_matches('"');
        assert!(
            copied.iter().any(|from| path.starts_with(from.as_str())),
            "Cargo.toml names {path}, which is not copied"
        );
    }
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap().trim_matches('"');
    assert!(
        instruction("FROM")[0].starts_with(&format!("rust:{rust}-")),
        "it builds with the Rust that Cargo.toml asks for"
    );
    assert!(instruction("RUN")[0].contains("cmake"));
}

/// What `make image` carries out is what stands in the Dockerfile, step by step, and a step that it does not know is refused.
#[test]
fn the_clean_root_takes_every_step_from_the_dockerfile() {
    let script = deploy("image/clean-root");
    let output = Command::new("python3").arg(&script).arg("--parse").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stages: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut read = Vec::new();
    for stage in stages.as_array().unwrap() {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let name = Some(text(&stage["name"])).filter(|name| !name.is_empty());
        let from = name.map_or_else(|| text(&stage["base"]), |name| format!("{} AS {name}", text(&stage["base"])));
        read.push(("FROM".to_owned(), from));
        read.extend(stage["steps"].as_array().unwrap().iter().map(|step| (text(&step[0]), text(&step[1]))));
    }
    let blanks = |(word, rest): (String, String)| (word, rest.split_whitespace().collect::<Vec<_>>().join(" "));
    assert_eq!(read, instructions().into_iter().map(blanks).collect::<Vec<_>>());
    let other = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(other.path(), "FROM debian:bookworm-slim\nADD https://example.com/x /x\n").unwrap();
    let output =
        Command::new("python3").arg(&script).arg("--parse").arg("--dockerfile").arg(other.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("the Dockerfile has ADD"), "{said}");
}

#[test]
fn the_image_runs_the_gateway_as_nobody_of_weight() {
    assert_eq!(instruction("ENTRYPOINT"), [r#"["fairlane"]"#]);
    let command = exec_form(&instruction("CMD")[0]);
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    is_a_run(&words);
    assert!(words.contains(&format!("0.0.0.0:{ADMIN_PORT}").as_str()));
    assert_eq!(instruction("EXPOSE"), [format!("{LISTEN_PORT} {ADMIN_PORT}")]);
    assert_eq!(instruction("VOLUME"), [DATA]);
    let user = instruction("USER").pop().unwrap();
    assert!(user != "root" && user != "0", "{user}");
    let made = instruction("RUN").pop().unwrap();
    assert!(made.contains("useradd") && made.contains(&format!("-o {user} ")) && made.contains(DATA), "{made}");
    let check = exec_form(&instruction("HEALTHCHECK")[0]).remove(0);
    assert!(instruction("COPY").iter().any(|copy| copy.ends_with(&format!("/usr/local/bin/{check}"))), "{check}");
}

#[test]
fn compose_joins_what_is_there() {
    let compose = yaml("compose.yaml");
    let (gateway, receiver) = (&compose["services"]["gateway"], &compose["services"]["receiver"]);
    let context = deploy(gateway["build"]["context"].as_str().unwrap());
    assert!(context.join(gateway["build"]["dockerfile"].as_str().unwrap()).is_file());
    let ports: Vec<_> = gateway["ports"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    // The admin side is published on the loopback alone.
    assert_eq!(ports, [format!("{LISTEN_PORT}:{LISTEN_PORT}"), format!("127.0.0.1:{ADMIN_PORT}:{ADMIN_PORT}")]);
    for service in [gateway, receiver] {
        for volume in service["volumes"].as_array().unwrap().iter().filter_map(Value::as_str) {
            let source = volume.split(':').next().unwrap();
            let known = if source.starts_with('.') {
                deploy(source).exists()
            } else {
                compose["volumes"].get(source).is_some()
            };
            assert!(known, "{volume}");
        }
    }
    let mounted = |service: &Value, end: &str| {
        service["volumes"].as_array().unwrap().iter().any(|v| v.as_str().is_some_and(|v| v.contains(end)))
    };
    assert!(mounted(gateway, &format!("events:{DATA}")) && mounted(gateway, &format!("./gateway.yaml:{CONFIG}")));
    assert_eq!(receiver["command"][1], "/app/receiver.py");
    assert!(
        mounted(receiver, "receivers/python:/app") && root().join("examples/receivers/python/receiver.py").is_file()
    );
    let upstream = gateway["environment"]["UPSTREAM"].as_str().unwrap();
    assert_eq!(upstream, format!("http://receiver:{}", receiver["environment"]["PORT"].as_str().unwrap()));
    let drain = fairlane_default("shutdown", "drain").trim_end_matches('s').parse::<u64>().unwrap();
    let grace = gateway["stop_grace_period"].as_str().unwrap().trim_end_matches('s').parse::<u64>().unwrap();
    assert!(grace >= drain + 10);
}

/// Three nodes over one Redis: each has a name that the others and the proxy reach it by, and the same configuration.
#[test]
fn compose_of_many_nodes_joins_what_is_there() {
    let compose = yaml("compose.nodes.yaml");
    let configuration = yaml("gateway.nodes.yaml");
    let proxy = text("proxies/nodes.conf");
    for node in ["one", "two", "three"] {
        let service = &compose["services"][node];
        let advertised = service["environment"]["ADVERTISE"].as_str().unwrap();
        assert_eq!(advertised, format!("http://{node}:{ADMIN_PORT}"));
        let hosts = configuration["admin"]["hosts"].as_array().unwrap();
        assert!(hosts.iter().any(|host| host == node), "admin.hosts: {hosts:?}");
        assert!(proxy.contains(&format!("server {node}:{LISTEN_PORT} ")), "{node}");
        let volumes: Vec<&str> = service["volumes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(volumes.contains(&&*format!("{node}:{DATA}")), "each has a folder of its own: {volumes:?}");
        assert!(volumes.iter().any(|volume| volume.starts_with("./gateway.nodes.yaml:/etc/fairlane/gateway.yaml")));
        assert!(compose["volumes"].get(node).is_some());
    }
    for (service, file) in [("proxy", "proxies/nodes.conf"), ("receiver", "../examples/receivers/python/receiver.py")] {
        assert!(compose["services"][service].is_object() && deploy(file).is_file(), "{file}");
    }
    let redis = compose["services"]["redis"]["command"].as_array().unwrap();
    for word in ["noeviction", "always"] {
        assert!(redis.iter().any(|given| given == word), "{word}: what the start asks of a Redis with ack: aof");
    }
    let checked = Command::new(env!("CARGO_BIN_EXE_fairlane"))
        .args(["check", "-c"])
        .arg(deploy("gateway.nodes.yaml"))
        .envs(example_variables().iter().filter_map(|line| line.split_once('=')))
        .env("ADVERTISE", "http://one:8081")
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// What the configuration needs is asked for by compose and stands in the example.
#[test]
fn every_variable_is_set_somewhere() {
    let gateway_yaml = text("gateway.yaml");
    let needed: BTreeSet<&str> = gateway_yaml.split("${").skip(1).map(|rest| rest.split('}').next().unwrap()).collect();
    let compose = yaml("compose.yaml");
    let given = compose["services"]["gateway"]["environment"].as_object().unwrap();
    let example = example_variables();
    for variable in needed {
        let (name, default) =
            variable.split_once(":-").map_or((variable, None), |(name, default)| (name, Some(default)));
        assert!(given.contains_key(name), "compose.yaml does not give {name}");
        let stands = example.iter().any(|line| line.starts_with(&format!("{name}=")));
        assert!(stands || default.is_some(), "env.example does not have {name}");
    }
    for service in ["gateway", "receiver"] {
        for value in compose["services"][service]["environment"].as_object().unwrap().values() {
            let Some(name) = value.as_str().and_then(|v| v.strip_prefix("${")) else { continue };
            let name = name.split([':', '}']).next().unwrap();
            assert!(
                example.iter().any(|line| line.starts_with(&format!("{name}="))),
                "env.example does not have {name}"
            );
        }
    }
}

/// A free port of the loopback, for a program that cannot choose one by itself.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// nginx as it is shown, but for the port, and without TLS: the address that the provider signed arrives as it was signed, with the
/// body byte for byte, and the sender's address is the one behind the proxy.
#[test]
fn nginx_in_front_hands_on_what_it_gets() {
    let program = ["/usr/sbin/nginx", "nginx"].into_iter().find(|name| Command::new(name).arg("-v").output().is_ok());
    let Some(program) = program else {
        println!("LEFT OUT: nginx in front of the gateway, for want of nginx");
        return;
    };
    let upstream = support::upstream::upstream(|_| support::upstream::answer(200));
    let gateway = gateway(&format!(
        "listen: {{ trusted_proxies: [127.0.0.1/32] }}\nupstream: http://{}\n\
         sources: [{{ path: /hooks/*, verify: {{ provider: twilio, secret: hush, public_url: \"https://hooks.example.com\" }}, methods: [GET, POST] }}]\n",
        upstream.address
    ))
    .start();
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let shown = text("proxies/nginx.conf");
    assert!(shown.contains("listen 443 ssl;") && shown.contains("server 127.0.0.1:8080;"));
    let here: String = shown
        .replace("listen 443 ssl;", &format!("listen 127.0.0.1:{port};"))
        .replace("server 127.0.0.1:8080;", &format!("server {};", gateway.address))
        .lines()
        .filter(|line| !line.contains("ssl_certificate"))
        .map(|line| format!("{line}\n"))
        .collect();
    let whole = format!(
        "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\nclient_body_temp_path body;\nproxy_temp_path proxy;\n\
         fastcgi_temp_path f;\nuwsgi_temp_path u;\nscgi_temp_path s;\n{here}}}\n"
    );
    let config = folder.path().join("nginx.conf");
    std::fs::write(&config, whole).unwrap();
    let arguments = ["-p", folder.path().to_str().unwrap(), "-c", config.to_str().unwrap(), "-e", "stderr"];
    let judged = Command::new(program).args(arguments).arg("-t").output().unwrap();
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stderr));
    let mut nginx = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    while std::net::TcpStream::connect(address).is_err() {
        assert!(nginx.try_wait().unwrap().is_none(), "nginx has ended");
        std::thread::yield_now();
    }
    let target = "/hooks/a%20b;c=1/~x?q=%2F&empty=";
    let body = "Body=caf%C3%A9+%26+more&AccountSid=AC1";
    let signed = Command::new(env!("CARGO_BIN_EXE_fairlane"))
        .args(["send", "--provider", "twilio", "--secret", "env:SECRET", "--public-url", "https://hooks.example.com"])
        .args(["--header", "Content-Type: application/x-www-form-urlencoded", "--to"])
        .arg(format!("http://{address}{target}"))
        .env("SECRET", "hush")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .and_then(|mut child| {
            use std::io::Write as _;
            child.stdin.take().unwrap().write_all(body.as_bytes())?;
            child.wait_with_output()
        })
        .unwrap();
    let killed = nginx.kill().and_then(|()| nginx.wait());
    assert!(killed.is_ok());
    assert!(signed.status.success(), "{}", String::from_utf8_lossy(&signed.stdout));
    let got = upstream.wait_for(1).remove(0);
    assert_eq!((got.target.as_str(), got.body.as_slice()), (target, body.as_bytes()));
    assert!(got.header("x-forwarded-for").is_some_and(|from| from.starts_with("127.0.0.1")));
    assert_eq!(got.header("x-forwarded-host"), Some("127.0.0.1"));
}

/// The other two name the same address and wait as long.
#[test]
fn the_proxies_lead_to_the_gateway_and_wait_for_it() {
    let caddy = text("proxies/Caddyfile");
    assert!(caddy.contains(&format!("reverse_proxy 127.0.0.1:{LISTEN_PORT}")) && caddy.contains("max_size 26MiB"));
    let traefik = yaml("proxies/traefik.yaml");
    let service = &traefik["http"]["services"]["fairlane"]["loadBalancer"];
    assert_eq!(service["servers"][0]["url"], format!("http://127.0.0.1:{LISTEN_PORT}"));
    assert_eq!(traefik["http"]["routers"]["fairlane"]["service"], "fairlane");
    let transport = service["serversTransport"].as_str().unwrap();
    assert_eq!(traefik["http"]["serversTransports"][transport]["forwardingTimeouts"]["responseHeaderTimeout"], "60s");
    for file in ["nginx.conf", "Caddyfile", "traefik.yaml"] {
        let text = text(&format!("proxies/{file}"));
        assert!(text.contains("60s"), "{file}");
        // What each says of gateway.yaml is a configuration.
        let said = text.lines().find_map(|line| line.strip_prefix("# gateway.yaml: ")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.yaml");
        std::fs::write(&path, format!("{said}\nsources: [{{ path: /in, verify: none }}]\n")).unwrap();
        let check =
            Command::new(env!("CARGO_BIN_EXE_fairlane")).args(["check", "-q", "-c"]).arg(&path).output().unwrap();
        assert!(check.status.success(), "{file}: {}", String::from_utf8_lossy(&check.stderr));
    }
}
