//! The first page: who is noisy, who waits, why, and what to press.

use std::time::Duration;

use askama::Template;
use axum::response::Response;

use super::groups::{Row, pending, why};
use super::samples::Point;
use super::shell::{Shell, live_page};
use super::{Visit, alerts, chart, encoded, waits};
use crate::admin::problem::Problem;
use crate::admin::words;
use crate::driver::{AddressState, AddressView, BreakerState, GroupView, HungAttempts, Sort, UpstreamInfo};
use crate::event::{Now, Wall};

/// Rows of each list.
const ROWS: usize = 8;

/// Who has so much of all worker time is said to be noisy when its own events wait, too.
const NOISY_SHARE: f64 = 0.3;

/// An attempt that is under way for longer holds a slot that others may want.
const HELD: Duration = Duration::from_secs(5);

/// What somebody has to wait before it is worth a word.
const WAITS: Duration = Duration::from_secs(1);

/// Groups among which those are looked for that wait for others' sake.
const LOOKED_AT: usize = 64;

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    shell: Shell,
    tone: &'static str,
    verdict: String,
    tiles: Vec<Tile>,
    slots: Slots,
    upstream: Upstream,
    addresses: Vec<AddressRow>,
    noisy: Vec<Row>,
    waiting: Vec<Row>,
    held: Vec<Held>,
    alerts: Vec<alerts::Row>,
    charts: Vec<Chart>,
    waited: Vec<waits::Part>,
}

struct Tile {
    label: &'static str,
    value: String,
    detail: String,
}

struct Slots {
    all: u32,
    busy: u32,
    slow: u32,
    retry: u32,
    free: u32,
    /// Taken out of the total for groups that have their own.
    dedicated: u32,
    /// Fresh attempts of groups that are not slow.
    fresh: u32,
}

struct Upstream {
    tone: &'static str,
    words: String,
    last_failure: Option<String>,
    paused: bool,
    changed: bool,
    /// Its breaker is not closed.
    held: bool,
    rate: Option<String>,
}

struct AddressRow {
    tone: &'static str,
    name: String,
    state: String,
    in_flight: u32,
    failure: Option<String>,
}

struct Held {
    name: String,
    link: String,
    attempts: String,
    oldest: String,
}

struct Chart {
    title: &'static str,
    /// What its lines are, in the order of their colours.
    lines: &'static [&'static str],
    svg: String,
}

/// The page.
pub(super) async fn show(visit: Visit) -> Response {
    live_page(visit, ("overview", "Overview"), |visit, shell| async move { made(&visit, shell).await }).await
}

async fn made(visit: &Visit, shell: Shell) -> Result<Overview, Problem> {
    let handle = &visit.admin.handle;
    let by_share = handle.groups(Sort::Seconds, ROWS).await?;
    let by_age = handle.groups(Sort::Age, LOOKED_AT).await?;
    let info = handle.upstream().await?;
    let held = handle.hung_attempts(HELD).await?;
    let now = handle.now();
    let samples = &visit.admin.dashboard.samples;
    let (tone, verdict) = verdict(&info, &by_share, &by_age, now);
    let rows = |views: &[GroupView]| views.iter().map(|view| Row::of(view, samples)).collect();
    Ok(Overview {
        shell,
        tone,
        verdict,
        tiles: tiles(visit, samples.latest(), now.wall),
        slots: Slots::of(&info),
        upstream: Upstream::of(&info, now),
        addresses: addresses(&handle.addresses(), now),
        noisy: rows(&by_share),
        waiting: rows(by_age.get(..ROWS).unwrap_or(&by_age)),
        held: held.iter().map(Held::of).collect(),
        alerts: alerts::firing(visit),
        charts: charts(&samples.points(), now.wall),
        waited: waits::parts(&handle.waited().await?),
    })
}

