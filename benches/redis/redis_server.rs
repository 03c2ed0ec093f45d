//! The redis-server that is measured: a child process on a free port, with a folder of its own; and what it says of itself.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use redis::Connection;

/// How long it may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A redis-server; ended when dropped.
pub(crate) struct Redis {
    child: Child,
    url: String,
}

/// What a server has done so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    /// CPU time of its process.
    pub(crate) cpu: Duration,
    /// Calls by command, those made within scripts with them.
    pub(crate) calls: BTreeMap<String, u64>,
}

impl Redis {
    /// One that is as durable as the default `ack: aof` asks for: it syncs each write before it answers.
    pub(crate) fn start(folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsave \"\"\nappendonly yes\nappendfsync always\nmaxmemory-policy noeviction\n",
            folder.display()
        );
        let file = folder.join("redis.conf");
        std::fs::write(&file, text)?;
        let child = Command::new("redis-server").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.context("redis-server cannot be started; `.ci/setup` installs it")?;
        let redis = Self { child, url: format!("redis://127.0.0.1:{port}") };
        redis.wait_until_it_answers()?;
        Ok(redis)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn connect(&self) -> anyhow::Result<Connection> {
        Ok(redis::Client::open(self.url())?.get_connection()?)
    }

    fn wait_until_it_answers(&self) -> anyhow::Result<()> {
        let pause = Duration::from_millis(20);
        for _ in 0..START_LIMIT.as_millis() / pause.as_millis() {
            let pong =
                self.connect().and_then(|mut connection| Ok(redis::cmd("PING").query::<String>(&mut connection)?));
            if pong.is_ok() {
                return Ok(());
            }
            std::thread::park_timeout(pause);
        }
        bail!("redis-server did not answer within {START_LIMIT:?}")
    }

    fn info(&self, section: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let text: String = redis::cmd("INFO").arg(section).query(&mut self.connect()?)?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        Ok(lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    }

    pub(crate) fn version(&self) -> anyhow::Result<String> {
        Ok(self.info("server")?.remove("redis_version").unwrap_or_default())
    }

    /// What it has done since its start.
    pub(crate) fn work(&self) -> anyhow::Result<Work> {
        let cpu = self.info("cpu")?;
        let seconds = |name: &str| cpu.get(name).and_then(|value| value.parse::<f64>().ok()).unwrap_or(0.0);
        let calls = self.info("commandstats")?.into_iter().filter_map(|(name, value)| {
            let calls = value.strip_prefix("calls=")?.split(',').next()?.parse().ok()?;
            Some((name.strip_prefix("cmdstat_")?.to_owned(), calls))
        });
        Ok(Work {
            cpu: Duration::from_secs_f64(seconds("used_cpu_user") + seconds("used_cpu_sys")),
            calls: calls.collect(),
        })
    }
}

impl Work {
    /// What was done since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let count = |(name, calls): (&String, &u64)| {
            (name.clone(), calls.saturating_sub(before.calls.get(name).copied().unwrap_or(0)))
        };
        Self { cpu: self.cpu.saturating_sub(before.cpu), calls: self.calls.iter().map(count).collect() }
    }

    pub(crate) fn of(&self, command: &str) -> u64 {
        self.calls.get(command).copied().unwrap_or(0)
    }

    /// All calls, those within scripts with them.
    pub(crate) fn all(&self) -> u64 {
        self.calls.values().sum()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // What it stored is thrown away with its folder.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
