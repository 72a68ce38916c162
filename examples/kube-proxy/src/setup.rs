//! The engine and where its objects come from, brought together.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use proxy_core::{Config, Engine, Event};
use tracing::{debug, error, info, warn};
use vipline_service_model::{DetectLocal, Kind, api};

use crate::addresses::Addresses;
use crate::config::check_families;
use crate::failure::{Failure, chain};
use crate::families;
use crate::interfaces::{self, Scope};
use crate::kubernetes::Api;
use crate::kubernetes::events::Recorder;
use crate::kubernetes::feed::Item;
use crate::kubernetes::first_sync::{FirstSyncGate, NodeChange, Readiness};
use crate::manifests::Manifests;
use crate::manifests::fault::Key;
use crate::manifests::source::Update;
use crate::node::ThisNode;
use crate::refused::RefusedAddresses;
use crate::settings::{Access, Settings, Source};
use crate::sysctl;
use crate::tasks::Tasks;
use crate::telemetry::{Telemetry, stopwatch};
use crate::wait;

/// Whether objects are only read once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reading {
    /// They are.
    Once,
    /// They are watched.
    Watched,
}

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

/// An engine, and what keeps telling it of objects.
pub struct Setup {
    /// The engine.
    pub engine: Engine,
    /// What others read of the engine.
    pub telemetry: Telemetry,
    /// What tells the cluster's users.
    pub recorder: Recorder,
    /// What happens beside the engine, if anything does.
    pub tasks: Option<Tasks>,
    purpose: Purpose,
    settings: Settings,
    objects: Objects,
    node: ThisNode,
    refused: RefusedAddresses,
    /// The addresses of the interfaces, unless the engine only plans.
    addresses: Option<Addresses>,
    start: Instant,
}

/// Where the objects come from.
enum Objects {
    /// Files.
    Manifests(Manifests),
    /// An API server, by way of the tasks.
    Api {
        gate: FirstSyncGate,
        /// Whether it was told that the Node is waited for.
        is_waiting: bool,
    },
}

impl Setup {
    /// Returns an engine that programs the kernel in the families that this node
    /// supports.
    ///
    /// The sysctls of connection tracking are set before, because one of them
    /// decides on a rule.
    /// Objects from files have all been read then, and so have those from an
    /// API if they are read once.
    ///
    /// # Errors
    ///
    /// What is wrong with the manifests or the credentials, before anything is
    /// written; what the kernel lacks; or what the API refuses.
    pub fn open(settings: Settings, reading: Reading) -> Result<Self, Failure> {
        Self::with_kernel(settings, Purpose::Program, reading)
    }

    /// Returns an engine that only compares the kernel with the plan.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open).
    pub fn compare(settings: Settings) -> Result<Self, Failure> {
        Self::with_kernel(settings, Purpose::Compare, Reading::Once)
    }

    fn with_kernel(
        mut settings: Settings,
        purpose: Purpose,
        reading: Reading,
    ) -> Result<Self, Failure> {
        settings.config.families = families::supported(settings.config.mode)?;
        let conntrack = &settings.configuration.conntrack;
        let mut setup = Self::new(&settings, purpose, reading, |mut config| {
            if purpose == Purpose::Program {
                sysctl::conntrack::set(conntrack);
            }
            let will_be_liberal = purpose == Purpose::Compare && conntrack.tcp_be_liberal;
            config.iptables.drop_invalid = !(will_be_liberal || sysctl::is_liberal());
            Engine::open(config).map_err(|error| Failure::machine(chain(&error)))
        })?;
        setup.engine.time_searches(stopwatch);
        setup.addresses = Some(Addresses::default());
        setup.look_at_addresses();
        Ok(setup)
    }

    /// Returns an engine that only plans, for both families.
    ///
    /// # Errors
    ///
    /// What is wrong with the objects.
    pub fn plan_only(settings: &Settings) -> Result<Self, Failure> {
        Self::new(settings, Purpose::Plan, Reading::Once, |config| {
            Engine::plan_only(config).map_err(Failure::input)
        })
    }

