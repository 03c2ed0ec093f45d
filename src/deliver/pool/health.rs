//! Asking several addresses how they are.
//!
//! The rounds, and how many good or bad answers in a row turn an address over, are pingora-load-balancing's (`Backends`); the question
//! is ours. Its own check would connect by a connector of its own, to one socket address, with one host name and the operating system's
//! roots for all addresses; ours goes the way of the events, so that what it says holds for them: the same names, looked up anew, the same
//! TLS, the same added header lines.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora_core::{Error, ErrorType};
use pingora_load_balancing::discovery::Static;
use pingora_load_balancing::health_check::HealthCheck;
use pingora_load_balancing::{Backend, Backends};

use super::choice::backend;
use crate::deliver::Inner;
use crate::deliver::settings::Health;

/// What one round found, by socket address in the library's sense.
type Found = Arc<Mutex<HashMap<SocketAddr, Result<(), Box<str>>>>>;

/// Asks the addresses of a client in rounds, until the future is dropped. Where there is nothing to ask, or no choice, it ends.
pub(in crate::deliver) async fn watch(client: Arc<Inner>) {
    let Some(health) = client.settings.health.clone().filter(|_| client.pool.is_plural()) else { return };
    let addresses: Vec<Backend> = client.pool.members.iter().map(|member| backend(&member.label, 1)).collect();
    let found = Found::default();
    let interval = health.interval;
    let mut backends = Backends::new(Static::new(addresses.iter().cloned().collect::<BTreeSet<_>>()));
    let check = Check { client: Arc::clone(&client), health, addresses: addresses.clone(), found: Arc::clone(&found) };
    backends.set_health_check(Box::new(check));
    if let Err(error) = backends.update(|_| {}).await {
        tracing::error!(%error, "the upstream's addresses are not watched");
        return;
    }
    loop {
        backends.run_health_check(true).await;
        for (index, address) in addresses.iter().enumerate() {
            let found = address.addr.as_inet().and_then(|key| found.lock().remove(key));
            if let Some(found) = found {
                client.pool.checked(index, found, backends.ready(address));
            }
        }
        tokio::time::sleep(interval).await;
    }
}

/// The question.
struct Check {
    client: Arc<Inner>,
    health: Health,
    /// In the order of the pool's.
    addresses: Vec<Backend>,
    found: Found,
}

#[async_trait]
impl HealthCheck for Check {
    async fn check(&self, target: &Backend) -> pingora_core::Result<()> {
        let index = self.addresses.iter().position(|address| address == target);
        let member = index.and_then(|index| self.client.pool.members.get(index));
        let (Some(member), Some(key)) = (member, target.addr.as_inet()) else { return Ok(()) };
        let answered = self.client.ask(&member.place, &self.health).await.map_err(Box::from);
        self.found.lock().insert(*key, answered.clone());
        answered.map_err(|words| Error::explain(ErrorType::Custom("check"), String::from(words)))
    }

    fn health_threshold(&self, success: bool) -> usize {
        let count = if success { self.health.successes } else { self.health.failures };
        usize::try_from(count).unwrap_or(usize::MAX)
    }
}
