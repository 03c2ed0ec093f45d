//! What Prometheus and Grafana are given is what is made here, and asks for nothing that does not exist.
//!
//! `UPDATE_EXPECTED=1 cargo test --test monitoring` writes the rules and the dashboard anew; look at the difference.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::panic, reason = "likewise")]
#![expect(clippy::indexing_slicing, reason = "likewise")]

#[path = "monitoring/dashboard.rs"]
mod dashboard;
#[path = "monitoring/names.rs"]
mod names;
#[path = "monitoring/rules.rs"]
mod rules;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::upstream::{answer, upstream};
use support::{Client, gateway, get, post};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn deploy(name: &str) -> PathBuf {
    root().join("deploy").join(name)
}

fn yaml(name: &str) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(deploy(name)).unwrap()).unwrap()
}

/// Every string under one of these names, wherever it stands.
fn found(value: &Value, names: &[&str], into: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if names.contains(&name.as_str()) => into.push(text.clone()),
                    value => found(value, names, into),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| found(item, names, into)),
        _ => {}
    }
}

fn is_made(name: &str, made: &str) {
    let path = deploy(name);
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&path, made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "deploy/{name} is old: UPDATE_EXPECTED=1 cargo test --test monitoring writes it again");
}

#[test]
fn the_rules_and_the_dashboard_ask_for_metrics_that_exist() {
    is_made("prometheus/alerts.yaml", &rules::file());
    is_made("grafana/fairlane.json", &dashboard::file());
    let mut expressions = Vec::new();
    found(&yaml("prometheus/alerts.yaml"), &["expr"], &mut expressions);
    let rules = expressions.len();
    let text = std::fs::read_to_string(deploy("grafana/fairlane.json")).unwrap();
    found(&serde_json::from_str(&text).unwrap(), &["expr"], &mut expressions);
    assert!(rules > 20 && expressions.len() > rules + 30, "{} expressions", expressions.len());
    let metrics = names::metrics();
    let faults: Vec<String> = expressions.iter().flat_map(|expression| names::faults(expression, &metrics)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The list that they are held to is what a gateway shows.
#[test]
fn a_gateway_shows_the_metrics_that_the_list_has() {
    let upstream = upstream(|_| answer(200));
    let gateway = gateway(&format!(
        "upstream: http://{}\nadmin: {{ hosts: [gateway] }}\nsources: [{{ path: /in, verify: none, key: body.a }}]\n",
        upstream.address
    ))
    .start();
    assert_eq!(gateway.client().send(&post("/in", br#"{"a":"a"}"#)).status, 200);
    upstream.wait_for(1);
    // As Prometheus asks it in compose: by a name.
    let scraped = Client::to(gateway.admin).send(&get("/metrics").without("Host").header("Host", "gateway:8081"));
    assert_eq!(scraped.status, 200);
    let text = scraped.text();
    let known = names::metrics();
    let shown = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(['{', ' ']).next());
    let mut seen = 0;
    for name in shown.filter(|name| !name.is_empty()) {
        seen += 1;
        assert!(known.contains_key(name), "{name} is shown, and is not in docs/metrics.md");
    }
    assert!(seen > 50, "{text}");
}

#[test]
fn no_two_rules_have_one_name_and_each_says_what_to_do() {
    let mut names = Vec::new();
    found(&yaml("prometheus/alerts.yaml"), &["alert"], &mut names);
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
    for group in yaml("prometheus/alerts.yaml")["groups"].as_array().unwrap() {
        for rule in group["rules"].as_array().unwrap() {
            assert!(["page", "ticket"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{rule}");
            for words in ["summary", "description"] {
                assert!(rule["annotations"][words].as_str().unwrap().len() > 20, "{rule}");
            }
        }
    }
}

/// Panels lie beside each other, never on each other.
#[test]
fn the_panels_of_the_dashboard_do_not_overlap() {
    let text = std::fs::read_to_string(deploy("grafana/fairlane.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let place = |panel: &Value| ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
    let panels = dashboard["panels"].as_array().unwrap();
    for (i, one) in panels.iter().enumerate() {
        let [x, y, w, h] = place(one);
        assert!(x + w <= 24 && one["id"] == i + 1, "{one}");
        for other in &panels[..i] {
            let [ox, oy, ow, oh] = place(other);
            assert!(
                x + w <= ox || ox + ow <= x || y + h <= oy || oy + oh <= y,
                "{} on {}",
                one["title"],
                other["title"]
            );
        }
    }
}

#[test]
fn compose_scrapes_the_gateway_and_shows_the_dashboard() {
    let compose = yaml("compose.monitoring.yaml");
    let base = yaml("compose.yaml");
    let services = compose["services"].as_object().unwrap();
    assert!(services.contains_key("prometheus") && services.contains_key("grafana"));
    for (name, service) in services {
        for volume in service["volumes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let source = volume.split(':').next().unwrap();
            let known = source.starts_with('.').then(|| deploy(source).exists());
            assert!(known.unwrap_or_else(|| compose["volumes"].get(source).is_some()), "{name}: {volume}");
        }
        for port in service["ports"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            assert!(port.starts_with("127.0.0.1:"), "{name} is published beyond this host: {port}");
        }
    }
    let prometheus = yaml("prometheus/prometheus.yml");
    let scrape = &prometheus["scrape_configs"][0];
    assert_eq!(scrape["job_name"], "fairlane", "the rules name it");
    let target = scrape["static_configs"][0]["targets"][0].as_str().unwrap();
    let (host, port) = target.split_once(':').unwrap();
    assert!(base["services"].get(host).is_some() && port == "8081", "{target}");
    // The admin side answers to names that it was told.
    let hosts = yaml("gateway.yaml")["admin"]["hosts"].clone();
    assert!(hosts.as_array().unwrap().contains(&host.into()), "{hosts}");
    let mounted: Vec<&str> =
        services["prometheus"]["volumes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for rules in prometheus["rule_files"].as_array().unwrap().iter().filter_map(Value::as_str) {
        assert!(mounted.iter().any(|mount| mount.contains(&format!("alerts.yaml:{rules}"))), "{rules}: {mounted:?}");
    }
    let source = yaml("grafana/provisioning/datasources/prometheus.yaml")["datasources"][0]["url"].clone();
    assert_eq!(source, "http://prometheus:9090");
    let dashboards = yaml("grafana/provisioning/dashboards/fairlane.yaml")["providers"][0]["options"]["path"].clone();
    let mounted = services["grafana"]["volumes"].to_string();
    assert!(
        mounted.contains(&format!("./grafana/fairlane.json:{}/fairlane.json", dashboards.as_str().unwrap())),
        "{mounted}"
    );
}

/// Prometheus' own judgement, where it is (`make check-prometheus` says how to get it).
#[test]
fn promtool_finds_nothing_wrong() {
    let tool = std::env::var("PROMTOOL").unwrap_or_else(|_| "promtool".to_owned());
    let Ok(output) = Command::new(&tool).args(["check", "rules"]).arg(deploy("prometheus/alerts.yaml")).output() else {
        println!(
            "LEFT OUT: Prometheus' own judgement of the rules, for want of promtool (Debian's package prometheus)"
        );
        return;
    };
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("SUCCESS"), "{said}");
    // Its configuration names files as they lie in the container.
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(deploy("prometheus/alerts.yaml"), folder.path().join("alerts.yaml")).unwrap();
    let here = std::fs::read_to_string(deploy("prometheus/prometheus.yml")).unwrap();
    let config = folder.path().join("prometheus.yml");
    std::fs::write(&config, here.replace("/etc/prometheus/alerts.yaml", "alerts.yaml")).unwrap();
    let output = Command::new(&tool).args(["check", "config"]).arg(&config).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output =
        Command::new(&tool).args(["test", "rules", "test.yaml"]).current_dir(deploy("prometheus")).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
}
