//! What can keep a successor from running, looked at before anything is asked of the one that runs.

use super::super::{Given, open, otlp, token};
use crate::driver;
use crate::store::notebook::Notebook;

/// Looks at the store, the token, what people changed, and the collector. The configuration, the certificates and the data folder were
/// looked at before.
///
/// # Errors
/// What would keep this process from running.
pub(in crate::app) async fn check(given: &Given) -> anyhow::Result<()> {
    let config = &given.basis.config;
    let folder = config.store.folder();
    open::check(&config.store, &given.clock).await?;
    token::of(&config.admin, folder)?;
    let notebook = Notebook::at(folder.join(super::super::OVERRIDES));
    let unreadable = driver::unreadable(config.engine(), config.policies(), &notebook);
    anyhow::ensure!(unreadable.is_empty(), "{}", unreadable.join("\n"));
    otlp::check(config.otlp.as_deref())
}
