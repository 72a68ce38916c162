//! The network of the node, and its settings.

use std::collections::HashSet;
use std::env;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use anyhow::{Result, anyhow};
use proxy_core::{Config, Engine, Family};
use proxy_kernelspace::{Hns, Planner, Settings};
use vipline_hcn::{Endpoint, Features, Id, Memory, Network, Service, Version};
use vipline_service_model::parse_address;

use super::state::{Objects, State};
use crate::config::Winkernel;
use crate::settings;

/// Environment variable with the name of the network, unless the flag is set.
const NETWORK_VARIABLE: &str = "KUBE_NETWORK";

/// A network of HNS with its objects, and the settings of the mode.
pub(crate) struct Chosen {
    pub(super) network: Network,
    pub(super) before: Objects,
    pub(super) settings: Settings,
    pub(super) families: Vec<Family>,
    version: Version,
}

impl Chosen {
    /// Chooses the network of the configuration. Objects of other networks are left out.
    pub(super) fn new(state: State, settings: &settings::Settings) -> Result<Self, Invalid> {
        let winkernel = &settings.configuration.winkernel;
        let name = network_name(settings).map_err(Invalid::Flags)?;
        let mut networks = state.networks.into_iter();
        let network = networks
            .find(|it| it.name.eq_ignore_ascii_case(&name))
            .ok_or_else(|| Invalid::State(format!("no network {name:?}")))?;
        let mut before = state.objects;
        retain_network(&mut before, &network.id);
        let endpoints = &before.endpoints;
        let features = Features::of(state.version);
        let chosen = Settings::default().with_network(&network);
        let mut chosen = chosen.map_err(|error| Invalid::State(error.to_string()))?;
        chosen.features = features;
        chosen.enable_dsr = winkernel.enable_dsr;
        chosen.host_mac = state.host_mac.into();
        chosen.source_vip = parse_address(&winkernel.source_vip);
        chosen.healthz_port = settings.healthz.map_or(0, |address| address.port());
        if let Some(root) = root(winkernel, endpoints) {
            chosen = chosen.with_gateway(root);
        }
        check(settings, &chosen)?;
        Ok(Self {
            families: families(&chosen, settings),
            network,
            before,
            settings: chosen,
            version: state.version,
        })
    }

    /// Reads HNS, and chooses its network. `host_mac` returns the MAC address of the node.
    pub(crate) fn read<S: Service>(
        service: &mut S,
        settings: &settings::Settings,
        host_mac: &dyn Fn() -> Result<String>,
    ) -> Result<Self> {
        let name = network_name(settings).map_err(|error| anyhow!(error))?;
        let network = service.network_by_name(&name)?;
        let host_mac = match network.network_type().is_overlay() {
            true => host_mac()?,
            false => String::new(),
        };
        let state = State::of(service, network, host_mac)?;
        Self::new(state, settings).map_err(|invalid| match invalid {
            Invalid::Flags(reason) | Invalid::State(reason) => anyhow!(reason),
        })
    }

    /// Sets the families and the intervals of the mode.
    pub(crate) fn configure(&self, config: &mut Config) {
        config.engine.families.clone_from(&self.families);
        // HNS does not report changes of load balancers.
        config.engine.intervals.max = config.engine.intervals.retry;
    }

    /// Returns the settings of the mode.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Creates an engine that programs a service.
    pub(crate) fn engine<S: Service + Send + 'static>(
        &self,
        config: Config,
        service: &Arc<Mutex<S>>,
    ) -> Engine {
        let planner = Planner::new(self.settings.clone());
        Engine::with_kernels(config.engine, planner, |family| {
            let (hns, settings) = (Arc::clone(service), self.settings.clone());
            Hns::new(hns, &self.network.name, family, settings)
        })
    }

    /// Returns HNS in memory.
    pub(super) fn memory(&self) -> Memory {
        let Objects {
            endpoints,
            load_balancers,
        } = self.before.clone();
        let memory = Memory::new().with_version(self.version);
        memory.with_objects([self.network.clone()], endpoints, load_balancers)
    }

    /// Returns the objects of HNS in memory.
    pub(super) fn objects(memory: &Memory) -> Objects {
        Objects {
            endpoints: memory.all_endpoints().cloned().collect(),
            load_balancers: memory.all_load_balancers().cloned().collect(),
        }
    }

    /// Leaves out the endpoints that other programs make for containers of this node.
    pub(super) fn planned(&self, mut objects: Objects) -> Objects {
        let source = self.settings.source_vip;
        objects.endpoints.retain(|endpoint| {
            let is_source = endpoint.addresses().any(|it| Some(it) == source);
            endpoint.is_remote() || is_source
        });
        objects
    }
}

