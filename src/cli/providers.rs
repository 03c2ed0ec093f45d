//! `fairlane providers`: who is known by name, and a source block to begin with.

use crate::verify::fetched::Of;
use crate::verify::scheme::Scheme;
use crate::verify::{Preset, preset, presets};

use super::{USAGE, complain, print};

/// Lists all, or prints what is known of one with a ready source block; the answer is the exit code.
pub(super) fn run(name: Option<&str>) -> u8 {
    match name {
        None => print(list().as_bytes()),
        Some(name) => match preset(name) {
            Some(preset) => print(block(preset).as_bytes()),
            None => {
                complain(&format!("there is no provider {name:?}; `fairlane providers` lists the known ones"), USAGE)
            }
        },
    }
}

fn list() -> String {
    let width = presets().iter().map(|preset| preset.name.len()).max().unwrap_or(0);
    presets().iter().map(|preset| format!("{:<width$}  {}\n", preset.name, preset.title)).collect()
}

fn block(preset: &Preset) -> String {
    let Preset { name, title, natural_key, key_signed, answer_limit, repeats, .. } = preset;
    let variable = |what: &str| format!("${{{}_{what}}}", name.to_uppercase().replace('-', "_"));
    let proof = match &preset.scheme {
        Scheme::Fetched(fetched) if fetched.of == Of::Sns => format!("topics: [\"{}\"]", variable("TOPIC")),
        Scheme::Fetched(_) => format!("webhook_id: \"{}\"", variable("WEBHOOK_ID")),
        _ => format!("secret: \"{}\"", variable("SECRET")),
    };
    let key = match natural_key {
        [] => "    key: body.tenant            # this provider names no tenant of its own: say where yours stands\n"
            .to_owned(),
        key if *key_signed => format!("    # grouped by {}, which the signature covers\n", key.join(", else ")),
        key => format!("    # grouped by {}; the signature does not cover it\n", key.join(", else ")),
    };
    let limit =
        answer_limit.map_or_else(String::new, |limit| format!("# waits {} s for an answer\n", limit.as_secs_f64()));
    let repeats = match repeats {
        Some(false) => "# does not repeat what was refused\n",
        Some(true) => "# repeats what was refused\n",
        None => "",
    };
    format!(
        "# {title}\n{limit}{repeats}sources:\n  - path: /webhooks/{name}\n    verify: {{ provider: {name}, {proof} }}\n{key}"
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_block_is_a_configuration_that_loads() {
        for preset in presets() {
            let text = format!("upstream: http://127.0.0.1:9\n{}", block(preset));
            // A secret in each form that some provider has.
            let secrets =
                ["hush-a-test-secret", "whsec_aHVzaC1hLXRlc3Qtc2VjcmV0", "68757368", "aHVzaC1hLXRlc3Q=", "user:hush"];
            let loads = |secret: &&str| {
                let environment = |_: &str| Some((*secret).to_owned());
                let no_files = |_: &Path| Err(std::io::Error::other("no files here"));
                crate::config::load(&text, "block.yaml", &environment, &no_files).is_ok()
            };
            let public_key = format!("{:?}", preset.scheme).contains("Public");
            assert!(public_key || secrets.iter().any(loads), "{text}");
            assert!(list().contains(preset.name));
        }
    }
}
