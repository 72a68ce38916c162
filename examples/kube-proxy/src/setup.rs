//! The engine and its source of objects.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proxy_core::interfaces::{self, AddressWatch, Scope};
use proxy_core::{Config, Engine, Event};
use tracing::{debug, error, info, warn};
use vipline_kube_source::WatchMode;
use vipline_kube_source::api::events::Recorder;
use vipline_kube_source::api::feed::Item;
use vipline_kube_source::api::first_sync::{FirstSyncGate, NodeChange, Readiness};
use vipline_kube_source::api::{Access, Api};
use vipline_kube_source::manifests::Manifests;
use vipline_kube_source::manifests::fault::Key;
use vipline_kube_source::manifests::source::Update;
use vipline_service_model::{DetectLocal, Kind, api};

use crate::config::check_families;
use crate::failure::{Failure, chain};
use crate::families;
use crate::node::ThisNode;
use crate::refused::RefusedAddresses;
use crate::settings::{Settings, Source};
use crate::sysctl;
use crate::tasks::Tasks;
use crate::telemetry::{Telemetry, stopwatch};
use crate::wait;

/// Name of this controller in Events.
const CONTROLLER: &str = "kube-proxy";

/// Purpose of an engine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Purpose {
    /// Planning without a kernel.
    Plan,
    /// Comparing the kernel with the plan.
    Compare,
    /// Programming the kernel.
    Program,
}

/// An engine with its source of objects.
pub struct Setup {
    /// The engine.
    pub engine: Engine,
    /// Health and metrics.
    pub telemetry: Telemetry,
    /// Creator of Events.
    pub recorder: Recorder,
    /// Background tasks, if any.
    pub tasks: Option<Tasks>,
    purpose: Purpose,
    settings: Settings,
    objects: Objects,
    node: ThisNode,
    refused: RefusedAddresses,
    /// Monitor of interface addresses, unless the engine only plans.
    addresses: Option<AddressWatch>,
    start: Instant,
}

/// Source of the objects.
enum Objects {
    /// Files.
    Manifests(Manifests),
    /// An API server.
    Api {
        gate: FirstSyncGate,
        /// Whether the wait for the Node was logged.
        is_waiting: bool,
    },
}

impl Setup {
    /// Creates an engine that programs the kernel, for the IP families that
    /// this node supports.
    ///
    /// Sets the conntrack sysctls first, because a rule depends on `nf_conntrack_tcp_be_liberal`.
    /// On return, all objects of files are read. With [`WatchMode::ListOnly`], all
    /// objects of an API are read, too.
    ///
    /// # Errors
    ///
    /// - Manifests or credentials are invalid. Nothing is written then.
    /// - A privilege or kernel feature is missing.
    /// - The API server rejects a request.
    pub fn open(settings: Settings, watch_mode: WatchMode) -> Result<Self, Failure> {
        Self::with_kernel(settings, Purpose::Program, watch_mode)
    }

