//! The manifests and the chart, judged without a cluster: they load, agree with each other and with the image, and every
//! configuration in them passes `fairlane check`.
//!
//! The chart's templates are made with `helm` where it is there (`HELM=`), and judged like the plain manifests. Where Python's
//! package `kubernetes-validate` is there (`KUBERNETES_VALIDATE=`), it holds all of them to Kubernetes' own schemas.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::panic, reason = "likewise")]
#![expect(clippy::indexing_slicing, reason = "likewise")]
#![expect(clippy::print_stdout, reason = "what is left out has to be seen")]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

const SECRETS: &str = "/etc/fairlane/secrets/";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(name: &str) -> String {
    std::fs::read_to_string(root().join("deploy").join(name)).unwrap_or_else(|error| panic!("deploy/{name}: {error}"))
}

/// The documents of a file of YAML.
fn documents(text: &str) -> Vec<Value> {
    let parts = format!("\n{text}").split("\n---").map(str::to_owned).collect::<Vec<_>>();
    let says = |part: &&String| part.lines().any(|line| !line.trim().is_empty() && !line.trim().starts_with('#'));
    parts
        .iter()
        .filter(says)
        .map(|part| serde_saphyr::from_str(part).unwrap_or_else(|error| panic!("{error}\n{part}")))
        .collect()
}

/// What is applied together.
struct Set {
    name: String,
    all: Vec<Value>,
}

impl Set {
    fn of(name: &str, text: &str) -> Self {
        Self { name: name.to_owned(), all: documents(text) }
    }

    fn kind(&self, kind: &str) -> Vec<&Value> {
        self.all.iter().filter(|one| one["kind"] == kind).collect()
    }

    /// The gateways: not Redis.
    fn gateway(&self) -> &Value {
        let sets = self.kind("StatefulSet");
        sets.into_iter().find(|set| set["metadata"]["name"] != "fairlane-redis").unwrap()
    }

    fn container(&self) -> &Value {
        &self.gateway()["spec"]["template"]["spec"]["containers"][0]
    }

    fn configuration(&self) -> String {
        self.kind("ConfigMap")[0]["data"]["gateway.yaml"].as_str().unwrap().to_owned()
    }

    fn many(&self) -> bool {
        self.configuration().contains("redis:")
    }
}

fn plain() -> Vec<Set> {
    let secrets = text("kubernetes/secrets.yaml");
    let set = |file: &str, more: &str| {
        Set::of(file, &format!("{secrets}\n---\n{}\n---\n{more}", text(&format!("kubernetes/{file}"))))
    };
    vec![set("single.yaml", &text("kubernetes/networkpolicy.yaml")), set("many.yaml", &text("kubernetes/redis.yaml"))]
}

fn helm() -> Option<String> {
    let helm = std::env::var("HELM").unwrap_or_else(|_| "helm".to_owned());
    let there = Command::new(&helm).arg("version").output().is_ok_and(|output| output.status.success());
    there.then_some(helm)
}

/// What the chart comes to: as it is, and with everything switched on.
fn charted() -> Vec<Set> {
    let Some(helm) = helm() else {
        println!("LEFT OUT: the chart's templates, for want of helm");
        return Vec::new();
    };
    let chart = root().join("deploy/helm/fairlane");
    let said = |arguments: &[&str]| {
        let output = Command::new(&helm).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let chart = chart.to_str().unwrap();
    said(&["lint", "--strict", chart]);
    let all = ["redis.enabled", "networkPolicy.enabled", "ingress.enabled", "metrics.serviceMonitor"];
    let all: Vec<String> = all.iter().map(|name| format!("--set={name}=true")).collect();
    let url = "--set=secrets.values.redis-url=redis://redis:6379,secrets.values.admin-token=0123456789abcdef0123456789abcdef,redis.adminTokenKey=admin-token";
    let many: Vec<&str> =
        [&["template", "hooks", chart, url][..], &all.iter().map(String::as_str).collect::<Vec<_>>()].concat();
    vec![Set::of("chart", &said(&["template", "hooks", chart])), Set::of("chart with all", &said(&many))]
}

fn every() -> Vec<Set> {
    plain().into_iter().chain(charted()).collect()
}

/// `fairlane check` on a configuration, with the secrets that stand beside it.
#[test]
fn every_configuration_passes_the_check() {
    for set in every() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = set.kind("Secret")[0]["stringData"].as_object().unwrap().clone();
        for (name, value) in &secrets {
            std::fs::write(folder.path().join(name), value.as_str().unwrap()).unwrap();
        }
        let here = set.configuration().replace(SECRETS, &format!("{}/", folder.path().display()));
        let file = folder.path().join("gateway.yaml");
        std::fs::write(&file, here).unwrap();
        let mut check = Command::new(env!("CARGO_BIN_EXE_fairlane"));
        check.args(["check", "-c"]).arg(&file).env_clear();
        for variable in set.container()["env"].as_array().into_iter().flatten() {
            let name = variable["name"].as_str().unwrap();
            match variable["valueFrom"]["secretKeyRef"]["key"].as_str() {
                Some(key) => check.env(name, secrets[key].as_str().unwrap()),
                None => check.env(name, "10.1.2.3"),
            };
        }
        let output = check.output().unwrap();
        let problems = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {problems}", set.name);
    }
}

