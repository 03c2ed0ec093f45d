//! The listening socket: bound by us, accepted by Pingora's service, drained in order.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora_core::apps::ServerApp;
use pingora_core::listeners::{ALPN, L4BufferSettings, ListenerConfig};
use pingora_core::protocols::Stream;
use pingora_core::server::{Fds, ListenFds, ShutdownWatch};
use pingora_core::services::Service as _;
use pingora_core::services::listening::Service;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::accept::Front;
use super::connection::{self, Connection, Protocol};
use super::tls::Certificates;

/// A socket that is bound and not yet served.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    inherited: bool,
}

impl Bound {
    /// Binds `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// The operating system's, e.g. that the address is in use.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, inherited: false })
    }

    /// Takes over a socket that somebody else bound and keeps open (systemd, a predecessor).
    ///
    /// # Errors
    /// When it cannot be made non-blocking.
    pub fn inherit(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, inherited: true })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The operating system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A listener that serves.
pub struct Serving {
    front: Arc<Front>,
    drain: watch::Sender<bool>,
    accepting: JoinHandle<()>,
    /// The same socket, to take what still waits in the kernel when the accept loop has ended.
    leftover: Option<TcpListener>,
}

/// Begins to accept on `bound`.
///
/// # Errors
/// The socket cannot be shared, or the certificates cannot be used, in words.
pub fn start(
    front: Arc<Front>,
    bound: Bound,
    h2c: bool,
    certificates: Option<&Arc<Certificates>>,
) -> io::Result<Serving> {
    // Pingora looks a socket up by the very string of its endpoint.
    let name = bound.address()?.to_string();
    let mut endpoint = ListenerConfig::tcp(name.clone());
    let plain = if h2c { Protocol::Either } else { Protocol::Http1 };
    endpoint = match certificates {
        Some(certificates) => endpoint.tls(certificates.settings().map_err(io::Error::other)?),
        // hyper has buffers of its own; Pingora's would cost 64 KiB a connection for nothing.
        None => endpoint.l4_buffer(L4BufferSettings::unbuffered()),
    };
    // With an inherited socket whoever comes next takes what waits; TLS handshakes are Pingora's alone.
    let ours = !bound.inherited && certificates.is_none();
    let leftover = ours.then(|| bound.listener.try_clone()).transpose()?;

    let mut table = Fds::new();
    table.add(name, bound.listener.into_raw_fd());
    let sockets: ListenFds = Arc::new(Mutex::new(table));
    let app = App { front: Arc::clone(&front), plain, tls: certificates.is_some() };
    let mut service = Service::new("listen".to_owned(), app);
    service.add_listener(endpoint);
    let (drain, draining) = watch::channel(false);
    let accepting = spawn(async move { service.start_service(Some(sockets), draining, 1).await });
    Ok(Serving { front, drain, accepting, leftover })
}

impl Serving {
    /// Stops accepting, answers every request that was read, and resolves when all connections are gone. Dropping the
    /// future leaves those that are still open to their end with the process.
    pub async fn drain(self) {
        self.drain.send_replace(true);
        if let Err(error) = self.accepting.await {
            tracing::error!(%error, "the accept loop had failed");
        }
        if let Some(leftover) = self.leftover {
            take_leftover(&self.front, &leftover, &self.drain);
        }
        self.drain.closed().await;
    }
}

/// Serves the connections that clients had opened before the socket closes: to them they were accepted.
fn take_leftover(front: &Arc<Front>, listener: &TcpListener, drain: &watch::Sender<bool>) {
    while let Ok((stream, peer)) = listener.accept() {
        let stream = stream.set_nonblocking(true).and_then(|()| tokio::net::TcpStream::from_std(stream));
        let Ok(stream) = stream else { continue };
        if let Some(connection) = admit(front, peer, false) {
            let front = Arc::clone(front);
            let draining = drain.subscribe();
            spawn(connection::serve(stream, Arc::new(connection), Protocol::Http1, front, draining));
        }
    }
}

/// A place for a connection from `peer`, if there is one.
fn admit(front: &Arc<Front>, peer: SocketAddr, tls: bool) -> Option<Connection> {
    let trusted = front.trusts(peer.ip());
    let place = front.counts.enter(peer.ip(), trusted, &front.limits())?;
    Some(Connection::new(peer.ip().to_canonical(), trusted, tls, place, Arc::clone(&front.clock)))
}

#[expect(
    clippy::disallowed_methods,
    reason = "ends with the drain: `Serving::drain` waits for the watch that each task holds"
)]
fn spawn<F>(future: F) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    tokio::spawn(future)
}

/// What Pingora calls for each connection, its TLS handshake done.
struct App {
    front: Arc<Front>,
    plain: Protocol,
    tls: bool,
}

#[async_trait]
impl ServerApp for App {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let digest = stream.get_socket_digest()?;
        let peer = *digest.peer_addr()?.as_inet()?;
        let protocol = match stream.selected_alpn_proto() {
            Some(ALPN::H2) => Protocol::Http2,
            _ if self.tls => Protocol::Http1,
            _ => self.plain,
        };
        let connection = Arc::new(admit(&self.front, peer, self.tls)?);
        connection::serve(stream, connection, protocol, Arc::clone(&self.front), shutdown.clone()).await;
        None
    }
}
