//! The table of `make bench-redis`.

use std::io::Write;
use std::time::Duration;

/// One measurement.
pub(crate) struct Row {
    pub(crate) name: String,
    /// Events that went the whole way.
    pub(crate) events: u64,
    pub(crate) took: Duration,
    /// CPU time of Redis.
    pub(crate) redis: Duration,
    /// CPU time of the gateway's processes.
    pub(crate) nodes: Option<Duration>,
    /// Commands that Redis was sent.
    pub(crate) sent: u64,
    /// Commands that it carried out, those within scripts with them.
    pub(crate) within: u64,
}

/// The load average of the last minute.
pub(crate) fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

/// Writes rows as a table in Markdown.
pub(crate) fn print(rows: &[Row], head: &str, out: &mut impl Write) -> std::io::Result<()> {
    let columns = ["way", "events/s", "Redis CPU, µs an event", "gateway CPU, µs an event", "commands sent an event"];
    writeln!(out, "{head}\n\n| {} | carried out, scripts' own with them |", columns.join(" | "))?;
    writeln!(out, "| --- | ---: | ---: | ---: | ---: | ---: |")?;
    for row in rows {
        let events = row.events.max(1) as f64;
        let each = |span: Duration| span.as_secs_f64() * 1e6 / events;
        writeln!(
            out,
            "| {} | {:.0} | {:.1} | {} | {:.2} | {:.1} |",
            row.name,
            events / row.took.as_secs_f64(),
            each(row.redis),
            row.nodes.map_or_else(|| "–".to_owned(), |cpu| format!("{:.1}", each(cpu))),
            row.sent as f64 / events,
            row.within as f64 / events,
        )?;
    }
    Ok(())
}
