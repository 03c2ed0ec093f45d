//! `fairlane import`: exports as other products' documentation describes them become configurations that load, word for word
//! as expected, and nothing of an export gets lost unseen.
//!
//! `UPDATE_EXPECTED=1 cargo test --test import` writes the expected files anew; look at the difference.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import").join(name)
}

fn import(export: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    command.args(["import", "hookdeck"]).arg(export).args(arguments).output().unwrap()
}

/// The file that is written, the secrets beside it, and what is said.
fn imported(export: &str, arguments: &[&str]) -> (String, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let env = folder.path().join("secrets.env");
    let output = import(&sample(export), &[arguments, &["--env", env.to_str().unwrap()]].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{export}: {said}");
    assert_eq!(std::fs::metadata(&env).unwrap().permissions().mode() & 0o777, 0o600);
    (String::from_utf8(output.stdout).unwrap(), std::fs::read_to_string(env).unwrap(), said)
}

/// `fairlane check` with the secrets as an operator's shell would have them; what the export lacks is made up.
fn checked(yaml: &str, secrets: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.yaml"), yaml).unwrap();
    let filled: String = secrets
        .lines()
        .map(|line| {
            if line.ends_with('=') {
                format!("{line}whsec_bWFkZS11cC1mb3ItdGhpcy10ZXN0\n")
            } else {
                format!("{line}\n")
            }
        })
        .collect();
    std::fs::write(folder.path().join("env"), filled).unwrap();
    let output = Command::new("bash")
        .args(["-c", "set -a; . ./env; exec \"$0\" check -c gateway.yaml", env!("CARGO_BIN_EXE_fairlane")])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}\n{yaml}");
    out.into_owned()
}

/// The names of all fields that say something, wherever they stand.
fn names(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                into.insert(name.clone());
                names(value, into);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| names(item, into)),
        _ => {}
    }
}

#[test]
fn exports_become_what_is_expected_and_pass_the_check() {
    for (export, arguments) in [("shop", &[][..]), ("before-2025", &[])] {
        let (yaml, secrets, said) = imported(&format!("{export}.json"), arguments);
        let expected = sample(&format!("{export}.expected.yaml"));
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&expected, &yaml).unwrap();
        }
        let kept = std::fs::read_to_string(&expected).unwrap_or_default();
        assert!(yaml == kept, "{} differs; UPDATE_EXPECTED=1 writes it anew:\n{yaml}", expected.display());
        assert!(said.contains("without a counterpart"), "{said}");
        let made = secrets.lines().find_map(|line| line.strip_prefix("FAIRLANE_SIGNING_SECRET=whsec_"));
        assert_eq!(made.is_some_and(|made| made.len() == 32), yaml.contains("signing_secret:"), "{said}");
        checked(&yaml, &secrets);
    }
}

#[test]
fn the_gateway_for_another_destination_is_made_by_name() {
    let (yaml, secrets, _) = imported("shop.json", &["--destination", "archive"]);
    let effective = checked(&yaml, &secrets);
    assert!(
        effective.contains("url: https://archive.example") && effective.contains("forward_path: /in"),
        "{effective}"
    );
    assert!(
        yaml.contains("UPSTREAM_AUTHORIZATION")
            && secrets.contains("UPSTREAM_AUTHORIZATION='Bearer made-up-archive-token'")
    );
    assert!(
        yaml.contains("NOT CARRIED OVER: delay of 5s")
            && yaml.contains("make another one with --destination \"api-billing\"")
    );
}

/// Every secret is in the file for secrets, and in no other output.
#[test]
fn no_secret_is_shown() {
    for export in ["shop.json", "before-2025.json"] {
        let (yaml, secrets, said) = imported(export, &[]);
        for output in [&yaml, &said] {
            assert!(
                !["made-up", "made up", "made_up", "hush"].iter().any(|secret| output.contains(secret)),
                "{output}"
            );
        }
        assert!(secrets.matches("made").count() >= 4, "{secrets}");
    }
    let quoted = imported("before-2025.json", &[]).1;
    assert!(quoted.contains(r"OPS_ALERTS_PASSWORD='made up '\''password'\'''"), "{quoted}");
}

