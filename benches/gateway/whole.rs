//! The whole road: accepted, stored, delivered and settled, beside nginx's `proxy_pass`, both to the same receiver.
//!
//! The gateway takes events faster than it delivers them while senders keep it busy, so its CPU is counted until the last of them is
//! settled; nginx has delivered what it answered.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use fairlane::clock::{Clock as _, SystemClock};
use tokio::runtime::Runtime;

use crate::load::{self, Measured, Post};
use crate::server::{Kind, Server, Setup};
use crate::{Fresh, WARM_UP};

/// How long what was accepted may take to be settled.
const SETTLE_LIMIT: Duration = Duration::from_secs(300);

/// Often enough that the last event is not waited for in vain, seldom enough that asking costs nothing.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// One measurement of `seconds`, on servers of its own: the receiver is an nginx that answers 200.
pub(crate) fn measure(
    kind: Kind,
    folder: &Path,
    runtime: &Runtime,
    post: &Post,
    seconds: u64,
) -> anyhow::Result<Measured> {
    let receiver = Fresh::start(Kind::Nginx, folder.join("receiver"), &Setup::default(), runtime, post)?;
    let server = Fresh::start(kind, folder.join("server"), &Setup::to(receiver.server.address()), runtime, post)?;
    one(&server, runtime, post, WARM_UP.as_secs())?;
    let measured = one(&server, runtime, post, seconds)?;
    server.end()?;
    receiver.end()?;
    Ok(measured)
}

fn one(server: &Fresh, runtime: &Runtime, post: &Post, seconds: u64) -> anyhow::Result<Measured> {
    let Some(admin) = server.server.admin() else {
        return load::saturate(&server.server, post, &server.folder, seconds);
    };
    let before = Settled::ask(admin, runtime)?;
    let (began, cpu) = (SystemClock.now().mono, server.server.cpu()?);
    let sent = load::saturate(&server.server, post, &server.folder, seconds)?;
    let after = wait_until_settled(admin, runtime, &server.server)?;
    Ok(Measured {
        // Also those that were answered after the load's end.
        accepted: after.accepted - before.accepted,
        took: SystemClock.now().mono.since(began),
        cpu: server.server.cpu()? - cpu,
        ..sent
    })
}

fn wait_until_settled(admin: SocketAddr, runtime: &Runtime, server: &Server) -> anyhow::Result<Settled> {
    let began = SystemClock.now().mono;
    loop {
        let settled = Settled::ask(admin, runtime)?;
        if settled.delivered == settled.accepted {
            return Ok(settled);
        }
        if SystemClock.now().mono.since(began) > SETTLE_LIMIT {
            let Settled { accepted, delivered } = settled;
            bail!("{delivered} of {accepted} events were delivered within {SETTLE_LIMIT:?}: {}", server.last_words());
        }
        runtime.block_on(async { tokio::time::sleep(ASK_EVERY).await });
    }
}

/// What the gateway counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub(crate) accepted: u64,
    pub(crate) delivered: u64,
}

impl Settled {
    pub(crate) fn ask(admin: SocketAddr, runtime: &Runtime) -> anyhow::Result<Self> {
        let text = runtime.block_on(load::get(admin, "/metrics"))?;
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.rsplit_once("} "));
            line.and_then(|(_, number)| number.parse().ok()).with_context(|| format!("no {name} in the metrics"))
        };
        Ok(Self {
            accepted: number("fairlane_events_accepted_total")?,
            delivered: number("fairlane_events_delivered_total")?,
        })
    }
}