#[test]
fn probes_ask_for_what_there_is_where_it_is() {
    for set in every() {
        let container = set.container();
        let ports: Vec<(&str, u64)> = container["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|port| (port["name"].as_str().unwrap(), port["containerPort"].as_u64().unwrap()))
            .collect();
        assert_eq!(ports, [("http", 8080), ("admin", 8081)], "{}", set.name);
        let configuration: Value = serde_saphyr::from_str(&set.configuration()).unwrap();
        for (part, port) in [("listen", 8080), ("admin", 8081)] {
            assert_eq!(configuration[part]["address"], format!("0.0.0.0:{port}"), "{}", set.name);
        }
        for (probe, path) in [("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")]
        {
            assert_eq!(container[probe]["httpGet"]["path"], path, "{}: {probe}", set.name);
            assert_eq!(container[probe]["httpGet"]["port"], "admin", "{}: {probe}", set.name);
        }
        for service in set.kind("Service").into_iter().filter(|service| service["metadata"]["name"] != "fairlane-redis")
        {
            for port in service["spec"]["ports"].as_array().unwrap() {
                assert!(ports.iter().any(|(name, _)| port["targetPort"] == *name), "{}: {port}", set.name);
            }
            let selector = service["spec"]["selector"].as_object().unwrap();
            let labels = set.gateway()["spec"]["template"]["metadata"]["labels"].as_object().unwrap();
            assert!(selector.iter().all(|(name, value)| labels.get(name) == Some(value)), "{}: {service}", set.name);
        }
    }
}

#[test]
fn nobody_of_weight_runs_it_and_it_writes_to_its_volume_alone() {
    for set in every() {
        for stateful in set.kind("StatefulSet") {
            let pod = &stateful["spec"]["template"]["spec"];
            let (of_pod, of_container) = (&pod["securityContext"], &pod["containers"][0]["securityContext"]);
            assert!(of_pod["runAsNonRoot"] == true && of_pod["runAsUser"].as_u64() > Some(0), "{}", set.name);
            assert_eq!(of_pod["seccompProfile"]["type"], "RuntimeDefault");
            assert_eq!(of_container["readOnlyRootFilesystem"], true);
            assert_eq!(of_container["allowPrivilegeEscalation"], false);
            assert_eq!(of_container["capabilities"]["drop"][0], "ALL");
            assert_eq!(pod["automountServiceAccountToken"], false);
        }
        // As the image has it.
        let pod = &set.gateway()["spec"]["template"]["spec"];
        let user = format!("--uid {}", pod["securityContext"]["runAsUser"]);
        assert!(text("Dockerfile").contains(&user), "{user}");
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        let writable: Vec<&str> =
            mounts.iter().filter(|m| m["readOnly"] != true).filter_map(|m| m["mountPath"].as_str()).collect();
        assert_eq!(writable, ["/var/lib/fairlane"], "{}", set.name);
        let arguments: Vec<&str> =
            pod["containers"][0]["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let after = |flag: &str| arguments[arguments.iter().position(|a| *a == flag).unwrap() + 1];
        // The mounted folder itself is root's: nobody else may change its mode.
        assert!(after("--data").starts_with("/var/lib/fairlane/"), "{arguments:?}");
        let config = mounts.iter().find(|mount| mount["name"] == "config").unwrap()["mountPath"].as_str().unwrap();
        assert_eq!(after("-c"), format!("{config}/gateway.yaml"));
        let secrets = mounts.iter().find(|mount| mount["name"] == "secrets").unwrap()["mountPath"].as_str().unwrap();
        assert_eq!(format!("{secrets}/"), SECRETS);
        let parsed =
            fairlane::cli::command().try_get_matches_from(["fairlane"].into_iter().chain(arguments.iter().copied()));
        assert!(parsed.is_ok(), "{arguments:?}");
    }
}

#[test]
fn it_has_time_to_end_and_many_are_not_taken_away_at_once() {
    let drain = {
        let schema = fairlane::config::schema();
        let drain = &schema["properties"]["shutdown"]["anyOf"][0]["properties"]["drain"]["default"];
        drain.as_str().unwrap().trim_end_matches('s').parse::<u64>().unwrap()
    };
    for set in every() {
        let pod = &set.gateway()["spec"]["template"]["spec"];
        let sleep = &pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"];
        let before: u64 = sleep[1].as_str().unwrap().parse().unwrap();
        let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
        assert!(
            sleep[0] == "sleep" && grace >= before + drain + 10,
            "{}: {grace} s for {before} + {drain} s",
            set.name
        );
        let replicas = set.gateway()["spec"]["replicas"].as_u64().unwrap();
        let budgets = set.kind("PodDisruptionBudget");
        if set.many() {
            assert!(replicas >= 2 && budgets.len() == 1, "{}", set.name);
            assert_eq!(budgets[0]["spec"]["maxUnavailable"], 1);
            assert_eq!(budgets[0]["spec"]["selector"], set.gateway()["spec"]["selector"]);
        } else {
            // One volume, one gateway; a budget would only keep machines from being drained.
            assert!(replicas == 1 && budgets.is_empty(), "{}", set.name);
        }
        let claims: BTreeSet<&str> = set.gateway()["spec"]["volumeClaimTemplates"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|claim| claim["metadata"]["name"].as_str())
            .collect();
        let volumes = pod["volumes"].as_array().unwrap().iter().filter_map(|volume| volume["name"].as_str());
        let known: BTreeSet<&str> = claims.into_iter().chain(volumes).collect();
        for mount in pod["containers"][0]["volumeMounts"].as_array().unwrap() {
            assert!(known.contains(mount["name"].as_str().unwrap()), "{}: {mount}", set.name);
        }
    }
}

/// What a configuration or a pod names of a Secret stands in it.
#[test]
fn every_secret_is_there() {
    for set in every() {
        let secret = set.kind("Secret")[0];
        let has = |key: &str| secret["stringData"].get(key).is_some();
        for file in set.configuration().split(SECRETS).skip(1) {
            let name = file.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).next().unwrap();
            assert!(has(name), "{}: {name}", set.name);
        }
        for variable in set.container()["env"].as_array().into_iter().flatten() {
            let from = &variable["valueFrom"]["secretKeyRef"];
            if from.is_null() {
                // Of the pod itself.
                assert_eq!(variable["valueFrom"]["fieldRef"]["fieldPath"], "status.podIP");
                continue;
            }
            assert_eq!(from["name"], secret["metadata"]["name"]);
            assert!(has(from["key"].as_str().unwrap()), "{}: {variable}", set.name);
        }
    }
}

/// A template that asks for a value that nobody gives would be empty; this needs no helm.
#[test]
fn the_chart_asks_for_values_that_there_are() {
    let values: Value = serde_saphyr::from_str(&text("helm/fairlane/values.yaml")).unwrap();
    let chart: Value = serde_saphyr::from_str(&text("helm/fairlane/Chart.yaml")).unwrap();
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    let folder = root().join("deploy/helm/fairlane/templates");
    let mut seen = 0;
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let template = std::fs::read_to_string(&path).unwrap();
        for rest in template.split(".Values.").skip(1) {
            let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '.').collect();
            let mut at = &values;
            for part in name.trim_end_matches('.').split('.') {
                // `config` is the gateway's, whose fields are its own.
                if part == "config" {
                    break;
                }
                at = at.get(part).unwrap_or_else(|| panic!("{}: .Values.{name} is not in values.yaml", path.display()));
            }
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
    // What the chart is configured with to begin with is a configuration.
    let configuration = values["config"].clone();
    let fields: BTreeSet<&str> = configuration.as_object().unwrap().keys().map(String::as_str).collect();
    assert!(fields.is_subset(&["listen", "upstream", "sources", "groups", "admin"].into()), "{fields:?}");
}

/// Kubernetes' own schemas.
#[test]
fn kubernetes_finds_nothing_wrong() {
    let tool = std::env::var("KUBERNETES_VALIDATE").unwrap_or_else(|_| "kubernetes-validate".to_owned());
    let there = Command::new(&tool).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !there {
        println!(
            "LEFT OUT: Kubernetes' own schemas, for want of kubernetes-validate (pip install kubernetes-validate)"
        );
        return;
    }
    for set in every() {
        for one in set.all.iter().filter(|one| one["kind"] != "ServiceMonitor") {
            let folder = tempfile::tempdir().unwrap();
            let file: PathBuf = folder.path().join("one.yaml");
            std::fs::File::create(&file).unwrap().write_all(one.to_string().as_bytes()).unwrap();
            let output = Command::new(&tool).arg("--strict").arg(&file).output().unwrap();
            let said =
                format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "{} {}: {said}", set.name, one["kind"]);
        }
    }
}
