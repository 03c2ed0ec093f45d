//! Words over a Unix socket, and sockets along with them (`SCM_RIGHTS`, unix(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::words::Word;

/// The longest word. They are some hundred bytes.
const WORD_BYTES_MAX: usize = 64 * 1024;

/// Sockets that come with one word at most; there are three.
const SOCKETS_MAX: usize = 8;

/// A conversation.
#[derive(Debug)]
pub(super) struct Talk {
    stream: UnixStream,
    /// What came and is no whole word yet.
    came: Vec<u8>,
    sockets: Vec<OwnedFd>,
    /// The process at the other end.
    pub(super) process: u32,
}

impl Talk {
    /// With whoever is at the other end, if it is of the same user.
    ///
    /// # Errors
    /// It is not, or the operating system's.
    pub(super) fn with(stream: UnixStream) -> io::Result<Self> {
        let peer = stream.peer_cred()?;
        let own = rustix::process::geteuid().as_raw();
        if peer.uid() != own {
            let why = format!("it is of the user {}, and this process is of {own}", peer.uid());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let process = peer.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
        Ok(Self { stream, came: Vec::new(), sockets: Vec::new(), process })
    }

    /// Says a word, and hands these sockets along.
    ///
    /// # Errors
    /// The operating system's: the other side is gone.
    pub(super) async fn say(&self, word: &Word, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut line = serde_json::to_vec(word)?;
        line.push(b'\n');
        let mut rest = line.as_slice();
        let mut along = sockets;
        while !rest.is_empty() {
            let sent = self.stream.async_io(Interest::WRITABLE, || send(&self.stream, rest, along)).await?;
            rest = rest.get(sent..).unwrap_or_default();
            // They go with the first byte.
            along = &[];
        }
        Ok(())
    }

    /// The next word, and the sockets that came with it; `None`: the other side is gone.
    ///
    /// # Errors
    /// The operating system's, or what came is no word.
    pub(super) async fn hear(&mut self) -> io::Result<Option<(Word, Vec<OwnedFd>)>> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        loop {
            if let Some(end) = self.came.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.came.drain(..=end).collect();
                let word = serde_json::from_slice(&line).map_err(|error| invalid(error.to_string()))?;
                return Ok(Some((word, std::mem::take(&mut self.sockets))));
            }
            if self.came.len() > WORD_BYTES_MAX || self.sockets.len() > SOCKETS_MAX {
                return Err(invalid("more came than any word has".to_owned()));
            }
            let (stream, sockets) = (&self.stream, &mut self.sockets);
            let mut bytes = [0; 4096];
            let read = stream.async_io(Interest::READABLE, || receive(stream, &mut bytes, sockets)).await?;
            if read == 0 {
                return Ok(None);
            }
            self.came.extend_from_slice(bytes.get(..read).unwrap_or_default());
        }
    }

    /// [`Talk::hear`] from one that has nothing to do but to answer.
    ///
    /// # Errors
    /// Those of [`Talk::hear`], that it is gone, and that it does not answer.
    pub(super) async fn hear_within(&mut self, patience: Duration) -> io::Result<(Word, Vec<OwnedFd>)> {
        let heard = tokio::time::timeout(patience, self.hear()).await.map_err(io::Error::from)??;
        heard.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

fn send(stream: &UnixStream, bytes: &[u8], sockets: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut along = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() && !along.push(SendAncillaryMessage::ScmRights(sockets)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many sockets for one word"));
    }
    // A peer that is gone is an error and no signal.
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut along, SendFlags::NOSIGNAL)?)
}

fn receive(stream: &UnixStream, bytes: &mut [u8], sockets: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut along = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut along, RecvFlags::CMSG_CLOEXEC)?;
    for message in along.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            sockets.extend(came);
        }
    }
    Ok(got.bytes)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd as _;

    use super::*;

    #[tokio::test]
    async fn a_socket_comes_along_with_its_word() {
        let (one, other) = UnixStream::pair().unwrap();
        let (one, mut other) = (Talk::with(one).unwrap(), Talk::with(other).unwrap());
        assert_eq!(other.process, std::process::id());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        one.say(&Word::Go, &[]).await.unwrap();
        one.say(&Word::Closed, &[listener.as_fd()]).await.unwrap();
        let (word, sockets) = other.hear().await.unwrap().unwrap();
        assert_eq!(word, Word::Go);
        let (word, more) = other.hear().await.unwrap().unwrap();
        assert_eq!(word, Word::Closed);
        let came: Vec<_> = sockets.into_iter().chain(more).map(TcpListener::from).collect();
        assert_eq!(came[0].local_addr().unwrap(), listener.local_addr().unwrap());
        assert!(rustix::io::fcntl_getfd(&came[0]).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        drop(one);
        assert!(other.hear().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn what_is_no_word_is_an_error_and_never_without_end() {
        let (one, other) = UnixStream::pair().unwrap();
        let mut other = Talk::with(other).unwrap();
        one.writable().await.unwrap();
        one.try_write(b"GET / HTTP/1.1\r\n").unwrap();
        assert_eq!(other.hear().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        let pouring = async {
            loop {
                one.writable().await.unwrap();
                if one.try_write(&[b'x'; 4096]).is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock) {
                    return;
                }
            }
        };
        let heard = async {
            let error = other.hear().await.unwrap_err();
            drop(other);
            error
        };
        let (error, ()) = tokio::join!(heard, pouring);
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
