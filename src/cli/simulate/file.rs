//! Arrivals from outside: JSON lines of `{at, group[, within, order, seconds, status]}`, a capture that has times, or a store.

use std::io::{BufRead, BufReader, Cursor, Read as _};
use std::path::Path;

use serde::Deserialize;

use super::arrivals::{self, Arrival, Traffic};
use crate::cli::capture::many::Moment;
use crate::cli::lines::Lines;
use crate::cli::rules::{Answer, Rules};
use crate::cli::traffic::{Origin, Seen, Told, captured};
use crate::event::{Group, Lane};

/// One arrival of a file. Fields that are not here are ignored.
#[derive(Deserialize)]
struct Line {
    at: Moment,
    group: String,
    within: Option<String>,
    /// Events of a lane with the same one go one after another.
    order: Option<String>,
    /// How long the receiver takes.
    seconds: Option<f64>,
    /// What it answers, every time; 0 for no answer.
    status: Option<u16>,
}

/// A day: no call takes longer.
const CALL_SECONDS_MAX: f64 = 3_600.0;

/// What a file holds.
pub(super) enum Found {
    /// Arrivals with their groups.
    Arrivals(Traffic),
    /// Requests, and which rule's lanes they went to.
    Requests(Traffic, Told),
}

/// Reads `origin`. `rules` makes the rules ready where it turns out to be a capture, or is a store.
///
/// # Errors
/// It cannot be read, or the rules cannot be used, in words.
pub(super) fn read(origin: &Origin, rules: &dyn Fn() -> Result<Rules, String>) -> Result<Found, String> {
    let named = |why: String| format!("{}: {why}", origin.name());
    let Some(file) = origin.file.as_deref().filter(|_| origin.store.is_none()) else {
        let mut requests = Requests::new(rules()?);
        let told = origin.each(&mut |seen| requests.add(&seen))?;
        return requests.found(told).map_err(named);
    };
    let reader: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        let opened = std::fs::File::open(file).map_err(|error| named(error.to_string()))?;
        Box::new(BufReader::with_capacity(1 << 16, opened))
    };
    of_reader(reader, rules).map_err(named)
}

fn of_reader(mut reader: impl BufRead, rules: &dyn Fn() -> Result<Rules, String>) -> Result<Found, String> {
    let mut first = Vec::new();
    let line_max = 64 << 20;
    reader.by_ref().take(line_max).read_until(b'\n', &mut first).map_err(|error| error.to_string())?;
    let is_arrival = serde_json::from_slice(&first)
        .is_ok_and(|line: serde_json::Value| line.get("group").is_some() && line.get("headers").is_none());
    let whole = BufReader::new(Cursor::new(first).chain(reader));
    if is_arrival {
        return lines(whole).map(Found::Arrivals);
    }
    let mut requests = Requests::new(rules()?);
    let told = captured(whole, &mut |seen| requests.add(&seen))?;
    requests.found(told)
}

fn lines(reader: impl BufRead) -> Result<Traffic, String> {
    let mut traffic = Traffic::default();
    let mut lines = Lines::of(reader);
    while let Some((number, text)) = lines.next().map_err(|error| error.to_string())? {
        line(&mut traffic, text).map_err(|why| format!("line {number}: {why}"))?;
    }
    one_clock(traffic)
}

/// In the order of their times, which have to be of one clock.
fn one_clock(traffic: Traffic) -> Result<Traffic, String> {
    if traffic.is_mixed() {
        return Err("some times are seconds from a beginning of its own, others dates (or seconds since 1970): write all of them in one \
                    way"
            .to_owned());
    }
    Ok(traffic.in_order())
}

fn line(traffic: &mut Traffic, text: &[u8]) -> Result<(), String> {
    let Line { at, group, within, order, seconds, status } =
        serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let call_us = match seconds {
        None => 0,
        Some(seconds) if (0.0..=CALL_SECONDS_MAX).contains(&seconds) => ((seconds * 1e6) as u32).max(1),
        Some(seconds) => return Err(format!("seconds: {seconds} is no time that a call takes (0 to 3600)")),
    };
    let answer = match status {
        None => arrivals::Answer::Status(200),
        Some(0) => arrivals::Answer::None,
        Some(status @ 100..=599) => arrivals::Answer::Status(status),
        Some(status) => return Err(format!("status: {status} is none (0 for no answer)")),
    };
    let lane = Lane { group: written(&group), inner: within.as_deref().map(written) };
    let lane = traffic.lane(&lane);
    let order = order.map_or(0, |order| traffic.order(lane, written(&order)));
    traffic.add(Arrival { at_us: at.micros()?, lane, call_us, order, answer })
}

