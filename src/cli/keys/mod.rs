//! `fairlane keys`: what a key rule would make of traffic that there is already.
//!
//! Every rule sees every request once; requests are read one by one and none is kept, only the counts of groups are (`count`). From
//! the counts come the figures of a rule (`summary`), from those the words (`advice`), the table and the picture. No signature is
//! judged: forged requests in a capture count like genuine ones.

mod advice;
mod count;
mod plot;
mod summary;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use self::count::Count;
use self::summary::{Receiver, Summary};
use super::rules::{Refused, RuleArguments, Rules};
use super::table::{escaped, many};
use super::traffic::{Origin, Told, time};
use super::{CONFIG, FAILED, USAGE, complain, print};

/// The arguments of `fairlane keys`.
#[derive(Debug, Args)]
pub(super) struct Keys {
    #[command(flatten)]
    origin: Origin,
    #[command(flatten)]
    rules: RuleArguments,
    /// Requests that the receiver takes at one time, for the expected waits
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: u32,
    /// How long the receiver takes for one, for the expected waits
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = time)]
    call: Duration,
    /// Draw the shards of every rule into this folder, as keys.svg and keys.png
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// All that is to be said.
struct Report {
    origin: String,
    told: Told,
    /// Requests on a path that no rule is for.
    elsewhere: u64,
    receiver: Receiver,
    rules: Vec<Summary>,
    files: Vec<String>,
}

/// Tries the rules; the answer is the exit code: 1 where something could not be read.
pub(super) fn run(arguments: &Keys) -> u8 {
    let rules = match arguments.rules.rules(arguments.origin.store.is_some()) {
        Ok(rules) => rules,
        Err(Refused::Usage(why)) => return complain(&why, USAGE),
        Err(Refused::Configuration(why)) => return complain(&why, CONFIG),
    };
    let mut report = match tried(arguments, &rules) {
        Ok(report) => report,
        Err(why) => return complain(&why, FAILED),
    };
    if let Some(why) = nothing(&report, &rules) {
        return complain(&why, FAILED);
    }
    if let Some(folder) = &arguments.out {
        match plot::write(folder, &report) {
            Ok(files) => report.files = files,
            Err(error) => return complain(&format!("{error:#}"), FAILED),
        }
    }
    let text = if arguments.json { format!("{:#}\n", table::as_json(&report)) } else { table::as_text(&report) };
    let written = print(text.as_bytes());
    match report.told.complaint() {
        Some(complaint) => complain(&complaint, FAILED),
        None => written,
    }
}

/// Why there is nothing to say, and what to do; `None` where there is.
fn nothing(report: &Report, rules: &Rules) -> Option<String> {
    if report.rules.iter().any(|rule| rule.events > 0) {
        return None;
    }
    let (origin, requests) = (escaped(&report.origin), report.told.requests);
    if requests > 0 {
        let paths = rules.paths();
        let expected = if paths.is_empty() { String::new() } else { format!(": {}", paths.join(", ")) };
        return Some(format!(
            "{origin}: none of the {} in it is on a path that a rule is for{expected}; name the rule with --key, or the provider with --provider, for all paths",
            many(requests, "request")
        ));
    }
    Some(match report.told.complaint() {
        Some(complaint) => format!(
            "{origin}: {complaint}\nexpected JSON lines as `fairlane verify` takes them, each with its headers, or a HAR"
        ),
        None => format!(
            "{origin}: there is no request in it; expected JSON lines as `fairlane verify` takes them, or a HAR"
        ),
    })
}

fn tried(arguments: &Keys, rules: &Rules) -> Result<Report, String> {
    let mut counts: Vec<Count> = rules.asked().iter().map(|_| Count::default()).collect();
    let mut elsewhere = 0;
    let told = arguments.origin.each(&mut |seen| {
        let any = rules.run(&seen, &mut |number, answer, _| {
            if let Some(count) = counts.get_mut(number) {
                count.add(answer);
            }
        });
        elsewhere += u64::from(!any);
    })?;
    let receiver = Receiver::of(arguments.concurrency, arguments.call);
    let rules = rules.asked().iter().zip(counts).map(|(asked, count)| Summary::of(asked, &count, receiver)).collect();
    Ok(Report { origin: arguments.origin.name(), told, elsewhere, receiver, rules, files: Vec::new() })
}
