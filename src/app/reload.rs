//! A changed configuration, applied live: whole or not at all.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::files::{Seen, read_again, watched};
use super::log::Log;
use super::otlp::Otlp;
use super::rules::{Rules, has_backlog};
use super::{Basis, Options, access, descriptors};
use crate::admin::Admin;
use crate::admin::tenant::Tenants;
use crate::config::{Config, Problem};
use crate::deliver::Client;
use crate::driver::{Handle, SourceInfo};
use crate::event::Secret;
use crate::listen::{Certificates, Front, Sender, Source};

/// Keeps what runs equal to what the file says.
pub(super) struct Reloader {
    options: Options,
    config: Config,
    /// The rules that queued events were taken by.
    rules: Rules,
    /// What the files were when they were last read, whether they could be applied or not.
    seen: Seen,
    /// What was read last was not applied.
    refused: bool,
    /// How many files this process may open.
    descriptors: Option<usize>,
    log: Log,
    front: Arc<Front>,
    admin: Arc<Admin>,
    tenants: Option<Arc<Tenants>>,
    handle: Handle,
    certificates: Option<Arc<Certificates>>,
    /// What was last said about certificates that cannot be used, so that it is said once.
    complaint: Option<String>,
    token: Secret,
    otlp: Otlp,
    client: Client,
    /// Asks the upstream's addresses how they are; ends when this is dropped.
    watch: JoinSet<()>,
}

/// What a run began with.
pub(super) struct State {
    pub(super) options: Options,
    pub(super) config: Config,
    pub(super) rules: Rules,
    /// What its files were before they were read.
    pub(super) seen: Seen,
    /// How many files this process may open.
    pub(super) descriptors: Option<usize>,
    pub(super) token: Secret,
    pub(super) otlp: Otlp,
    pub(super) client: Client,
}

impl Reloader {
    pub(super) fn new(
        state: State,
        log: Log,
        front: Arc<Front>,
        (admin, tenants): (Arc<Admin>, Option<Arc<Tenants>>),
        handle: Handle,
        certificates: Option<Arc<Certificates>>,
    ) -> Self {
        let State { options, config, rules, seen, descriptors, token, otlp, client } = state;
        let mut watch = JoinSet::new();
        watch.spawn(client.watch());
        Self {
            options,
            config,
            rules,
            seen,
            refused: false,
            descriptors,
            log,
            front,
            admin,
            tenants,
            handle,
            certificates,
            complaint: None,
            token,
            otlp,
            client,
            watch,
        }
    }

    /// What was done is told to the collector, and nothing further. The answer is what another run in this process would begin with.
    pub(super) async fn end(self) -> Basis {
        let Self { options, config, log, seen, descriptors, certificates, otlp, .. } = self;
        otlp.end().await;
        Basis { options, config, log, seen, descriptors, certificates }
    }

    /// What is in force.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// How long a drain may take.
    pub(super) fn drain(&self) -> Duration {
        self.config.drain
    }

    /// Reads the files again where they changed, or when `asked` for it.
    pub(super) async fn reload(&mut self, asked: bool) {
        self.certificates();
        if !asked && !self.seen.is_stale() {
            return;
        }
        let was_refused = self.refused;
        let applied = self.apply().await;
        self.refused = applied.is_err();
        match applied {
            Ok(changes) => {
                self.handle.metrics().config_ok.set(1);
                if asked || was_refused || !changes.is_empty() {
                    tracing::info!(changes = changes.join("; "), "configuration applied");
                }
            }
            Err(problems) => {
                self.handle.metrics().config_ok.set(0);
                tracing::error!("the configuration was not applied; what ran before goes on:\n{}", problems.join("\n"));
            }
        }
    }

