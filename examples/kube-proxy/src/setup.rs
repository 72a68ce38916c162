//! The engine and where its objects come from, brought together.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use proxy_core::{Config, Engine, Event, Mode};
use tracing::{debug, error, info, warn};
use vipline_service_model::{DetectLocal, Kind, NodePortAddresses, api};

use crate::addresses::Addresses;
use crate::failure::{Failure, chain};
use crate::interfaces;
use crate::kubernetes::Api;
use crate::kubernetes::events::Recorder;
use crate::kubernetes::feed::Item;
use crate::kubernetes::gate::{Gate, News, Verdict};
use crate::manifests::Manifests;
use crate::manifests::fault::Key;
use crate::manifests::source::Update;
use crate::node::ThisNode;
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
    objects: Objects,
    node: ThisNode,
    /// The addresses of the interfaces, if rules depend on them.
    addresses: Option<Addresses>,
    start: Instant,
}

/// Where the objects come from.
enum Objects {
    /// Files.
    Manifests(Manifests),
    /// An API server, by way of the tasks.
    Api {
        gate: Gate,
        /// Whether it was told that the Node is waited for.
        is_waiting: bool,
    },
}

impl Setup {
    /// Returns an engine that programs the kernel.
    ///
    /// Of the families those that the kernel has are programmed.
    /// Objects from files have all been read then, and so have those from an
    /// API if they are read once.
    ///
    /// # Errors
    ///
    /// What is wrong with the manifests or the credentials, before the kernel
    /// is spoken to; what the kernel lacks; or what the API refuses.
    pub fn open(mut settings: Settings, reading: Reading) -> Result<Self, Failure> {
        let config = &mut settings.config;
        config.families = interfaces::families();
        config.iptables.drop_invalid = !sysctl::is_liberal();
        let mut setup = Self::new(&settings, reading, |config| {
            Engine::open(config).map_err(|error| Failure::machine(chain(&error)))
        })?;
        setup.engine.time_searches(stopwatch);
        setup.addresses = names_addresses(&settings.config).then(Addresses::default);
        setup.look_at_addresses();
        Ok(setup)
    }

    /// Returns an engine that only plans, for both families.
    ///
    /// # Errors
    ///
    /// What is wrong with the objects.
    pub fn plan_only(settings: &Settings) -> Result<Self, Failure> {
        Self::new(settings, Reading::Once, |config| {
            Engine::plan_only(config).map_err(Failure::input)
        })
    }

    fn new(
        settings: &Settings,
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
                Self::with(engine, objects, tasks, settings, telemetry(settings))
                    .read_all(update, settings)
            }
            Source::Api(access) => Self::from_api(settings, access, reading, open),
        }
    }

    fn from_api(
        settings: &Settings,
        access: &Access,
        reading: Reading,
        open: impl FnOnce(Config) -> Result<Engine, Failure>,
    ) -> Result<Self, Failure> {
        let config = &settings.config;
        let tasks = Tasks::start()?;
        let telemetry = telemetry(settings);
        let (node, runtime) = (config.node_name.clone(), tasks.handle().clone());
        let api = Api::open(access, node, runtime, &telemetry)?;
        let engine = open(config.clone())?;
        let is_patient = reading == Reading::Watched;
        let gate = Gate::new(config.node_name.clone(), &config.detect_local, is_patient);
        let objects = Objects::Api {
            gate,
            is_waiting: false,
        };
        api.watch(reading, tasks.sender(), &telemetry);
        let mut setup = Self::with(engine, objects, Some(tasks), settings, telemetry);
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
            recorder: Recorder::silent(),
            tasks,
            objects,
            node: ThisNode {
                name: settings.config.node_name.to_string(),
                bind_address: settings.bind_address,
            },
            addresses: None,
            start: Instant::now(),
        }
    }

    /// Takes in all manifests, for the first time.
    fn read_all(mut self, update: Update, settings: &Settings) -> Result<Self, Failure> {
        let name = &self.node.name;
        let holds_node = match &self.objects {
            Objects::Manifests(manifests) => manifests.holds(&Key::new(Kind::Node, "", name)),
            Objects::Api { .. } => true,
        };
        if !holds_node {
            let addresses = interfaces::addresses().unwrap_or_else(|error| {
                warn!("{error:#}");
                Vec::new()
            });
            self.apply(self.node.without_object(&addresses));
        }
        self.take(update);
        let node = self.engine.store().node();
        if settings.config.detect_local == DetectLocal::NodeCidr && node.pod_cidrs.is_empty() {
            let needs = "--detect-local-mode=NodeCIDR needs the podCIDRs of this node";
            return Err(Failure::input(format_args!(
                "{needs}, but no Node {} has any",
                self.node.name
            )));
        }
        self.apply(Event::Synced);
        self.telemetry.applied(&self.engine, Instant::now());
        Ok(self)
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
                Item::Listed(kind) => gate.listed(kind, now),
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
        match gate.node(&node) {
            // Its object changes all the time, mostly in what is not read.
            News::Nothing => return Ok(()),
            News::Something => {}
            News::Addresses => info!("node {name:?} has other addresses now"),
            News::PodCidrs => {
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
            Verdict::Wait => {
                if gate.next_deadline().is_some() && !std::mem::replace(is_waiting, true) {
                    info!("all is listed; waiting for what node {name:?} does not say yet");
                }
                return Ok(());
            }
            Verdict::Open => {}
            Verdict::OpenWithoutAddresses => {
                warn!("node {name:?} has no address; going on without it");
                if let Some(event) = self.node.unknown().filter(|_| !gate.has_node()) {
                    self.apply(event);
                }
            }
        }
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
        for warning in self.engine.apply(event) {
            warn!("{warning}");
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

/// Tells whether addresses of interfaces matter: in mode ipvs, whose virtual
/// servers name them, and in mode iptables, where node ports are not served on all
/// of them.
fn names_addresses(config: &Config) -> bool {
    let mut families = config.families.iter();
    match (config.mode, &config.node_port_addresses) {
        (Mode::Ipvs, _) => true,
        // What they are is not known yet.
        (Mode::Iptables, NodePortAddresses::Primary) => true,
        (Mode::Iptables, all_or_within) => {
            families.any(|&one| !all_or_within.filter(one, &[]).matches_all())
        }
        _ => false,
    }
}

fn telemetry(settings: &Settings) -> Telemetry {
    let config = &settings.config;
    Telemetry::new(config.mode, &config.families, settings.sync_period)
}