    fn new(
        settings: &Settings,
        purpose: Purpose,
        reading: Reading,
        open: impl FnOnce(Config) -> Result<Engine, Failure>,
    ) -> Result<Self, Failure> {
        match &settings.source {
            Source::Manifests(path) => {
                let read = match reading {
                    Reading::Once => Manifests::load(path),
                    Reading::Watched => Manifests::watch(path),
                };
                let named = |error| Failure::input(format_args!("{}: {error}", path.display()));
                let (manifests, update) = read.map_err(named)?;
                if !update.errors.is_empty() {
                    let errors = update.errors.iter().map(ToString::to_string);
                    return Err(Failure::Input(errors.collect()));
                }
                let tasks = match reading {
                    Reading::Once => None,
                    Reading::Watched => Some(Tasks::start()?),
                };
                let engine = open(settings.config.clone())?;
                let objects = Objects::Manifests(manifests);
                let mut setup = Self::with(engine, objects, tasks, settings, telemetry(settings));
                setup.purpose = purpose;
                setup.read_all(update)
            }
            Source::Api(access) => Self::from_api(settings, access, purpose, reading, open),
        }
    }

    fn from_api(
        settings: &Settings,
        access: &Access,
        purpose: Purpose,
        reading: Reading,
        open: impl FnOnce(Config) -> Result<Engine, Failure>,
    ) -> Result<Self, Failure> {
        let config = &settings.config;
        let tasks = Tasks::start()?;
        let telemetry = telemetry(settings);
        let (node, runtime) = (config.node_name.clone(), tasks.handle().clone());
        let api = Api::open(access, node, runtime, &telemetry)?;
        let engine = open(config.clone())?;
        let waits_for_node = reading == Reading::Watched;
        let gate = FirstSyncGate::new(
            config.node_name.clone(),
            &config.detect_local,
            waits_for_node,
        );
        let objects = Objects::Api {
            gate,
            is_waiting: false,
        };
        api.watch(reading, tasks.sender(), &telemetry);
        let mut setup = Self::with(engine, objects, Some(tasks), settings, telemetry);
        setup.purpose = purpose;
        match reading {
            Reading::Watched => setup.recorder = api.recorder(),
            Reading::Once => setup.wait()?,
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

    /// Takes in all manifests, for the first time.
    fn read_all(mut self, update: Update) -> Result<Self, Failure> {
        let name = &self.node.name;
        let holds_node = match &self.objects {
            Objects::Manifests(manifests) => manifests.holds(&Key::new(Kind::Node, "", name)),
            Objects::Api { .. } => true,
        };
        if !holds_node {
            let addresses = interfaces::addresses(Scope::Global).unwrap_or_else(|error| {
                warn!("{error:#}");
                Vec::new()
            });
            self.apply(self.node.without_object(&addresses));
        }
        self.take(update);
        let node = self.engine.store().node();
        let detect_local = &self.settings.config.detect_local;
        if *detect_local == DetectLocal::NodeCidr && node.pod_cidrs.is_empty() {
            let needs = "--detect-local-mode=NodeCIDR needs the podCIDRs of this node";
            return Err(Failure::input(format_args!(
                "{needs}, but no Node {} has any",
                self.node.name
            )));
        }
        self.check_families()?;
        self.apply(Event::Synced);
        self.telemetry.applied(&self.engine, Instant::now());
        Ok(self)
    }

    /// Checks the configuration on this node, before the first sync.
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

    /// Returns the settings, with the families that this node supports.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Waits until an API has told all.
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

    /// Returns the time that deadlines are counted in.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Tells the engine of what has come, and the user of what is wrong with it.
    ///
    /// # Errors
    ///
    /// Why the process must end.
    pub fn poll(&mut self) -> Result<(), Failure> {
        let now = self.now();
        let items = match &mut self.tasks {
            Some(tasks) => tasks.take()?,
            None => Vec::new(),
        };
        let mut is_told = !items.is_empty();
        match &mut self.objects {
            Objects::Manifests(manifests) => {
                let update = manifests.poll(now);
                is_told |= !update.events.is_empty();
                self.take(update);
            }
            Objects::Api { .. } => self.take_items(items, now)?,
        }
        is_told |= self.look_at_addresses();
        if is_told {
            self.telemetry.applied(&self.engine, Instant::now());
        }
        Ok(())
    }

    /// Returns when to poll although nothing has come.
    pub fn next_deadline(&self) -> Option<Duration> {
        match &self.objects {
            Objects::Manifests(manifests) => manifests.next_deadline(),
            Objects::Api { gate, .. } => gate.next_deadline(),
        }
    }

    /// Returns what becomes readable when there is something to poll for.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let files = match &self.objects {
            Objects::Manifests(manifests) => manifests.readable(),
            Objects::Api { .. } => None,
        };
        let addresses = self.addresses.iter().filter_map(Addresses::readable);
        let tasks = self.tasks.iter().map(AsFd::as_fd);
        files.into_iter().chain(addresses).chain(tasks)
    }

