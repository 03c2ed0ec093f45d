//! The configurations that are tried side by side.

use std::path::PathBuf;

use clap::Args;

use crate::app::{FilePolicies, Options};
use crate::cli::rules::Refused;
use crate::engine::{Policies, Settings};
use crate::event::{Group, Lane};

/// More stand in no table.
const VARIANTS_MAX: usize = 8;

/// What to try.
#[derive(Debug, Default, Args)]
pub(super) struct VariantArguments {
    /// A configuration to try; may be repeated. Without one: all defaults
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub(super) configs: Vec<PathBuf>,
    /// Try it with so many slots; may be repeated
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    concurrency: Vec<u32>,
    /// Try it with this weight for a group, which may have * and ?, e.g. 'plus-*=4'; may be repeated
    #[arg(long = "weight", value_name = "GROUP=N", value_parser = weight)]
    weights: Vec<(String, f64)>,
    /// Try it with this cap for a group; may be repeated
    #[arg(long = "cap", value_name = "GROUP=N", value_parser = cap)]
    caps: Vec<(String, u32)>,
    /// Try it with one queue for all groups, too
    #[arg(long)]
    one_queue: bool,
}

fn weight(text: &str) -> Result<(String, f64), String> {
    let (group, number) = split(text)?;
    let number = number.parse().ok().filter(|number| (0.01..=1_000.0).contains(number));
    Ok((group, number.ok_or("a weight is 0.01 to 1000")?))
}

fn cap(text: &str) -> Result<(String, u32), String> {
    let (group, number) = split(text)?;
    let number = number.parse().ok().filter(|number| *number > 0);
    Ok((group, number.ok_or("a cap is a number of slots, at least 1")?))
}

fn split(text: &str) -> Result<(String, &str), String> {
    let (group, number) = text.rsplit_once('=').filter(|(group, _)| !group.is_empty()).ok_or("expected GROUP=N")?;
    Ok((group.to_owned(), number))
}

/// One configuration.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    pub(super) name: String,
    pub(super) settings: Settings,
    policies: FilePolicies,
    /// Whether all groups share a lane.
    one_queue: bool,
}

impl VariantArguments {
    /// All that is to be tried, in the order of the table.
    ///
    /// # Errors
    /// A configuration has problems, or there are too many.
    pub(super) fn variants(&self) -> Result<Vec<Variant>, Refused> {
        let mut variants = Vec::new();
        for base in self.bases()? {
            let named =
                |what: &str| if self.configs.len() > 1 { format!("{}, {what}", base.name) } else { what.to_owned() };
            variants.push(base.clone());
            for slots in &self.concurrency {
                variants.push(base.with_slots(*slots, named(&format!("{slots} slots"))));
            }
            if !self.weights.is_empty() || !self.caps.is_empty() {
                variants.push(self.changed(&base, named("as changed")));
            }
            if self.one_queue {
                variants.push(Variant { one_queue: true, name: named("one queue"), ..base.clone() });
            }
        }
        if variants.len() > VARIANTS_MAX {
            let text = format!("{} configurations side by side; at most {VARIANTS_MAX} can be shown", variants.len());
            return Err(Refused::Usage(text));
        }
        Ok(variants)
    }

    fn bases(&self) -> Result<Vec<Variant>, Refused> {
        if self.configs.is_empty() {
            // Attempts go out while their beginning is written, as in the gateway.
            let settings = Settings { begun_first: false, ..Settings::default() };
            let policies = FilePolicies::default();
            return Ok(vec![Variant { name: "defaults".to_owned(), settings, policies, one_queue: false }]);
        }
        self.configs.iter().map(|file| Variant::of_file(file.clone())).collect()
    }

