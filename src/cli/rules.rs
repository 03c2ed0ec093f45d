//! Which key rules to try, as a command line names them, and what each finds in a request.
//!
//! The rules themselves are the gateway's own (`key`); a source of a configuration has only the requests on its path.

use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;

use super::traffic::Seen;
use crate::app::{Options, Pattern, Router};
use crate::event::{Group, KeySource, Lane, Missing};
use crate::key::{Found, Input, Plan, Reading, Rule, RuleSpec};
use crate::verify::preset;

/// The rules of a command line.
#[derive(Debug, Default, Args)]
pub(super) struct RuleArguments {
    /// A rule to try, as `key` of a source takes it, e.g. body.account.id or '{ join: [body.chain, body.store] }'; may be repeated
    #[arg(long = "key", value_name = "EXPR", value_parser = spec)]
    keys: Vec<RuleSpec>,
    /// The natural key of a provider that is known by name; may be repeated
    #[arg(long = "provider", value_name = "NAME")]
    providers: Vec<String>,
    /// The rules of a configuration's sources, each on the requests of its path
    #[arg(short = 'c', long = "config", value_name = "FILE", conflicts_with_all = ["keys", "providers", "within", "path"])]
    config: Option<PathBuf>,
    /// Splits each group into lanes by a second rule
    #[arg(long, value_name = "EXPR", value_parser = spec)]
    within: Option<RuleSpec>,
    /// What stays in order: of no use to `keys`, which counts
    #[arg(skip)]
    order: Option<RuleSpec>,
    /// Only requests on this path, which may name segments for path.NAME, e.g. '/hooks/{account}'
    #[arg(long, value_name = "PATH", value_parser = Pattern::parse)]
    path: Option<Pattern>,
}

/// A rule on the command line: an expression, or YAML's `[a, b]` and `{ join: [a, b] }`.
pub(super) fn spec(text: &str) -> Result<RuleSpec, String> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        One(String),
        First(Vec<Self>),
        Join { join: Vec<Self> },
    }
    fn rule(written: Written) -> RuleSpec {
        match written {
            Written::One(text) => RuleSpec::Expr(text),
            Written::First(rules) => RuleSpec::First(rules.into_iter().map(rule).collect()),
            Written::Join { join } => RuleSpec::Join(join.into_iter().map(rule).collect()),
        }
    }
    let read = if text.trim_start().starts_with(['[', '{']) {
        let written: Result<Written, _> = serde_saphyr::from_str(text);
        rule(written.map_err(|_| "expected an expression, [a, b] or { join: [a, b] }")?)
    } else {
        RuleSpec::Expr(text.to_owned())
    };
    // Said here, where the argument can be named.
    Rule::parse(&read).map_err(|error| error.to_string())?;
    Ok(read)
}

/// Why rules cannot be tried, in words.
pub(super) enum Refused {
    /// The command line.
    Usage(String),
    /// The configuration.
    Configuration(String),
}

/// One rule that is tried.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// What it is called in the answer.
    pub(super) name: String,
    /// Whether it makes one key of several.
    pub(super) is_join: bool,
    /// Whether it tries several expressions in turn.
    pub(super) is_list: bool,
    how: How,
    /// The path whose requests it is for; of all where there is none.
    path: Option<usize>,
    within: Option<usize>,
    order: Option<Sequence>,
}

/// What stays in order within a group.
#[derive(Clone, Copy, Debug)]
enum Sequence {
    Group,
    Rule(usize),
}

#[derive(Clone, Debug)]
enum How {
    /// What was decided when the event was stored.
    Stored,
    /// A source without a rule: the fallback lane.
    NoRule,
    Rule {
        number: usize,
        namespace: Option<String>,
        reserved: Option<&'static str>,
    },
}

/// What a rule made of a request: its lane, or the reason for the fallback lane.
pub(super) type Answer = Result<Lane, &'static str>;

