//! Building and ending: START-UP AND DRAIN ON ONE PAGE.
//!
//! Order at the start: configuration, sockets (so that a taken port is said at once, and clients queue while the store opens),
//! store, driver, admin, listener. Order at the end: not ready, stop accepting, answer what was read, let the driver finish, close
//! the store. A process that takes over from another one gets its sockets from there, and the other one ends in another order
//! ([`upgrade`]).

mod build;
mod checkup;
mod cluster;
mod descriptors;
mod explain;
mod files;
mod log;
mod notify;
mod open;
mod otlp;
mod place;
mod reload;
mod rules;
mod sockets;
mod token;
mod upgrade;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use crate::admin::tenant::{self, Tenants};
use crate::admin::{self, Access, Admin, Configuration, Ending};
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, Problem, Store, Whereabouts};
use crate::deliver::{Client, Fetcher, Outcome, Poster, Unfetched, relay};
use crate::driver::{self, Handle};
use crate::event::{Now, Wall};
use crate::listen::{Bound, Certificates, Fetch, Front, NoKey, Serving};
use crate::metrics::Metrics;
use crate::store::LaneStore;
use crate::store::notebook::Notebook;
pub use build::{Build, build};
pub use checkup::{Finding, Standing, checkup, damaged_notebooks};
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
use rules::{Rules, Unfit};
use sockets::{Handed, Sockets};
pub use token::FILE as TOKEN_FILE;
use upgrade::{Door, Predecessor, Way};

/// What people changed of groups, in the data folder; the driver's other notebooks lie beside it.
const OVERRIDES: &str = "overrides.json";

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
    /// A start or a reload may change the key of a source with `order` that has a backlog.
    pub accept_reorder: bool,
    /// Take the place of the gateway that runs over the same data folder, if there is one.
    pub upgrade: bool,
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

/// Serves until a signal ends it, or a successor takes over, and then ends in order.
///
/// # Errors
/// What kept it from beginning, or from ending well.
pub fn run(options: Options) -> Result<(), Failure> {
    // First of all: what a signal does by itself is to kill.
    let runtime = runtime()?;
    let inside = runtime.enter();
    let starting = Starting::watch().context("signals cannot be listened for")?;
    let (loaded, seen) = files::watched(&read, |files| options.load_through(files));
    let mut config = loaded.map_err(Failure::Configuration)?;
    let log = Log::init(&config.log);
    let descriptors = descriptors::raise();
    descriptors::suffice(descriptors)?;
    place::prepare(config.store.folder(), config.store.folder_field())?;
    if let Some(lowered) = descriptors::fit(&mut config, descriptors) {
        tracing::warn!("{lowered}");
    }
    let certificates = config.listen.tls.as_ref().map(Certificates::load).transpose().map_err(anyhow::Error::msg)?;
    let basis = Basis { options, config, log, seen, descriptors, certificates };
    let ended = serve(basis, &runtime, starting);
    drop(inside);
    // What is still open past the drain's deadline ends here, with the process.
    runtime.shutdown_background();
    ended.map_err(|error| match error.downcast::<Unfit>() {
        Ok(Unfit(problems)) => Failure::Configuration(problems),
        Err(error) => Failure::Other(error),
    })
}

/// What a run begins with that no other process can take away.
struct Basis {
    options: Options,
    config: Config,
    log: Log,
    /// What the configuration's files were before they were read.
    seen: Seen,
    /// How many files this process may open.
    descriptors: Option<usize>,
    certificates: Option<Arc<Certificates>>,
}

/// The same, and what is made of it before the store is opened.
struct Given {
    basis: Basis,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    client: Client,
}

impl Given {
    /// `metrics`: those of a run before in this process, which go on counting.
    fn new(basis: Basis, metrics: Option<&Arc<Metrics>>) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let metrics = match metrics {
            Some(metrics) => Arc::clone(metrics),
            None => Arc::new(Metrics::new(basis.config.store.durability())),
        };
        metrics.begin_attempts(Outcome::names());
        let client = Client::new(basis.config.deliver(), Arc::clone(&clock), Arc::clone(&metrics));
        let client = client.context("the upstream cannot be delivered to")?;
        Ok(Self { basis, clock, metrics, client })
    }
}