/// A group as lists show it, or any other text as a key.
fn written(text: &str) -> Group {
    Group::from_written(text).unwrap_or_else(|| Group::of(&[text]))
}

/// One that succeeds, after as long as calls take.
fn arrival(at_us: u64, lane: u32, order: u32) -> Arrival {
    Arrival { at_us, lane, call_us: 0, order, answer: arrivals::Answer::Status(200) }
}

/// Requests on their way to arrivals.
struct Requests {
    rules: Rules,
    traffic: Traffic,
    timeless: u64,
    elsewhere: u64,
    failed: Option<String>,
}

impl Requests {
    fn new(rules: Rules) -> Self {
        Self { rules, traffic: Traffic::default(), timeless: 0, elsewhere: 0, failed: None }
    }

    fn add(&mut self, seen: &Seen) {
        let Some(at) = seen.at else {
            self.timeless += 1;
            return;
        };
        // Where several rules are for its path, the first that finds something.
        let mut found: Option<(Answer, Option<Group>)> = None;
        self.rules.run(seen, &mut |_, answer, order| {
            if found.as_ref().is_none_or(|(found, _)| found.is_err() && answer.is_ok()) {
                found = Some((answer, order));
            }
        });
        let Some((answer, order)) = found else {
            self.elsewhere += 1;
            return;
        };
        let lane = answer.unwrap_or_else(|_| Lane { group: Group::fallback(), inner: None });
        let lane = self.traffic.lane(&lane);
        let order = order.map_or(0, |order| self.traffic.order(lane, order));
        // Once there are too many, every further one fails.
        self.failed = self.traffic.add(arrival(at.0, lane, order)).err();
    }

    fn found(self, mut told: Told) -> Result<Found, String> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        for (count, why) in [
            (self.timeless, "requests have no time (a line's `at` or `now`, a HAR's startedDateTime) and are left out"),
            (self.elsewhere, "requests are on a path that no rule is for and are left out"),
        ] {
            if count > 0 {
                told.problems.push(format!("{count} {why}"));
                told.unreadable += count;
            }
        }
        Ok(Found::Requests(one_clock(self.traffic)?, told))
    }
}

#[cfg(test)]
mod tests {
    use super::arrivals::Answer;
    use super::*;

    fn no_rules() -> Result<Rules, String> {
        Err("no rules".to_owned())
    }

    fn read_text(text: &str) -> Result<Found, String> {
        of_reader(text.as_bytes(), &no_rules)
    }

    #[test]
    fn times_of_two_clocks_are_no_order() {
        let text = "{\"at\":1,\"group\":\"a\"}\n{\"at\":\"2026-01-31T08:00:00Z\",\"group\":\"a\"}\n";
        let Err(error) = read_text(text) else { panic!("it is taken for half a century") };
        assert!(error.contains("write all of them in one way"), "{error}");
        assert!(read_text(&text.replace(":1,", ":1769846401,")).is_ok());
    }

    #[test]
    fn arrivals_are_put_in_order_and_begin_at_the_first() {
        let text = "{\"at\":12.5,\"group\":\"b\",\"seconds\":0.02,\"status\":500}\n\
            {\"at\":10,\"group\":\"a b\",\"within\":\"t\",\"status\":0}\n{\"at\":\"1970-01-01T00:00:11Z\",\"group\":\"~fallback\"}\n";
        let Ok(Found::Arrivals(traffic)) = read_text(text) else { panic!("arrivals") };
        let got: Vec<(u64, u32, u32, Answer)> =
            traffic.arrivals.iter().map(|a| (a.at_us, a.lane, a.call_us, a.answer)).collect();
        let expected = [
            (0, 1, 0, Answer::None),
            (1_000_000, 2, 0, Answer::Status(200)),
            (2_500_000, 0, 20_000, Answer::Status(500)),
        ];
        assert_eq!(got, expected);
        let names: Vec<&str> = traffic.lanes.iter().map(|lane| lane.group.as_str()).collect();
        assert_eq!(names, ["b", "a%20b", "~fallback"]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let good = "{\"at\":1,\"group\":\"a\"}\n";
        for (bad, part) in [
            ("{\"at\":\"x\",\"group\":\"a\"}", "line 2: \"x\" is no time"),
            ("{\"at\":1,\"group\":\"a\",\"status\":99}", "line 2: status: 99"),
            ("{\"at\":1,\"group\":\"a\",\"seconds\":-1}", "line 2: seconds: -1"),
            ("{\"at\":1}", "line 2: missing field `group`"),
        ] {
            let error = read_text(&format!("{good}{bad}")).err().unwrap();
            assert!(error.contains(part), "{error}");
        }
        // A capture needs rules.
        assert_eq!(read_text("{\"headers\":[]}").err().unwrap(), "no rules");
    }
}
