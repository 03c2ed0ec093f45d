//! A sender's socket: hyper reads and writes it, its connection is told when bytes come, and while a sender waits for a relayed answer it
//! is watched for the sender's end.
//!
//! Whoever has said everything may close that half of a connection and still gets an answer, so hyper does not look for an end while a
//! request is under way. With a request that is held for the upstream's answer it is different: an answer that nobody waits for would hold
//! a slot. On the wire the two look alike, so there a closed half is taken for the sender's end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::Connection;

/// What a sender may send ahead of an answer (its next request) before we stop looking for its end.
const AHEAD_BYTES_MAX: usize = 4096;

/// The socket; hyper and the connection's watchdog have a clone each, in one task, so the lock is never contended.
pub(super) struct Socket<S> {
    inner: Arc<Mutex<Inner<S>>>,
    connection: Arc<Connection>,
}

struct Inner<S> {
    stream: S,
    /// What came while we looked for the end.
    ahead: BytesMut,
}

impl<S> Clone for Socket<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), connection: Arc::clone(&self.connection) }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    pub(super) fn new(stream: S, connection: Arc<Connection>) -> Self {
        Self { inner: Arc::new(Mutex::new(Inner { stream, ahead: BytesMut::new() })), connection }
    }

    /// Ready when the sender has closed the connection while it waits for a relayed answer. To be polled in the task that serves the
    /// connection, after it was served.
    pub(super) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.connection.is_held() {
            return Poll::Pending;
        }
        let mut inner = self.inner.lock();
        while inner.ahead.len() < AHEAD_BYTES_MAX {
            let mut bytes = [0; 1024];
            let mut buffer = ReadBuf::new(&mut bytes);
            match ready!(Pin::new(&mut inner.stream).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => inner.ahead.extend_from_slice(buffer.filled()),
                Ok(()) | Err(_) => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = {
            let mut inner = self.inner.lock();
            let ahead = inner.ahead.len().min(buffer.remaining());
            if ahead > 0 {
                buffer.put_slice(inner.ahead.get(..ahead).unwrap_or_default());
                inner.ahead.advance(ahead);
                Poll::Ready(Ok(()))
            } else {
                Pin::new(&mut inner.stream).poll_read(cx, buffer)
            }
        };
        if polled.is_ready() && buffer.filled().len() > before {
            self.connection.bytes_came();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner.lock().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner.lock().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.lock().stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner.lock().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner.lock().stream).poll_shutdown(cx)
    }
}