/// How a run ended.
enum End {
    /// For good.
    Over,
    /// A successor had the store and did not come to serve.
    Again(Box<Again>),
}

/// What the next run in this process begins with.
struct Again {
    given: Given,
    sockets: Sockets,
    /// What the one before has still to answer.
    leftover: JoinSet<()>,
}

/// Runs; once more, over the same sockets, each time that a successor did not come to serve.
fn serve(basis: Basis, runtime: &Runtime, starting: Starting) -> anyhow::Result<()> {
    let upgrade = basis.options.upgrade;
    let (given, sockets, predecessor) = if upgrade {
        take_over(basis, runtime)?
    } else {
        let sockets = Sockets::open(&basis.config, Handed::default())?;
        (Given::new(basis, None)?, sockets, None)
    };
    let mut running = Running::start(given, sockets, JoinSet::new(), Some(starting), runtime)?;
    match predecessor {
        Some(predecessor) => runtime.block_on(predecessor.dismiss()),
        None => notify::tell(notify::READY),
    }
    running.announce();
    loop {
        match runtime.block_on(running.until_the_end())? {
            End::Over => return Ok(()),
            End::Again(again) => {
                let Again { given, sockets, leftover } = *again;
                running = Running::start(given, sockets, leftover, None, runtime)?;
            }
        }
    }
}

/// The sockets of the gateway that runs, which has made way by then; new ones where none runs.
fn take_over(basis: Basis, runtime: &Runtime) -> anyhow::Result<(Given, Sockets, Option<Predecessor>)> {
    let given = Given::new(basis, None)?;
    runtime.block_on(upgrade::check(&given))?;
    let config = &given.basis.config;
    let folder = config.store.folder();
    let Some((mut predecessor, handed)) = runtime.block_on(Predecessor::find(folder))? else {
        open::is_free(&config.store).context(
            "nothing was replaced: the gateway that runs over this data offers no sockets (`upgrade.sock`): it is of an earlier version, or the \
             file system has none",
        )?;
        tracing::info!(folder = %folder.display(), "no gateway runs over this data folder: there is nothing to replace");
        let sockets = Sockets::open(config, Handed::default())?;
        return Ok((given, sockets, None));
    };
    let goes_on = || format!("nothing was replaced: process {} goes on as before", predecessor.process());
    let sockets = Sockets::open(config, handed).with_context(goes_on)?;
    runtime.block_on(predecessor.make_way())?;
    Ok((given, sockets, Some(predecessor)))
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
    /// Where a successor knocks, with the sockets that it would have.
    door: Door,
    /// Signals that ask for the configuration to be read again.
    hangup: Signal,
    /// Signals that end us.
    signals: Signals,
    /// The driver; ends when it is stopped.
    driver: JoinSet<()>,
    /// This node's seat among others; `None` where it is alone.
    membership: Option<Membership>,
    /// The admin listener, and the tenants'; they end when this is dropped,
    admin: JoinSet<()>,
    /// or in order.
    ending: Ending,
    /// Looks once whether the upstream is there.
    _probe: JoinSet<()>,
    /// Tells an operator; ends when this is dropped.
    alerts: JoinSet<()>,
    /// Moves what was kept here while Redis was away; ends when the store is closed.
    _spool: JoinSet<()>,
    /// Looks for a Redis that was away at the start.
    _arrival: JoinSet<()>,
    /// What a run before in this process has still to answer.
    _leftover: JoinSet<()>,
}

