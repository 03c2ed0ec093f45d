//! An alert as it is posted: JSON whose `text` a chat shows (Slack's incoming webhooks take it as it is), with every part of it as a
//! field of its own for programs.

use bytes::Bytes;
use serde_json::json;

use super::Alert;
use crate::event::Wall;

/// The message that an alert fired or resolved.
#[must_use]
pub fn body(alert: &Alert) -> Bytes {
    let state = if alert.resolved.is_some() { "resolved" } else { "firing" };
    let message = json!({
        "text": text(alert),
        "alert": alert.name,
        "state": state,
        "severity": alert.severity.as_str(),
        "subject": alert.subject,
        "groups": alert.groups,
        "since": rfc3339(alert.since),
        "fired_at": rfc3339(alert.fired),
        "resolved_at": alert.resolved.map(rfc3339),
        "what": alert.what,
        "means": alert.means,
        "remedy": alert.remedy,
        "command": alert.command,
    });
    Bytes::from(message.to_string())
}

/// The message that tries the way.
pub(super) fn test(now: Wall) -> Bytes {
    let message = json!({
        "text": "*test* Fairlane can reach you here. Nothing is wrong.",
        "alert": "test",
        "state": "test",
        "severity": "ticket",
        "subject": null,
        "groups": [],
        "since": rfc3339(now),
        "fired_at": rfc3339(now),
        "resolved_at": null,
        "what": "somebody asked for a test message",
        "means": "Alerts arrive here.",
        "remedy": "Nothing has to be done.",
        "command": "fairlane alerts",
    });
    Bytes::from(message.to_string())
}

fn text(alert: &Alert) -> String {
    let Alert { name, severity, what, means, remedy, command, .. } = alert;
    let since = rfc3339(alert.since);
    let text = match alert.resolved {
        Some(at) => format!("*resolved* {name}, which had been so since {since}, at {}. It was: {what}.", rfc3339(at)),
        None => format!("*{}* {name}: {what}. Since {since}.\n{means}\n{remedy}\n`{command}`", severity.as_str(),),
    };
    // What a chat would take for the beginning of a link or a name.
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A moment as RFC 3339 writes it, in UTC, to the second.
fn rfc3339(at: Wall) -> String {
    let stamp = i64::try_from(at.0).ok().and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
    format!("{:.0}", stamp.unwrap_or(jiff::Timestamp::MAX))
}
