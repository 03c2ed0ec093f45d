//! `fairlane doctor`: whether this machine is fit for the configuration; with `--store`, whether everything in a store is as it was
//! written.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::{CONFIG, FAILED, complain, print};
use crate::app::{DoctorReport, Finding, Options, Standing, checkup, damaged_notebooks, doctor};

/// The arguments of `fairlane doctor`.
#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// The configuration file
    #[arg(short = 'c', long = "config", value_name = "FILE", default_value = "gateway.yaml")]
    config: PathBuf,
    /// The data folder, where it is not the configuration's
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Check every checksum of the store in this folder instead; the gateway may be running
    #[arg(long, value_name = "DIR", conflicts_with_all = ["config", "data"])]
    store: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Looks, and says what was found; the answer is the exit code, 1 where something is wrong.
pub(super) fn run(arguments: &Doctor) -> u8 {
    match &arguments.store {
        Some(store) => run_store(store, arguments.json),
        None => run_machine(arguments),
    }
}

fn run_machine(arguments: &Doctor) -> u8 {
    let options = Options { config: arguments.config.clone(), data: arguments.data.clone(), ..Options::default() };
    let (wrong, findings) = match options.load() {
        Ok(config) => {
            let text = format!("{} has no problems (`fairlane check` says more)", arguments.config.display());
            let mut findings = checkup(&config);
            findings.insert(0, Finding { what: "config", standing: Standing::Good, text });
            (FAILED, findings)
        }
        Err(problems) => {
            let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
            (CONFIG, vec![Finding { what: "config", standing: Standing::Bad, text: list.join("\n") }])
        }
    };
    let bad = findings.iter().filter(|finding| finding.standing == Standing::Bad).count();
    let text = if arguments.json { findings_json(&findings, bad) } else { findings_text(&findings, bad) };
    let written = print(text.as_bytes());
    if bad == 0 { written } else { wrong }
}

fn findings_json(findings: &[Finding], bad: usize) -> String {
    let list = findings.iter().map(|f| json!({ "what": f.what, "standing": word(f.standing), "text": f.text }));
    format!("{:#}\n", json!({ "ok": bad == 0, "findings": list.collect::<Vec<_>>() }))
}

fn findings_text(findings: &[Finding], bad: usize) -> String {
    let mut text = String::new();
    for Finding { what, standing, text: said } in findings {
        text.push_str(&format!("{:<5} {what:<11} {said}\n", word(*standing)));
    }
    text.push_str(&match bad {
        0 => "\nnothing is wrong\n".to_owned(),
        1 => "\n1 thing is wrong\n".to_owned(),
        more => format!("\n{more} things are wrong\n"),
    });
    text
}

fn word(standing: Standing) -> &'static str {
    match standing {
        Standing::Good => "ok",
        Standing::Note => "note",
        Standing::Bad => "bad",
    }
}

fn run_store(path: &Path, json: bool) -> u8 {
    let report = match doctor(path) {
        Ok(report) => report,
        Err(error) => return complain(&format!("{error} (name a store's data directory with --store)"), FAILED),
    };
    let notebooks = damaged_notebooks(path);
    let text = if json { format!("{:#}\n", as_json(&report, &notebooks)) } else { as_text(&report, &notebooks) };
    let healthy = if report.is_healthy() && notebooks.is_empty() { 0 } else { FAILED };
    healthy.max(print(text.as_bytes()))
}

fn as_json(report: &DoctorReport, notebooks: &[String]) -> serde_json::Value {
    let damage = report.damage.iter().map(|d| json!({ "file": d.file, "offset": d.offset, "what": d.what }));
    json!({
        "ok": report.is_healthy() && notebooks.is_empty(),
        "notebooks": notebooks,
        "segments": report.segments,
        "bytes": report.bytes,
        "batches": report.batches,
        "accepted": report.accepted,
        "settled": report.settled,
        "copied": report.copied,
        "gone": report.gone,
        "damage": damage.collect::<Vec<_>>(),
        "tail": report.tail.as_ref().map(|t| json!({ "file": t.file, "offset": t.offset, "bytes": t.bytes })),
    })
}

fn as_text(report: &DoctorReport, notebooks: &[String]) -> String {
    let DoctorReport { segments, bytes, batches, accepted, settled, copied, gone, damage, tail } = report;
    let mut text = format!(
        "{segments} segments of {bytes} bytes: {batches} batches; {accepted} events accepted, {settled} settlements, \
         {copied} events copied or requeued, {gone} marks of what is gone\n"
    );
    for place in damage {
        // Writing to a text does not fail.
        writeln!(text, "damaged: {} at offset {}: {}", place.file, place.offset, place.what).ok();
    }
    for notebook in notebooks {
        writeln!(text, "damaged: {notebook}").ok();
    }
    text.push_str(&match tail {
        _ if !damage.is_empty() => {
            "what is damaged cannot be repaired; restore a copy of the directory, or begin a new one\n".to_owned()
        }
        None => "every checksum holds\n".to_owned(),
        Some(tail) => format!(
            "every checksum of a whole batch holds; {} bytes at the end ({} from offset {}) do not make one. Where the gateway \
             runs, or crashed, this is a write that was not finished, and the next start cuts it; if the disk damaged it, \
             events acknowledged in it are gone\n",
            tail.bytes, tail.file, tail.offset
        ),
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_where_the_damage_is() {
        let mut report = DoctorReport { accepted: 7, ..DoctorReport::default() };
        let damaged = ["jobs.json is empty".to_owned()];
        assert!(as_text(&report, &damaged).contains("damaged: jobs.json is empty\n"));
        assert_eq!(as_json(&report, &damaged)["ok"], false);
        assert!(
            as_text(&report, &[]).contains("7 events accepted")
                && as_text(&report, &[]).ends_with("every checksum holds\n")
        );
        report.tail = Some(crate::app::Tail { file: "log/00000001.seg".into(), offset: 128, bytes: 2131 });
        assert!(as_text(&report, &[]).contains("2131 bytes at the end (log/00000001.seg from offset 128)"));
        assert!(as_json(&report, &[])["ok"] == true && as_json(&report, &[])["tail"]["bytes"] == 2131);
        let place = crate::app::Damage { file: "log/00000001.seg".into(), offset: 64, what: "a checksum".into() };
        report.damage.push(place);
        assert!(as_text(&report, &[]).contains("damaged: log/00000001.seg at offset 64: a checksum\n"));
        assert_eq!(as_json(&report, &[])["damage"][0]["offset"], 64);
    }
}
