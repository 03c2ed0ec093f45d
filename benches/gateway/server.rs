//! The servers that are measured, each a child process (or a few) on a free port of the loopback.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::load::{PATH, SECRET};

/// Ticks a second of the times in `/proc/PID/stat` (proc(5), `sysconf(_SC_CLK_TCK)`): 100 on every Linux that Rust runs on.
const TICKS_PER_SECOND: u32 = 100;

/// Connections that a server may have: more than any part opens.
const CONNECTIONS_MAX: u32 = 10_000;

/// What the admin side of the gateway wants to hear.
pub(crate) const TOKEN: &str = "bench-token";

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

/// How a server is to be set up; by default it keeps or answers what it takes, over plain text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    /// Where events go on to.
    pub(crate) upstream: Option<SocketAddr>,
    /// A certificate and its key, both PEM files.
    pub(crate) tls: Option<(PathBuf, PathBuf)>,
    /// Further lines of the gateway's configuration.
    pub(crate) more: String,
}

impl Setup {
    /// Events go on to `upstream`.
    pub(crate) fn to(upstream: SocketAddr) -> Self {
        Self { upstream: Some(upstream), ..Self::default() }
    }
}

/// A server that runs; ended when dropped.
pub(crate) struct Server {
    name: &'static str,
    /// The one that answers first.
    children: Vec<Child>,
    address: SocketAddr,
    admin: Option<SocketAddr>,
    folder: PathBuf,
    tls: bool,
}

impl Server {
    /// Starts one that keeps its files in `folder`. It may need a moment until it answers.
    pub(crate) fn start(kind: Kind, folder: &Path, setup: &Setup) -> anyhow::Result<Self> {
        let address = free_address()?;
        let admin = (kind == Kind::Fairlane).then(free_address).transpose()?;
        let command = match admin {
            None => nginx(folder, address, setup)?,
            Some(admin) => fairlane(folder, address, admin, setup)?,
        };
        let mut server = Self::of(kind.name(), address, folder, [command])?;
        (server.admin, server.tls) = (admin, setup.tls.is_some());
        Ok(server)
    }

