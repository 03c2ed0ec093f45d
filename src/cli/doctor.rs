//! `fairlane doctor --store DIR`: whether everything in a store is as it was written.

use std::fmt::Write;
use std::path::Path;

use serde_json::json;

use super::{FAILED, complain, print};
use crate::app::{DoctorReport, doctor};

/// Examines the store in `path` and says what was found; the answer is the exit code, 1 for damage.
pub(super) fn run(path: &Path, json: bool) -> u8 {
    let report = match doctor(path) {
        Ok(report) => report,
        Err(error) => return complain(&format!("{error} (name a store's data directory with --store)"), FAILED),
    };
    let text = if json { format!("{:#}\n", as_json(&report)) } else { as_text(&report) };
    let healthy = if report.is_healthy() { 0 } else { FAILED };
    healthy.max(print(text.as_bytes()))
}

fn as_json(report: &DoctorReport) -> serde_json::Value {
    let damage = report.damage.iter().map(|d| json!({ "file": d.file, "offset": d.offset, "what": d.what }));
    json!({
        "ok": report.is_healthy(),
        "segments": report.segments,
        "bytes": report.bytes,
        "batches": report.batches,
        "accepted": report.accepted,
        "settled": report.settled,
        "copied": report.copied,
        "gone": report.gone,
        "damage": damage.collect::<Vec<_>>(),
    })
}

fn as_text(report: &DoctorReport) -> String {
    let DoctorReport { segments, bytes, batches, accepted, settled, copied, gone, damage } = report;
    let mut text = format!(
        "{segments} segments of {bytes} bytes: {batches} batches; {accepted} events accepted, {settled} settlements, \
         {copied} events copied or requeued, {gone} marks of what is gone\n"
    );
    for place in damage {
        // Writing to a text does not fail.
        writeln!(text, "damaged: {} at offset {}: {}", place.file, place.offset, place.what).ok();
    }
    text.push_str(match damage.len() {
        0 => "every checksum holds\n",
        _ => "what is damaged cannot be repaired; restore a copy of the directory, or begin a new one\n",
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_where_the_damage_is() {
        let mut report = DoctorReport { accepted: 7, ..DoctorReport::default() };
        assert!(as_text(&report).contains("7 events accepted") && as_text(&report).ends_with("every checksum holds\n"));
        let place = crate::app::Damage { file: "log/00000001.seg".into(), offset: 64, what: "a checksum".into() };
        report.damage.push(place);
        assert!(as_text(&report).contains("damaged: log/00000001.seg at offset 64: a checksum\n"));
        assert_eq!(as_json(&report)["damage"][0]["offset"], 64);
    }
}
