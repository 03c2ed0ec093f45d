//! Building and ending: START-UP AND DRAIN ON ONE PAGE.
//!
//! Order at the start: configuration, sockets (so that a taken port is said at once, and clients queue while the store opens),
//! store, driver, admin, listener. Order at the end: not ready, stop accepting, answer what was read, let the driver finish, close
//! the store.

mod build;
mod checkup;
mod cluster;
mod descriptors;
mod explain;
mod files;
mod log;
mod open;
mod otlp;
mod place;
mod reload;
mod token;

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use crate::admin::tenant::{self, Tenants};
use crate::admin::{self, Access, Admin, Configuration};
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, Problem, Whereabouts};
use crate::deliver::{Client, Fetcher, Outcome, Poster, Unfetched, relay};
use crate::driver::{self, Handle};
use crate::event::{Now, Wall};
use crate::listen::{Bound, Certificates, Fetch, Front, NoKey, Serving};
use crate::metrics::Metrics;
use crate::store::LaneStore;
use crate::store::notebook::Notebook;
pub use build::{Build, build};
pub use checkup::{Finding, Standing, checkup};
pub use explain::{Examined, Explanation, Refusal, Treatment, Via, explain};
use files::Seen;
pub use files::{read, unreadable};
// The command line has no other way to the store, nor to the router and the policies of a file.
pub use crate::driver::FilePolicies;
pub use crate::listen::route::{Pattern, Router};
pub use crate::store::arrivals::{Arrivals, arrivals};
pub use crate::store::doctor::{Damage, DoctorReport, Tail, doctor};

use cluster::Membership;
use log::Log;
use open::{Opened, open_store};
use otlp::Otlp;
use reload::Reloader;
pub use token::FILE as TOKEN_FILE;

/// What the command line says about a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The configuration file.
    pub config: PathBuf,
    /// Instead of `listen.address`.
    pub listen: Option<SocketAddr>,
    /// Instead of `admin.address`.
    pub admin: Option<SocketAddr>,
    /// Instead of `store.embedded.path`, or of `store.redis.spool` as the node's folder.
    pub data: Option<PathBuf>,
    /// A reload may remove a source that has a backlog.
    pub accept_removal: bool,
    /// A reload may change the key of a source with `order` that has a backlog.
    pub accept_reorder: bool,
}

/// Why a run did not begin, or did not end well.
#[derive(Debug)]
pub enum Failure {
    /// The configuration has problems.
    Configuration(Vec<Problem>),
    /// Something outside is not as it has to be.
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl Options {
    /// Reads the configuration and puts the command line's values over it.
    ///
    /// # Errors
    /// All problems of the file, or that it cannot be read.
    pub fn load(&self) -> Result<Config, Vec<Problem>> {
        self.load_through(&read)
    }

    /// [`Self::load`] with files read by `files`.
    fn load_through(&self, files: &dyn Fn(&Path) -> std::io::Result<String>) -> Result<Config, Vec<Problem>> {
        let name = self.config.display().to_string();
        let text = files(&self.config).map_err(|error| vec![unreadable(&self.config, &error)])?;
        let environment = |name: &str| std::env::var(name).ok();
        let mut config = crate::config::load(&text, &name, &environment, files)?;
        if let Some(address) = self.listen {
            config.listen.address = address;
        }
        if let Some(address) = self.admin {
            config.admin.address = address;
        }
        if let Some(path) = &self.data {
            config.store.set_folder(path.clone());
        }
        Ok(config)
    }

    /// Where the gateway of this configuration is, the command line's values over the file's. With both of them the file may be
    /// missing.
    ///
    /// # Errors
    /// The problems of the file as far as they concern that, or that it cannot be read.
    pub fn whereabouts(&self) -> Result<Whereabouts, Vec<Problem>> {
        if let (Some(admin), Some(data)) = (self.admin, &self.data)
            && !self.config.exists()
        {
            return Ok(Whereabouts { admin, token: None, data: data.clone() });
        }
        let name = self.config.display().to_string();
        let text = read(&self.config).map_err(|error| vec![unreadable(&self.config, &error)])?;
        let environment = |name: &str| std::env::var(name).ok();
        let mut found = crate::config::whereabouts(&text, &name, &environment, &read)?;
        found.admin = self.admin.unwrap_or(found.admin);
        if let Some(data) = &self.data {
            found.data.clone_from(data);
        }
        Ok(found)
    }
}

/// The wall clock, for commands that stamp what they send.
#[must_use]
pub fn wall() -> Wall {
    now().wall
}

/// Both clocks, for commands that also measure.
#[must_use]
pub fn now() -> Now {
    SystemClock.now()
}

/// Asks the system for as many files and sockets as it allows; the answer is how many that is, `None` for any number.
#[must_use]
pub fn raise_descriptors() -> Option<usize> {
    descriptors::raise()
}

/// Has this process end, as if it were told to (SIGTERM), as soon as the process `parent`, which started it, is gone.
///
/// # Errors
/// `parent` did not start it, or is gone already; or what the system says.
pub fn end_with(parent: u32) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    // Only now: one that went before would not be noticed any more.
    let found = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    anyhow::ensure!(found == Some(parent), "process {parent}, which should have started this one, is gone");
    Ok(())
}