/// Whatever an export has besides what means nothing elsewhere changes what is written: it is there, or told.
#[test]
fn nothing_gets_lost_unseen() {
    // What says nothing to anybody else, what is told by other words, and what stands for the whole of an object that is told.
    const MEANINGLESS: [&str; 15] = [
        "id",
        "team_id",
        "full_name",
        "created_at",
        "updated_at",
        "pagination",
        "count",
        "models",
        "order_by",
        "dir",
        "limit",
        "path_forwarding_disabled",
        "source_id",
        "destination_id",
        // Of the destination on a laptop, which is told as a whole.
        "path",
    ];
    for export in ["shop.json", "before-2025.json"] {
        let text = std::fs::read_to_string(sample(export)).unwrap();
        let mut all = BTreeSet::new();
        names(&serde_json::from_str(&text).unwrap(), &mut all);
        let before = outcome(&sample(export));
        for name in all.iter().filter(|name| !MEANINGLESS.contains(&name.as_str())) {
            // Under a name that nobody knows it has to be told; where the whole is refused without it, it was not lost either.
            let folder = tempfile::tempdir().unwrap();
            let changed = folder.path().join("changed.json");
            std::fs::write(&changed, text.replace(&format!("\"{name}\":"), &format!("\"un{name}\":"))).unwrap();
            assert_ne!(outcome(&changed), before, "{export}: {name} is lost");
        }
    }
}

/// All that is written and said of an export, for the usual destination and for another.
fn outcome(export: &Path) -> String {
    let folder = tempfile::tempdir().unwrap();
    let env = folder.path().join("env");
    let one = |arguments: &[&str]| {
        let output = import(export, &[arguments, &["--env", env.to_str().unwrap()]].concat());
        let secrets = std::fs::read_to_string(&env).unwrap_or_default();
        // What is made at random is another one each time, whatever the export says.
        let made = |line: &str| line.starts_with("FAIRLANE_SIGNING_SECRET=");
        let secrets: String =
            secrets.lines().map(|line| if made(line) { "made\n".to_owned() } else { format!("{line}\n") }).collect();
        drop(std::fs::remove_file(&env));
        format!("{}{}{secrets}", output.status, String::from_utf8_lossy(&output.stdout))
    };
    one(&[]) + &one(&["--destination", "archive"])
}

#[test]
fn what_cannot_be_imported_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let said = |text: &str, arguments: &[&str]| {
        let file = folder.path().join("export.json");
        std::fs::write(&file, text).unwrap();
        let output = import(&file, arguments);
        assert!(output.stdout.is_empty());
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, words) = said("[]", &[]);
    assert_eq!(code, Some(64), "{words}");
    assert!(words.contains("there is nothing in it"), "{words}");
    let shop = std::fs::read_to_string(sample("shop.json")).unwrap();
    let (code, words) = said(&shop, &["--destination", "nowhere"]);
    assert!(code == Some(64) && words.contains("there are \"api\", \"archive\""), "{words}");
    let (_, words) = said(&shop, &["--destination", "laptop"]);
    assert!(words.contains("of type CLI, which has no address to deliver to"), "{words}");
    let (code, words) = said(&shop, &["--env", "/proc/nowhere"]);
    assert!(code == Some(1) && words.contains("cannot write"), "{words}");
    let absent = import(&folder.path().join("absent.json"), &[]);
    assert_eq!(absent.status.code(), Some(1));
}

/// The page says how, and who follows it does it more than once: nothing is lost by that, and nothing has to be made by hand.
#[test]
fn the_import_can_be_made_again_and_passes_the_check_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let env = folder.path().join("secrets.env");
    std::fs::write(&env, "MINE=1").unwrap();
    let again = || {
        let output = import(&sample("shop.json"), &["--env", env.to_str().unwrap()]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        (output.stdout, std::fs::read_to_string(&env).unwrap(), said)
    };
    let (yaml, secrets, _) = again();
    assert!(secrets.starts_with("MINE=1\nCRM_SECRET="), "{secrets}");
    let (yaml_again, secrets_again, said) = again();
    assert!(secrets == secrets_again && said.contains("stays as it is"), "{said}");
    assert_eq!(yaml, yaml_again);
    std::fs::write(folder.path().join("gateway.yaml"), yaml).unwrap();
    let script = "set -a; . ./secrets.env; exec \"$0\" check --quiet";
    let mut command = Command::new("bash");
    command.args(["-c", script, env!("CARGO_BIN_EXE_fairlane")]).current_dir(folder.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
