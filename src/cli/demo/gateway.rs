//! The gateway of the demo: this very program as `fairlane run`, a process of its own, its store in a folder that goes with the demo.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::traffic::PATH;

/// Slots: how many events the receiver works on at one time.
pub(super) const SLOTS: u32 = 16;

/// `store.embedded.min_free` of the demo; below twice as much the gateway begins to free space.
pub(super) const MIN_FREE_MIB: u64 = 256;

/// How long it may take to end once everything is delivered.
const END_LIMIT: Duration = Duration::from_secs(15);

/// How webhooks queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queues {
    /// A lane for each store, by the preset's natural key.
    Lanes,
    /// One for everybody: a plain queue, first in, first out.
    Shared,
}

/// The secrets of a run.
pub(super) struct Secrets {
    /// The provider's, which signs what stores post.
    pub(super) provider: String,
    /// The gateway's, which signs what it delivers.
    pub(super) delivery: String,
}

/// `gateway.yaml` of the demo.
fn configuration(upstream: SocketAddr, secrets: &Secrets, queues: Queues) -> String {
    let key = match queues {
        Queues::Lanes => "",
        Queues::Shared => "\n    key: const:everyone",
    };
    format!(
        "upstream:\n\
         \x20 url: http://{upstream}\n\
         \x20 concurrency: {SLOTS}\n\
         \x20 signing_secret: {}\n\
         groups:\n\
         \x20 # No cap: one store may have every slot that nobody else wants. Taking turns alone has to do.\n\
         \x20 defaults: {{ concurrency: {SLOTS} }}\n\
         sources:\n\
         \x20 - path: {PATH}\n\
         \x20   verify: {{ provider: shopify, secret: {} }}{key}\n\
         store:\n\
         \x20 embedded: {{ min_free: {MIN_FREE_MIB}MiB }}\n\
         log: {{ level: warn }}\n",
        secrets.delivery, secrets.provider
    )
}

/// A gateway that runs; ended when dropped.
pub(super) struct Gateway {
    child: Child,
    pub(super) address: SocketAddr,
    log: PathBuf,
    _stdout: BufReader<ChildStdout>,
}

impl Gateway {
    /// Starts one that keeps its files in `folder` and delivers to `upstream`; it takes events when this returns.
    pub(super) fn start(
        folder: &Path,
        upstream: SocketAddr,
        secrets: &Secrets,
        queues: Queues,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let (config, log) = (folder.join("gateway.yaml"), folder.join("log"));
        std::fs::write(&config, configuration(upstream, secrets, queues))
            .with_context(|| format!("cannot write {}", config.display()))?;
        let program = std::env::current_exe().context("this program's own file cannot be found")?;
        let mut command = Command::new(&program);
        command.arg("run").arg("-c").arg(&config).arg("--data").arg(folder.join("data"));
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.args(["--end-with", &std::process::id().to_string()]);
        // In a process group of its own: Ctrl-C is for us, and we end it.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        // Sockets handed to us are not its.
        command.env_remove("LISTEN_FDS").env_remove("LISTEN_PID");
        let mut child = command.spawn().with_context(|| format!("{} cannot be started", program.display()))?;
        let mut stdout = BufReader::new(child.stdout.take().context("the gateway's output cannot be read")?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let Some(address) = address(&line) else {
            let status = ended(&mut child)?;
            bail!("the gateway did not start ({status}){}", last_words(&log));
        };
        Ok(Self { child, address, log, _stdout: stdout })
    }

    /// Fails if it has ended by itself.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the gateway ended in the middle of it ({status}){}", last_words(&self.log));
        }
        Ok(())
    }

    /// Ends it in order, what is in flight included.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).context("the gateway cannot be ended")?;
        let wait = async {
            loop {
                if let Some(status) = self.child.try_wait()? {
                    return anyhow::Ok(status);
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let status = tokio::time::timeout(END_LIMIT, wait)
            .await
            .with_context(|| format!("the gateway did not end within {} s", END_LIMIT.as_secs()))??;
        if !status.success() {
            bail!("the gateway did not end in order ({status}){}", last_words(&self.log));
        }
        Ok(())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Its folder goes next, so it has to be gone. Where it has ended already both calls fail, as they may.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// `fairlane 0.1.0 listening on http://ADDRESS, admin on …`
fn address(line: &str) -> Option<SocketAddr> {
    let rest = line.split_once(" listening on http://")?.1;
    rest.split_once(',')?.0.parse().ok()
}

fn ended(child: &mut Child) -> std::io::Result<ExitStatus> {
    child.kill()?;
    child.wait()
}

/// The end of its log, for a message.
fn last_words(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(3).collect();
    lines.iter().rev().map(|line| format!("\n  {}", line.escape_debug())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_stands_in_the_first_line() {
        let line = "fairlane 0.1.0 listening on http://127.0.0.1:4711, admin on http://127.0.0.1:4712, data in /x\n";
        assert_eq!(address(line), Some("127.0.0.1:4711".parse().unwrap()));
        assert_eq!(address(""), None);
    }

    #[test]
    fn both_configurations_are_right_and_differ_in_the_key_alone() {
        let secrets = Secrets { provider: "hush".into(), delivery: "whsec_ZGVtbw==".into() };
        let no_file = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        let load = |queues| {
            let text = configuration("127.0.0.1:9".parse().unwrap(), &secrets, queues);
            crate::config::load(&text, "gateway.yaml", &|_| None, &no_file).unwrap()
        };
        let (lanes, shared) = (load(Queues::Lanes), load(Queues::Shared));
        assert_eq!(lanes.groups.defaults.concurrency, shared.groups.defaults.concurrency);
        assert_eq!(lanes.upstream.concurrency, SLOTS);
        let keys = |config: &crate::config::Config| {
            config
                .sources
                .iter()
                .filter_map(|source| Some(source.senders.first()?.key.as_ref()?.rule.text().to_owned()))
                .collect::<Vec<_>>()
        };
        assert!(keys(&lanes).iter().all(|key| key.contains("shop-domain")), "{:?}", keys(&lanes));
        assert_eq!(keys(&shared), ["const:everyone"]);
    }
}
