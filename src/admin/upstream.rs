//! The calls about the upstream as a whole: how it stands, and changes that act from the next lease on.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::Method;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Admin;
use super::api::{rfc3339, unreadable};
use super::audit::Who;
use super::expiry::expiry;
use super::groups::{Closed, Ends, ends, json, ms, parts, rate, taken_back, told, written};
use super::nodes::whole::{self, Missing, Of};
use super::nodes::{self, Wanted};
use super::problem::Problem;
use crate::driver::{AddressState, AddressView, BreakerState, Ended, Expiry, Live, Rate, UpstreamChange, UpstreamInfo};
use crate::event::{Mono, Wall};

type Shared = State<Arc<Admin>>;

/// What the list of changes calls it.
const THE_UPSTREAM: &str = "the upstream";

/// As many slots as the configuration takes.
pub(super) const SLOTS_MAX: u32 = 100_000;

#[derive(Serialize, ToSchema)]
pub(super) struct UpstreamView {
    paused: bool,
    concurrency: u32,
    rate: Option<String>,
    /// Null: none since the start.
    last_success: Option<String>,
    /// Null: none since the start.
    last_failure: Option<FailureJson>,
    breaker: BreakerJson,
    slots: SlotsJson,
    /// Very many groups have turned slow at once: until they are told from the others, a part of the slots is kept for those that are
    /// known to be quick.
    outbreak: bool,
    attempt_median_ms: Option<f64>,
    active_groups: usize,
    /// The ways to it. Where every one is left out, all are used.
    addresses: Vec<AddressJson>,
    /// What people changed; null: all is as the file says.
    change: Option<ChangeJson>,
    /// What whoever changes it should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// Of many nodes, how each sees it: breakers are theirs, and of them the worst stands above; left out where there is one node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<NodeJson>,
    /// Nodes whose part is not in this, and why; left out where all of it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<Missing>,
}

/// The upstream as one node sees it.
#[derive(Serialize, ToSchema)]
#[schema(as = NodeUpstream)]
struct NodeJson {
    node: String,
    breaker: BreakerJson,
    /// Its attempts in flight.
    busy: u32,
    attempt_median_ms: Option<f64>,
}

#[derive(Serialize, ToSchema)]
struct AddressJson {
    address: String,
    weight: u32,
    /// used, slow_start, ejected, unwell
    state: &'static str,
    /// How much of its weight counts now, 0 to 1.
    share: f64,
    in_flight: u32,
    /// In a row.
    failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    used_again_in_s: Option<f64>,
    /// What its checks come to: `well`, or words; null: it is not asked.
    check: Option<String>,
    /// Null: none since the start, or it is the only address.
    last_failure: Option<FailureJson>,
}

impl AddressJson {
    fn of(view: AddressView) -> Self {
        let used_again_in_s = match view.state {
            AddressState::Ejected(left) => Some(left.as_secs_f64()),
            _ => None,
        };
        Self {
            state: view.state.as_str(),
            used_again_in_s,
            address: view.address.to_string(),
            weight: view.weight,
            share: (view.share * 100.0).round() / 100.0,
            in_flight: view.in_flight,
            failures: view.failures,
            check: view.check.map(|check| check.map_or_else(String::from, |()| "well".to_owned())),
            last_failure: view.last_failure.map(|(at, error)| FailureJson { at: rfc3339(at), error }),
        }
    }
}

#[derive(Serialize, ToSchema)]
struct FailureJson {
    at: String,
    #[schema(value_type = String)]
    error: Box<str>,
}

#[derive(Serialize, ToSchema)]
struct BreakerJson {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tries_again_in_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slots: Option<u32>,
}

impl BreakerJson {
    fn of(breaker: BreakerState, now: Mono) -> Self {
        let plain = |state| Self { state, tries_again_in_s: None, slots: None };
        match breaker {
            BreakerState::Closed => plain("closed"),
            BreakerState::SlowStart { slots } => Self { slots: Some(slots), ..plain("slow_start") },
            BreakerState::HalfOpen => plain("half_open"),
            BreakerState::Open { until } => {
                Self { tries_again_in_s: Some(until.since(now).as_secs_f64()), ..plain("open") }
            }
        }
    }
}

#[derive(Serialize, ToSchema)]
struct SlotsJson {
    busy: u32,
    slow: u32,
    retry: u32,
    free: u32,
    dedicated: u32,
}