/// Rules that are tried together; each request is read once.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    plan: Plan,
    asked: Vec<Asked>,
    paths: Vec<Pattern>,
    router: Router,
}

impl RuleArguments {
    /// Makes the rules ready. Without any those of `gateway.yaml` count, or, for a store, what was decided when each event was stored.
    ///
    /// # Errors
    /// A provider that is not known or has no natural key, or the configuration has problems.
    pub(super) fn rules(&self, of_store: bool) -> Result<Rules, Refused> {
        let named = !self.keys.is_empty() || !self.providers.is_empty();
        match &self.config {
            None if named => self.named(),
            None if of_store => Ok(Rules::stored()),
            None => configured(PathBuf::from("gateway.yaml"), "; --key EXPR or --provider NAME name a rule here"),
            Some(config) => configured(config.clone(), ""),
        }
    }

    /// The one rule `key`, whose groups `within` splits; events of a group with the same `order` go one after another.
    pub(super) fn one(key: RuleSpec, within: Option<RuleSpec>, order: Option<RuleSpec>) -> Self {
        Self { keys: vec![key], within, order, ..Self::default() }
    }

    /// The rules of a configuration's sources.
    pub(super) fn of_file(config: PathBuf) -> Self {
        Self { config: Some(config), ..Self::default() }
    }

    fn named(&self) -> Result<Rules, Refused> {
        let mut rules = Rules::on(self.path.clone().into_iter().collect());
        let path = self.path.as_ref().map(|_| 0);
        let within = self.within.as_ref().map(parsed).transpose()?;
        let order = self.order.as_ref().map(parsed).transpose()?;
        for key in &self.keys {
            let rule = parsed(key)?;
            let is_join = matches!(key, RuleSpec::Join(_));
            rules.add(rule.text().to_owned(), &rule, (None, None), within.as_ref(), path);
            let order = order.as_ref().map(|rule| Sequence::Rule(rules.plan.add(rule, None)));
            if let Some(last) = rules.asked.last_mut() {
                (last.is_join, last.order) = (is_join, order);
            }
        }
        for name in &self.providers {
            let preset = preset(name).ok_or_else(|| {
                Refused::Usage(format!("{name:?} is no provider that is known; `fairlane providers` lists them"))
            })?;
            let spec = RuleSpec::any_of(preset.natural_key).ok_or_else(|| {
                Refused::Usage(format!("{name} has no natural key; --key EXPR says where the tenant stands"))
            })?;
            let rule = parsed(&spec)?;
            let own = (preset.namespace, preset.reserved_lane);
            rules.add(format!("{name}: {}", rule.text()), &rule, own, within.as_ref(), path);
        }
        Ok(rules)
    }
}

fn parsed(spec: &RuleSpec) -> Result<Rule, Refused> {
    Rule::parse(spec).map_err(|error| Refused::Usage(error.to_string()))
}

fn configured(file: PathBuf, hint: &str) -> Result<Rules, Refused> {
    let config = (Options { config: file, ..Options::default() }).load().map_err(|problems| {
        let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Refused::Configuration(format!("the configuration has problems{hint}\n{}", list.join("\n")))
    })?;
    Ok(Rules::of_sources(&config))
}

impl Rules {
    fn on(paths: Vec<Pattern>) -> Self {
        let router = Router::new(&paths);
        Self { plan: Plan::new(), asked: Vec::new(), paths, router }
    }

    /// What was decided when each event was stored.
    pub(super) fn stored() -> Self {
        let mut rules = Self::on(Vec::new());
        let name = "as stored".to_owned();
        rules.asked.push(Asked {
            name,
            is_join: false,
            is_list: false,
            how: How::Stored,
            path: None,
            within: None,
            order: Some(Sequence::Group),
        });
        rules
    }

