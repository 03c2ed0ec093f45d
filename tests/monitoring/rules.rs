//! `deploy/prometheus/alerts.yaml`, as it is made: what the gateway says of itself, and what it cannot say.

/// A rule: name, expression, how long it has to hold, urgency, what it means, what to do.
struct Rule {
    name: String,
    expression: String,
    holds: &'static str,
    severity: String,
    summary: String,
    remedy: String,
}

const HEAD: &str = "\
# Alert rules for Prometheus. Made by a test (UPDATE_EXPECTED=1 cargo test --test monitoring), which also holds every metric to those
# that there are. The second group has one rule for each alert that the gateway raises by itself: docs/alerts.md says more of each.
";

/// The whole file.
pub(crate) fn file() -> String {
    let mut text = format!("{HEAD}groups:\n");
    for (name, rules) in [("fairlane", own()), ("fairlane-told", told())] {
        text.push_str(&format!("  - name: {name}\n    rules:\n"));
        for rule in rules {
            text.push_str(&rule.yaml());
        }
    }
    text
}

impl Rule {
    fn yaml(&self) -> String {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        format!(
            "      - alert: {}\n        expr: {}\n        for: {}\n        labels: {{ severity: {} }}\n        annotations:\n          summary: {}\n          description: {}\n",
            self.name,
            quoted(&self.expression),
            self.holds,
            self.severity,
            quoted(&self.summary),
            quoted(&self.remedy),
        )
    }
}

/// What the gateway cannot say: that it is away, and that what it says reaches nobody.
fn own() -> Vec<Rule> {
    let rule = |name: &str, expression: &str, holds, severity: &str, summary: &str, remedy: &str| Rule {
        name: name.to_owned(),
        expression: expression.to_owned(),
        holds,
        severity: severity.to_owned(),
        summary: summary.to_owned(),
        remedy: remedy.to_owned(),
    };
    vec![
        rule(
            "FairlaneAway",
            "up{job=\"fairlane\"} == 0",
            "1m",
            "page",
            "{{ $labels.instance }} does not answer: senders are refused.",
            "Look at the process and its log; what was accepted is on its disk and goes out after the next start.",
        ),
        rule(
            "FairlaneQuietGroupsWait",
            "histogram_quantile(0.99, sum by (le, instance) (rate(fairlane_quiet_wait_seconds_bucket[10m]))) > 1 and on (instance) sum by (instance) (rate(fairlane_quiet_wait_seconds_count[10m])) > 0.1",
            "10m",
            "page",
            "Groups that send little wait {{ $value | humanizeDuration }} (p99) for others: the promise is not kept.",
            "See who holds the slots (fairlane top); usually calls of many groups hang, or there are too few slots.",
        ),
        rule(
            "FairlaneRefusesEvents",
            "sum by (instance, source) (rate(fairlane_shed_total[5m])) > 0",
            "2m",
            "page",
            "Genuine requests to {{ $labels.source }} are refused for want of room. Many senders do not repeat them.",
            "fairlane alerts says what is full: the disk, memory, or a group's own backlog cap.",
        ),
        rule(
            "FairlaneSignaturesFail",
            "sum by (instance, source) (rate(fairlane_events_rejected_total{reason=\"bad_signature\"}[10m])) > 0.1 and on (instance, source) sum by (instance, source) (rate(fairlane_events_accepted_total[10m])) == 0",
            "10m",
            "ticket",
            "Every request to {{ $labels.source }} has a wrong signature: its secret was changed at one end.",
            "fairlane rejections --source SOURCE says which part does not fit.",
        ),
        rule(
            "FairlaneBacklogGrowsFast",
            "predict_linear(fairlane_disk_free_bytes[1h], 4 * 3600) < 0 and on (instance) deriv(fairlane_backlog_events[1h]) > 0",
            "15m",
            "ticket",
            "At this pace the disk of {{ $labels.instance }} is full within four hours.",
            "fairlane groups --sort depth shows whose backlog grows; add disk, or hold that group back.",
        ),
        rule(
            "FairlaneAlertsAreNotTaken",
            "increase(fairlane_alert_posts_total{outcome!=\"sent\"}[15m]) > 0",
            "0m",
            "ticket",
            "Messages to alerts.webhook are not taken.",
            "fairlane alerts test says why.",
        ),
    ]
}

/// A rule for each alert that the gateway raises by itself, out of the table of docs/alerts.md.
fn told() -> Vec<Rule> {
    let page = std::fs::read_to_string(crate::root().join("docs/alerts.md")).unwrap();
    let rows = page.lines().filter(|line| line.contains("| page |") || line.contains("| ticket |"));
    let rules: Vec<Rule> = rows.map(row).collect();
    assert!(rules.len() >= 20, "docs/alerts.md is not read right");
    rules
}

fn row(line: &str) -> Rule {
    let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
    let [name, severity, _, means, remedy] = cells[..] else { panic!("a row of docs/alerts.md: {line}") };
    let name = name.trim_matches('`');
    let words = name.split('_').map(|word| word[..1].to_uppercase() + &word[1..]);
    Rule {
        name: format!("Fairlane{}", words.collect::<String>()),
        expression: format!("fairlane_alerts_firing{{alert=\"{name}\"}} > 0"),
        // It has held for as long as the gateway wants already.
        holds: "0m",
        severity: severity.to_owned(),
        summary: means.to_owned(),
        // Prometheus makes `{{` a template; no remedy has one.
        remedy: remedy.replace('`', ""),
    }
}