    /// Tells the engine of the addresses of the interfaces if they changed, and
    /// returns whether they did.
    fn look_at_addresses(&mut self) -> bool {
        match self.addresses.as_mut().map(Addresses::poll) {
            Some(Ok(Some(addresses))) => {
                self.engine.set_addresses(addresses);
                true
            }
            Some(Err(error)) => {
                warn!("{error:#}; those known before are used");
                false
            }
            Some(Ok(None)) | None => false,
        }
    }

    /// Takes in what an API told.
    fn take_items(&mut self, items: Vec<Item>, now: Duration) -> Result<(), Failure> {
        for item in items {
            let Objects::Api { gate, .. } = &mut self.objects else {
                continue;
            };
            match item {
                Item::Listed(kind) => gate.mark_listed(kind, now),
                Item::Event(Event::NodeApplied(node)) => self.take_node(node)?,
                Item::Event(event) => {
                    if matches!(event, Event::NodeDeleted(_)) {
                        let name = &self.node.name;
                        warn!("node {name:?} was deleted; what was known of it stays");
                    }
                    self.apply(event);
                }
            }
        }
        self.look_at_gate(now)
    }

    /// Takes in what an API told of this node.
    fn take_node(&mut self, node: api::Node) -> Result<(), Failure> {
        let Objects::Api { gate, .. } = &mut self.objects else {
            return Ok(());
        };
        let name = &self.node.name;
        match gate.update_node(&node) {
            // Its object changes all the time, mostly in what is not read.
            NodeChange::None => return Ok(()),
            NodeChange::Other => {}
            NodeChange::Addresses => info!("node {name:?} has other addresses now"),
            NodeChange::PodCidrs => {
                let words = "has other podCIDRs now, which a restart takes up";
                return Err(Failure::machine(format_args!("node {name:?} {words}")));
            }
        }
        self.apply(self.node.correct(node.into()));
        Ok(())
    }

    /// Lets the engine begin as soon as enough is known.
    fn look_at_gate(&mut self, now: Duration) -> Result<(), Failure> {
        let Objects::Api { gate, is_waiting } = &mut self.objects else {
            return Ok(());
        };
        let name = &self.node.name;
        match gate.poll(now).map_err(Failure::Machine)? {
            Readiness::Waiting => {
                if gate.next_deadline().is_some() && !std::mem::replace(is_waiting, true) {
                    info!("all is listed; waiting for what node {name:?} does not say yet");
                }
                return Ok(());
            }
            Readiness::Ready => {}
            Readiness::ReadyWithoutAddresses => {
                warn!("node {name:?} has no address; going on without it");
                if let Some(event) = self.node.unknown().filter(|_| !gate.has_node()) {
                    self.apply(event);
                }
            }
        }
        self.check_families()?;
        self.apply(Event::Synced);
        Ok(())
    }

    /// Tells the engine what changed, and the user what is wrong.
    fn take(&mut self, update: Update) {
        for line in update.ignored {
            debug!("not read: {line}");
        }
        for error in update.errors {
            error!("{error}");
        }
        for event in update.events {
            self.apply(self.node.correct(event));
        }
    }

    fn apply(&mut self, event: Event) {
        let object = self.refused.object(&event);
        let warnings = self.engine.apply(event);
        for warning in &warnings {
            warn!("{warning}");
            self.telemetry.object_problems(warning.kind, 1);
        }
        if let Some(note) = self.refused.note(object, &warnings) {
            self.recorder.note(note);
        }
    }

    /// Returns how many Services have a cluster IP of any family, and the ports
    /// and endpoints of them all.
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

/// How much there is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Services that are served.
    pub services: usize,
    /// Their ports, once per family.
    pub ports: usize,
    /// The endpoints of the ports.
    pub endpoints: usize,
}

fn telemetry(settings: &Settings) -> Telemetry {
    let config = &settings.config;
    Telemetry::new(config.mode, &config.families, settings.sync_period)
}
