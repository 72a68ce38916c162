//! The engine and its source of objects: construction.
//!
//! `first_sync` applies objects until the first sync may begin, and `polling` applies
//! all changes afterwards. `kernel` opens the kernel of Linux.

mod first_sync;

#[cfg(target_os = "linux")]
mod kernel;

mod polling;

use std::sync::Arc;
use std::time::Instant;

use daemon::log_limit::LineLimit;
#[cfg(target_os = "linux")]
use proxy_core::interfaces::AddressWatch;
use proxy_core::{Config, Engine, IptablesChoice, Mode};
use vipline_kube_source::WatchMode;
use vipline_kube_source::api::events::Recorder;
use vipline_kube_source::api::first_sync::{FirstSyncGate, Lack};
use vipline_kube_source::api::{Access, Api};
use vipline_kube_source::manifests::Manifests;

use crate::bound_addresses::BoundAddresses;
use crate::failure::Failure;
use crate::field_problems::FieldProblems;
use crate::node::ThisNode;
use crate::settings::{Settings, Source};
use crate::tasks::Tasks;
use crate::telemetry::Telemetry;

/// Name of this controller in Events.
const CONTROLLER: &str = "kube-proxy";

/// Purpose of an engine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Purpose {
    /// Planning without a kernel.
    Plan,
    /// Comparing the kernel with the plan.
    #[cfg(target_os = "linux")]
    Compare,
    /// Explaining connections, also to Services that the proxy does not serve.
    Explain,
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
    /// Backend of iptables, unless the engine only plans or the mode has none.
    pub iptables: Option<IptablesChoice>,
    purpose: Purpose,
    settings: Settings,
    objects: Objects,
    node: ThisNode,
    field_problems: FieldProblems,
    /// External addresses that mode ipvs binds. `None` in other modes.
    pub(crate) bound_addresses: Option<BoundAddresses>,
    /// Limit of the warnings about fields of objects.
    problems: LineLimit,
    /// Monitor of interface addresses, unless the engine only plans.
    #[cfg(target_os = "linux")]
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
        /// The reason for the wait that was logged last.
        logged: Option<Lack>,
    },
}

impl Setup {
    /// Creates an engine that explains connections by the plan alone, for both IP families.
    ///
    /// # Errors
    ///
    /// The objects are invalid.
    pub fn explain_plan(settings: &Settings) -> Result<Self, Failure> {
        Self::new(settings, Purpose::Explain, WatchMode::ListOnly, |config| {
            config.plan_only().map_err(Failure::input)
        })
    }

    /// Creates an engine that only plans, for both IP families.
    ///
    /// # Errors
    ///
    /// The objects are invalid.
    pub fn plan_only(settings: &Settings) -> Result<Self, Failure> {
        Self::new(settings, Purpose::Plan, WatchMode::ListOnly, |config| {
            config.plan_only().map_err(Failure::input)
        })
    }

    /// Creates an engine with kernels of the caller.
    ///
    /// # Errors
    ///
    /// - Manifests or credentials are invalid.
    /// - The API server rejects a request.
    pub fn with_engine(
        settings: &Settings,
        watch_mode: WatchMode,
        engine: impl FnOnce(Config) -> Engine,
    ) -> Result<Self, Failure> {
        Self::new(settings, Purpose::Plan, watch_mode, |config| {
            Ok(engine(config))
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
        let (node, runtime) = (config.engine.node_name.clone(), tasks.handle().clone());
        let observer = Arc::new(telemetry.clone());
        let api = Api::open(access, node, runtime, observer, tasks.plugin().clone());
        let api = api.map_err(Failure::input)?;
        let engine = open(config.clone())?;
        let waits_for_node = watch_mode == WatchMode::ListAndWatch;
        let gate = FirstSyncGate::new(
            config.engine.node_name.clone(),
            &config.engine.detect_local,
            waits_for_node,
        );
        let objects = Objects::Api { gate, logged: None };
        match purpose {
            Purpose::Explain => api.watch_everything(watch_mode, tasks.sender()),
            _ => api.watch(watch_mode, tasks.sender()),
        }
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
            iptables: None,
            purpose: Purpose::Plan,
            settings: settings.clone(),
            objects,
            node: ThisNode {
                name: settings.config.engine.node_name.to_string(),
                bind_address: settings.bind_address,
            },
            field_problems: FieldProblems::default(),
            bound_addresses: (settings.mode() == Some(Mode::Ipvs)).then(BoundAddresses::default),
            problems: LineLimit::new("problems of objects"),
            #[cfg(target_os = "linux")]
            addresses: None,
            start: Instant::now(),
        }
    }

    /// Returns the settings, limited to the IP families that this node
    /// supports.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

fn telemetry(settings: &Settings) -> Telemetry {
    let config = &settings.config;
    Telemetry::new(
        settings.mode(),
        &config.engine.families,
        settings.sync_period,
    )
}