#[derive(Serialize, ToSchema)]
#[schema(as = UpstreamChange)]
struct ChangeJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<String>,
    /// When the first of them ends; null: none ever does.
    expires: Option<String>,
    /// When each of them ends; null: never.
    #[schema(value_type = Object)]
    ends: Ends,
}

impl ChangeJson {
    fn of(live: &Live<UpstreamChange>) -> Self {
        let change = live.change();
        let rate = change.rate.map(|(events, micros)| written(events, std::time::Duration::from_micros(micros)));
        let expires = live.expires().map(|at| rfc3339(Wall(at)));
        Self { paused: change.paused, concurrency: change.concurrency, rate, expires, ends: ends(live) }
    }
}

/// The upstream as a whole.
#[utoipa::path(get, path = "/api/v1/upstream", tag = "upstream", responses((status = 200, description = "How it stands", body = UpstreamView)))]
pub(super) async fn show(State(admin): Shared) -> Result<Json<UpstreamView>, Problem> {
    let whole = whole::ask(&admin, Wanted { upstream: true, ..Wanted::default() }).await?;
    let now = admin.handle.now().mono;
    let info = whole.upstream().ok_or(Ended)?;
    let slots = info.slots;
    Ok(Json(UpstreamView {
        paused: info.paused,
        concurrency: info.concurrency,
        rate: info.rate.map(|Rate { events, per }| written(events, per)),
        last_success: info.last.success.map(rfc3339),
        last_failure: info.last.failure.map(|last| FailureJson { at: rfc3339(last.at), error: last.error }),
        breaker: BreakerJson::of(info.breaker, now),
        slots: SlotsJson {
            busy: slots.busy,
            slow: slots.slow,
            retry: slots.retry,
            free: slots.free,
            dedicated: slots.dedicated,
        },
        outbreak: info.outbreak,
        attempt_median_ms: info.median.map(ms),
        active_groups: info.active_groups,
        addresses: whole.addresses().into_iter().map(AddressJson::of).collect(),
        change: (!info.live.is_empty()).then(|| ChangeJson::of(&info.live)),
        note: admin.handle.unwritten(),
        nodes: whole.upstreams().into_iter().map(|of| NodeJson::of(of, now)).collect(),
        missing: whole.missing,
    }))
}

impl NodeJson {
    fn of(of: Of<UpstreamInfo>, now: Mono) -> Self {
        let Of { node, it: info } = of;
        Self {
            node,
            breaker: BreakerJson::of(info.breaker, now),
            busy: info.slots.busy,
            attempt_median_ms: info.median.map(ms),
        }
    }
}

/// What may be changed of the upstream while it runs; what is left out stays as it is. Its other numbers are the file's, which is
/// applied live.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UpstreamPatch {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) paused: Option<bool>,
    #[schema(minimum = 1, maximum = 100_000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) concurrency: Option<u32>,
    /// Attempts a time.
    #[schema(pattern = "^[1-9][0-9]{0,8}/[smh]$", example = "500/s")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<String>,
    /// When what is named here ends, RFC 3339, a span such as `2h`, or `never`; a day when left out. What is not named keeps its end.
    #[schema(pattern = "^(never|[1-9][0-9]{0,2}[smhd])$", example = "2h")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires: Option<String>,
}

impl UpstreamPatch {
    fn checked(self, now: Wall) -> Result<(UpstreamChange, Expiry), Problem> {
        if self.concurrency.is_some_and(|slots| !(1..=SLOTS_MAX).contains(&slots)) {
            let expected = format!("concurrency: expected 1 to {SLOTS_MAX}; pause the upstream to stop it");
            return Err(Problem::Parameter(expected));
        }
        let rate = self.rate.as_deref().map(rate).transpose()?;
        let change = UpstreamChange { paused: self.paused, concurrency: self.concurrency, rate };
        if change == UpstreamChange::default() {
            let expected = "nothing is changed: expected one of paused, concurrency, rate";
            return Err(Problem::Parameter(expected.to_owned()));
        }
        Ok((change, expiry(self.expires.as_deref(), now)?))
    }
}

