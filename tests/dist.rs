//! What `make dist` makes around the binary, without building one: the archive, the bill of materials, licences, checksums.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Licences that a part of the binary may have: those of `deny.toml`, which `make deny` looks at too. Choices between them are by `OR`.
fn allowed() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let list = text.split("\nallow = [").nth(1).and_then(|rest| rest.split(']').next()).unwrap();
    let allowed: BTreeSet<String> =
        list.lines().filter_map(|line| Some(line.trim().strip_prefix('"')?.split('"').next()?.to_owned())).collect();
    assert!(allowed.len() > 5 && allowed.contains("MIT"), "{allowed:?}");
    allowed
}

/// A release with the binary of the tests in it.
struct Release {
    folder: TempDir,
    name: String,
    said: String,
}

impl Release {
    fn made() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let output = dist(folder.path());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let archive = names.filter_map(|name| name.into_string().ok()).find(|name| name.ends_with(".tar.gz")).unwrap();
        Self { folder, name: archive.trim_end_matches(".tar.gz").to_owned(), said }
    }

    fn path(&self, end: &str) -> PathBuf {
        self.folder.path().join(format!("{}{end}", self.name))
    }
}

fn dist(out: &Path) -> Output {
    // A start with a debug build and other tests beside it takes its time; nothing here depends on it.
    Command::new("bash")
        .arg(root().join("deploy/release/dist"))
        .args(["--binary", env!("CARGO_BIN_EXE_fairlane"), "--out"])
        .arg(out)
        .env("SOURCE_DATE_EPOCH", "1790000000")
        .output()
        .unwrap()
}

#[test]
fn a_release_has_everything_in_it_and_says_how_large_and_how_fast_it_is() {
    let release = Release::made();
    let listed = Command::new("tar").arg("-tzf").arg(release.path(".tar.gz")).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    for file in [
        "fairlane",
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "THIRD-PARTY.md",
        "gateway.yaml",
        "completions/fairlane.bash",
        "man/man1/fairlane.1",
        "man/man1/fairlane-groups-pause.1",
        "systemd/fairlane.service",
    ] {
        assert!(listed.lines().any(|line| line == format!("{}/{file}", release.name)), "{file}: {listed}");
    }
    assert!(release.name.starts_with(&format!("fairlane-{}-", env!("CARGO_PKG_VERSION"))), "{}", release.name);
    for part in [" bytes, ", " ms with a new store, ", "store format: ", ".tar.gz"] {
        assert!(release.said.contains(part), "{part}: {}", release.said);
    }
    let check =
        Command::new("sha256sum").args(["-c", "SHA256SUMS"]).current_dir(release.folder.path()).output().unwrap();
    assert!(check.status.success() && String::from_utf8_lossy(&check.stdout).matches(": OK").count() == 2);
    // The same again, byte for byte.
    let again = Release::made();
    assert!(std::fs::read(release.path(".tar.gz")).unwrap() == std::fs::read(again.path(".tar.gz")).unwrap());
}

#[test]
fn the_bill_names_every_part_and_where_it_belongs() {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    let bill = |form: &str| {
        use std::io::Write as _;
        let mut child = Command::new("python3")
            .arg(root().join("deploy/release/bill.py"))
            .arg(form)
            .arg(root().join("Cargo.lock"))
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&metadata.stdout).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let sbom: Value = serde_json::from_str(&bill("sbom")).unwrap();
    assert_eq!((&sbom["bomFormat"], &sbom["specVersion"]), (&"CycloneDX".into(), &"1.6".into()));
    assert_eq!(sbom["metadata"]["component"]["name"], "fairlane");
    let components = sbom["components"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let parts: BTreeMap<String, &Value> = components.iter().map(|one| (text(&one["bom-ref"]), one)).collect();
    assert_eq!(parts.len(), components.len(), "each stands once");
    // What is linked is there, what only tests need is not.
    let names: BTreeSet<String> = components.iter().map(|one| text(&one["name"])).collect();
    for name in ["hyper", "fjall", "serde_json", "ring", "clap"] {
        assert!(names.contains(name), "{name}");
    }
    for name in ["proptest", "standardwebhooks", "fantoccini", "cc"] {
        assert!(!names.contains(name), "{name} is not in the binary");
    }
    let allowed = allowed();
    let mut refused = Vec::new();
    for (name, part) in &parts {
        assert_eq!(text(&part["hashes"][0]["content"]).len(), 64, "{name}");
        let licence = text(&part["licenses"][0]["expression"]);
        // Of choices one has to fit; of parts joined by AND each.
        let fits = |one: &str| allowed.contains(one.trim().trim_matches(['(', ')']));
        if !licence.split(" AND ").all(|one| one.split(" OR ").any(fits)) {
            refused.push(format!("{name}: {licence}"));
        }
    }
    assert!(refused.is_empty(), "licences that nobody has looked at: {refused:?}");
    for edge in sbom["dependencies"].as_array().unwrap() {
        for on in edge["dependsOn"].as_array().unwrap() {
            assert!(parts.contains_key(&text(on)), "{on}");
        }
    }
    // What `deny.toml` bans, and where crates may come from, as far as the lock file says it.
    for banned in ["openssl-sys", "aws-lc-rs"] {
        assert!(!names.contains(banned), "{banned} is linked");
    }
    let locked = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    assert!(!locked.contains("source = \"git+"), "a crate comes from a repository and not from the registry");
    let licences = bill("licences");
    assert!(licences.contains("| hyper | ") && licences.contains("Permission is hereby granted"));
}