    async fn apply(&mut self) -> Result<Vec<String>, Vec<String>> {
        let in_words = |problems: Vec<Problem>| problems.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (loaded, seen) = watched(&read_again, |files| self.options.load_through(files));
        let before = std::mem::take(&mut self.seen);
        self.seen = if loaded.is_ok() { seen } else { seen.and(before) };
        let mut new = loaded.map_err(in_words)?;
        if let Some(lowered) = descriptors::fit(&mut new, self.descriptors) {
            tracing::warn!("{lowered}");
        }
        let mut changes = crate::config::reload(&self.config, &new)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        self.guard_backlogs(&new).await?;
        if let (Some(certificates), Some(files)) = (&self.certificates, &new.listen.tls) {
            certificates.replace(files).map_err(|error| vec![error])?;
        }
        if self.config.upstream.tls != new.upstream.tls && !changes.iter().any(|line| line.starts_with("upstream.tls"))
        {
            changes.push("upstream.tls: the files have changed; new connections use what they hold now".to_owned());
        }
        let client = self.client.successor(new.deliver()).map_err(|error| vec![error.to_string()])?;
        let collector = self.otlp.other(new.otlp.as_deref()).map_err(|error| vec![format!("{error:#}")])?;
        let reloaded = self.handle.reload(new.engine(), new.policies(), client.clone().deliver()).await;
        reloaded.map_err(|error| vec![error.to_string()])?;
        self.follow(client);
        self.rules.remember(&new);
        show_sources(&self.handle, &new);
        self.handle.alerts().replace(new.alerts.clone());
        self.front.replace(new.listen.clone(), new.sources.clone());
        self.admin.replace(access(&new, &self.token));
        self.admin.show_configuration(super::configuration(&new));
        if let (Some(tenants), Some(pages)) = (&self.tenants, &new.tenant_pages) {
            tenants.replace(pages.clone());
        }
        self.log.replace(&new.log);
        self.otlp.replace(new.otlp.as_deref(), collector);
        self.config = new;
        Ok(changes)
    }

    /// Has another client, and its addresses watched in place of the old one's.
    fn follow(&mut self, client: Client) {
        self.watch.abort_all();
        self.watch.spawn(client.watch());
        self.handle.set_addresses(client.addresses());
        self.client = client;
    }

    /// Refuses what would leave queued events without their source, or out of their order.
    async fn guard_backlogs(&self, new: &Config) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        for old in self.config.sources.iter().filter(|_| !self.options.accept_removal) {
            let name = &old.name;
            if new.sources.iter().any(|source| source.name == *name) {
                continue;
            }
            match has_backlog(&self.handle, name).await {
                Ok(false) => {}
                Ok(true) => problems.push(format!(
                    "source {name} has a backlog and cannot be removed: drain it, or start with --accept-removal"
                )),
                Err(error) => problems.push(format!("whether source {name} has a backlog could not be read: {error}")),
            }
        }
        if let Err(reordered) = self.rules.guard(new, &self.options, &self.handle).await {
            problems.extend(reordered);
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn certificates(&mut self) {
        let Some(certificates) = &self.certificates else { return };
        let complaint = match certificates.reload() {
            Ok(true) => {
                tracing::info!("new certificates are in use");
                None
            }
            Ok(false) => None,
            Err(error) => Some(error),
        };
        if let Some(error) = complaint.as_ref().filter(|error| self.complaint.as_ref() != Some(error)) {
            tracing::warn!(error, "the certificates on disk cannot be used; the old ones stay");
        }
        self.complaint = complaint;
    }
}

/// Shows what is served; what is held and served no more is said, for nobody would look for it.
pub(super) fn show_sources(handle: &Handle, config: &Config) {
    handle.set_sources(infos(config));
    for source in handle.sources_gone() {
        if let Some(hold) = handle.held_source(&source.name) {
            let (source, by) = (&*source.name, &*hold.by);
            tracing::warn!(
                source,
                by,
                "a source that is held is not in the configuration any more: what waits of it waits until that ends (fairlane sources resume)"
            );
        }
    }
}

/// The sources as lists show them.
fn infos(config: &Config) -> Vec<SourceInfo> {
    let info = |source: &Source| SourceInfo {
        name: Arc::clone(&source.name),
        path: source.path.as_str().to_owned(),
        methods: source.methods.iter().map(ToString::to_string).collect(),
        verify: joined(source, |sender| Some(sender.verifier.name())).unwrap_or_default(),
        key: joined(source, |sender| sender.key.as_ref().map(|key| key.rule.text())),
        key_signed: source.senders.iter().all(|sender| sender.key.as_ref().is_some_and(|key| key.signed)),
        secrets: source.senders.iter().flat_map(|sender| sender.verifier.secret_ends()).collect(),
        secret_headers: source.senders.iter().flat_map(|sender| sender.verifier.scheme().secret_headers()).collect(),
    };
    config.sources.iter().map(info).collect()
}

/// What is said of each of a source's senders, each thing once; `None` where nothing is said of any.
fn joined<'s>(source: &'s Source, of: impl Fn(&'s Sender) -> Option<&'s str>) -> Option<String> {
    let mut all: Vec<&str> = source.senders.iter().filter_map(of).collect();
    all.dedup();
    (!all.is_empty()).then(|| all.join(", "))
}
