//! An upstream that does what a test tells it to, byte by byte, and remembers what it saw.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

/// Longest wait for the other side: a test that is wrong fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(20);

/// A request as it came over the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Which connection it came on, from 0.
    pub(crate) connection: usize,
    /// Its first line.
    pub(crate) line: String,
    /// Its header lines, in their order.
    pub(crate) headers: Vec<(String, String)>,
    /// Its body.
    pub(crate) body: Vec<u8>,
}

impl Seen {
    /// The values of a header, in their order.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str()).collect()
    }
}

/// The upstream; it serves until the process ends.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Upstream {
    /// An upstream whose every connection is `script`; when that returns, the connection is closed.
    pub(crate) fn new(script: impl Fn(&mut Talk) + Send + Sync + 'static) -> Self {
        Self::on("127.0.0.1:0", None, script).expect("there is an IPv4 loopback")
    }

    /// The same with TLS.
    pub(crate) fn tls(config: rustls::ServerConfig, script: impl Fn(&mut Talk) + Send + Sync + 'static) -> Self {
        Self::on("127.0.0.1:0", Some(Arc::new(config)), script).expect("there is an IPv4 loopback")
    }

    /// The same at this address; an error where the machine has no such address.
    pub(crate) fn on(
        address: &str,
        tls: Option<Arc<rustls::ServerConfig>>,
        script: impl Fn(&mut Talk) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (all, script) = (Arc::clone(&seen), Arc::new(script));
        thread::spawn(move || {
            for (connection, socket) in listener.incoming().enumerate() {
                let Ok(socket) = socket else { continue };
                let (seen, script, tls) = (Arc::clone(&all), Arc::clone(&script), tls.clone());
                thread::spawn(move || script(&mut Talk::new(connection, socket, tls, seen)));
            }
        });
        Ok(Self { address, seen })
    }

    /// One that gives every request this answer, on kept connections.
    pub(crate) fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::new(move |talk| {
            while talk.hear() {
                talk.say(&answer);
            }
        })
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// The connections of the requests so far, in the order of the requests.
    pub(crate) fn connections(&self) -> Vec<usize> {
        self.seen.lock().iter().map(|seen| seen.connection).collect()
    }

    /// Its address as a url.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Plain, or with TLS.
enum Stream {
    Plain(TcpStream),
    Tls(Box<rustls::StreamOwned<rustls::ServerConnection, TcpStream>>),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// One connection, as the upstream's script uses it.
pub(crate) struct Talk {
    pub(crate) connection: usize,
    socket: TcpStream,
    stream: Stream,
    unread: Vec<u8>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Talk {
    fn new(
        connection: usize,
        socket: TcpStream,
        tls: Option<Arc<rustls::ServerConfig>>,
        seen: Arc<Mutex<Vec<Seen>>>,
    ) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        let copy = socket.try_clone().unwrap();
        let stream = match tls {
            Some(config) => {
                let connection = rustls::ServerConnection::new(config).unwrap();
                Stream::Tls(Box::new(rustls::StreamOwned::new(connection, copy)))
            }
            None => Stream::Plain(copy),
        };
        Self { connection, socket, stream, unread: Vec::new(), seen }
    }

    /// Reads one request and remembers it; false when the other side closed.
    pub(crate) fn hear(&mut self) -> bool {
        let head_end = loop {
            if let Some(at) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.read_more() {
                return false;
            }
        };
        let head: Vec<u8> = self.unread.drain(..head_end).collect();
        // Latin-1, so that every byte of a value can be told.
        let head: String = head.iter().map(|byte| char::from(*byte)).collect();
        let mut lines = head.trim_end().split("\r\n");
        let line = lines.next().unwrap().to_owned();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").map(|(n, v)| (n.to_owned(), v.to_owned())).expect("a header line"))
            .collect();
        let length = headers.iter().find(|(name, _)| name == "content-length").map_or("0", |(_, value)| value.as_str());
        let length: usize = length.parse().unwrap();
        while self.unread.len() < length {
            if !self.read_more() {
                return false;
            }
        }
        let body = self.unread.drain(..length).collect();
        self.seen.lock().push(Seen { connection: self.connection, line, headers, body });
        true
    }

    /// How many requests came on this connection so far.
    pub(crate) fn heard(&self) -> usize {
        self.seen.lock().iter().filter(|seen| seen.connection == self.connection).count()
    }

    /// The last request that came on this connection.
    pub(crate) fn last(&self) -> Seen {
        let seen = self.seen.lock();
        seen.iter().rfind(|seen| seen.connection == self.connection).cloned().expect("a request came")
    }

    /// Says goodbye as TLS does, with bytes of its own (RFC 8446 section 6.1).
    pub(crate) fn say_goodbye(&mut self) {
        if let Stream::Tls(stream) = &mut self.stream {
            stream.conn.send_close_notify();
            // The other side may be gone already.
            stream.flush().unwrap_or_default();
        }
    }

    /// Writes these bytes; the other side may be gone already.
    pub(crate) fn say(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).and_then(|()| self.stream.flush()).is_ok()
    }

    /// Waits until the other side closes.
    pub(crate) fn wait_for_close(&mut self) {
        while self.read_more() {}
    }

    /// Whether the other side closes within `time`; this is how a slow upstream passes its time.
    pub(crate) fn closes_within(&mut self, time: Duration) -> bool {
        self.socket.set_read_timeout(Some(time)).unwrap();
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// Waits for the first bytes of a request and leaves them unread: closing then is a reset, not an end.
    pub(crate) fn leave_unread(&mut self) {
        self.socket.peek(&mut [0]).unwrap();
    }

    fn read_more(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(read) if read > 0 => {
                self.unread.extend_from_slice(&buffer[..read]);
                true
            }
            _ => false,
        }
    }
}