impl Running {
    /// `starting`: what signals do until the first run in this process accepts anything.
    fn start(
        given: Given,
        sockets: Sockets,
        leftover: JoinSet<()>,
        starting: Option<Starting>,
        runtime: &Runtime,
    ) -> anyhow::Result<Self> {
        let hangup = signal(SignalKind::hangup())?;
        let Given { basis, clock, metrics, mut client } = given;
        let Basis { options, config, log, seen, descriptors, certificates } = basis;
        let Sockets { listen: bound, admin: admin_listener, tenants: tenant_listener } = sockets.try_clone()?;
        let path = config.store.folder().to_owned();
        let durability = config.store.durability();
        let Opened { store, remote, spool } = runtime.block_on(open_store(&config.store, &clock, &metrics))?;
        let token = token::of(&config.admin, &path)?;
        let mut moving = JoinSet::new();
        if let Some(spool) = spool {
            moving.spawn(spool.run());
        }

        let mut arrival = JoinSet::new();
        if let (Some(redis), Store::Redis(settings)) = (&remote, &config.store)
            && !redis.is_begun()
        {
            arrival.spawn(open::look_for(Arc::clone(redis), (**settings).clone(), Arc::clone(&clock)));
        }
        let joining = match remote {
            Some(remote) => {
                let (clock, metrics) = (Arc::clone(&clock), Arc::clone(&metrics));
                let address = admin_listener.address()?;
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
            notebook: Notebook::at(path.join(OVERRIDES)),
            seed: rand::random(),
            cluster: membership.as_ref().map(|membership| Arc::clone(&membership.seat)).zip(told),
        })
        .map_err(anyhow::Error::msg)?;
        runtime.block_on(driver.recover()).context("the backlog cannot be taken up")?;
        let mut rules = Rules::open(Notebook::at(path.join(rules::FILE))).map_err(anyhow::Error::msg)?;
        runtime.block_on(rules.guard(&config, &options, &handle)).map_err(|refused| unfit(&options, refused))?;
        reload::show_sources(&handle, &config);
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

        // Until here nothing was accepted, and a signal ends us at once ([`Starting`]).
        let signals = Signals::new()?;
        drop(starting);
        let mut driver_task = JoinSet::new();
        driver_task.spawn(driver.run());
        let mut probe = JoinSet::new();
        probe.spawn(place::say_if_down(config.upstream.addresses.iter().map(|address| address.url.clone()).collect()));
        let mut alerts = JoinSet::new();
        alerts.spawn(driver::alerts::watch(handle.clone(), Poster::new().post()));
        let mut admin_task = JoinSet::new();
        let ending = Ending::not_yet();
        admin_task.spawn(admin::serve(Arc::clone(&admin), listener(&admin_listener)?, ending.clone()));
        if let (Some(tenants), Some(socket)) = (tenants.clone(), tenant_listener) {
            admin_task.spawn(tenant::serve(tenants, Arc::clone(&admin), listener(&socket)?, ending.clone()));
        }
        // What is accepted from here on is accepted by these.
        rules.remember(&config);
        let serving = crate::listen::start(Arc::clone(&front), bound, config.listen.h2c, certificates.as_ref())?;
        let door = Door::open(&path, sockets);
        let otlp = Otlp::start(handle.clone(), config.otlp.as_deref())?;
        let state = reload::State { options, config, rules, seen, descriptors, token, otlp, client };
        let reloader = Reloader::new(state, log, front, (admin, tenants), handle.clone(), certificates);
        Ok(Self {
            serving,
            handle,
            store,
            reloader,
            door,
            hangup,
            signals,
            driver: driver_task,
            membership,
            admin: admin_task,
            ending,
            _probe: probe,
            alerts,
            _spool: moving,
            _arrival: arrival,
            _leftover: leftover,
        })
    }

    /// Says on standard output where everything is. Supervisors and tests read the first line.
    fn announce(&self) {
        let text = self.door.with_sockets(|sockets| announcement(self.reloader.config(), sockets));
        let mut out = std::io::stdout().lock();
        if out.write_all(text.unwrap_or_default().as_bytes()).and_then(|()| out.flush()).is_err() {
            tracing::debug!("nobody reads standard output");
        }
    }

