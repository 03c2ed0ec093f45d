//! What accepting costs under other loads than that of the budgets: larger bodies, fewer and more connections, TLS, more groups.
//!
//! One row a load, nginx's `return 200` beside the gateway in turn, each on a server of its own. Nothing is delivered, as in the budgets' row.

use std::path::{Path, PathBuf};

use tokio::runtime::Runtime;

use crate::load::{self, Measured, Post};
use crate::plan::{Part, Plan};
use crate::report::{Cells, table};
use crate::server::{Kind, Setup};
use crate::{CONNECTIONS, Fresh, WARM_UP, whole};

const KILO: usize = 1_024;

/// One load.
struct Load {
    name: String,
    connections: usize,
    shops: u64,
    body: usize,
    tls: bool,
    /// Also measured until everything is delivered.
    whole: bool,
}

impl Load {
    fn of(plan: &Plan, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            connections: CONNECTIONS,
            shops: plan.shops,
            body: plan.body,
            tls: false,
            whole: false,
        }
    }
}

/// The loads of a part; none for one that is measured elsewhere.
fn loads(part: Part, plan: &Plan) -> Vec<Load> {
    let load = |name: String| Load::of(plan, name);
    match part {
        Part::Bodies => {
            let sizes = [KILO, 10 * KILO, 100 * KILO];
            sizes.map(|body| Load { body, whole: true, ..load(format!("{} KB", body / KILO)) }).into()
        }
        Part::Connections => {
            let counts = [1, 64, 1_000, 5_000];
            counts.map(|connections| Load { connections, ..load(format!("{connections} connections")) }).into()
        }
        Part::Tls => [false, true].map(|tls| Load { tls, ..load(if tls { "TLS" } else { "plain" }.to_owned()) }).into(),
        Part::Groups => {
            let counts = [1, 1_000, 100_000, 1_000_000];
            counts.map(|shops| Load { shops, whole: true, ..load(format!("{shops} groups")) }).into()
        }
        Part::Budgets | Part::Backlog | Part::Rivals => Vec::new(),
    }
}

/// Measures the loads of a part and prints them.
pub(crate) fn run(part: Part, plan: &Plan, folder: &Path, runtime: &Runtime) -> anyhow::Result<()> {
    let certificate = certificate(folder)?;
    let mut rows = Vec::new();
    for load in loads(part, plan) {
        let post = Post::signed(load.shops, load.body);
        for kind in &plan.kinds {
            let setup = Setup { tls: load.tls.then(|| certificate.clone()), ..Setup::default() };
            let measured = accepting(*kind, &setup, &load, &post, folder, runtime, plan.seconds)?;
            rows.push((format!("{}, accepted", load.name), *kind, measured));
        }
        for kind in plan.kinds.iter().filter(|_| load.whole) {
            let measured = whole::measure(*kind, folder, runtime, &post, plan.seconds)?;
            rows.push((format!("{}, end to end", load.name), *kind, measured));
        }
    }
    rows.sort_by_key(|(name, kind, _)| (name.ends_with("end to end"), *kind));
    let mut out = std::io::stdout().lock();
    table(&mut out, &rows.iter().map(|(name, kind, row)| Cells::of(name, kind.name(), row)).collect::<Vec<_>>())?;
    Ok(())
}

fn accepting(
    kind: Kind,
    setup: &Setup,
    load: &Load,
    post: &Post,
    folder: &Path,
    runtime: &Runtime,
    seconds: u64,
) -> anyhow::Result<Measured> {
    let server = Fresh::start(kind, folder.join("server"), setup, runtime, post)?;
    let saturate = |seconds| load::saturate_over(load.connections, &server.server, post, &server.folder, seconds);
    saturate(WARM_UP.as_secs())?;
    let measured = saturate(seconds)?;
    server.end()?;
    Ok(measured)
}

/// A certificate of our own, and its key; the load does not look who signed it.
fn certificate(folder: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    std::fs::write(&certificate, made.cert.pem())?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    Ok((certificate, key))
}