    /// Each source's rule. Where several may send to it, each with a rule of its own, every one of them sees all requests of the path:
    /// whose a request is would be said by its signature.
    pub(super) fn of_sources(config: &crate::config::Config) -> Self {
        let mut rules = Self::on(config.sources.iter().map(|source| source.path.clone()).collect());
        for (at, source) in config.sources.iter().enumerate() {
            let order = source.order.as_ref();
            let order = order.map(|order| order.rule().map_or(Sequence::Group, |rule| rules.ordered_by(rule)));
            let mut known: Vec<String> = Vec::new();
            for sender in &source.senders {
                let text = sender.key.as_ref().map_or("no rule", |key| key.rule.text());
                let name = format!("{}: {text}", source.name);
                if known.contains(&name) {
                    continue;
                }
                known.push(name.clone());
                match &sender.key {
                    Some(key) => {
                        let own = (key.namespace.as_deref(), key.reserved);
                        rules.add(name, &key.rule, own, source.within.as_ref(), Some(at));
                    }
                    None => {
                        let how = How::NoRule;
                        rules.asked.push(Asked {
                            name,
                            is_join: false,
                            is_list: false,
                            how,
                            path: Some(at),
                            within: None,
                            order,
                        });
                    }
                }
                rules.asked.last_mut().into_iter().for_each(|asked| asked.order = order);
            }
        }
        rules
    }

    fn ordered_by(&mut self, rule: &Rule) -> Sequence {
        Sequence::Rule(self.plan.add(rule, None))
    }

