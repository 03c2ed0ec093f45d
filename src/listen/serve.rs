//! The listening socket: bound by us, accepted by Pingora's service, drained in order or handed over to a successor.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;
use std::sync::Arc;
use std::time::Duration;

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
use super::life::{Stage, Those};
use super::tls::Certificates;

/// Connections that may wait in the kernel; `net.core.somaxconn` bounds it. The standard library's 128 would be full after a moment in which one
/// process hands over to another, and then the kernel has senders try again a second later.
const BACKLOG: i32 = 4096;

/// How long a listener that ends waits for TLS handshakes: a network's few round trips.
const HANDSHAKES: Duration = Duration::from_secs(1);

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
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, inherited: false })
    }

    /// Takes over a socket that somebody else bound. `kept`: who keeps it open (systemd), so that what waits in it when we end is not ours.
    ///
    /// # Errors
    /// When it cannot be made non-blocking.
    pub fn inherit(listener: TcpListener, kept: bool) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, inherited: kept })
    }

    /// Another handle of the same socket.
    ///
    /// # Errors
    /// The operating system's.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { listener: self.listener.try_clone()?, inherited: self.inherited })
    }

    /// Whether somebody else keeps it open.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.inherited
    }

    /// The socket as such, for whoever hands it on.
    #[must_use]
    pub fn listener(&self) -> &TcpListener {
        &self.listener
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
        let (leftover, handshakes) = self.end(true).await;
        // Whoever is still shaking hands has asked nothing.
        if tokio::time::timeout(HANDSHAKES, handshakes.closed()).await.is_err() {
            tracing::debug!("TLS handshakes that were not finished are left to the end of the process");
        }
        leftover.gone().await;
    }

    /// From now on every answer is the last of its connection and idle connections end, while further ones are accepted as before. The
    /// answer is who is there now.
    #[must_use]
    pub fn retire(&self) -> Those {
        self.front.life.set(Stage::Retiring);
        self.front.life.those()
    }

    /// Takes [`Serving::retire`] back.
    pub fn stay(&self) {
        self.front.life.set(Stage::Open);
    }

    /// Stops accepting and leaves whoever waits in the kernel to a successor. Resolves when nobody of those who came since
    /// [`Serving::retire`] is left but senders that wait for an answer of the upstream's, at the latest after `within`.
    pub async fn hand_over(self, within: Duration) -> Leftover {
        let (leftover, handshakes) = self.end(false).await;
        let last = async {
            handshakes.closed().await;
            leftover.0.life.those().gone().await;
        };
        if tokio::time::timeout(within, last).await.is_err() {
            tracing::warn!(
                ?within,
                "requests that are still being read will get 503, their senders have to repeat them"
            );
        }
        leftover
    }

    /// The accept loop has ended; the second is held by each TLS handshake that it began.
    async fn end(self, take_waiting: bool) -> (Leftover, watch::Sender<bool>) {
        let Self { front, drain, accepting, leftover } = self;
        front.life.set(Stage::Ending);
        drain.send_replace(true);
        if let Err(error) = accepting.await {
            tracing::error!(%error, "the accept loop had failed");
        }
        if let Some(waiting) = leftover.filter(|_| take_waiting) {
            take_leftover(&front, &waiting);
        }
        (Leftover(front), drain)
    }
}

/// What is left of a listener that accepts nothing any more.
pub struct Leftover(Arc<Front>);

impl Leftover {
    /// Resolves when the last answer has gone out.
    pub async fn gone(&self) {
        self.0.life.all_gone().await;
    }
}

/// Serves the connections that clients had opened before the socket closes: to them they were accepted.
fn take_leftover(front: &Arc<Front>, listener: &TcpListener) {
    while let Ok((stream, peer)) = listener.accept() {
        let stream = stream.set_nonblocking(true).and_then(|()| tokio::net::TcpStream::from_std(stream));
        let Ok(stream) = stream else { continue };
        if let Some(connection) = admit(front, peer, false) {
            let front = Arc::clone(front);
            spawn(connection::serve(stream, Arc::new(connection), Protocol::Http1, front));
        }
    }
}

/// A place for a connection from `peer`, if there is one.
fn admit(front: &Arc<Front>, peer: SocketAddr, tls: bool) -> Option<Connection> {
    let trusted = front.trusts(peer.ip());
    let place = front.counts.enter(peer.ip(), trusted, &front.limits())?;
    let places = (place, front.life.enter());
    Some(Connection::new(peer.ip().to_canonical(), (trusted, tls), places, Arc::clone(&front.clock)))
}

#[expect(clippy::disallowed_methods, reason = "ends with the drain: `Serving::drain` waits for what each task holds")]
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
    async fn process_new(self: &Arc<Self>, stream: Stream, _shutdown: &ShutdownWatch) -> Option<Stream> {
        let digest = stream.get_socket_digest()?;
        let peer = *digest.peer_addr()?.as_inet()?;
        let protocol = match stream.selected_alpn_proto() {
            Some(ALPN::H2) => Protocol::Http2,
            _ if self.tls => Protocol::Http1,
            _ => self.plain,
        };
        let connection = Arc::new(admit(&self.front, peer, self.tls)?);
        // In a task of its own: Pingora's ends here, and with it what holds up the end of the accept loop.
        spawn(connection::serve(stream, connection, protocol, Arc::clone(&self.front)));
        None
    }
}
