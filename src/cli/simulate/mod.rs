//! `fairlane simulate`: what if weights, caps or slots were others?
//!
//! Arrivals (a file, a capture, a store, a built-in scenario) go through the gateway's own engine in virtual time, once for every
//! configuration. `arrivals`, `file` and `scenario` say what comes, `variant` what is tried, `world` runs it, `figures` makes of it
//! what `table` and `plot` show. The same arguments give the same figures.

mod arrivals;
mod dice;
mod figures;
mod file;
mod plot;
mod scenario;
mod shelf;
mod table;
mod variant;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use self::arrivals::Traffic;
use self::figures::{Figures, Rows};
use self::file::Found;
use self::scenario::Scenario;
use self::variant::VariantArguments;
use self::world::Conditions;
use super::rules::{Refused, RuleArguments, Rules, spec};
use super::traffic::{Origin, time};
use super::{CONFIG, FAILED, USAGE, complain, print};
use crate::key::RuleSpec;

/// The arguments of `fairlane simulate`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("origin").required(true).args(["file", "store", "scenario"]))]
pub(super) struct Simulate {
    /// Arrivals, one JSON object a line: {at, group[, within, order, seconds, status]}; or a capture that has times; - is standard input
    file: Option<PathBuf>,
    /// The events of the store in this folder; the gateway may be running
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Of the store only what came so recently, e.g. 90m, 6h, 2d
    #[arg(long, value_name = "TIME", requires = "store", value_parser = time)]
    last: Option<Duration>,
    /// A built-in scenario
    #[arg(long, value_name = "NAME")]
    scenario: Option<Scenario>,
    #[command(flatten)]
    variants: VariantArguments,
    /// Whose a captured or stored request is; left out: the sources' rules of the first configuration, of a store what was stored
    #[arg(long, value_name = "EXPR", value_parser = spec, conflicts_with = "scenario")]
    key: Option<RuleSpec>,
    /// Splits each group of --key into lanes by a second rule
    #[arg(long, value_name = "EXPR", value_parser = spec, requires = "key")]
    within: Option<RuleSpec>,
    /// Events of a group of --key with the same one go one after another
    #[arg(long, value_name = "EXPR", value_parser = spec, requires = "key")]
    order: Option<RuleSpec>,
    /// How long the receiver takes for an event that does not say so: the mean, single calls differ (exponentially)
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = time)]
    call: Duration,
    /// How long after the last arrival the run ends, whatever waits
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time)]
    drain: Duration,
    /// Another number makes other calls, and other scenarios
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Draw the waits into this folder, as simulated.svg and simulated.png
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// All that is to be said.
struct Report {
    origin: String,
    events: u64,
    groups: usize,
    span: Duration,
    seed: u64,
    rows: Rows,
    runs: Vec<Figures>,
    files: Vec<String>,
}

/// Simulates; the answer is the exit code: 1 where something could not be read.
pub(super) fn run(arguments: &Simulate) -> u8 {
    match simulated(arguments) {
        Ok((report, complaint)) => {
            let text =
                if arguments.json { format!("{:#}\n", table::as_json(&report)) } else { table::as_text(&report) };
            let written = print(text.as_bytes());
            complaint.map_or(written, |complaint| complain(&complaint, FAILED))
        }
        Err(Failed::Usage(why)) => complain(&why, USAGE),
        Err(Failed::Configuration(why)) => complain(&why, CONFIG),
        Err(Failed::Other(why)) => complain(&why, FAILED),
    }
}

/// Why nothing was simulated, in words.
enum Failed {
    Usage(String),
    Configuration(String),
    Other(String),
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Usage(why) => Self::Usage(why),
            Refused::Configuration(why) => Self::Configuration(why),
        }
    }
}

impl Simulate {
    /// What arrives, what it is called, and what could not be read.
    fn traffic(&self) -> Result<(Traffic, String, Option<String>), Failed> {
        if let Some(scenario) = self.scenario {
            let name = clap::ValueEnum::to_possible_value(&scenario);
            let name = name.map_or_else(String::new, |name| name.get_name().to_owned());
            return Ok((scenario.traffic(self.seed), format!("the scenario {name}"), None));
        }
        let origin = Origin { file: self.file.clone(), store: self.store.clone(), last: self.last };
        // Configurations are read before traffic is, which may take long.
        let rules = self.rules()?;
        let read = file::read(&origin, &|| rules.clone().ok_or_else(|| NO_RULES.to_owned()));
        let (traffic, complaint) = match read.map_err(Failed::Other)? {
            Found::Arrivals(traffic) => (traffic, None),
            Found::Requests(traffic, told) => (traffic, told.complaint()),
        };
        if traffic.arrivals.is_empty() {
            let why = complaint.map_or_else(String::new, |complaint| format!(": {complaint}"));
            return Err(Failed::Other(format!("{}: there is no event in it that could arrive{why}", origin.name())));
        }
        Ok((traffic, origin.name(), complaint))
    }

    /// The rules for captured and stored requests; `None` where none are named.
    fn rules(&self) -> Result<Option<Rules>, Failed> {
        if let Some(key) = &self.key {
            return Ok(Some(RuleArguments::one(key.clone(), self.within.clone(), self.order.clone()).rules(false)?));
        }
        match self.variants.configs.first() {
            _ if self.store.is_some() => Ok(Some(Rules::stored())),
            Some(config) => Ok(Some(RuleArguments::of_file(config.clone()).rules(false)?)),
            None => Ok(None),
        }
    }
}

const NO_RULES: &str = "these are captured requests: --key EXPR, or -c FILE with sources, says whose each of them is \
                        (arrivals have a `group`)";

fn simulated(arguments: &Simulate) -> Result<(Report, Option<String>), Failed> {
    let variants = arguments.variants.variants()?;
    let (traffic, origin, complaint) = arguments.traffic()?;
    let conditions = Conditions { seed: arguments.seed, call: arguments.call, drain: arguments.drain };
    let rows = Rows::of(&traffic);
    let runs = variants
        .iter()
        .map(|variant| Figures::of(&traffic, &rows, variant, world::run(&traffic, variant, conditions)))
        .collect();
    let mut report = Report {
        origin,
        events: traffic.arrivals.len() as u64,
        groups: traffic.groups(),
        span: traffic.span(),
        seed: arguments.seed,
        rows,
        runs,
        files: Vec::new(),
    };
    if let Some(folder) = &arguments.out {
        report.files = plot::write(folder, &report).map_err(|error| Failed::Other(format!("{error:#}")))?;
    }
    Ok((report, complaint))
}
