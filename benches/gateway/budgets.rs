//! Every budget that holds in minutes, beside nginx in the same run.
//!
//! *Accepting*: both servers in turn, several rounds: wrk drives each to saturation, then a sender with a fixed schedule drives it at half of
//! that. The disk is measured in the same run, for a durable answer cannot be faster. *The whole road* ([`whole`]): nginx hands on, the
//! gateway stores, delivers and settles, both to the same receiver. *Quiet stores* ([`quiet`]): what they wait beside no flood, one and five
//! hundred.

use std::path::Path;
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::load::{self, Post};
use crate::plan::Plan;
use crate::quiet::{self, Scene};
use crate::report::{Load, Results};
use crate::server::{Kind, Setup};
use crate::{Fresh, WARM_UP, disk, whole};

/// Groups of the row that compares many of them with one.
const MANY: u64 = 100_000;

/// Measures and prints.
pub(crate) fn run(plan: &Plan, folder: &Path, runtime: &Runtime) -> anyhow::Result<()> {
    let disk = disk::measure(folder, Duration::from_secs(plan.seconds))?;
    let post = Post::signed(plan.shops, plan.body);
    let mut results = Results::new(disk);
    for _ in 0..plan.rounds {
        for kind in &plan.kinds {
            round(*kind, plan, folder, runtime, &post, &mut results)?;
        }
    }
    if plan.has(Kind::Fairlane) {
        let of = |shops| whole::measure(Kind::Fairlane, folder, runtime, &Post::signed(shops, plan.body), plan.seconds);
        results.set_groups(of(1)?, of(MANY)?);
        for scene in Scene::ALL {
            let span = Duration::from_secs(plan.seconds * 2);
            results.add_waits(scene, quiet::measure(scene, folder, runtime, &post, span)?);
        }
    }
    results.print(&mut std::io::stdout().lock())?;
    Ok(())
}

fn round(
    kind: Kind,
    plan: &Plan,
    folder: &Path,
    runtime: &Runtime,
    post: &Post,
    results: &mut Results,
) -> anyhow::Result<()> {
    let place = folder.join(kind.name());
    let server = Fresh::start(kind, place.clone(), &Setup::default(), runtime, post)?;
    if kind == Kind::Fairlane {
        results.add_idle(server.server.resident()?);
    }
    load::saturate(&server.server, post, &server.folder, WARM_UP.as_secs())?;
    let full = load::saturate(&server.server, post, &server.folder, plan.seconds)?;
    server.end()?;

    // On a server of its own: what the one before still has to tidy up is not this load's.
    let half = full.per_second() / 2.0;
    let server = Fresh::start(kind, place, &Setup::default(), runtime, post)?;
    let paced = async {
        load::pace(&server.server, post, half, WARM_UP).await?;
        load::pace(&server.server, post, half, Duration::from_secs(plan.seconds)).await
    };
    let paced = runtime.block_on(paced)?;
    server.end()?;
    results.add(kind, Load::Full, full);
    results.add(kind, Load::Half, paced);
    let road = whole::measure(kind, folder, runtime, post, plan.seconds)?;
    results.add(kind, Load::Whole, road);
    Ok(())
}