    /// Creates an engine that only compares the kernel with the plan.
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open).
    pub fn compare(settings: Settings) -> Result<Self, Failure> {
        Self::with_kernel(settings, Purpose::Compare, WatchMode::ListOnly)
    }

    fn with_kernel(
        mut settings: Settings,
        purpose: Purpose,
        watch_mode: WatchMode,
    ) -> Result<Self, Failure> {
        settings.config.families = families::supported(settings.config.mode)?;
        let conntrack = &settings.configuration.conntrack;
        let mut setup = Self::new(&settings, purpose, watch_mode, |mut config| {
            if purpose == Purpose::Program {
                sysctl::conntrack::set(conntrack);
            }
            let will_be_liberal = purpose == Purpose::Compare && conntrack.tcp_be_liberal;
            config.iptables.drop_invalid = !(will_be_liberal || sysctl::is_liberal());
            Engine::open(config).map_err(|error| Failure::machine(chain(&error)))
        })?;
        setup.engine.set_flow_cleanup_clock(stopwatch);
        setup.addresses = Some(AddressWatch::default());
        setup.poll_addresses();
        Ok(setup)
    }

    /// Creates an engine that only plans, for both IP families.
    ///
    /// # Errors
    ///
    /// The objects are invalid.
    pub fn plan_only(settings: &Settings) -> Result<Self, Failure> {
        Self::new(settings, Purpose::Plan, WatchMode::ListOnly, |config| {
            Engine::plan_only(config).map_err(Failure::input)
        })
    }

    fn new(
        settings: &Settings,
        purpose: Purpose,
        watch_mode: WatchMode,
        open: impl FnOnce(Config) -> Result<Engine, Failure>,
    ) -> Result<Self, Failure> {
        match &settings.source {
            Source::Manifests(path) => {
                let read = match watch_mode {
                    WatchMode::ListOnly => Manifests::load(path),
                    WatchMode::ListAndWatch => Manifests::watch(path),
                };
                let named = |error| Failure::input(format_args!("{}: {error}", path.display()));
                let (manifests, update) = read.map_err(named)?;
                if !update.errors.is_empty() {
                    let errors = update.errors.iter().map(ToString::to_string);
                    return Err(Failure::Input(errors.collect()));
                }
                let tasks = match watch_mode {
                    WatchMode::ListOnly => None,
                    WatchMode::ListAndWatch => Some(Tasks::start()?),
                };
                let engine = open(settings.config.clone())?;
                let objects = Objects::Manifests(manifests);
                let mut setup = Self::with(engine, objects, tasks, settings, telemetry(settings));
                setup.purpose = purpose;
                setup.apply_all(update)
            }
            Source::Api(access) => Self::from_api(settings, access, purpose, watch_mode, open),
        }
    }

    fn from_api(
        settings: &Settings,
        access: &Access,
        purpose: Purpose,
        watch_mode: WatchMode,
        open: impl FnOnce(Config) -> Result<Engine, Failure>,
    ) -> Result<Self, Failure> {
        let config = &settings.config;
        let tasks = Tasks::start()?;
        let telemetry = telemetry(settings);
        let (node, runtime) = (config.node_name.clone(), tasks.handle().clone());
        let observer = Arc::new(telemetry.clone());
        let api = Api::open(access, node, runtime, observer, tasks.plugin().clone());
        let api = api.map_err(Failure::input)?;
        let engine = open(config.clone())?;
        let waits_for_node = watch_mode == WatchMode::ListAndWatch;
        let gate = FirstSyncGate::new(
            config.node_name.clone(),
            &config.detect_local,
            waits_for_node,
        );
        let objects = Objects::Api {
            gate,
            is_waiting: false,
        };
        api.watch(watch_mode, tasks.sender());
        let mut setup = Self::with(engine, objects, Some(tasks), settings, telemetry);
        setup.purpose = purpose;
        match watch_mode {
            WatchMode::ListAndWatch => setup.recorder = api.recorder(CONTROLLER),
            WatchMode::ListOnly => setup.wait()?,
        }
        Ok(setup)
    }

    fn with(
        engine: Engine,
        objects: Objects,
        tasks: Option<Tasks>,
        settings: &Settings,
        telemetry: Telemetry,
    ) -> Self {
        Self {
            engine,
            telemetry,
            recorder: Recorder::disabled(),
            tasks,
            purpose: Purpose::Plan,
            settings: settings.clone(),
            objects,
            node: ThisNode {
                name: settings.config.node_name.to_string(),
                bind_address: settings.bind_address,
            },
            refused: RefusedAddresses::default(),
            addresses: None,
            start: Instant::now(),
        }
    }

    /// Applies all manifests for the first time.
    fn apply_all(mut self, update: Update) -> Result<Self, Failure> {
        let name = &self.node.name;
        let holds_node = match &self.objects {
            Objects::Manifests(manifests) => manifests.holds(&Key::new(Kind::Node, "", name)),
            Objects::Api { .. } => true,
        };
        if !holds_node {
            let addresses = interfaces::addresses(Scope::Global).unwrap_or_else(|error| {
                warn!("{}", chain(&error));
                Vec::new()
            });
            self.apply(self.node.without_object(&addresses));
        }
        self.apply_update(update);
        let node = self.engine.store().node();
        let detect_local = &self.settings.config.detect_local;
        if *detect_local == DetectLocal::NodeCidr && node.pod_cidrs.is_empty() {
            let needs = "--detect-local-mode=NodeCIDR needs the podCIDRs of this node";
            return Err(Failure::input(format_args!(
                "{needs}, but Node {} has none",
                self.node.name
            )));
        }
        self.check_families()?;
        self.apply(Event::Synced);
        self.telemetry.applied(&self.engine, Instant::now());
        Ok(self)
    }

    /// Checks the configuration against the IP families of this node, before
    /// the first sync.
    fn check_families(&self) -> Result<(), Failure> {
        if self.purpose == Purpose::Plan {
            return Ok(());
        }
        let (config, node) = (&self.settings.config, self.engine.store().node());
        let problems = check_families(
            &self.settings.configuration,
            &config.node_port_addresses,
            &node,
            &config.families,
        );
        if self.purpose == Purpose::Program {
            problems.warnings.iter().for_each(|it| warn!("{it}"));
        }
        match problems.errors.is_empty() {
            true => Ok(()),
            false => Err(Failure::machine(problems.errors.join("; "))),
        }
    }

    /// Returns the settings, limited to the IP families that this node
    /// supports.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Waits until all objects of the API are listed.
    fn wait(&mut self) -> Result<(), Failure> {
        while !self.engine.store().is_synced() {
            let now = self.now();
            let timeout = self.next_deadline().map(|next| next.saturating_sub(now));
            if let Some(tasks) = &self.tasks {
                wait::readable(tasks.as_fd(), &[], timeout).map_err(Failure::machine)?;
            }
            self.poll()?;
        }
        Ok(())
    }

    /// Returns the time since the start, on which all deadlines are based.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Applies pending changes to the engine and logs problems of objects.
    ///
    /// # Errors
    ///
    /// The reason why the process must end.
    pub fn poll(&mut self) -> Result<(), Failure> {
        let now = self.now();
        let items = match &mut self.tasks {
            Some(tasks) => tasks.take()?,
            None => Vec::new(),
        };
        let mut has_changed = !items.is_empty();
        match &mut self.objects {
            Objects::Manifests(manifests) => {
                let update = manifests.poll(now);
                has_changed |= !update.events.is_empty();
                self.apply_update(update);
            }
            Objects::Api { .. } => self.apply_items(items, now)?,
        }
        has_changed |= self.poll_addresses();
        if has_changed {
            self.telemetry.applied(&self.engine, Instant::now());
        }
        Ok(())
    }

    /// Returns the time of the next poll if nothing changes before.
    pub fn next_deadline(&self) -> Option<Duration> {
        match &self.objects {
            Objects::Manifests(manifests) => manifests.next_deadline(),
            Objects::Api { gate, .. } => gate.next_deadline(),
        }
    }

    /// Returns the descriptors that become readable when there is something to
    /// poll.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let files = match &self.objects {
            Objects::Manifests(manifests) => manifests.readable(),
            Objects::Api { .. } => None,
        };
        let addresses = self.addresses.iter().filter_map(AddressWatch::readable);
        let tasks = self.tasks.iter().map(AsFd::as_fd);
        files.into_iter().chain(addresses).chain(tasks)
    }

    /// Passes changed interface addresses to the engine. Returns whether they
    /// changed.
    fn poll_addresses(&mut self) -> bool {
        match self.addresses.as_mut().map(AddressWatch::poll) {
            Some(Ok(Some(addresses))) => {
                self.engine.set_addresses(addresses);
                true
            }
            Some(Err(error)) => {
                warn!("{}; using the former addresses", chain(&error));
                false
            }
            Some(Ok(None)) | None => false,
        }
    }

    /// Applies items of the API.
    fn apply_items(&mut self, items: Vec<Item>, now: Duration) -> Result<(), Failure> {
        for item in items {
            let Objects::Api { gate, .. } = &mut self.objects else {
                continue;
            };
            match item {
                Item::Listed(kind) => gate.mark_listed(kind, now),
                Item::Event(Event::NodeApplied(node)) => self.apply_node(node)?,
                Item::Event(event) => {
                    if matches!(event, Event::NodeDeleted(_)) {
                        let name = &self.node.name;
                        warn!("node {name:?} was deleted; using its last known state");
                    }
                    self.apply(event);
                }
            }
        }
        self.poll_gate(now)
    }

    /// Applies the Node object of this node.
    fn apply_node(&mut self, node: api::Node) -> Result<(), Failure> {
        let Objects::Api { gate, .. } = &mut self.objects else {
            return Ok(());
        };
        let name = &self.node.name;
        match gate.update_node(&node) {
            // Most changes of a Node concern fields that the proxy does not
            // use.
            NodeChange::None => return Ok(()),
            NodeChange::Other => {}
            NodeChange::Addresses => info!("node {name:?} has new addresses"),
            NodeChange::PodCidrs => {
                let message = "has changed podCIDRs; a restart is required";
                return Err(Failure::machine(format_args!("node {name:?} {message}")));
            }
        }
        self.apply(self.node.with_bind_address(node.into()));
        Ok(())
    }

    /// Permits the first sync when its conditions are met.
    fn poll_gate(&mut self, now: Duration) -> Result<(), Failure> {
        let Objects::Api { gate, is_waiting } = &mut self.objects else {
            return Ok(());
        };
        let name = &self.node.name;
        match gate.poll(now).map_err(Failure::Machine)? {
            Readiness::Waiting => {
                if gate.next_deadline().is_some() && !std::mem::replace(is_waiting, true) {
                    info!(
                        "all objects are listed; waiting for addresses or podCIDRs of node {name:?}"
                    );
                }
                return Ok(());
            }
            Readiness::Ready => {}
            Readiness::ReadyWithoutAddresses => {
                warn!("node {name:?} has no address; continuing without one");
                if let Some(event) = self.node.substitute().filter(|_| !gate.has_node()) {
                    self.apply(event);
                }
            }
        }
        self.check_families()?;
        self.apply(Event::Synced);
        Ok(())
    }

    /// Applies an update of the manifests and logs its errors.
    fn apply_update(&mut self, update: Update) {
        for line in update.ignored {
            debug!("ignored: {line}");
        }
        for error in update.errors {
            error!("{error}");
        }
        for event in update.events {
            self.apply(self.node.with_bind_address(event));
        }
    }

    fn apply(&mut self, event: Event) {
        let object = self.refused.object(&event);
        let warnings = self.engine.apply(event);
        for warning in &warnings {
            warn!("{warning}");
            self.telemetry.object_problem(warning.kind);
        }
        if let Some(event) = self.refused.event(object, &warnings) {
            self.recorder.record(event);
        }
    }

    /// Returns the number of Services with a cluster IP, and of their ports and
    /// endpoints.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        let mut services = std::collections::HashSet::new();
        for port in self.engine.store().ports() {
            services.insert(port.name.service_name());
            counts.ports += 1;
            counts.endpoints += port.reachable().len();
        }
        counts.services = services.len();
        counts
    }
}

/// Numbers of served objects.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Served Services.
    pub services: usize,
    /// Their ports, once per family.
    pub ports: usize,
    /// Endpoints of the ports.
    pub endpoints: usize,
}

fn telemetry(settings: &Settings) -> Telemetry {
    let config = &settings.config;
    Telemetry::new(config.mode, &config.families, settings.sync_period)
}
