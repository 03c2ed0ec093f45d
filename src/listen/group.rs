//! Whose an event is: all of a source's rules, run together over one request.

use std::sync::Arc;

use super::{Dedupe, KeyRule, Order, Sender, Source};
use crate::event::{Fingerprint, Group, KeySource, Lane, Missing};
use crate::key::{self, Found, Input, Plan, Reading};

/// A source's rules, made ready to read a body once.
#[derive(Debug)]
pub(super) struct Rules {
    source: Arc<str>,
    plan: Plan,
    key: Option<(usize, KeyRule)>,
    within: Option<usize>,
    order: Option<OrderRule>,
    dedupe: Option<(usize, Dedupe)>,
    event_id: Option<usize>,
    event_type: Option<usize>,
}

#[derive(Debug)]
enum OrderRule {
    Group,
    Key(usize),
}

/// What the rules found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Grouped {
    pub(super) lane: Lane,
    pub(super) key_source: KeySource,
    pub(super) order: Option<Group>,
    /// Why it has none, where its source asks for one.
    pub(super) fingerprint: Result<Option<Fingerprint>, Missing>,
    pub(super) event_id: Option<Box<str>>,
    pub(super) event_type: Option<Box<str>>,
}

impl Grouped {
    /// Where an event goes of which nothing is believed.
    pub(super) fn unverified() -> Self {
        Self {
            lane: Lane { group: Group::unverified(), inner: None },
            key_source: KeySource::NoRule,
            order: None,
            // A forged request must not keep the genuine one from being delivered.
            fingerprint: Ok(None),
            event_id: None,
            event_type: None,
        }
    }
}

impl Rules {
    /// The source's own, with those that its sender brings.
    pub(super) fn of(source: &Source, sender: &Sender) -> Self {
        let mut plan = Plan::new();
        let key = sender.key.as_ref().map(|key| (plan.add(&key.rule, key.namespace.as_deref()), key.clone()));
        let within = source.within.as_ref().map(|rule| plan.add(rule, None));
        let order = source.order.as_ref().map(|order| match order {
            Order::Group => OrderRule::Group,
            Order::Key(rule) => OrderRule::Key(plan.add(rule, None)),
        });
        let dedupe = source.dedupe.as_ref().map(|dedupe| (plan.add(&dedupe.rule, None), dedupe.clone()));
        let event_id = sender.event_id.as_ref().map(|rule| plan.add(rule, None));
        let event_type = sender.event_type.as_ref().map(|rule| plan.add(rule, None));
        let source = Arc::clone(&source.name);
        Self { source, plan, key, within, order, dedupe, event_id, event_type }
    }

    pub(super) fn find(&self, input: &Input<'_>) -> Grouped {
        let mut reading = self.plan.open(input);
        let (group, key_source) = self.fairness_key(&mut reading);
        let fingerprint = self.fingerprint(&group, &mut reading);
        let mut find = |rule: usize| reading.find(rule).ok();
        let text = |found: Found| found.parts.join("~").into_boxed_str();
        Grouped {
            lane: Lane { group, inner: self.within.and_then(&mut find).map(|found| found.group(None)) },
            key_source,
            fingerprint,
            order: match &self.order {
                None => None,
                Some(OrderRule::Group) => Some(Group::reserved("group")),
                // Without a key there is nothing to wait for.
                Some(OrderRule::Key(rule)) => find(*rule).map(|found| found.group(None)),
            },
            event_id: self.event_id.and_then(&mut find).map(text),
            event_type: self.event_type.and_then(&mut find).map(text),
        }
    }

    /// A group that the signature does not cover is no part of the scope: whoever repeats a request could choose another one.
    fn fingerprint(&self, group: &Group, reading: &mut Reading<'_>) -> Result<Option<Fingerprint>, Missing> {
        let Some((number, dedupe)) = &self.dedupe else { return Ok(None) };
        let found = reading.find(*number)?;
        let signed = self.key.as_ref().is_some_and(|(_, key)| key.signed);
        let hash = key::fingerprint(&self.source, signed.then_some(group), &found.parts);
        Ok(Some(Fingerprint { hash, window: dedupe.window }))
    }

    /// The group, and where its key came from. A rule that finds nothing leads to the fallback lane.
    fn fairness_key(&self, reading: &mut Reading<'_>) -> (Group, KeySource) {
        let Some((number, key)) = &self.key else { return (Group::fallback(), KeySource::NoRule) };
        match (reading.find(*number), key.reserved) {
            (Ok(found), _) => {
                let group = found.group(key.namespace.as_deref());
                (group, KeySource::Rule { rule: found.rule, signed: key.signed })
            }
            // The provider gives the absence of a key a meaning of its own.
            (Err(Missing::Absent | Missing::Empty), Some(name)) => {
                (Group::reserved(name), KeySource::Rule { rule: Arc::from(key.rule.text()), signed: key.signed })
            }
            (Err(missing), _) => (Group::fallback(), KeySource::Missing(missing)),
        }
    }
}