/// The whole page in a sentence or two, and how bad it is.
fn verdict(info: &UpstreamInfo, by_share: &[GroupView], by_age: &[GroupView], now: Now) -> (&'static str, String) {
    if info.paused {
        return ("bad", "The upstream is paused: nothing is delivered to anybody.".to_owned());
    }
    if let BreakerState::Open { .. } | BreakerState::HalfOpen = info.breaker {
        return ("bad", format!("The upstream is in trouble. {}", upstream_words(info, now)));
    }
    let large = |view: &&GroupView| view.share >= NOISY_SHARE && view.queued > u64::from(view.concurrency);
    let noisy = by_share.iter().filter(large).max_by_key(|view| pending(view));
    let waits = |view: &&GroupView| view.oldest >= WAITS && view.queued + u64::from(view.live) > 0;
    if let Some(noisy) = noisy {
        let (share, own) = (words::percent(noisy.share), words::events(pending(noisy)));
        // Those that nothing of their own holds back.
        let turn = |view: &&GroupView| view.reason.is_empty() && view.group != noisy.group;
        let others = by_age.iter().filter(waits).find(turn).map_or_else(
            || "Nobody else waits for longer than a second because of it.".to_owned(),
            |view| format!("Of the others {} waits longest: {}.", view.group, words::span(view.oldest)),
        );
        return (
            "warn",
            format!("{} is noisy: {share} of the worker time, and {own} of its own wait. {others}", noisy.group),
        );
    }
    match by_age.iter().find(waits) {
        Some(view) => ("warn", format!("{} waits longest, {}: {}.", view.group, words::span(view.oldest), why(view))),
        None if by_age.is_empty() => ("good", "All is quiet: nothing waits.".to_owned()),
        None => ("good", "Nobody waits for a first attempt for longer than a second.".to_owned()),
    }
}

/// How the upstream stands, in words.
fn upstream_words(info: &UpstreamInfo, now: Now) -> String {
    match info.breaker {
        _ if info.paused => "Paused by a person: no attempt is made.".to_owned(),
        BreakerState::Open { until } => {
            format!("It does not answer as it should; tries again in {}.", words::span(until.since(now.mono)))
        }
        BreakerState::HalfOpen => "One attempt at a time, to see whether it is back.".to_owned(),
        BreakerState::SlowStart { slots } => {
            format!("It is back; {} at a time so far.", words::many(slots.into(), "attempt"))
        }
        BreakerState::Closed => match info.median {
            Some(median) => format!("It answers; half of the attempts take less than {}.", words::span(median)),
            None => "Nothing was delivered to it yet.".to_owned(),
        },
    }
}

impl Upstream {
    fn of(info: &UpstreamInfo, now: Now) -> Self {
        let tone = match info.breaker {
            _ if info.paused => "bad",
            BreakerState::Open { .. } | BreakerState::HalfOpen => "bad",
            BreakerState::SlowStart { .. } => "warn",
            BreakerState::Closed => "good",
        };
        let failure = |at, error: &str| format!("Last failure {}: {}", words::ago(at, now.wall), words::safe(error));
        Self {
            tone,
            words: upstream_words(info, now),
            last_failure: info.last.failure.as_ref().map(|last| failure(last.at, &last.error)),
            paused: info.paused,
            changed: !info.live.is_empty(),
            held: matches!(info.breaker, BreakerState::Open { .. } | BreakerState::HalfOpen),
            rate: info.rate.map(|rate| crate::admin::groups::written(rate.events, rate.per)),
        }
    }
}

/// Several addresses; of one there is nothing to say that the upstream's own line does not.
fn addresses(views: &[AddressView], now: Now) -> Vec<AddressRow> {
    if views.len() < 2 {
        return Vec::new();
    }
    let row = |view: &AddressView| {
        let (tone, state) = match view.state {
            AddressState::Used => ("good", format!("used, weight {}", view.weight)),
            AddressState::SlowStart => {
                ("warn", format!("back, with {} of its weight {}", words::percent(view.share), view.weight))
            }
            AddressState::Ejected(left) => ("bad", format!("left out for {} yet", words::span(left))),
            AddressState::Unwell => ("bad", "left out: it fails its checks".to_owned()),
        };
        let failure = view.last_failure.as_ref();
        AddressRow {
            tone,
            name: words::safe(&view.address),
            state,
            in_flight: view.in_flight,
            failure: failure.map(|(at, error)| format!("{}: {}", words::ago(*at, now.wall), words::safe(error))),
        }
    };
    views.iter().map(row).collect()
}