    fn changed(&self, base: &Variant, name: String) -> Variant {
        let mut variant = Variant { name, ..base.clone() };
        let globs = self.weights.iter().map(|(glob, _)| glob).chain(self.caps.iter().map(|(glob, _)| glob));
        let mut changed: Vec<&String> = Vec::new();
        for glob in globs {
            if !changed.contains(&glob) {
                changed.push(glob);
            }
        }
        let overrides = changed.into_iter().map(|glob| {
            // What is not changed stays as the file has it for such a group.
            let mut policy = variant.policies.of(&Group::of(&[glob]));
            if let Some((_, weight)) = self.weights.iter().rfind(|(other, _)| other == glob) {
                policy.weight = *weight;
            }
            if let Some((_, cap)) = self.caps.iter().rfind(|(other, _)| other == glob) {
                policy.concurrency = Some(*cap);
            }
            (glob.clone(), policy)
        });
        let overrides: Vec<_> = overrides.collect();
        variant.policies.overrides.splice(0..0, overrides);
        variant
    }
}

impl Variant {
    fn of_file(file: PathBuf) -> Result<Self, Refused> {
        let name = file.display().to_string();
        let config = (Options { config: file, ..Options::default() }).load().map_err(|problems| {
            let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Refused::Configuration(format!("the configuration has problems\n{}", list.join("\n")))
        })?;
        Ok(Self { name, settings: config.engine(), policies: config.policies(), one_queue: false })
    }

    /// Other slots; caps and slots for retries that came from the old number as a default follow the new one.
    fn with_slots(&self, slots: u32, name: String) -> Self {
        let mut variant = Self { name, ..self.clone() };
        let (before, settings) = (self.settings.slots, &mut variant.settings);
        settings.slots = slots;
        if settings.retry.concurrency == Some((before / 4).max(1)) {
            settings.retry.concurrency = None;
        }
        let default = Some((before / 8).max(1));
        let FilePolicies { defaults, fallback, overrides, .. } = &mut variant.policies;
        for policy in [defaults, fallback].into_iter().chain(overrides.iter_mut().map(|(_, policy)| policy)) {
            if policy.concurrency == default {
                policy.concurrency = None;
            }
        }
        variant
    }

    /// The lane in which events of `lane` wait.
    pub(super) fn lane(&self, lane: &Lane) -> Lane {
        if self.one_queue { Lane { group: Group::of(&["all"]), inner: None } } else { lane.clone() }
    }

    /// The function that the engine asks.
    pub(super) fn policies(&self) -> Policies {
        let policies = self.policies.clone();
        let (one_queue, slots) = (self.one_queue, self.settings.slots);
        Box::new(move |group| {
            let mut policy = policies.of(group);
            if one_queue {
                policy.concurrency = Some(slots);
            }
            policy
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(variant: &Variant, group: &str) -> (f64, Option<u32>) {
        let policy = variant.policies.of(&Group::of(&[group]));
        (policy.weight, policy.concurrency)
    }

    #[test]
    fn every_change_is_a_configuration_beside_the_one_as_it_is() {
        let arguments = VariantArguments {
            concurrency: vec![32],
            weights: vec![weight("a*=4").unwrap()],
            caps: vec![cap("a*=9").unwrap(), cap("b=1").unwrap()],
            one_queue: true,
            ..VariantArguments::default()
        };
        let variants = arguments.variants().unwrap_or_else(|_| panic!("variants"));
        let names: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
        assert_eq!(names, ["defaults", "32 slots", "as changed", "one queue"]);
        assert_eq!(variants[1].settings.slots, 32);
        assert_eq!(policy(&variants[2], "ab"), (4.0, Some(9)));
        assert_eq!((policy(&variants[2], "b"), policy(&variants[0], "ab")), ((1.0, Some(1)), (1.0, None)));
        let lane = Lane { group: Group::of(&["x"]), inner: None };
        assert_eq!(variants[3].lane(&lane).group.as_str(), "all");
        assert_eq!(variants[3].policies()(&lane.group).concurrency, Some(64));
    }

    #[test]
    fn what_cannot_be_a_weight_or_cap_is_refused() {
        for wrong in ["a", "=1", "a=0", "a=x"] {
            assert!(weight(wrong).is_err() && cap(wrong).is_err(), "{wrong}");
        }
        assert_eq!(weight("a=b=0.5"), Ok(("a=b".to_owned(), 0.5)));
    }
}
