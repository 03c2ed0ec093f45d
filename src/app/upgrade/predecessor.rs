//! The successor's side.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::Context as _;

use super::super::sockets::Handed;
use super::talk::Talk;
use super::words::{Offered, PROTOCOL, Role, Word};
use super::{PATIENCE, socket};
use crate::listen::Bound;

/// The process that runs over our data folder.
pub(in crate::app) struct Predecessor {
    talk: Talk,
    version: String,
}

impl Predecessor {
    /// Whoever runs over this folder, and the sockets that it would hand over; `None`: nobody does.
    ///
    /// # Errors
    /// Somebody does that cannot be replaced so, and why.
    pub(in crate::app) async fn find(folder: &Path) -> anyhow::Result<Option<(Self, Handed)>> {
        let place = folder.display();
        let found = socket::connect(folder).await;
        let found = found.with_context(|| format!("the gateway that runs over {place} cannot be asked to make way"))?;
        let Some(stream) = found else { return Ok(None) };
        let talk = Talk::with(stream)
            .with_context(|| format!("only its own user may replace the gateway that runs over {place}"))?;
        let process = talk.process;
        let asked = Self { talk, version: String::new() }.ask().await;
        let (predecessor, handed) =
            asked.with_context(|| format!("process {process} cannot be replaced while it runs"))?;
        Ok(Some((predecessor, handed)))
    }

    async fn ask(mut self) -> anyhow::Result<(Self, Handed)> {
        let hello = Word::Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned() };
        self.talk.say(&hello, &[]).await?;
        let (word, sockets) = self.talk.hear_within(PATIENCE).await?;
        match word {
            Word::Offer { version, sockets: offered } => {
                self.version = version;
                Ok((self, handed(&offered, sockets)?))
            }
            Word::Refused { why } => anyhow::bail!(why),
            other => anyhow::bail!("it said {other:?} when it was expected to offer its sockets"),
        }
    }

    /// Its number.
    pub(in crate::app) fn process(&self) -> u32 {
        self.talk.process
    }

    /// Has it make way, and waits until the store is free. One that dies meanwhile has made way, too.
    ///
    /// # Errors
    /// It stays after all, and why.
    pub(in crate::app) async fn make_way(&mut self) -> anyhow::Result<()> {
        let process = self.process();
        self.talk.say(&Word::Go, &[]).await.with_context(|| format!("process {process} is gone"))?;
        tracing::info!(
            process,
            version = self.version,
            "everything is ready: the running gateway finishes what is in flight"
        );
        match self.talk.hear().await {
            Ok(Some((Word::Closed, _))) => Ok(()),
            Ok(Some((Word::Refused { why }, _))) => anyhow::bail!("process {process} stays after all: {why}"),
            Ok(Some((word, _))) => {
                anyhow::bail!("process {process} said {word:?} when it was expected to close its store")
            }
            Ok(None) => {
                tracing::warn!(process, "the running gateway ended before it had closed its store: it is recovered");
                Ok(())
            }
            Err(error) => Err(error).with_context(|| format!("process {process} is not understood any more")),
        }
    }

    /// It may go: this process serves.
    pub(in crate::app) async fn dismiss(self) {
        let process = self.process();
        match self.talk.say(&Word::Serving, &[]).await {
            Ok(()) => tracing::info!(process, version = self.version, "took over"),
            Err(error) => {
                tracing::info!(process, version = self.version, %error, "took over; the one before is gone already")
            }
        }
    }
}

/// The sockets, each by what it is for.
fn handed(offered: &[Offered], sockets: Vec<OwnedFd>) -> io::Result<Handed> {
    if offered.len() != sockets.len() {
        let why = format!("it offered {} sockets and handed over {}", offered.len(), sockets.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut handed = Handed::default();
    for (Offered { role, kept }, socket) in offered.iter().zip(sockets) {
        let place = match role {
            Role::Listen => &mut handed.listen,
            Role::Admin => &mut handed.admin,
            Role::Tenants => &mut handed.tenants,
            Role::Unknown => continue,
        };
        *place = Some(Bound::inherit(TcpListener::from(socket), *kept)?);
    }
    Ok(handed)
}
