//! What a supervisor is told (`Type=notify` in systemd, sd_notify(3)): a datagram to the socket that it named. Without one nothing is
//! said.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Everything is served.
pub(super) const READY: &str = "READY=1";
/// The end has begun.
pub(super) const STOPPING: &str = "STOPPING=1";

/// From now on another process is the one to supervise.
pub(super) fn main_process(process: u32) {
    tell(&format!("MAINPID={process}"));
}

/// Tells the supervisor, where there is one.
pub(super) fn tell(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let name = name.as_encoded_bytes();
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(String::from_utf8_lossy(name).as_ref()),
    };
    let told = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = told {
        tracing::warn!(%error, state, "the supervisor (NOTIFY_SOCKET) could not be told");
    }
}