/// Serves until a signal ends it, and then in order.
///
/// # Errors
/// What kept it from beginning, or from ending well.
pub fn run(options: Options) -> Result<(), Failure> {
    let (loaded, seen) = files::watched(&read, |files| options.load_through(files));
    let mut config = loaded.map_err(Failure::Configuration)?;
    let log = Log::init(&config.log);
    let descriptors = descriptors::raise();
    descriptors::suffice(descriptors)?;
    place::prepare(config.store.folder(), config.store.folder_field())?;
    if let Some(lowered) = descriptors::fit(&mut config, descriptors) {
        tracing::warn!("{lowered}");
    }
    let runtime = runtime()?;
    let _inside = runtime.enter();
    let running = Running::start(options, config, log, seen, descriptors, &runtime)?;
    let ended = runtime.block_on(running.until_the_end());
    // What is still open past the drain's deadline ends here, with the process.
    runtime.shutdown_background();
    Ok(ended?)
}

/// One runtime for everything. A thread less than there are cores: the store writes on one of its own.
fn runtime() -> anyhow::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(cores.saturating_sub(1).max(1)).thread_name("fairlane").enable_all();
    builder.build().context("the runtime cannot be started")
}

/// Everything that runs.
struct Running {
    serving: Serving,
    handle: Handle,
    store: Arc<dyn LaneStore>,
    reloader: Reloader,
    /// Signals that ask for the configuration to be read again.
    hangup: Signal,
    /// Signals that end us.
    signals: Signals,
    /// The driver; ends when it is stopped.
    driver: JoinSet<()>,
    /// This node's seat among others; `None` where it is alone.
    membership: Option<Membership>,
    /// The admin listener, and the tenants'; they end when this is dropped.
    admin: JoinSet<()>,
    /// Looks once whether the upstream is there.
    _probe: JoinSet<()>,
    /// Tells an operator; ends when this is dropped.
    _alerts: JoinSet<()>,
    /// Moves what was kept here while Redis was away; ends when the store is closed.
    _spool: JoinSet<()>,
}

