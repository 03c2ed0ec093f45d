//! `deploy/grafana/fairlane.json`, as it is made: panels in rows, each of a few expressions.

use serde_json::{Value, json};

/// Width of the dashboard in Grafana's units.
const WIDTH: u64 = 24;
const HEIGHT: u64 = 8;

struct Panel {
    title: &'static str,
    what: &'static str,
    unit: &'static str,
    kind: &'static str,
    /// Expression and what its lines are called.
    lines: &'static [(&'static str, &'static str)],
    stacked: bool,
}

const fn lines(
    title: &'static str,
    unit: &'static str,
    what: &'static str,
    lines: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, what, unit, kind: "timeseries", lines, stacked: false }
}

const fn stacked(
    title: &'static str,
    unit: &'static str,
    what: &'static str,
    lines: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, what, unit, kind: "timeseries", lines, stacked: true }
}

/// Each row's name and panels; panels of a row share its width.
const ROWS: &[(&str, &[Panel])] = &[
    (
        "Is the promise kept",
        &[
            lines(
                "Wait of quiet groups",
                "s",
                "Groups that found their lane within its burst: what they wait for others. This is what the gateway is for.",
                &[
                    (
                        "histogram_quantile(0.5, sum by (le) (rate(fairlane_quiet_wait_seconds_bucket{instance=~\"$instance\"}[$__rate_interval])))",
                        "p50",
                    ),
                    (
                        "histogram_quantile(0.99, sum by (le) (rate(fairlane_quiet_wait_seconds_bucket{instance=~\"$instance\"}[$__rate_interval])))",
                        "p99",
                    ),
                ],
            ),
            lines(
                "Wait of all events",
                "s",
                "Floods queue behind themselves, so this may be long while the quiet groups wait for nobody.",
                &[
                    (
                        "histogram_quantile(0.5, sum by (le) (rate(fairlane_wait_seconds_bucket{instance=~\"$instance\"}[$__rate_interval])))",
                        "p50",
                    ),
                    (
                        "histogram_quantile(0.99, sum by (le) (rate(fairlane_wait_seconds_bucket{instance=~\"$instance\"}[$__rate_interval])))",
                        "p99",
                    ),
                ],
            ),
            Panel {
                title: "Alerts that fire",
                what: "docs/alerts.md says what each means and what to press.",
                unit: "short",
                kind: "table",
                lines: &[("fairlane_alerts_firing{instance=~\"$instance\"} > 0", "{{alert}}")],
                stacked: false,
            },
        ],
    ),
    (
        "Events",
        &[
            lines(
                "Accepted, delivered, dead",
                "eps",
                "Per second. Delivered below accepted for long: the backlog grows.",
                &[
                    (
                        "sum(rate(fairlane_events_accepted_total{instance=~\"$instance\"}[$__rate_interval]))",
                        "accepted",
                    ),
                    (
                        "sum(rate(fairlane_events_delivered_total{instance=~\"$instance\"}[$__rate_interval]))",
                        "delivered",
                    ),
                    ("sum(rate(fairlane_events_dead_total{instance=~\"$instance\"}[$__rate_interval]))", "dead"),
                    (
                        "sum(rate(fairlane_events_suppressed_total{instance=~\"$instance\"}[$__rate_interval]))",
                        "suppressed",
                    ),
                ],
            ),
            stacked(
                "Accepted by source",
                "eps",
                "Per second.",
                &[(
                    "sum by (source) (rate(fairlane_events_accepted_total{instance=~\"$instance\"}[$__rate_interval]))",
                    "{{source}}",
                )],
            ),
            stacked(
                "Refused",
                "reqps",
                "Not genuine, or no room. fairlane rejections shows the last ones.",
                &[
                    (
                        "sum by (source, reason) (rate(fairlane_events_rejected_total{instance=~\"$instance\"}[$__rate_interval]))",
                        "{{source}} {{reason}}",
                    ),
                    (
                        "sum by (source, reason) (rate(fairlane_shed_total{instance=~\"$instance\"}[$__rate_interval]))",
                        "{{source}} {{reason}} (no room)",
                    ),
                ],
            ),
        ],
    ),
    (
        "Backlog",
        &[
            lines(
                "Events that wait",
                "short",
                "Accepted and not settled.",
                &[("sum by (instance) (fairlane_backlog_events{instance=~\"$instance\"})", "{{instance}}")],
            ),
            lines(
                "Age of the oldest",
                "s",
                "Of any group; many late groups are the upstream's matter, one is its own.",
                &[("max by (instance) (fairlane_backlog_oldest_age_seconds{instance=~\"$instance\"})", "{{instance}}")],
            ),
            lines(
                "Late groups, lanes",
                "short",
                "Groups whose oldest event is older than alerts.backlog_age.group; lanes that owe something.",
                &[
                    ("sum(fairlane_groups_over_age{instance=~\"$instance\"})", "late groups"),
                    ("sum(fairlane_lanes_active{instance=~\"$instance\"})", "lanes"),
                ],
            ),
            stacked(
                "Without a key",
                "eps",
                "Events in the fallback lane, by reason: one tenant can delay another there.",
                &[(
                    "sum by (source, reason) (rate(fairlane_fallback_events_total{instance=~\"$instance\"}[$__rate_interval]))",
                    "{{source}} {{reason}}",
                )],
            ),
        ],
    ),
    (
        "The upstream",
        &[
            stacked(
                "Slots",
                "short",
                "Attempts in flight, and free.",
                &[(
                    "sum by (state) (fairlane_slots{instance=~\"$instance\",state=~\"busy|free|dedicated\"})",
                    "{{state}}",
                )],
            ),
            stacked(
                "Attempts by outcome",
                "reqps",
                "Per second.",
                &[(
                    "sum by (outcome) (rate(fairlane_attempts_total{instance=~\"$instance\"}[$__rate_interval]))",
                    "{{outcome}}",
                )],
            ),
            lines(
                "How long an attempt takes",
                "s",
                "The upstream's time, the answer's body included.",
                &[
                    (
                        "histogram_quantile(0.5, sum by (le) (rate(fairlane_attempt_seconds_bucket{instance=~\"$instance\"}[$__rate_interval])))",
                        "p50",
                    ),
                    (
                        "histogram_quantile(0.99, sum by (le) (rate(fairlane_attempt_seconds_bucket{instance=~\"$instance\"}[$__rate_interval])))",
                        "p99",
                    ),
                ],
            ),
            lines(
                "Breaker",
                "short",
                "0 closed, 1 slow start, 2 half open, 3 open.",
                &[("max by (instance) (fairlane_breaker_state{instance=~\"$instance\"})", "{{instance}}")],
            ),
        ],
    ),
    (
        "Why events wait",
        &[stacked(
            "Time waited, by reason",
            "s",
            "Seconds of waiting a second, all events together.",
            &[(
                "sum by (reason) (rate(fairlane_wait_reason_seconds_total{instance=~\"$instance\"}[$__rate_interval]))",
                "{{reason}}",
            )],
        )],
    ),
    (
        "The machine",
        &[
            lines(
                "Commit",
                "s",
                "A batch's write and its fdatasync: what an answer waits for.",
                &[
                    (
                        "histogram_quantile(0.5, sum by (le) (rate(fairlane_commit_seconds_bucket{instance=~\"$instance\"}[$__rate_interval])))",
                        "p50",
                    ),
                    (
                        "histogram_quantile(0.99, sum by (le) (rate(fairlane_commit_seconds_bucket{instance=~\"$instance\"}[$__rate_interval])))",
                        "p99",
                    ),
                ],
            ),
            lines(
                "Disk",
                "bytes",
                "What the store takes, and what is free.",
                &[
                    ("fairlane_store_bytes{instance=~\"$instance\"}", "store {{instance}}"),
                    ("fairlane_disk_free_bytes{instance=~\"$instance\"}", "free {{instance}}"),
                ],
            ),
            lines(
                "Connections, bodies in memory",
                "short",
                "Of senders.",
                &[
                    ("fairlane_connections{instance=~\"$instance\"}", "connections {{instance}}"),
                    ("fairlane_buffered_bytes{instance=~\"$instance\"}", "bytes {{instance}}"),
                ],
            ),
            lines(
                "What has to stay 0",
                "short",
                "Anything else is a fault of the gateway: report it with the log.",
                &[
                    ("sum(fairlane_invariant_violations_total{instance=~\"$instance\"})", "invariants broken"),
                    ("sum(fairlane_retries_overdue{instance=~\"$instance\"})", "retries overdue"),
                    ("sum(fairlane_conservation_difference{instance=~\"$instance\"})", "conservation"),
                    ("sum(1 - fairlane_config_ok{instance=~\"$instance\"})", "configurations refused"),
                ],
            ),
        ],
    ),
    (
        "Groups (where admin.open_metrics is false, and Prometheus has the token)",
        &[
            lines(
                "Their backlog",
                "short",
                "The 20 groups with most events.",
                &[("topk(10, fairlane_group_backlog_events{instance=~\"$instance\"})", "{{group}}")],
            ),
            lines(
                "Their share of the worker time",
                "percentunit",
                "Of the last minute.",
                &[("topk(10, fairlane_group_share{instance=~\"$instance\"})", "{{group}}")],
            ),
            lines(
                "Their wait",
                "s",
                "p99 of the last thousand waits.",
                &[("topk(10, fairlane_group_wait_p99_seconds{instance=~\"$instance\"})", "{{group}}")],
            ),
        ],
    ),
];

