//! What is to be measured, as the environment says.

use anyhow::{Context as _, bail};

use crate::server::Kind;

/// A part of the measurements; each has a name in `BENCH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Every budget that holds in minutes, beside nginx.
    Budgets,
    /// Bodies of 1 KB to 100 KB.
    Bodies,
    /// From one connection to thousands.
    Connections,
    /// With and without TLS.
    Tls,
    /// From one group to a million.
    Groups,
    /// Millions of events that wait: what they take, how they leave, and a restart with them.
    Backlog,
    /// A receiver that one would write oneself.
    Rivals,
}

impl Part {
    const ALL: [(&'static str, Self); 7] = [
        ("budgets", Self::Budgets),
        ("bodies", Self::Bodies),
        ("connections", Self::Connections),
        ("tls", Self::Tls),
        ("groups", Self::Groups),
        ("backlog", Self::Backlog),
        ("rivals", Self::Rivals),
    ];

    fn named(name: &str) -> anyhow::Result<Self> {
        let part = Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, part)| *part);
        let names = Self::ALL.map(|(known, _)| known).join(", ");
        part.with_context(|| format!("BENCH is a list of {names} with commas between them; there is no {name:?}"))
    }
}

/// What is to be measured.
pub(crate) struct Plan {
    /// In the order in which they were asked for.
    pub(crate) parts: Vec<Part>,
    /// How often the budgets are measured; their medians count.
    pub(crate) rounds: u32,
    /// Of each measurement.
    pub(crate) seconds: u64,
    /// Who is measured.
    pub(crate) kinds: Vec<Kind>,
    /// That send in turn.
    pub(crate) shops: u64,
    /// Bytes of a body.
    pub(crate) body: usize,
    /// Of the backlog.
    pub(crate) events: u64,
}

impl Plan {
    /// Reads the environment; what is not said there has a default.
    ///
    /// # Errors
    /// What is no such value, in words.
    pub(crate) fn from_environment() -> anyhow::Result<Self> {
        let kinds = match std::env::var("BENCH_ONLY").as_deref() {
            Err(_) | Ok("") => Kind::ALL.to_vec(),
            Ok(name) => match Kind::ALL.into_iter().find(|kind| kind.name() == name) {
                Some(kind) => vec![kind],
                None => bail!("BENCH_ONLY is nginx or fairlane, not {name:?}"),
            },
        };
        let parts = match std::env::var("BENCH").as_deref() {
            Err(_) | Ok("") => vec![Part::Budgets],
            Ok(names) => names.split(',').map(|name| Part::named(name.trim())).collect::<anyhow::Result<_>>()?,
        };
        Ok(Self {
            parts,
            rounds: u32::try_from(number("BENCH_ROUNDS", 3, 600)?)?,
            seconds: number("BENCH_SECONDS", 4, 600)?,
            kinds,
            shops: number("BENCH_SHOPS", 256, 1_000_000)?,
            body: usize::try_from(number("BENCH_BODY", 1_024, 20 << 20)?)?,
            events: number("BENCH_EVENTS", 10_000_000, 1_000_000_000)?,
        })
    }

    /// Whether this server is to be measured.
    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }
}

/// A whole number from 1 to `most` in the environment.
fn number(name: &str, default: u64, most: u64) -> anyhow::Result<u64> {
    let Ok(text) = std::env::var(name) else { return Ok(default) };
    match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => bail!("{name} is a whole number from 1 to {most}, not {text:?}"),
    }
}