impl Running {
    fn start(
        options: Options,
        config: Config,
        log: Log,
        seen: Seen,
        descriptors: Option<usize>,
        runtime: &Runtime,
    ) -> anyhow::Result<Self> {
        // From the first moment: what a signal does by itself is to kill.
        let hangup = signal(SignalKind::hangup())?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let certificates =
            config.listen.tls.as_ref().map(Certificates::load).transpose().map_err(anyhow::Error::msg)?;
        let (bound, admin_listener) = bind(&config)?;
        let tenant_listener = bind_tenants(&config)?;
        let path = config.store.folder().to_owned();
        let durability = config.store.durability();
        let metrics = Arc::new(Metrics::new(durability));
        let Opened { store, remote, spool } = runtime.block_on(open_store(&config.store, &clock, &metrics))?;
        let token = token::of(&config.admin, &path)?;
        let mut moving = JoinSet::new();
        if let Some(spool) = spool {
            moving.spawn(spool.run());
        }

        metrics.begin_attempts(Outcome::names());
        let client = Client::new(config.deliver(), Arc::clone(&clock), Arc::clone(&metrics));
        let mut client = client.context("the upstream cannot be delivered to")?;
        let joining = match remote {
            Some(remote) => {
                let (clock, metrics) = (Arc::clone(&clock), Arc::clone(&metrics));
                let address = admin_listener.local_addr()?;
                runtime.block_on(cluster::join(&config, remote, &token, address, clock, metrics))?
            }
            None => None,
        };
        let (membership, told) = joining.map(cluster::Joining::begin).unzip();
        if let Some(membership) = &membership {
            client = client.gated(membership.may_send());
        }
        let (mut driver, handle) = driver::new(driver::Parts {
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            metrics,
            deliver: client.clone().deliver(),
            settings: config.engine(),
            policies: config.policies(),
            notebook: Notebook::at(path.join("overrides.json")),
            seed: rand::random(),
            cluster: membership.as_ref().map(|membership| Arc::clone(&membership.seat)).zip(told),
        })
        .map_err(anyhow::Error::msg)?;
        runtime.block_on(driver.recover()).context("the backlog cannot be taken up")?;
        handle.set_sources(reload::infos(&config));
        handle.set_addresses(client.addresses());
        handle.alerts().replace(config.alerts.clone());
        let front = Arc::new(Front::new(
            config.listen.clone(),
            config.sources.clone(),
            handle.clone(),
            Arc::clone(&clock),
            fetch(Fetcher::new(Arc::clone(&clock), Arc::clone(handle.metrics()))),
            rand::random(),
        ));
        let access = access(&config, &token);
        let (shown, addressed) = (Arc::clone(&front), handle.clone());
        let tenants = tenants(&config, tenant_listener.as_ref(), &handle)?;
        let refresh = Box::new(move || {
            shown.show_sizes();
            addressed.show_addresses();
        });
        let told = (handle.clone(), Notebook::at(path.join("audit.json")));
        let admin = Admin::new(access, durability, told, tenants.clone(), refresh);
        admin.show_configuration(configuration(&config));
        if let Some(membership) = &membership {
            admin.join(Arc::clone(&membership.seat), relay());
        }

        // Until here nothing was accepted, and a signal may end us at once.
        let signals = Signals::new()?;
        let addresses = (bound.address()?, admin_listener.local_addr()?);
        announce(&config, addresses, tenant_listener.as_ref());
        let mut driver_task = JoinSet::new();
        driver_task.spawn(driver.run());
        let mut probe = JoinSet::new();
        probe.spawn(place::say_if_down(config.upstream.addresses.iter().map(|address| address.url.clone()).collect()));
        let mut alerts = JoinSet::new();
        alerts.spawn(driver::alerts::watch(handle.clone(), Poster::new().post()));
        let mut admin_task = JoinSet::new();
        admin_task.spawn(admin::serve(Arc::clone(&admin), tokio::net::TcpListener::from_std(admin_listener)?));
        if let (Some(tenants), Some(listener)) = (tenants.clone(), tenant_listener) {
            admin_task.spawn(tenant::serve(tenants, Arc::clone(&admin), tokio::net::TcpListener::from_std(listener)?));
        }
        let serving = crate::listen::start(Arc::clone(&front), bound, config.listen.h2c, certificates.as_ref())?;
        let otlp = Otlp::start(handle.clone(), config.otlp.as_deref())?;
        let state = reload::State { options, config, seen, descriptors, token, otlp, client };
        let reloader = Reloader::new(state, log, front, (admin, tenants), handle.clone(), certificates);
        Ok(Self {
            serving,
            handle,
            store,
            reloader,
            hangup,
            signals,
            driver: driver_task,
            membership,
            admin: admin_task,
            _probe: probe,
            _alerts: alerts,
            _spool: moving,
        })
    }

    /// Runs until a signal or a failure, then drains.
    async fn until_the_end(mut self) -> anyhow::Result<()> {
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        let poisoned = loop {
            tokio::select! {
                name = self.signals.end() => {
                    tracing::info!(signal = name, "ending: no new connections; requests that were read are answered");
                    break None;
                }
                reason = self.store.poisoned() => break Some(reason),
                _ = self.hangup.recv() => self.reloader.reload(true).await,
                _ = tick.tick() => self.reloader.reload(false).await,
                Some(ended) = self.driver.join_next() => {
                    anyhow::bail!("the delivery loop ended: {ended:?}");
                }
                Some(ended) = self.admin.join_next() => {
                    anyhow::bail!("the admin listener ended: {ended:?}");
                }
            }
        };
        if let Some(reason) = poisoned {
            // Whether the last batch is durable is unknown: no more 2xx, and a restart reads what is there.
            anyhow::bail!("the store failed: {reason}");
        }
        let Self {
            serving,
            handle,
            store,
            reloader,
            driver,
            membership,
            hangup: _ignored,
            mut signals,
            admin: _serves_on,
            _probe,
            _alerts,
            _spool,
        } = self;
        tokio::select! {
            ended = drain(serving, handle, store, driver, membership, reloader) => ended,
            name = signals.end() => anyhow::bail!("a second signal ({name}): ended at once"),
        }
    }
}