/// The whole file.
pub(crate) fn file() -> String {
    let mut panels = Vec::new();
    let mut y = 0;
    for (title, row) in ROWS {
        panels.push(json!({ "id": panels.len() + 1, "type": "row", "title": title, "collapsed": false, "panels": [],
            "gridPos": { "h": 1, "w": WIDTH, "x": 0, "y": y } }));
        let width = WIDTH / row.len() as u64;
        for (at, panel) in row.iter().enumerate() {
            let place = json!({ "h": HEIGHT, "w": width, "x": at as u64 * width, "y": y + 1 });
            panels.push(panel.json(panels.len() + 1, place));
        }
        y += 1 + HEIGHT;
    }
    let dashboard = json!({
        "title": "Fairlane", "uid": "fairlane", "schemaVersion": 39, "version": 1, "editable": true, "refresh": "10s",
        "tags": ["fairlane"], "timezone": "browser", "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": [
            { "name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus" },
            { "name": "instance", "label": "Node", "type": "query", "datasource": source(), "includeAll": true, "multi": true,
              "refresh": 2, "query": { "query": "label_values(fairlane_build_info, instance)", "refId": "instance" },
              "current": { "text": "All", "value": "$__all" } }
        ] },
        "panels": panels,
    });
    format!("{dashboard:#}\n")
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

impl Panel {
    fn json(&self, id: usize, place: Value) -> Value {
        let targets: Vec<Value> = self
            .lines
            .iter()
            .zip('A'..)
            .map(|((expression, legend), name)| {
                json!({ "refId": name, "expr": expression, "legendFormat": legend, "datasource": source(),
                    "instant": self.kind == "table", "format": if self.kind == "table" { "table" } else { "time_series" } })
            })
            .collect();
        let custom = json!({ "fillOpacity": if self.stacked { 30 } else { 0 }, "lineWidth": 1,
            "stacking": { "mode": if self.stacked { "normal" } else { "none" } } });
        json!({ "id": id, "type": self.kind, "title": self.title, "description": self.what, "gridPos": place,
            "datasource": source(), "targets": targets,
            "fieldConfig": { "defaults": { "unit": self.unit, "min": 0, "custom": if self.kind == "table" { json!({}) } else { custom } }, "overrides": [] },
            "options": if self.kind == "table" { json!({}) } else { json!({ "legend": { "displayMode": "list", "placement": "bottom" }, "tooltip": { "mode": "multi" } }) } })
    }
}
