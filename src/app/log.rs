//! Logs: to standard error, as text for a terminal and as JSON otherwise, the level changeable while we run.

use std::io::IsTerminal as _;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry, reload};

use crate::config::{self, LogFormat};

/// Libraries below us that say too much at our level: an ERROR for every port scanner's TLS handshake, a WARN for every client that
/// resets its streams, each journal's life, and once more what we say of the upstream's addresses ourselves.
const QUIET: &str = "pingora_core::services::listening=off,pingora_load_balancing=error,fjall=warn,lsm_tree=warn,hyper=warn,h2=error,rustls=warn";

/// The log of this process.
pub(super) struct Log {
    filter: reload::Handle<EnvFilter, Registry>,
}

impl Log {
    /// Begins to log.
    pub(super) fn init(settings: &config::Log) -> Self {
        let (filter, handle) = reload::Layer::new(filter(settings));
        let json = match settings.format {
            LogFormat::Auto => !std::io::stderr().is_terminal(),
            LogFormat::Json => true,
            LogFormat::Text => false,
        };
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colour = std::io::stderr().is_terminal() && !plain;
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colour);
        let lines = if json { lines.json().flatten_event(true).boxed() } else { lines.with_target(false).boxed() };
        // A second start in one process keeps the first log.
        if tracing_subscriber::registry().with(filter).with(lines).try_init().is_err() {
            tracing::debug!("logging had begun already");
        }
        Self { filter: handle }
    }

    /// Takes over another level.
    pub(super) fn replace(&self, settings: &config::Log) {
        if let Err(error) = self.filter.reload(filter(settings)) {
            tracing::warn!(%error, "the log level was not changed");
        }
    }
}

fn filter(settings: &config::Log) -> EnvFilter {
    EnvFilter::new(format!("{},{QUIET}", settings.level))
}