async fn drain(
    serving: Serving,
    handle: Handle,
    store: Arc<dyn LaneStore>,
    mut driver: JoinSet<()>,
    membership: Option<Membership>,
    reloader: Reloader,
) -> anyhow::Result<()> {
    let within = reloader.drain();
    handle.begin_drain();
    if let Some(membership) = &membership {
        membership.seat.begin_leave();
    }
    let finish = async {
        serving.drain().await;
        handle.stop().await;
        while driver.join_next().await.is_some() {}
    };
    let clean = tokio::time::timeout(within, finish).await.is_ok();
    if !clean {
        tracing::warn!(?within, "some connections were still open at the end of shutdown.drain and were cut");
    }
    if let Some(membership) = membership {
        membership.end(clean).await;
    }
    reloader.end().await;
    store.close().await.context("the store was not closed in order; it recovers at the next start")?;
    tracing::info!("ended");
    Ok(())
}

/// The way to providers' keys.
fn fetch(fetcher: Fetcher) -> Fetch {
    let in_words = |error: Unfetched| match error {
        Unfetched::NotThere { .. } => NoKey::NotThere(error.to_string()),
        Unfetched::Failed(problem) => NoKey::Failed(problem),
    };
    Arc::new(move |url| {
        let fetching = fetcher.fetch(url);
        Box::pin(async move { fetching.await.map_err(in_words) })
    })
}

/// The signals that end us.
struct Signals {
    term: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn end(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Both sockets: those that were handed to us (`LISTEN_FDS`: senders first, then admin), else new ones.
fn bind(config: &Config) -> anyhow::Result<(Bound, TcpListener)> {
    let mut inherited = listenfd::ListenFd::from_env();
    let mut take = |index| -> anyhow::Result<Option<TcpListener>> {
        if index < inherited.len() {
            inherited.take_tcp_listener(index).with_context(|| format!("inherited socket {index} cannot be used"))
        } else {
            Ok(None)
        }
    };
    let bound = match take(0)? {
        Some(listener) => Bound::inherit(listener)?,
        None => Bound::bind(config.listen.address)
            .map_err(|error| place::taken(&error, "listen.address or --listen", config.listen.address))?,
    };
    let admin = match take(1)? {
        Some(listener) => listener,
        None => TcpListener::bind(config.admin.address)
            .map_err(|error| place::taken(&error, "admin.address or --admin", config.admin.address))?,
    };
    admin.set_nonblocking(true)?;
    Ok((bound, admin))
}

/// The tenants' socket, where they have pages.
fn bind_tenants(config: &Config) -> anyhow::Result<Option<TcpListener>> {
    let Some(pages) = &config.tenant_pages else { return Ok(None) };
    let listener = TcpListener::bind(pages.address)
        .map_err(|error| place::taken(&error, "tenant_pages.address", pages.address))?;
    listener.set_nonblocking(true)?;
    Ok(Some(listener))
}

/// The tenants' side, with the address that it has in fact.
fn tenants(config: &Config, listener: Option<&TcpListener>, handle: &Handle) -> anyhow::Result<Option<Arc<Tenants>>> {
    let (Some(pages), Some(listener)) = (&config.tenant_pages, listener) else { return Ok(None) };
    let settings = tenant::Settings { address: listener.local_addr()?, ..pages.clone() };
    Ok(Some(Tenants::new(settings, handle.clone())))
}

/// The configuration as the admin side shows it.
fn configuration(config: &Config) -> Configuration {
    Configuration { yaml: config.effective.clone(), json: config.json() }
}

fn access(config: &Config, token: &crate::event::Secret) -> Access {
    let token = config.admin.token.clone().unwrap_or_else(|| token.clone());
    Access { hosts: config.admin.hosts.clone(), token, open_metrics: config.admin.open_metrics }
}

/// Says on standard output where everything is. Supervisors and tests read the first line.
fn announce(config: &Config, (listen, admin): (SocketAddr, SocketAddr), tenants: Option<&TcpListener>) {
    let scheme = if config.listen.tls.is_some() { "https" } else { "http" };
    let mut text = format!(
        "fairlane {} listening on {scheme}://{listen}, admin on http://{admin}, data in {}\n",
        env!("CARGO_PKG_VERSION"),
        config.store.folder().display()
    );
    for source in &config.sources {
        for sender in &source.senders {
            let key = sender.key.as_ref().map_or("no key rule: the fallback lane", |key| key.rule.text());
            text.push_str(&format!("  {}  {}  grouped by {key}\n", source.path.as_str(), sender.verifier.name()));
        }
    }
    if let Some(address) = tenants.and_then(|listener| listener.local_addr().ok()) {
        text.push_str(&format!("  tenants' pages on http://{address}\n"));
    }
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        tracing::debug!("nobody reads standard output");
    }
}