/// Returns the name of the network by flag or environment.
pub(crate) fn network_name(settings: &settings::Settings) -> Result<String, String> {
    let names = [
        settings.configuration.winkernel.network_name.clone(),
        env::var(NETWORK_VARIABLE).unwrap_or_default(),
    ];
    let mut names = names.into_iter().filter(|name| !name.is_empty());
    names.next().ok_or_else(|| {
        format!("the name of the network is missing: set --network-name (winkernel.networkName) or {NETWORK_VARIABLE}")
    })
}

/// Leaves out endpoints of other networks, and load balancers with such endpoints alone.
fn retain_network(objects: &mut Objects, network: &Id) {
    let (own, others): (Vec<_>, Vec<_>) = std::mem::take(&mut objects.endpoints)
        .into_iter()
        .partition(|it| it.network == *network);
    let [own_ids, other_ids] =
        [&own, &others].map(|of| of.iter().map(|it| &it.id).collect::<HashSet<_>>());
    objects.load_balancers.retain(|load_balancer| {
        let has_any = |of: &HashSet<&Id>| load_balancer.endpoints.iter().any(|id| of.contains(id));
        has_any(&own_ids) || !has_any(&other_ids)
    });
    objects.endpoints = own;
}

/// Returns the endpoint that receives health checks, if they are forwarded.
fn root<'a>(winkernel: &Winkernel, endpoints: &'a [Endpoint]) -> Option<&'a Endpoint> {
    let name = &winkernel.root_hns_endpoint_name;
    let mut endpoints = endpoints.iter();
    let root = endpoints.find(|endpoint| endpoint.name.eq_ignore_ascii_case(name));
    root.filter(|_| winkernel.forward_health_check_vip)
}

/// The reason why flags and state of HNS do not fit.
pub(super) enum Invalid {
    /// A flag is missing or invalid.
    Flags(String),
    /// The state lacks something, or is invalid.
    State(String),
}

/// Checks what the network requires of the flags and of HNS.
fn check(settings: &settings::Settings, chosen: &Settings) -> Result<(), Invalid> {
    let state = |reason: &str| Err(Invalid::State(reason.to_owned()));
    let flags = |reason| Err(Invalid::Flags(reason));
    let lacks = |feature| !chosen.features.contains(feature);
    if chosen.enable_dsr && lacks(Features::DSR) {
        return state("this version of HNS does not support --enable-dsr");
    }
    if !chosen.is_overlay {
        return Ok(());
    }
    if lacks(Features::REMOTE_SUBNET) {
        return state("this version of HNS does not support overlay networks");
    }
    let text = &*settings.configuration.winkernel.source_vip;
    let Some(source) = chosen.source_vip else {
        return flags(match text {
            "" => "overlay networks need --source-vip (winkernel.sourceVip)".to_owned(),
            text => format!("--source-vip: {text:?} is not an IP address"),
        });
    };
    let is_other = |bind: &IpAddr| Family::of(*bind) != Family::of(source);
    if let Some(bind) = settings.bind_address.filter(is_other) {
        return flags(format!(
            "--source-vip: {source} and --bind-address {bind} have different IP families"
        ));
    }
    if chosen.host_mac.is_empty() {
        return state("HostMac is missing, which overlay networks need");
    }
    Ok(())
}

/// Returns the IP families. As in upstream, overlay networks have one, and others have both
/// if HNS supports that.
fn families(chosen: &Settings, settings: &settings::Settings) -> Vec<Family> {
    if !chosen.is_overlay && chosen.features.contains(Features::IPV6_DUAL_STACK) {
        return Family::ALL.to_vec();
    }
    let own = settings.bind_address.or(chosen.source_vip);
    vec![own.map_or(Family::V4, Family::of)]
}
