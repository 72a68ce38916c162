//! Mode ipvs: IPVS virtual servers with ipset sets and iptables rules.
//!
//! After a sync the kernel holds the same state as after a sync of upstream, except that
//! all rules are installed even while their sets are empty. An empty set matches nothing,
//! so a change of a Service changes no rule.
//!
//! Path of a packet:
//!
//! ```text
//! nat PREROUTING, OUTPUT
//!   └► KUBE-SERVICES                 sorted by sets                   services
//!        ├► KUBE-LOAD-BALANCER       load balancer IPs                load_balancer
//!        ├► KUBE-NODE-PORT           node ports                       node_port
//!        └► KUBE-MARK-MASQ           masquerade the source            masquerade
//! kube-ipvs0 has the address, so the packet is delivered locally      bind
//! filter INPUT, OUTPUT
//!   ├► KUBE-IPVS-FILTER              reject other ports of Services   ipvs_filter
//!   ├► KUBE-PROXY-FIREWALL           check source ranges              firewall, source_ranges
//!   ├► KUBE-NODE-PORT                accept health checks             health_check
//!   └► KUBE-IPVS-OUT-FILTER          check local processes            drop_local_traffic
//! IPVS
//!   └ virtual server                 a service port at an address     virtual_server
//!        └ real server               an endpoint                      real_server
//! nat POSTROUTING
//!   └► KUBE-POSTROUTING              masquerade marked packets        postrouting, hairpin
//! ```
//!
//! Four kernel subsystems hold this state: ip_set, netfilter, IPVS and rtnetlink. A
//! virtual server belongs to kube-proxy if a set or the link `kube-ipvs0` has its
//! address: set entries are added before virtual servers and removed after them. All
//! other virtual servers belong to other programs and stay.

mod plan;

mod apply;

use vipline_service_model::Family;

use self::apply::cleanup::LEFTOVERS;
use self::apply::installed_rules::installed_rules;
pub use self::apply::kernel::Kernel;
use self::apply::prepare::{check_kernel, set_timeouts};
use self::apply::saved::save;
use self::apply::watch::Watch;
pub use self::plan::Planner;
pub use self::plan::object::{Key, Object};
use self::plan::saved::saved_rules;
use self::plan::sysctls::sysctls;
use super::iptables::apply::choice::choose;
use super::iptables::apply::support::check_family;
use super::operations::Backend;
use crate::cleanup::Leftovers;
use crate::evaluate::{KernelState, Rules};
use crate::{Config, Engine, Error, IptablesChoice, MissingExtension, Sysctl};

/// Mode ipvs.
pub(super) struct Ipvs;

impl Backend for Ipvs {
    fn check_kernel(&self) -> Result<(), Error> {
        check_kernel()
    }

    fn check_family(
        &self,
        config: &Config,
        family: Family,
    ) -> Result<Vec<MissingExtension>, Error> {
        check_family(config, family)
    }

    fn choose_iptables_backend(&self, config: &Config) -> Option<IptablesChoice> {
        Some(choose(config))
    }

    fn sysctls(&self, config: &Config, release: &str) -> Vec<Sysctl> {
        sysctls(release, config.ipvs.strict_arp)
    }

    fn prepare(&self, config: &Config) -> Result<(), Error> {
        set_timeouts(&config.ipvs)
    }

    fn open(&self, config: &Config) -> Result<Engine, Error> {
        let backend = choose(config).backend;
        let mut watch = Watch::new(config.engine.intervals.retry)?;
        let mut iptables = config.iptables;
        let mut kernels = Vec::new();
        for &family in &config.engine.families {
            let kernel = watch.open(family, backend, &config.ipvs)?;
            iptables.random_fully &= kernel.has_random_fully();
            kernels.push(kernel);
        }
        watch.listen_to_links()?;
        let planner = Planner::new(&config.ipvs, &iptables);
        Ok(Engine::over(config.engine.clone(), planner, kernels).with_watch(watch))
    }

    fn plan_only(&self, config: &Config) -> Engine {
        Engine::plan_only(config.engine.clone(), Planner::from(config))
    }

    fn installed_rules(&self, config: &Config, family: Family) -> Result<Option<Rules>, Error> {
        installed_rules(config, family).map(Some)
    }

    fn save(&self, state: &mut KernelState) -> Result<(), Error> {
        save(state)
    }

    fn saved_rules(&self, state: &KernelState) -> Result<Option<Rules>, Error> {
        saved_rules(state).map(Some)
    }

    fn leftovers(&self) -> Leftovers {
        LEFTOVERS
    }
}
