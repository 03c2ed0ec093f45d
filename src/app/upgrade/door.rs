//! The predecessor's side until `go`: whoever asks is offered the sockets, and nothing is changed by that.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::super::sockets::Sockets;
use super::talk::Talk;
use super::words::{Offered, PROTOCOL, Role, Word};
use super::{PATIENCE, socket};
use crate::listen::Bound;

/// After a failed accept.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

/// The sockets that are offered; `None` once they are not any more.
type Kept = Arc<Mutex<Option<Sockets>>>;

/// Where successors knock. Dropping it takes the door away.
pub(in crate::app) struct Door {
    sockets: Kept,
    ready: mpsc::Receiver<Successor>,
    _asked: JoinSet<()>,
}

/// A process that is ready to take over.
pub(in crate::app) struct Successor {
    talk: Talk,
    /// Which version it is, for people.
    pub(in crate::app) version: String,
    /// While this lives, there is no other one.
    _only: Arc<()>,
}

impl Door {
    /// Opens one in this folder. Without one this gateway cannot be replaced under way, and runs all the same.
    pub(in crate::app) fn open(folder: &Path, sockets: Sockets) -> Self {
        let (found, ready) = mpsc::channel(1);
        let sockets: Kept = Arc::new(Mutex::new(Some(sockets)));
        let mut asked = JoinSet::new();
        match socket::bind(folder) {
            Ok(listener) => drop(asked.spawn(answer(listener, Arc::clone(&sockets), found))),
            Err(error) => {
                tracing::warn!(%error, "no socket in the data folder: `fairlane run --upgrade` cannot take over from this process")
            }
        }
        Self { sockets, ready, _asked: asked }
    }

    /// Nobody is offered anything any more; the answer is what would have been, unless that was asked for already.
    pub(in crate::app) fn close(&self) -> Option<Sockets> {
        self.sockets.lock().take()
    }

    /// Something about the sockets; `None` when they are not offered any more.
    pub(in crate::app) fn with_sockets<T>(&self, ask: impl FnOnce(&Sockets) -> T) -> Option<T> {
        self.sockets.lock().as_ref().map(ask)
    }

    /// The next that is ready to take over.
    pub(in crate::app) async fn knock(&mut self) -> Successor {
        match self.ready.recv().await {
            Some(successor) => successor,
            None => std::future::pending().await,
        }
    }
}

/// Answers one after the other.
async fn answer(listener: UnixListener, sockets: Kept, found: mpsc::Sender<Successor>) {
    let mut present = Weak::new();
    loop {
        let greeted = match listener.accept().await {
            Ok((stream, _)) => greet(stream, &sockets, &mut present).await,
            Err(error) => {
                tokio::time::sleep(ACCEPT_AGAIN).await;
                Err(error)
            }
        };
        match greeted {
            Ok(Some(successor)) => {
                if found.send(successor).await.is_err() {
                    return;
                }
            }
            // It looked and went.
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "a process that would take over was not understood; nothing has changed")
            }
        }
    }
}

async fn greet(stream: UnixStream, sockets: &Kept, present: &mut Weak<()>) -> io::Result<Option<Successor>> {
    let mut talk = Talk::with(stream)?;
    let (Word::Hello { protocol, version }, _) = talk.hear_within(PATIENCE).await? else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "expected a hello"));
    };
    let refusal = if protocol != PROTOCOL {
        Some(format!(
            "it speaks protocol {PROTOCOL} of a replacement and not {protocol}: stop it and start the new version"
        ))
    } else if present.upgrade().is_some() {
        Some("another process is about to take over from it: try again when that is done".to_owned())
    } else {
        None
    };
    if let Some(why) = refusal {
        talk.say(&Word::Refused { why }, &[]).await?;
        return Ok(None);
    }
    let kept = sockets.lock().as_ref().map(Sockets::try_clone).transpose()?;
    match kept {
        Some(sockets) => offer(&talk, &sockets).await?,
        None => {
            talk.say(&Word::Refused { why: "it is ending".to_owned() }, &[]).await?;
            return Ok(None);
        }
    }
    match talk.hear_within(PATIENCE).await {
        Ok((Word::Go, _)) => {
            let only = Arc::new(());
            *present = Arc::downgrade(&only);
            Ok(Some(Successor { talk, version, _only: only }))
        }
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "expected it to go")),
        // It found that it cannot run, and says so itself.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

async fn offer(talk: &Talk, sockets: &Sockets) -> io::Result<()> {
    let Sockets { listen, admin, tenants } = sockets;
    let all = [(Role::Listen, Some(listen)), (Role::Admin, Some(admin)), (Role::Tenants, tenants.as_ref())];
    let all: Vec<(Role, &Bound)> = all.into_iter().filter_map(|(role, bound)| Some((role, bound?))).collect();
    let offered = all.iter().map(|(role, bound)| Offered { role: *role, kept: bound.is_inherited() }).collect();
    let along: Vec<_> = all.iter().map(|(_, bound)| bound.listener().as_fd()).collect();
    talk.say(&Word::Offer { version: env!("CARGO_PKG_VERSION").to_owned(), sockets: offered }, &along).await
}

impl Successor {
    /// Its number.
    pub(in crate::app) fn process(&self) -> u32 {
        self.talk.process
    }

    /// Resolves when it is gone; it has nothing to say before the store is free.
    pub(in crate::app) async fn gone(&mut self) {
        if let Ok(Some((word, _))) = self.talk.hear().await {
            tracing::debug!(?word, "a successor spoke out of turn");
        }
    }

    /// Lets it know why it will not be.
    pub(in crate::app) async fn refuse(self, why: &str) {
        if let Err(error) = self.talk.say(&Word::Refused { why: why.to_owned() }, &[]).await {
            tracing::debug!(%error, "a successor had gone before it was refused");
        }
    }

    /// Gives it the store, and waits until it serves.
    ///
    /// # Errors
    /// It does not, and why, in words.
    pub(in crate::app) async fn serves(&mut self) -> Result<(), String> {
        self.talk.say(&Word::Closed, &[]).await.map_err(|error| error.to_string())?;
        match self.talk.hear().await {
            Ok(Some((Word::Serving, _))) => Ok(()),
            Ok(Some((word, _))) => Err(format!("it said {word:?} when it was expected to serve")),
            Ok(None) => Err("it ended before it served".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}
