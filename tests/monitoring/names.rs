//! The metrics that there are, as `docs/metrics.md` lists them, and those that an expression of PromQL asks for.

use std::collections::BTreeMap;

/// Labels that Prometheus itself puts on.
const ANYWHERE: [&str; 3] = ["le", "instance", "job"];

/// By the name under which it is scraped, the labels that a metric has.
pub(crate) fn metrics() -> BTreeMap<String, Vec<String>> {
    let page = std::fs::read_to_string(crate::root().join("docs/metrics.md")).unwrap();
    let mut all = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("| `fairlane_")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let name = cells[0].trim_matches('`');
        let labels: Vec<String> = cells[2].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let ends: &[&str] = if cells[1] == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        all.extend(ends.iter().map(|end| (format!("{name}{end}"), labels.clone())));
    }
    assert!(all.len() > 60, "docs/metrics.md is not read right: {all:?}");
    all
}

/// What an expression asks for that does not exist: metrics, and labels of them.
pub(crate) fn faults(expression: &str, metrics: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let names = words(expression).filter(|word| word.starts_with("fairlane_"));
    let (known, unknown): (Vec<_>, Vec<_>) = names.partition(|name| metrics.contains_key(name));
    let mut faults: Vec<String> = unknown.iter().map(|name| format!("{name} does not exist: {expression}")).collect();
    let labels: Vec<&String> = known.iter().filter_map(|name| metrics.get(name)).flatten().collect();
    for label in asked(expression) {
        if !ANYWHERE.contains(&label.as_str()) && !labels.contains(&&label) {
            faults.push(format!("no metric in it has the label {label}: {expression}"));
        }
    }
    faults
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).map(str::to_owned)
}

/// The labels in `{label="…"}` and `by (label)`.
fn asked(expression: &str) -> Vec<String> {
    let matchers = expression.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let matchers = matchers.flat_map(|inside| inside.split(',')).filter_map(|one| one.split(['=', '!']).next());
    let groupings = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
    let groupings = groupings.flat_map(|inside| inside.split(','));
    let all = matchers.chain(groupings).map(|label| label.trim().to_owned());
    all.filter(|label| !label.is_empty() && !label.starts_with('$')).collect()
}

#[test]
fn a_metric_or_label_that_does_not_exist_is_found() {
    let metrics = metrics();
    for wrong in [
        "rate(fairlane_events_acceptd_total[5m])",
        "fairlane_wait_seconds",
        "sum by (tenant) (fairlane_backlog_events)",
        "fairlane_slots{kind=\"free\"}",
    ] {
        assert_eq!(faults(wrong, &metrics).len(), 1, "{wrong}");
    }
    let right = "histogram_quantile(0.99, sum by (le) (rate(fairlane_wait_seconds_bucket{job=\"$job\"}[5m])))";
    assert_eq!(faults(right, &metrics), Vec::<String>::new());
}
