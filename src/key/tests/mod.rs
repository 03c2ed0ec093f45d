//! Tests of the key language: `language` holds a row for every clause of its documentation, `documents` holds the reader
//! against a model and against serde_json.

mod documents;
mod language;

use http::HeaderMap;

use super::{Found, Input, Plan, Rule, RuleSpec};
use crate::event::Missing;

/// A request to find keys in.
#[derive(Clone, Debug, Default)]
struct Request {
    headers: HeaderMap,
    path: &'static str,
    names: Vec<(&'static str, &'static str)>,
    query: Option<&'static str>,
    body: Vec<u8>,
}

impl Request {
    fn json(body: impl AsRef<[u8]>) -> Self {
        Self { body: body.as_ref().to_vec(), ..Self::default() }
    }

    fn form(body: impl AsRef<[u8]>) -> Self {
        Self::json(body).header("content-type", b"application/x-www-form-urlencoded")
    }

    fn header(mut self, name: &'static str, value: &[u8]) -> Self {
        self.headers.append(name, http::HeaderValue::from_bytes(value).unwrap());
        self
    }

    fn input(&self) -> Input<'_> {
        Input { headers: &self.headers, path: self.path, names: &self.names, query: self.query, body: &self.body }
    }

    fn found(&self, spec: impl Into<RuleSpec>) -> Result<Found, Missing> {
        rule(spec).evaluate(&self.input())
    }

    /// The parts of the key, joined for comparing.
    fn key(&self, spec: impl Into<RuleSpec>) -> Result<String, Missing> {
        self.found(spec).map(|found| found.parts.join("~"))
    }
}

impl From<&str> for RuleSpec {
    fn from(text: &str) -> Self {
        Self::Expr(text.to_owned())
    }
}

impl From<&String> for RuleSpec {
    fn from(text: &String) -> Self {
        Self::Expr(text.clone())
    }
}

fn rule(spec: impl Into<RuleSpec>) -> Rule {
    Rule::parse(&spec.into()).unwrap()
}

fn first<const N: usize>(rules: [&str; N]) -> RuleSpec {
    RuleSpec::First(rules.map(RuleSpec::from).into())
}

fn join<const N: usize>(rules: [&str; N]) -> RuleSpec {
    RuleSpec::Join(rules.map(RuleSpec::from).into())
}

/// A plan of these rules, without namespaces.
fn plan(rules: &[Rule]) -> Plan {
    let mut plan = Plan::new();
    for rule in rules {
        plan.add(rule, None);
    }
    plan
}
