//! Requests of the past, from a capture or from a store, one after another. None is kept, so there may be any number.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::HeaderMap;

use super::capture::many;
use crate::app;
use crate::event::{Event, Group, KeySource, Lane, Wall};

/// Requests that could not be read and are told one by one.
const PROBLEMS_MAX: usize = 5;

/// Where traffic comes from.
#[derive(Debug, Args)]
pub(super) struct Origin {
    /// Captured requests: JSON lines as `fairlane verify` takes them, or a HAR; - is standard input
    #[arg(required_unless_present = "store")]
    pub(super) file: Option<PathBuf>,
    /// The events of the store in this folder instead; the gateway may be running
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
    pub(super) store: Option<PathBuf>,
    /// Of the store only what came so recently, e.g. 90m, 6h, 2d
    #[arg(long, value_name = "TIME", requires = "store", value_parser = time)]
    pub(super) last: Option<Duration>,
}

/// A length of time on the command line: a number and s, m, h or d.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let expected = || "expected a number and s, m, h or d, e.g. 90m".to_owned();
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0)];
    let read = units.iter().find_map(|(unit, seconds)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Duration::try_from_secs_f64(number * seconds).ok()
    });
    read.filter(|time| !time.is_zero()).ok_or_else(expected)
}

/// One request of the past.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) headers: HeaderMap,
    /// Percent-encoded, without the query.
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) body: Bytes,
    /// When it came, where that is known.
    pub(super) at: Option<Wall>,
    /// Where it waited, and where its key came from; only of a store.
    pub(super) stored: Option<(Lane, KeySource)>,
    /// Its order key; only of a store.
    pub(super) order: Option<Group>,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// Requests that could be read.
    pub(super) requests: u64,
    /// Those that could not.
    pub(super) unreadable: u64,
    /// Why, of the first of them.
    pub(super) problems: Vec<String>,
    /// The earliest and the latest time that a request has.
    pub(super) between: Option<(Wall, Wall)>,
}

impl Told {
    fn time(&mut self, at: Option<Wall>) {
        let Some(at) = at else { return };
        self.between = Some(self.between.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
    }

    fn problem(&mut self, why: String) {
        self.unreadable += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(why);
        }
    }

    /// What could not be read, for people; `None` where everything could.
    pub(super) fn complaint(&self) -> Option<String> {
        let more = if self.unreadable > self.problems.len() as u64 { "\n…" } else { "" };
        (self.unreadable > 0)
            .then(|| format!("{} requests could not be read\n{}{more}", self.unreadable, self.problems.join("\n")))
    }
}

impl Origin {
    /// Its name in what is printed.
    pub(super) fn name(&self) -> String {
        let path = self.store.as_ref().or(self.file.as_ref());
        path.map_or_else(String::new, |path| path.display().to_string())
    }

    /// Gives every request to `see`, in the order in which they stand there.
    ///
    /// # Errors
    /// The place cannot be read, with its name.
    pub(super) fn each(&self, see: &mut dyn FnMut(Seen)) -> Result<Told, String> {
        let told = match (&self.store, &self.file) {
            (Some(store), _) => self.stored(store, see),
            (None, Some(file)) if file == Path::new("-") => captured(std::io::stdin().lock(), see),
            (None, Some(file)) => match std::fs::File::open(file) {
                Ok(file) => captured(BufReader::with_capacity(1 << 16, file), see),
                Err(error) => Err(error.to_string()),
            },
            (None, None) => Err("name a file, or a store with --store".to_owned()),
        };
        told.map_err(|why| format!("{}: {why}", self.name()))
    }

    fn stored(&self, store: &Path, see: &mut dyn FnMut(Seen)) -> Result<Told, String> {
        let mut told = Told::default();
        let now = app::wall();
        let since = self.last.map(|last| u64::try_from(last.as_micros()).unwrap_or(u64::MAX));
        let since = Wall(since.map_or(0, |last| now.0.saturating_sub(last)));
        let read = app::arrivals(store, &mut |event| {
            if event.received >= since {
                told.requests += 1;
                told.time(Some(event.received));
                see(Seen::from(event));
            }
        });
        let read = read.map_err(|error| format!("{error} (name a store's data folder with --store)"))?;
        for _ in 0..read.damaged {
            told.problem("a place in the log is damaged; `fairlane doctor --store` says where".to_owned());
        }
        Ok(told)
    }
}

/// Gives every request of a capture to `see`.
///
/// # Errors
/// It cannot be read, or is no capture.
pub(super) fn captured(reader: impl std::io::BufRead, see: &mut dyn FnMut(Seen)) -> Result<Told, String> {
    let mut told = Told::default();
    many::each(reader, &mut |entry| match entry {
        Ok(request) => {
            told.requests += 1;
            told.time(request.at);
            see(Seen::from(request));
        }
        Err(why) => told.problem(why),
    })?;
    Ok(told)
}

impl From<many::Request> for Seen {
    fn from(request: many::Request) -> Self {
        let many::Request { parts, body, at } = request;
        let path = parts.uri.path().to_owned();
        Self {
            headers: parts.headers,
            path,
            query: parts.uri.query().map(str::to_owned),
            body,
            at,
            stored: None,
            order: None,
        }
    }
}

impl From<Event> for Seen {
    fn from(event: Event) -> Self {
        let home = event.home().clone();
        let (path, query) = match event.target.split_once('?') {
            Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
            None => (event.target.into_string(), None),
        };
        let (stored, order) = (Some((home, event.key_source)), event.order);
        Self { headers: event.headers, path, query, body: event.body, at: Some(event.received), stored, order }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_has_a_unit() {
        assert_eq!(time("90m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(time("1.5h"), Ok(Duration::from_secs(5_400)));
        assert_eq!(time("250ms"), Ok(Duration::from_millis(250)));
        for wrong in ["", "5", "h", "-1h", "0s", "1e999d", "1w"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_place_and_the_rest_counts() {
        let text = b"{\"headers\":[],\"at\":5}\nno\n{\"headers\":[],\"at\":3}\n";
        let mut paths = Vec::new();
        let told = captured(&text[..], &mut |seen| paths.push(seen.path)).unwrap();
        assert_eq!((told.requests, told.unreadable, paths.len()), (2, 1, 2));
        assert_eq!(told.between, Some((Wall(3_000_000), Wall(5_000_000))));
        assert!(told.complaint().unwrap().contains("line 2: "));
    }
}