impl Slots {
    fn of(info: &UpstreamInfo) -> Self {
        let slots = info.slots;
        // A slow group's retry is both; it is shown as slow.
        let retry = slots.retry.min(slots.busy.saturating_sub(slots.slow));
        Self {
            all: info.concurrency.max(slots.busy),
            busy: slots.busy,
            slow: slots.slow,
            retry,
            free: slots.free,
            dedicated: slots.dedicated,
            fresh: slots.busy.saturating_sub(slots.slow + retry),
        }
    }
}

impl Held {
    fn of(held: &HungAttempts) -> Self {
        Self {
            name: held.group.to_string(),
            link: encoded(held.group.as_str()),
            attempts: words::many(held.attempts.into(), "attempt"),
            oldest: words::span(held.oldest),
        }
    }
}

fn tiles(visit: &Visit, latest: Option<Point>, now: Wall) -> Vec<Tile> {
    let usage = visit.admin.handle.usage();
    let rate =
        |of: fn(&Point) -> f64| latest.as_ref().map_or_else(|| "–".to_owned(), |point| words::per_second(of(point)));
    let oldest = usage.oldest.map_or_else(|| "–".to_owned(), |oldest| words::span(now.since(oldest)));
    let quiet = latest.and_then(|point| point.quiet_wait_s);
    let quiet = quiet.map_or_else(|| "–".to_owned(), |seconds| words::span(Duration::from_secs_f64(seconds.max(0.0))));
    let free = if usage.free == u64::MAX { String::new() } else { format!("{} free", words::bytes(usage.free)) };
    let tile = |label, value, detail: &str| Tile { label, value, detail: detail.to_owned() };
    let silence = visit.admin.handle.store_silence(&usage);
    let spool = usage.spool.map(|spool| {
        let detail = if silence >= words::SILENT {
            format!("no answer from Redis for {}", words::span(silence))
        } else {
            format!("Redis answers; room for {}", words::bytes(spool.room_bytes))
        };
        tile("Spool", words::count(spool.events), &detail)
    });
    let tiles = vec![
        tile("Accepted", rate(|point| point.accepted), "events, last 5 s"),
        tile("Delivered", rate(|point| point.delivered), "events, last 5 s"),
        tile("Waiting", words::count(usage.pending), &format!("in {}", words::many(usage.lanes, "lane"))),
        tile("Oldest", oldest, "since it came"),
        tile("Quiet groups wait", quiet, "mean, last 5 s"),
        tile("Store", words::bytes(usage.bytes), &free),
    ];
    tiles.into_iter().chain(spool).collect()
}

fn charts(points: &[Point], now: Wall) -> Vec<Chart> {
    // Two points are the first line.
    if points.len() < 2 {
        return Vec::new();
    }
    let line = |of: &dyn Fn(&Point) -> Option<f64>| -> chart::Line {
        points.iter().filter_map(|point| Some((-now.since(point.at).as_secs_f64() / 60.0, of(point)?))).collect()
    };
    #[expect(clippy::cast_precision_loss, reason = "drawn")]
    let backlog = line(&|point| Some(point.backlog as f64));
    let whole = |value: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a label, not negative")]
        words::count(value.round() as u64)
    };
    let seconds = |value: f64| words::span(Duration::from_secs_f64(value.max(0.0)));
    let per_second = |value: f64| words::per_second(value);
    let chart = |title, lines, svg| Chart { title, lines, svg };
    vec![
        chart("Events that wait", &["waiting"], chart::draw("Events that wait, last hour", &[backlog], &whole)),
        chart(
            "Events a second",
            &["accepted", "delivered"],
            chart::draw(
                "Events accepted and delivered a second, last hour",
                &[line(&|point| Some(point.accepted)), line(&|point| Some(point.delivered))],
                &per_second,
            ),
        ),
        chart(
            "Age of the oldest event",
            &["oldest"],
            chart::draw("Age of the oldest event, last hour", &[line(&|point| Some(point.oldest_s))], &seconds),
        ),
        chart(
            "Wait of quiet groups",
            &["mean wait"],
            chart::draw("Mean wait of quiet groups, last hour", &[line(&|point| point.quiet_wait_s)], &seconds),
        ),
    ]
}
