//! What a start needs of its surroundings, and what to say where it is not so: a folder to write in, free ports, an upstream.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use http::Uri;

/// How long the upstream may take to answer a connection before it is said that it does not.
const PROBE: Duration = Duration::from_secs(2);

/// Makes the data folder where it is missing, and sees whether it can be written in. `field` is what names it in the configuration.
///
/// # Errors
/// It cannot, and what to do.
pub(super) fn prepare(folder: &Path, field: &str) -> anyhow::Result<()> {
    let name = folder.display();
    let remedy = format!("name a folder with {field} or --data");
    if std::fs::metadata(folder).is_ok_and(|there| !there.is_dir()) {
        anyhow::bail!("the data folder {name} is not a folder: {remedy}");
    }
    let made = std::fs::create_dir_all(folder).and_then(|()| {
        rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).map_err(Error::from)
    });
    let Err(error) = made else { return Ok(()) };
    let user = rustix::process::geteuid().as_raw();
    Err(match error.kind() {
        ErrorKind::PermissionDenied => anyhow::anyhow!(
            "the data folder {name} cannot be written by the user that runs this (uid {user}): give it to that user (chown {user} {name}), or {remedy}"
        ),
        ErrorKind::ReadOnlyFilesystem => {
            anyhow::anyhow!(
                "the data folder {name} is on a file system that is mounted read-only: {remedy} on another one"
            )
        }
        _ => anyhow::anyhow!("the data folder {name} cannot be made: {error}; {remedy}"),
    })
}

/// Why an address cannot be listened on, who has it where that can be seen, and what to do.
pub(super) fn taken(error: &Error, ways: &str, address: SocketAddr) -> anyhow::Error {
    let choose = format!("choose another with {ways}");
    match error.kind() {
        ErrorKind::AddrInUse => {
            let port = address.port();
            let who = holder(port)
                .unwrap_or_else(|| format!("another program (`ss -ltnp 'sport = :{port}'` as root names it)"));
            // Its own kind can be replaced while it serves.
            let replace = if who.starts_with("fairlane ") { "take its place with --upgrade, " } else { "" };
            anyhow::anyhow!(
                "cannot listen on {address}: {who} listens on this port already; stop it, {replace}or {choose}"
            )
        }
        ErrorKind::PermissionDenied => anyhow::anyhow!(
            "cannot listen on {address}: ports below 1024 need root or CAP_NET_BIND_SERVICE (AmbientCapabilities= in systemd); {choose}"
        ),
        ErrorKind::AddrNotAvailable => {
            anyhow::anyhow!(
                "cannot listen on {address}: this machine has no such address; 0.0.0.0 is all of its own, or {choose}"
            )
        }
        _ => anyhow::anyhow!("cannot listen on {address}: {error}; {choose}"),
    }
}

/// The process that listens on a port, as far as this user may see it.
fn holder(port: u16) -> Option<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let inode = tables.iter().flat_map(|table| table.lines()).find_map(|line| {
        // proc_pid_net(5): number, local address, remote address, state, …, the tenth is the inode.
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        let own = u16::from_str_radix(local.rsplit(':').next()?, 16).ok()?;
        (own == port && *state == "0A").then(|| format!("socket:[{inode}]"))
    })?;
    let processes = std::fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path());
    let has = |process: &std::path::PathBuf| {
        let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        files
            .map(|file| std::fs::read_link(file.path()))
            .any(|link| link.is_ok_and(|link| link.as_os_str() == inode.as_str()))
    };
    // `self` and the like are other names of one of them.
    let is_number = |path: &std::path::PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let process = processes.filter(is_number).find(has)?;
    let name = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
    let name: String = name.trim().chars().flat_map(char::escape_debug).collect();
    Some(format!("{name} (process {})", process.file_name()?.to_string_lossy()))
}

/// Why no connection to the upstream can be made; `None` where one can. No request is made.
pub(super) async fn why_down(upstream: &Uri) -> Option<String> {
    let port = upstream.port_u16().unwrap_or_else(|| if upstream.scheme_str() == Some("https") { 443 } else { 80 });
    let host = upstream.host()?.trim_start_matches('[').trim_end_matches(']');
    match tokio::time::timeout(PROBE, tokio::net::TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_elapsed) => Some(format!("no connection within {} s", PROBE.as_secs())),
    }
}

/// Says once in the log at which of the upstream's addresses nothing listens, and what that means.
pub(super) async fn say_if_down(addresses: Vec<Uri>) {
    let answers = futures_util::future::join_all(addresses.iter().map(why_down)).await;
    let down: Vec<_> =
        addresses.iter().zip(&answers).filter_map(|(address, why)| Some((address, why.as_ref()?))).collect();
    for (upstream, why) in &down {
        if down.len() == addresses.len() {
            tracing::warn!(
                %upstream,
                why,
                "the upstream does not answer: events are accepted and wait, none is lost; they are delivered when it is there (upstream.url)"
            );
        } else {
            tracing::warn!(
                %upstream,
                why,
                "an address of the upstream does not answer: the others take its share until it does (upstream.urls)"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_s_holder_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let error = Error::from(ErrorKind::AddrInUse);
        let told = taken(&error, "listen.address or --listen", address).to_string();
        assert!(told.contains(&format!("(process {})", std::process::id())), "{told}");
        assert!(told.contains("listen.address or --listen"), "{told}");
    }

    #[test]
    fn a_folder_that_is_a_file_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(prepare(&file, "x.path").unwrap_err().to_string().contains("not a folder"));
        assert!(prepare(&file.join("inside"), "x.path").unwrap_err().to_string().contains("x.path or --data"));
        prepare(&dir.path().join("a/b"), "x.path").unwrap();
    }
}
