//! The sockets of a gateway, as a set: bound anew, inherited from a supervisor, or taken over from a predecessor.

use std::net::{SocketAddr, TcpListener};

use anyhow::Context as _;

use super::place;
use crate::config::Config;
use crate::listen::Bound;

/// Where a gateway is reached.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) listen: Bound,
    pub(super) admin: Bound,
    /// Where tenants have pages.
    pub(super) tenants: Option<Bound>,
}

/// Those that somebody had before.
#[derive(Debug, Default)]
pub(super) struct Handed {
    pub(super) listen: Option<Bound>,
    pub(super) admin: Option<Bound>,
    pub(super) tenants: Option<Bound>,
}

impl Sockets {
    /// Those that were inherited (`LISTEN_FDS`: senders first, then admin), those of `handed` that are where the configuration wants them, and
    /// new ones for the rest.
    ///
    /// # Errors
    /// One cannot be had: which, why, and what to do.
    pub(super) fn open(config: &Config, handed: Handed) -> anyhow::Result<Self> {
        let inherited = Handed::inherited()?;
        let listen = inherited.listen.or_else(|| wanted(handed.listen, config.listen.address));
        let admin = inherited.admin.or_else(|| wanted(handed.admin, config.admin.address));
        let pages = config.tenant_pages.as_ref().map(|pages| pages.address);
        let tenants = pages.and_then(|address| wanted(handed.tenants, address));
        Ok(Self {
            listen: or_bind(listen, config.listen.address, "listen.address or --listen")?,
            admin: or_bind(admin, config.admin.address, "admin.address or --admin")?,
            tenants: pages.map(|address| or_bind(tenants, address, "tenant_pages.address")).transpose()?,
        })
    }

    /// Other handles of the same sockets.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn try_clone(&self) -> std::io::Result<Self> {
        Ok(Self {
            listen: self.listen.try_clone()?,
            admin: self.admin.try_clone()?,
            tenants: self.tenants.as_ref().map(Bound::try_clone).transpose()?,
        })
    }
}

impl Handed {
    /// What a supervisor opened for us.
    fn inherited() -> anyhow::Result<Self> {
        let mut descriptors = listenfd::ListenFd::from_env();
        let mut take = |index| -> anyhow::Result<Option<Bound>> {
            if index >= descriptors.len() {
                return Ok(None);
            }
            let taken = descriptors.take_tcp_listener(index);
            let taken: Option<TcpListener> =
                taken.with_context(|| format!("inherited socket {index} cannot be used"))?;
            Ok(taken.map(|listener| Bound::inherit(listener, true)).transpose()?)
        };
        Ok(Self { listen: take(0)?, admin: take(1)?, tenants: None })
    }
}

/// A socket that is where it is wanted. One that a supervisor keeps open is wanted wherever it is, as at a start.
fn wanted(handed: Option<Bound>, address: SocketAddr) -> Option<Bound> {
    handed.filter(|bound| {
        let is_there =
            |has: SocketAddr| has.ip() == address.ip() && (address.port() == 0 || has.port() == address.port());
        bound.is_inherited() || bound.address().is_ok_and(is_there)
    })
}

fn or_bind(have: Option<Bound>, address: SocketAddr, ways: &str) -> anyhow::Result<Bound> {
    match have {
        Some(bound) => Ok(bound),
        None => Bound::bind(address).map_err(|error| place::taken(&error, ways, address)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_taken_over_where_it_is_wanted() {
        let bound = Bound::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = bound.address().unwrap();
        let is_wanted = |asked: SocketAddr, kept: bool| {
            let listener = bound.listener().try_clone().unwrap();
            wanted(Some(Bound::inherit(listener, kept).unwrap()), asked).is_some()
        };
        assert!(is_wanted(address, false));
        assert!(is_wanted(([127, 0, 0, 1], 0).into(), false), "any port is asked for, and it has one");
        assert!(!is_wanted(([127, 0, 0, 2], address.port()).into(), false));
        assert!(!is_wanted(([127, 0, 0, 1], address.port() ^ 1).into(), false));
        assert!(is_wanted(([127, 0, 0, 2], 1).into(), true), "systemd's own is where systemd says");
    }
}
