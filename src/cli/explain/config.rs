//! The configuration as `fairlane explain` needs it: whoever asks about one source need not have the secrets of the others at hand.

use std::collections::BTreeMap;
use std::path::Path;

use crate::app;
use crate::config::{self, Config, Problem};

/// Stand-ins for a secret that is not there, one for each form that some scheme wants; the last but one is a public key, the base
/// point of P-256 (SEC 2 §2.4.2), which is a valid one that nobody signs with.
const STAND_INS: [&str; 7] = [
    "fairlane-explain-stands-in",
    "whsec_ZmFpcmxhbmUtZXhwbGFpbi1zdGFuZHMtaW4=",
    "6661697e6c616e652d6578706c61696e2d7374616e64732d696e2d2d2d2d2d2d",
    "fairlane:explain-stands-in",
    "ZmFpcmxhbmUtZXhwbGFpbi1zdGFuZHMtaW4tLS0tLS0=",
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEaxfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpZP40Li/hp/m47n60p8D54WK84zV2sxXs7LtkBoN79R9Q==",
    RSA,
];

/// A public key whose other half was thrown away when it was made.
const RSA: &str = "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEApBAUGh2U00m8fXynu3Rs3Waq1u3WFUJQFaoILkSO/jP2Nb9ixpoOPhBVYgYoiY+Y/I\
    BMRE2Kp154FfN4FcqFb/ZdG6dzFbdtumZG3IeOq67saxzhHKty0a/fprvwjABJTuWx4av66y1yshwAuOK5fWuUQB8JyiWm9zNOhWltLuPnZEGs\
    DMc/T1Zdwu1SiGuJ9W/JS5oHrdPaxfi0UXaJo/j6pttN3Hs3Pe0e4YOJlLXx4sWwEXp55PPyTRRHrrseawFsAfw9j4prn1ahKPv2Dl0+M4hBFl\
    4ONjq9bC5BObJDt99gEaVlYou5k+EXddIkyY3RyBN4ONL3El+zaCcX1QIDAQAB";

/// A configuration, perhaps with stand-ins for secrets.
pub(super) struct Loaded {
    pub(super) config: Config,
    /// Every secret that a stand-in is there for.
    unset: Vec<Problem>,
}

/// Reads the configuration; variables that are not set and stand in the `verify` of a source are stood in for.
///
/// # Errors
/// The problems that are left.
pub(super) fn load(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Vec<Problem>> {
    let name = path.display().to_string();
    let text = app::read(path).map_err(|error| vec![app::unreadable(path, &error)])?;
    let with = |stand_ins: &BTreeMap<String, &str>| {
        let lookup = |name: &str| env(name).or_else(|| stand_ins.get(name).map(|text| (*text).to_owned()));
        config::load(&text, &name, &lookup, &app::read)
    };
    let problems = match with(&BTreeMap::new()) {
        Ok(config) => return Ok(Loaded { config, unset: Vec::new() }),
        Err(problems) => problems,
    };
    let (unset, other): (Vec<_>, Vec<_>) = problems.into_iter().partition(|problem| variable(problem).is_some());
    let mut stand_ins: BTreeMap<String, &str> =
        unset.iter().filter_map(|problem| Some((variable(problem)?.to_owned(), STAND_INS[0]))).collect();
    if !other.is_empty() {
        return Err(unset.into_iter().chain(other).collect());
    }
    for variable in stand_ins.keys().cloned().collect::<Vec<_>>() {
        let left = |form: &&&str| {
            let tried = with(&stand_ins.clone().into_iter().chain([(variable.clone(), **form)]).collect());
            tried.err().map_or(0, |problems| problems.len())
        };
        let best = STAND_INS.iter().min_by_key(left).copied().unwrap_or_default();
        stand_ins.insert(variable, best);
    }
    with(&stand_ins).map(|config| Loaded { config, unset: unset.clone() }).map_err(|_| unset)
}

/// The variable whose absence is the problem, where it is one in the `verify` of a source.
fn variable(problem: &Problem) -> Option<&str> {
    let inside = problem.path.starts_with("sources[") && problem.path.contains(".verify");
    let name = problem.found.strip_prefix("the environment variable ")?.strip_suffix(" is not set")?;
    inside.then_some(name)
}

impl Loaded {
    /// What is not set of the source in this place of the file.
    pub(super) fn unset_of(&self, source: usize) -> Vec<&Problem> {
        let path = format!("sources[{source}].");
        self.unset.iter().filter(|problem| problem.path.starts_with(&path)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::presets;

    #[test]
    fn a_secret_of_any_form_is_stood_in_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway.yaml");
        let mut left = Vec::new();
        for preset in presets() {
            let verify = match preset.name {
                "amazon-sns" | "aws-sns" | "sns" => continue,
                "paypal" => "provider: paypal, webhook_id: \"${NOT_SET}\"".to_owned(),
                name => format!("provider: {name}, secret: \"${{NOT_SET}}\""),
            };
            let own = "{ path: /own, verify: { provider: github, secret: hush } }";
            let yaml = format!(
                "upstream: http://127.0.0.1:9\nsources: [{own}, {{ path: /a, verify: {{ {verify} }} }}]\ngroups: {{}}\n"
            );
            std::fs::write(&path, yaml).unwrap();
            match load(&path, &|_| None) {
                Ok(loaded) => assert_eq!((loaded.unset_of(0).len(), loaded.unset_of(1).len()), (0, 1)),
                Err(_) => left.push(preset.name),
            }
        }
        assert_eq!(left, Vec::<&str>::new());
    }

    #[test]
    fn other_problems_are_not_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway.yaml");
        let secret = "verify: { provider: github, secret: \"${NOT_SET}\" }";
        for (yaml, told) in [
            (format!("upstream: \"${{NO_UPSTREAM}}\"\nsources: [{{ path: /a, {secret} }}]\n"), "NO_UPSTREAM"),
            (format!("upstream: http://a\nsources: [{{ path: \"${{NO_PATH}}\", {secret} }}]\n"), "NO_PATH"),
        ] {
            std::fs::write(&path, yaml).unwrap();
            let problems = load(&path, &|_| None).err().unwrap();
            assert!(problems.iter().any(|problem| problem.found.contains(told)), "{problems:?}");
        }
    }
}
