//! The servers that are measured, each a child process on a free port of the loopback.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::load::{PATH, SECRET};

/// Ticks a second of the times in `/proc/PID/stat` (proc(5), `sysconf(_SC_CLK_TCK)`): 100 on every Linux that Rust runs on.
const TICKS_PER_SECOND: u32 = 100;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// nginx with `return 200`: reads the request, keeps nothing. The measure of all others.
    Nginx,
    /// Ourselves in the default configuration: verified, keyed, durable, then 200.
    Fairlane,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Nginx, Self::Fairlane];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Fairlane => "fairlane",
        }
    }
}

/// A server that runs; ended when dropped.
pub(crate) struct Server {
    kind: Kind,
    child: Child,
    address: SocketAddr,
    admin: Option<SocketAddr>,
    folder: PathBuf,
}

impl Server {
    /// Starts one that keeps its files in `folder` and sends what it takes on to `upstream`, where there is one. It may need a moment
    /// until it answers.
    pub(crate) fn start(kind: Kind, folder: &Path, upstream: Option<SocketAddr>) -> anyhow::Result<Self> {
        Self::start_with(kind, folder, upstream, "")
    }

    /// The same with more lines of the gateway's configuration.
    pub(crate) fn start_with(
        kind: Kind,
        folder: &Path,
        upstream: Option<SocketAddr>,
        more: &str,
    ) -> anyhow::Result<Self> {
        let address = free_address()?;
        let admin = (kind == Kind::Fairlane).then(free_address).transpose()?;
        let mut command = match admin {
            None => nginx(folder, address, upstream)?,
            Some(admin) => fairlane(folder, (address, admin), upstream, more)?,
        };
        command.stdin(Stdio::null()).stdout(File::create(folder.join("stdout"))?);
        command.stderr(File::create(folder.join("stderr"))?);
        let child = command.spawn().context("it cannot be started; `.ci/setup bench` installs what is needed")?;
        Ok(Self { kind, child, address, admin, folder: folder.to_owned() })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the gateway's admin side is.
    pub(crate) fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// CPU time that the process and its children have used so far, in user and system mode.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let own = self.child.id();
        let mut ticks = 0;
        let mut found = false;
        for entry in std::fs::read_dir("/proc")? {
            let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            // A process that ends while this reads is none of ours.
            let Ok(text) = std::fs::read_to_string(format!("/proc/{id}/stat")) else { continue };
            let stat = Stat::parse(&text).with_context(|| format!("/proc/{id}/stat: {text:?}"))?;
            if id == own || stat.parent == own {
                ticks += stat.ticks;
                found |= id == own;
            }
        }
        if !found {
            bail!("{} ended by itself: {}", self.kind.name(), self.last_words());
        }
        Ok(Duration::from_secs(ticks) / TICKS_PER_SECOND)
    }

    /// Ends it in order.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        let status = self.end()?;
        if !status.success() {
            bail!("{} ended with {status}: {}", self.kind.name(), self.last_words());
        }
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<std::process::ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        // SIGTERM to nginx's master ends its workers too; SIGKILL would leave them behind.
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        Ok(self.child.wait()?)
    }

    /// The end of what it wrote to its standard error.
    pub(crate) fn last_words(&self) -> String {
        let text = std::fs::read_to_string(self.folder.join("stderr")).unwrap_or_default();
        text.lines().rev().take(5).collect::<Vec<_>>().join(" | ")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // What keeps it from ending has been told by what failed before.
        self.end().ok();
    }
}

/// What of `/proc/PID/stat` counts here.
struct Stat {
    parent: u32,
    ticks: u64,
}

impl Stat {
    /// The second field is the program's name in parentheses and may hold anything, so the rest is read from its end:
    /// state, parent, …, and as 14th and 15th of all fields the user and system time.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self { parent: u32::try_from(number(1)?).ok()?, ticks: number(11)? + number(12)? })
    }
}

/// A port that was free a moment ago. Neither server can say which one it took before the load has to know.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// nginx that answers 200 by itself, or hands everything to `upstream` over kept connections.
fn nginx(folder: &Path, address: SocketAddr, upstream: Option<SocketAddr>) -> anyhow::Result<Command> {
    let (location, receiver) = match upstream {
        None => ("return 200;".to_owned(), String::new()),
        Some(upstream) => (
            "proxy_pass http://receiver; proxy_http_version 1.1; proxy_set_header Connection \"\";".to_owned(),
            format!("upstream receiver {{ server {upstream}; keepalive 64; keepalive_requests 1000000000; }}"),
        ),
    };
    let config = format!(
        "worker_processes auto;\n\
         daemon off;\n\
         pid nginx.pid;\n\
         error_log stderr warn;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n\
           access_log off;\n\
           client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;\n\
           uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
           keepalive_requests 1000000000;\n\
           server {{ listen {address} backlog=1024; location / {{ {location} }} }}\n\
           {receiver}\n\
         }}\n"
    );
    let path = folder.join("nginx.conf");
    std::fs::write(&path, config)?;
    // Debian keeps it where only root's PATH looks.
    let program = ["/usr/sbin/nginx", "/usr/local/sbin/nginx"].into_iter().find(|path| Path::new(path).exists());
    let mut command = Command::new(program.unwrap_or("nginx"));
    command.arg("-p").arg(folder).arg("-c").arg(path).args(["-e", "stderr"]);
    Ok(command)
}

/// The default configuration with one source. Without an upstream it is one that refuses connections, so that what is measured is
/// accepting.
fn fairlane(
    folder: &Path,
    (address, admin): (SocketAddr, SocketAddr),
    upstream: Option<SocketAddr>,
    more: &str,
) -> anyhow::Result<Command> {
    let upstream = upstream.map_or_else(|| "127.0.0.1:9".to_owned(), |upstream| upstream.to_string());
    let config = format!(
        "upstream: http://{upstream}\n\
         sources:\n\
         \x20 - path: {PATH}\n\
         \x20   verify: {{ provider: shopify, secret: \"{SECRET}\" }}\n\
         {more}"
    );
    let path = folder.join("gateway.yaml");
    std::fs::write(&path, config)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    command.arg("run").arg("-c").arg(path).args(["--admin", &admin.to_string(), "--listen", &address.to_string()]);
    command.arg("--data").arg(folder.join("data"));
    Ok(command)
}