/// Changes the upstream from the next lease on, on queued events too.
#[utoipa::path(patch, path = "/api/v1/upstream", tag = "upstream", request_body = UpstreamPatch, responses((status = 200, description = "How it stands now", body = UpstreamView)))]
pub(super) async fn patch(
    State(admin): Shared,
    who: Who,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<UpstreamView>, Problem> {
    let body = body?;
    change(&admin, who, json(&body)?).await?;
    show(State(admin)).await
}

/// Changes the upstream, and leaves a line in the log.
pub(super) async fn change(admin: &Admin, who: Who, patch: UpstreamPatch) -> Result<(), Problem> {
    let told = told(&patch);
    let (change, expiry) = patch.checked(admin.handle.now().wall)?;
    let before = admin.handle.upstream().await?.live;
    admin.handle.change_upstream(change, expiry).await?.map_err(Problem::Store)?;
    if admin.handle.upstream().await?.live != before {
        admin.audit(who, THE_UPSTREAM, &format!("changed: {told}"));
    }
    Ok(())
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct RestoreQuery {
    /// Only these parts of what was changed, several with commas; all when left out.
    #[param(pattern = "^(paused|concurrency|rate)(,(paused|concurrency|rate))*$")]
    only: Option<String>,
}

/// Takes the changes of the upstream back, or only some parts of them.
#[utoipa::path(delete, path = "/api/v1/upstream", tag = "upstream", params(RestoreQuery), responses((status = 200, description = "How it stands now", body = UpstreamView)))]
pub(super) async fn restore(
    State(admin): Shared,
    who: Who,
    query: Result<Query<RestoreQuery>, QueryRejection>,
) -> Result<Json<UpstreamView>, Problem> {
    let Query(RestoreQuery { only }) = query.map_err(|rejection| unreadable(&rejection))?;
    take_back(&admin, who, only.as_deref()).await?;
    show(State(admin)).await
}

/// The same, without the answer.
pub(super) async fn take_back(admin: &Admin, who: Who, only: Option<&str>) -> Result<(), Problem> {
    let parts = only.map(parts).transpose()?;
    if admin.handle.take_back_upstream(parts).await? {
        admin.audit(who, THE_UPSTREAM, &taken_back(only));
    }
    Ok(())
}

/// Closes the upstream's breaker on all nodes, and ends a `Retry-After` that holds everybody.
#[utoipa::path(post, path = "/api/v1/upstream/close-breaker", tag = "upstream", responses((status = 200, description = "Whether anything held it", body = Closed)))]
pub(super) async fn close_breaker(State(admin): Shared, who: Who) -> Result<Json<Closed>, Problem> {
    let (closed, missing) = close(&admin, who).await?;
    Ok(Json(Closed { closed, missing }))
}

/// The same, without the answer: whether anything held it on any node, and where it holds on since that node did not answer.
pub(super) async fn close(admin: &Admin, who: Who) -> Result<(bool, Vec<Missing>), Problem> {
    let here = admin.handle.close_breaker(None).await?;
    let call = (Method::POST, "/api/v1/upstream/close-breaker");
    let (there, missing) = nodes::tell_others(admin, who, call, &serde_json::json!({})).await;
    let closed =
        here || there.iter().any(|answer| answer.get("closed").and_then(serde_json::Value::as_bool) == Some(true));
    if closed && !who.is_relayed {
        admin.audit(who, THE_UPSTREAM, "breaker closed by hand");
    }
    Ok((closed, missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_read_whole_or_refused_with_the_reason() {
        let now = Wall::from_unix_s(1_000);
        let read = |text: &str| {
            let patch: UpstreamPatch = json(text.as_bytes()).map_err(|problem| format!("{problem:?}"))?;
            patch.checked(now).map_err(|problem| format!("{problem:?}"))
        };
        let (change, expiry) = read(r#"{"concurrency":8,"rate":"500/s","expires":"never"}"#).unwrap();
        let expected = UpstreamChange { concurrency: Some(8), rate: Some((500, 1_000_000)), paused: None };
        assert_eq!((change, expiry), (expected, Expiry::Never));
        assert_eq!(read(r#"{"paused":true}"#).unwrap().1, Expiry::Usual);
        for (text, why) in [
            (r#"{"concurrency":0}"#, "1 to 100000"),
            (r#"{"concurrency":100001}"#, "1 to 100000"),
            (r#"{"rate":"0/s"}"#, "500/s"),
            (r#"{"expires":"2h"}"#, "nothing is changed"),
            (r#"{"timeout":"1s"}"#, "timeout"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