    fn add(
        &mut self,
        name: String,
        rule: &Rule,
        (namespace, reserved): (Option<&str>, Option<&'static str>),
        within: Option<&Rule>,
        path: Option<usize>,
    ) {
        let number = self.plan.add(rule, namespace);
        let within = within.map(|rule| self.plan.add(rule, None));
        let how = How::Rule { number, namespace: namespace.map(str::to_owned), reserved };
        let is_list = rule.is_list();
        self.asked.push(Asked { name, is_join: false, is_list, how, path, within, order: None });
    }

    /// The rules, in the order of their numbers.
    pub(super) fn asked(&self) -> &[Asked] {
        &self.asked
    }

    /// The paths that rules are for; empty where they are for all.
    pub(super) fn paths(&self) -> Vec<&str> {
        self.paths.iter().map(Pattern::as_str).collect()
    }

    /// Gives what each rule makes of a request to `see`, with the rule's number and the order key; false where no rule is for its path.
    pub(super) fn run(&self, seen: &Seen, see: &mut dyn FnMut(usize, Answer, Option<Group>)) -> bool {
        let found = if self.paths.is_empty() { None } else { self.router.find(&seen.path) };
        let path = found.as_ref().map(|found| found.index);
        let names = found.map(|found| found.names).unwrap_or_default();
        let input = Input {
            headers: &seen.headers,
            path: &seen.path,
            names: &names,
            query: seen.query.as_deref(),
            body: &seen.body,
        };
        let mut reading = self.plan.open(&input);
        let mut any = false;
        for (number, asked) in self.asked.iter().enumerate() {
            if asked.path.is_none() || asked.path == path {
                any = true;
                let answer = asked.answer(&mut reading, seen);
                see(number, answer, asked.order(&mut reading, seen));
            }
        }
        any
    }
}

impl Asked {
    fn answer(&self, reading: &mut Reading<'_>, seen: &Seen) -> Answer {
        let group = match &self.how {
            How::Stored => return stored(seen),
            How::NoRule => return Err("no_rule"),
            How::Rule { number, namespace, reserved } => match (reading.find(*number), reserved) {
                (Ok(found), _) => found.group(namespace.as_deref()),
                // The provider gives the absence of a key a meaning of its own.
                (Err(Missing::Absent | Missing::Empty), Some(name)) => Group::reserved(name),
                (Err(missing), _) => return Err(missing.as_str()),
            },
        };
        let inner = self.within.and_then(|rule| reading.find(rule).ok());
        Ok(Lane { group, inner: inner.map(|found: Found| found.group(None)) })
    }
}

impl Asked {
    fn order(&self, reading: &mut Reading<'_>, seen: &Seen) -> Option<Group> {
        match (&self.how, self.order?) {
            (How::Stored, _) => seen.order.clone(),
            (_, Sequence::Group) => Some(Group::reserved("group")),
            // Without a key there is nothing to wait for.
            (_, Sequence::Rule(rule)) => reading.find(rule).ok().map(|found| found.group(None)),
        }
    }
}

fn stored(seen: &Seen) -> Answer {
    match &seen.stored {
        Some((lane, KeySource::Rule { .. })) => Ok(lane.clone()),
        Some((_, KeySource::Missing(missing))) => Err(missing.as_str()),
        Some((_, KeySource::NoRule)) | None => Err("no_rule"),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;

    fn seen(path: &str, body: &str) -> Seen {
        Seen {
            headers: HeaderMap::new(),
            path: path.to_owned(),
            query: None,
            body: Bytes::from(body.to_owned()),
            at: None,
            stored: None,
            order: None,
        }
    }

    fn answers(rules: &Rules, seen: &Seen) -> Vec<(usize, String)> {
        let mut all = Vec::new();
        rules.run(seen, &mut |number, answer, _| {
            let text = answer.map(|lane| {
                let inner = lane.inner.map_or_else(String::new, |inner| format!("/{inner}"));
                format!("{}{inner}", lane.group)
            });
            all.push((number, text.unwrap_or_else(str::to_owned)));
        });
        all
    }

    fn named(keys: &[&str], within: Option<&str>) -> Rules {
        let arguments = RuleArguments {
            keys: keys.iter().map(|key| spec(key).unwrap()).collect(),
            within: within.map(|text| spec(text).unwrap()),
            ..RuleArguments::default()
        };
        arguments.rules(false).unwrap_or_else(|_| panic!("rules"))
    }

    #[test]
    fn rules_are_written_as_in_the_configuration() {
        let rules = named(&["body.a", "[body.x, body.a]", "{ join: [body.a, body.b] }"], Some("body.b"));
        let got = answers(&rules, &seen("/", r#"{"a":"t","b":1}"#));
        assert_eq!(got, [(0, "t/1".to_owned()), (1, "t/1".to_owned()), (2, "t~1/1".to_owned())]);
        assert_eq!(answers(&rules, &seen("/", r#"{"a":"t"}"#)).last().unwrap().1, "absent");
        assert!(rules.asked()[2].is_join && !rules.asked()[1].is_join);
        assert!(rules.asked().iter().all(|asked| asked.is_list == asked.name.starts_with('[')));
        for wrong in ["boddy.a", "[", "{ jion: [body.a] }", "[]"] {
            assert!(spec(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_providers_key_has_its_namespace_and_its_reserved_lane() {
        let arguments = RuleArguments { providers: vec!["stripe".into(), "github".into()], ..RuleArguments::default() };
        let rules = arguments.rules(false).unwrap_or_else(|_| panic!("rules"));
        let got = answers(&rules, &seen("/", r#"{"installation":{"id":77}}"#));
        assert_eq!(got, [(0, "~platform".to_owned()), (1, "github~77".to_owned())]);
    }

    #[test]
    fn a_path_names_segments_and_leaves_other_requests_out() {
        let arguments = RuleArguments {
            keys: vec![spec("path.store").unwrap()],
            path: Some(Pattern::parse("/hooks/{store}").unwrap()),
            ..RuleArguments::default()
        };
        let rules = arguments.rules(false).unwrap_or_else(|_| panic!("rules"));
        assert_eq!(answers(&rules, &seen("/hooks/a", "")), [(0, "a".to_owned())]);
        assert!(!rules.run(&seen("/other", ""), &mut |_, _, _| panic!("not its path")));
    }
}