    /// Starts the processes that are one server together, and answers at `address`: the first of them.
    pub(crate) fn of(
        name: &'static str,
        address: SocketAddr,
        folder: &Path,
        commands: impl IntoIterator<Item = Command>,
    ) -> anyhow::Result<Self> {
        let mut server =
            Self { name, children: Vec::new(), address, admin: None, folder: folder.to_owned(), tls: false };
        let stderr = File::create(folder.join("stderr"))?;
        for mut command in commands {
            command.stdin(Stdio::null()).stdout(File::create(folder.join("stdout"))?).stderr(stderr.try_clone()?);
            let program = command.get_program().display().to_string();
            let child = command.spawn();
            server.children.push(
                child.with_context(|| {
                    format!("{program} cannot be started; `.ci/setup bench` installs what is needed")
                })?,
            );
        }
        Ok(server)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where requests go, with the scheme.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}{PATH}", if self.tls { "https" } else { "http" }, self.address)
    }

    /// Whether it speaks TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls
    }

    /// Where the gateway's admin side is.
    pub(crate) fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// CPU time that the processes and their children have used so far, in user and system mode.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let own: Vec<u32> = self.children.iter().map(Child::id).collect();
        let (mut ticks, mut found) = (0, 0);
        for entry in std::fs::read_dir("/proc")? {
            let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            // A process that ends while this reads is none of ours.
            let Ok(text) = std::fs::read_to_string(format!("/proc/{id}/stat")) else { continue };
            let stat = Stat::parse(&text).with_context(|| format!("/proc/{id}/stat: {text:?}"))?;
            if own.contains(&id) || own.contains(&stat.parent) {
                ticks += stat.ticks;
                found += usize::from(own.contains(&id));
            }
        }
        if found < own.len() {
            bail!("{} ended by itself: {}", self.name, self.last_words());
        }
        Ok(Duration::from_secs(ticks) / TICKS_PER_SECOND)
    }

    /// Bytes of memory that the process which answers has, as Linux counts them (`VmRSS`).
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        let id = self.children.first().map(Child::id).context("a server has a process")?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes: u64 =
            line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).context("no VmRSS")?;
        Ok(kilobytes * 1024)
    }

    /// Ends it in order.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        for index in 0..self.children.len() {
            let status = self.end(index)?;
            if !status.success() {
                bail!("{} ended with {status}: {}", self.name, self.last_words());
            }
        }
        Ok(())
    }

    /// Ends it as a power cut would, but for what the system still has to write.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        for child in &mut self.children {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    fn end(&mut self, index: usize) -> anyhow::Result<ExitStatus> {
        let child = self.children.get_mut(index).context("a server has that process")?;
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        // SIGTERM to nginx's master ends its workers too; SIGKILL would leave them behind.
        Command::new("kill").args(["-TERM", &child.id().to_string()]).status()?;
        Ok(child.wait()?)
    }

    /// The end of what it wrote to its standard error.
    pub(crate) fn last_words(&self) -> String {
        let text = std::fs::read_to_string(self.folder.join("stderr")).unwrap_or_default();
        text.lines().rev().take(5).collect::<Vec<_>>().join(" | ")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for index in 0..self.children.len() {
            // What keeps it from ending has been told by what failed before.
            self.end(index).ok();
        }
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
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// nginx that answers 200 by itself, or hands everything to its upstream over kept connections.
fn nginx(folder: &Path, address: SocketAddr, setup: &Setup) -> anyhow::Result<Command> {
    let (location, receiver) = match setup.upstream {
        None => ("return 200;".to_owned(), String::new()),
        Some(upstream) => (
            "proxy_pass http://receiver; proxy_http_version 1.1; proxy_set_header Connection \"\";".to_owned(),
            format!("upstream receiver {{ server {upstream}; keepalive 64; keepalive_requests 1000000000; }}"),
        ),
    };
    let (ssl, certificate) = match &setup.tls {
        None => ("", String::new()),
        Some((certificate, key)) => {
            ("ssl ", format!("ssl_certificate {}; ssl_certificate_key {};", certificate.display(), key.display()))
        }
    };
    let config = format!(
        "worker_processes auto;\n\
         worker_rlimit_nofile {files};\n\
         daemon off;\n\
         pid nginx.pid;\n\
         error_log stderr warn;\n\
         events {{ worker_connections {CONNECTIONS_MAX}; }}\n\
         http {{\n\
           access_log off;\n\
           client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;\n\
           uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
           client_max_body_size 30m;\n\
           keepalive_requests 1000000000;\n\
           server {{ listen {address} {ssl}backlog=8192; {certificate} location / {{ {location} }} }}\n\
           {receiver}\n\
         }}\n",
        files = 2 * CONNECTIONS_MAX,
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
fn fairlane(folder: &Path, address: SocketAddr, admin: SocketAddr, setup: &Setup) -> anyhow::Result<Command> {
    let upstream = setup.upstream.map_or_else(|| "127.0.0.1:9".to_owned(), |upstream| upstream.to_string());
    let tls = match &setup.tls {
        None => String::new(),
        Some((certificate, key)) => {
            format!("\x20 tls: {{ cert: \"{}\", key: \"{}\" }}\n", certificate.display(), key.display())
        }
    };
    // All connections come from one address, and thousands of them before the first request is verified.
    let config = format!(
        "listen:\n\
         {tls}\
         \x20 limits: {{ connections_per_ip: {CONNECTIONS_MAX} }}\n\
         admin: {{ token: \"{TOKEN}\" }}\n\
         upstream: http://{upstream}\n\
         sources:\n\
         \x20 - path: {PATH}\n\
         \x20   verify: {{ provider: shopify, secret: \"{SECRET}\" }}\n\
         {}",
        setup.more
    );
    let path = folder.join("gateway.yaml");
    std::fs::write(&path, config)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    command.arg("run").arg("-c").arg(path).args(["--admin", &admin.to_string(), "--listen", &address.to_string()]);
    command.arg("--data").arg(folder.join("data"));
    Ok(command)
}