    /// Runs until a signal, a failure or a successor, then drains.
    async fn until_the_end(mut self) -> anyhow::Result<End> {
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        let signal = loop {
            tokio::select! {
                name = self.signals.end() => break name,
                // Whether the last batch is durable is unknown: no more 2xx, and a restart reads what is there.
                reason = self.store.poisoned() => anyhow::bail!("the store failed: {reason}"),
                _ = self.hangup.recv() => self.reloader.reload(true).await,
                _ = tick.tick() => self.reloader.reload(false).await,
                Some(ended) = self.driver.join_next() => {
                    anyhow::bail!("the delivery loop ended: {ended:?}");
                }
                Some(ended) = self.admin.join_next() => {
                    anyhow::bail!("the admin listener ended: {ended:?}");
                }
                successor = self.door.knock() => match self.make_way(successor).await {
                    Way::Clear(successor) => return self.hand_over(successor).await,
                    Way::Signal(name) => break name,
                    Way::Stays => {}
                },
            }
        };
        tracing::info!(signal, "ending: no new connections; requests that were read are answered");
        notify::tell(notify::STOPPING);
        let Self {
            serving,
            handle,
            store,
            reloader,
            door,
            driver,
            membership,
            hangup: _ignored,
            mut signals,
            admin: _serves_on,
            ending: _,
            _probe,
            alerts: _tell_on,
            _spool,
            _arrival,
            _leftover,
        } = self;
        // Nobody takes over any more, and who comes from now on is refused at once.
        drop(door.close());
        tokio::select! {
            ended = drain(serving, handle, store, driver, membership, reloader) => ended.map(|()| End::Over),
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
        tracing::warn!(
            within_s = within.as_secs_f64(),
            "some connections were still open at the end of shutdown.drain and were cut"
        );
    }
    if let Some(membership) = membership {
        membership.end(clean).await;
    }
    reloader.end().await;
    store.close().await.context("the store was not closed in order; it recovers at the next start")?;
    tracing::info!("ended");
    Ok(())
}

/// What is queued does not allow the file's rules.
fn unfit(options: &Options, refused: Vec<String>) -> anyhow::Error {
    let file = options.config.display().to_string();
    anyhow::Error::new(Unfit(refused.iter().map(|found| Problem::unfit(&file, "sources", found)).collect()))
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

/// What signals do before anything is served: the one for a reload nothing, for the files are looked at when it is, and each that ends us
/// does so at once. Nothing was accepted by then, and a store that is being opened is one that a crash may leave at any moment.
struct Starting {
    _ending: JoinSet<()>,
}

impl Starting {
    /// Listens until it is dropped.
    fn watch() -> std::io::Result<Self> {
        // Once it was listened for, it does not kill any more.
        drop(signal(SignalKind::hangup())?);
        let mut signals = Signals::new()?;
        let mut ending = JoinSet::new();
        ending.spawn(async move {
            let signal = signals.end().await;
            tracing::info!(signal, "ended before anything was served");
            std::process::exit(0);
        });
        Ok(Self { _ending: ending })
    }
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

/// The runtime's own handle of a socket.
fn listener(bound: &Bound) -> std::io::Result<tokio::net::TcpListener> {
    tokio::net::TcpListener::from_std(bound.listener().try_clone()?)
}

/// The tenants' side, with the address that it has in fact.
fn tenants(config: &Config, bound: Option<&Bound>, handle: &Handle) -> anyhow::Result<Option<Arc<Tenants>>> {
    let (Some(pages), Some(bound)) = (&config.tenant_pages, bound) else { return Ok(None) };
    let settings = tenant::Settings { address: bound.address()?, ..pages.clone() };
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

/// Where everything is, its first line for programs.
fn announcement(config: &Config, sockets: &Sockets) -> String {
    let at = |bound: &Bound| bound.address().map_or_else(|error| error.to_string(), |address| address.to_string());
    let scheme = if config.listen.tls.is_some() { "https" } else { "http" };
    let mut text = format!(
        "fairlane {} listening on {scheme}://{}, admin on http://{}, data in {}\n",
        env!("CARGO_PKG_VERSION"),
        at(&sockets.listen),
        at(&sockets.admin),
        config.store.folder().display()
    );
    for source in &config.sources {
        for sender in &source.senders {
            let key = sender.key.as_ref().map_or("no key rule: the fallback lane", |key| key.rule.text());
            text.push_str(&format!("  {}  {}  grouped by {key}\n", source.path.as_str(), sender.verifier.name()));
        }
    }
    if let Some(tenants) = &sockets.tenants {
        text.push_str(&format!("  tenants' pages on http://{}\n", at(tenants)));
    }
    text
}
