//! This node among others: its name, its membership, and its leave.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::cluster::{Member, News, Seat, Settings};
use crate::config::{Config, Store};
use crate::deliver::MaySend;
use crate::event::Secret;
use crate::metrics::Metrics;
use crate::store::redis::{NodeId, Redis};

/// The node's name in its folder: a restart finds its shards again.
const FILE: &str = "node";

/// A membership that has not begun, and what belongs to it.
pub(super) struct Joining {
    member: Member,
    pub(super) seat: Arc<Seat>,
    pub(super) news: mpsc::Receiver<News>,
}

/// A membership.
pub(super) struct Membership {
    pub(super) seat: Arc<Seat>,
    end: oneshot::Sender<bool>,
    task: JoinSet<()>,
}

/// Takes a seat among the nodes that share a store.
///
/// # Errors
/// The node's name cannot be kept, or another process uses it.
pub(super) async fn join(
    config: &Config,
    redis: Arc<Redis>,
    token: &Secret,
    admin: SocketAddr,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
) -> anyhow::Result<Option<Joining>> {
    let Store::Redis(store) = &config.store else { return Ok(None) };
    let digest = Sha256::digest(token.expose());
    let advertised = store.advertise.as_deref().map(|url| url.trim_start_matches("http://").trim_end_matches('/'));
    let settings = Settings {
        node: name(config.store.folder())?,
        boot: rand::random(),
        namespace: store.namespace.clone(),
        lease: store.lease,
        timeout: config.upstream.timeout,
        slots: config.upstream.concurrency,
        admin: advertised.map_or_else(|| admin.to_string(), str::to_owned),
        token: digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect(),
    };
    let (mut member, seat, news) = Member::new(settings, redis, clock, metrics);
    member.join().await.map_err(anyhow::Error::msg)?;
    Ok(Some(Joining { member, seat, news }))
}

impl Joining {
    /// The membership begins; the driver has to hear its news. What is left is for the driver.
    pub(super) fn begin(self) -> (Membership, mpsc::Receiver<News>) {
        let (end, ended) = oneshot::channel();
        let mut task = JoinSet::new();
        task.spawn(self.member.run(ended));
        (Membership { seat: self.seat, end, task }, self.news)
    }
}

impl Membership {
    /// Whether this node may send, asked before every request.
    pub(super) fn may_send(&self) -> MaySend {
        let seat = Arc::clone(&self.seat);
        Arc::new(move || seat.may_send_any())
    }

    /// Gives everything back: at once where nothing is in flight (`clean`), else when the leases run out.
    pub(super) async fn end(mut self, clean: bool) {
        if self.end.send(clean).is_ok() {
            while self.task.join_next().await.is_some() {}
        }
    }
}

/// The node's name, made at its first start.
fn name(folder: &Path) -> anyhow::Result<NodeId> {
    let path = folder.join(FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) if is_name(text.trim()) => Ok(NodeId::new(text.trim())),
        Ok(_) => anyhow::bail!("{} has no node's name: remove the file to have a new one made", path.display()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let made = format!("node-{:08x}", rand::random::<u32>());
            std::fs::write(&path, format!("{made}\n"))
                .with_context(|| format!("the node's name cannot be kept in {}", path.display()))?;
            Ok(NodeId::new(&made))
        }
        Err(error) => Err(error).with_context(|| format!("the node's name in {} cannot be read", path.display())),
    }
}

fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !text.is_empty() && text.len() <= 64 && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_name_stays_the_same_and_has_to_be_one() {
        let folder = tempfile::tempdir().unwrap();
        let made = name(folder.path()).unwrap();
        assert_eq!(name(folder.path()).unwrap(), made);
        std::fs::write(folder.path().join(FILE), "eu-1.a\n").unwrap();
        assert_eq!(name(folder.path()).unwrap().as_str(), "eu-1.a");
        std::fs::write(folder.path().join(FILE), "a b").unwrap();
        assert!(name(folder.path()).unwrap_err().to_string().contains("remove the file"));
    }
}
