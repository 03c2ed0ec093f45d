//! Text to settings: `gateway.yaml` as the stages need it, or everything that is wrong with it.
//!
//! The way of a file: `raw` makes a tree of it that knows where everything stands and interprets nothing → `check` lays it
//! against the table in `fields` → `build` and `sources` turn it into each stage's settings and see to what has to fit together →
//! `effective` writes it again. Problems are gathered on the whole way and come all at once.
//!
//! The stages do not know this module. It reads no environment and opens no file itself: both are functions that the caller gives.

mod build;
mod check;
mod delivery;
mod effective;
mod fields;
mod nearest;
mod notes;
mod page;
mod problem;
mod providers;
mod raw;
mod redis;
mod reload;
mod scalar;
mod schema;
mod secret;
mod settings;
mod sources;
mod tenants;
mod text;
mod upstream;
mod value;
mod verifying;
mod words;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use self::build::Builder;
use self::check::Checker;
use self::secret::Outside;
use self::value::{Slot, Value};
use crate::driver::alerts;
use crate::event::Secret;
use crate::{admin, listen};

pub use notes::Note;
pub use page::page;
pub use problem::{Place, Problem};
pub use reload::reload;
pub use scalar::Rate;
pub use schema::{paths, schema};
pub use settings::{Dedicated, Groups, Log, LogFormat, Override, Policy, Retry, Slow, Store, Upstream};

/// A configuration without a problem.
#[derive(Clone, Debug)]
pub struct Config {
    /// The listener.
    pub listen: listen::Settings,
    /// The admin listener.
    pub admin: admin::Settings,
    /// The tenants' pages, where they have any.
    pub tenant_pages: Option<admin::tenant::Settings>,
    /// The inlets, in the order of the file.
    pub sources: Vec<listen::Source>,
    /// By a source's name: how long a failing event may hold its order key before it is dead-lettered.
    pub order_max_hold: HashMap<Arc<str>, Duration>,
    /// The store.
    pub store: Store,
    /// The receiver.
    pub upstream: Upstream,
    /// Fairness between groups.
    pub groups: Groups,
    /// How long the end of the process may take.
    pub drain: Duration,
    /// The log.
    pub log: Log,
    /// Where spans go.
    pub otlp: Option<String>,
    /// What an operator is told.
    pub alerts: alerts::Settings,
    /// What to know about it.
    pub notes: Vec<Note>,
    /// The whole configuration as YAML, every default filled in, secrets as `***`. With the secrets put back it is a
    /// configuration that means the same.
    pub effective: String,
    file: String,
    tree: Slot,
}

impl Config {
    /// The whole configuration for a program: every default filled in, secrets as `***`.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        effective::json(&self.tree.value)
    }
}

/// Reads a configuration. `file` is its name in problems; `env` looks up environment variables, `files` reads the files that
/// `file:` and `listen.tls` name.
///
/// # Errors
///
/// Every problem, in the order of their places.
pub fn load(
    text: &str,
    file: &str,
    env: &dyn Fn(&str) -> Option<String>,
    files: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<Config, Vec<Problem>> {
    let node = raw::parse(text, file).map_err(|problem| vec![*problem])?;
    let mut checker = Checker::new(file, Outside { env, files });
    let tree = one_store(checker.root(&node));
    let config = settings(&mut checker, tree);
    let mut problems = checker.problems;
    if problems.is_empty() {
        return Ok(config);
    }
    problems.sort_by_key(|problem| problem.place);
    Err(problems)
}

/// Where a gateway is found by those who call its admin API.
#[derive(Clone, Debug)]
pub struct Whereabouts {
    /// The admin listener.
    pub admin: SocketAddr,
    /// Its token, where the configuration has one.
    pub token: Option<Secret>,
    /// The data directory, which has it otherwise.
    pub data: PathBuf,
}

/// Reads of a configuration where its gateway is, and nothing else: whoever asks a gateway need not have the secrets of its sources
/// at hand. Parameters as for [`load`].
///
/// # Errors
/// The problems of `admin` and `store`, and of the text itself.
pub fn whereabouts(
    text: &str,
    file: &str,
    env: &dyn Fn(&str) -> Option<String>,
    files: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<Whereabouts, Vec<Problem>> {
    let node = raw::parse(text, file).map_err(|problem| vec![*problem])?;
    let mut checker = Checker::new(file, Outside { env, files });
    let tree = checker.root(&node);
    let concerns = |problem: &Problem| {
        let part = problem.path.split(['.', '[']).next().unwrap_or_default();
        matches!(part, "" | "admin" | "store")
    };
    let problems: Vec<_> = checker.problems.into_iter().filter(concerns).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    let (admin, store) = (tree.at("admin"), tree.at("store"));
    let data = match store.at("redis") {
        redis if redis.is_null() => PathBuf::from(store.at("embedded").at("path").get::<String>()),
        redis => redis::folder(redis),
    };
    Ok(Whereabouts { admin: build::address(admin.at("address")), token: admin.at("token").maybe(), data })
}

/// Where Redis is given the other kind of store has no defaults: there is none.
fn one_store(mut tree: Slot) -> Slot {
    let redis = !tree.at("store").at("redis").is_null();
    if let Some(embedded) =
        tree.member("store").and_then(|store| store.member("embedded")).filter(|slot| redis && !slot.given)
    {
        embedded.value = Value::Null;
    }
    tree
}

/// The settings of everything; meaningless where the checker has problems.
fn settings(checker: &mut Checker<'_>, tree: Slot) -> Config {
    let file = checker.file().to_owned();
    let mut builder = Builder { checker, notes: Vec::new(), meanings: HashMap::new() };
    let listen = builder.listen(tree.at("listen"));
    let admin = builder.admin(tree.at("admin"), tree.at("listen"), &listen);
    let tenant_pages = builder.tenant_pages(tree.at("tenant_pages"), [listen.address, admin.address]);
    let upstream = builder.upstream(tree.at("upstream"));
    let groups = builder.groups(tree.at("groups"), upstream.concurrency);
    let sources = builder.sources(&tree, upstream.timeout);
    let store = builder.store(tree.at("store"));
    builder.about_slots(&upstream, &groups);
    builder.about_refusals(&groups, &sources);
    builder.about_repeats(&sources, store.retention());
    builder.about_nodes(&store, &admin, (tree.at("groups"), &groups));
    builder.about_relays(&sources, tree.at("shutdown").at("drain").get());
    Config {
        listen,
        admin,
        tenant_pages,
        order_max_hold: sources::holds(tree.at("sources").items()),
        sources,
        store,
        upstream,
        groups,
        drain: tree.at("shutdown").at("drain").get(),
        log: build::log(tree.at("log")),
        otlp: tree.at("otlp").maybe(),
        alerts: build::alerts(tree.at("alerts")),
        effective: effective::yaml(&tree, &builder.meanings),
        notes: builder.notes,
        file,
        tree,
    }
}
