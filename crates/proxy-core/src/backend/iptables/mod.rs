//! Mode iptables: chains and rules as upstream kube-proxy writes them.
//!
//! After a sync `iptables-save` prints the same as after a sync of upstream, except for
//! the order of Services, which is random upstream.
//!
//! Path of a packet:
//!
//! ```text
//! nat PREROUTING, OUTPUT
//!   └► KUBE-SERVICES             one address and port per rule
//!        ├► KUBE-SVC-…, KUBE-SVL-…      the cluster IP                 cluster_ip
//!        ├► KUBE-EXT-…                  an external IP                 external_ip
//!        ├► KUBE-FW-… ─► KUBE-EXT-…     a load balancer IP             load_balancer_ip, source_ranges
//!        └► KUBE-NODEPORTS ─► KUBE-EXT-…  last rule, by port only      to_node_ports, node_port
//!      KUBE-EXT-…                external traffic
//!        │ mark for masquerading                                       masquerade, short_circuit
//!        └► KUBE-SVC-… or KUBE-SVL-…
//!      KUBE-SVC-…, KUBE-SVL-…    all endpoints, local endpoints
//!        │ mark traffic from outside the pod network                   masquerade
//!        │ recorded clients                                            affinity
//!        └► KUBE-SEP-…           one endpoint at random                balance
//!             │ mark traffic of the endpoint itself                    hairpin
//!             └ DNAT                                                   dnat
//! nat POSTROUTING
//!   └► KUBE-POSTROUTING          masquerade marked packets             postrouting
//!
//! filter INPUT, FORWARD, OUTPUT  new connections
//!   ├► KUBE-PROXY-FIREWALL       drop sources outside source ranges    load_balancer_ip
//!   ├► KUBE-SERVICES             cluster IPs without endpoints         verdict
//!   ├► KUBE-EXTERNAL-SERVICES    other addresses without endpoints     refuse
//!   ├► KUBE-NODEPORTS            accept health checks                  health_check
//!   ├► KUBE-FORWARD              accept marked or tracked packets      forward
//!   └► KUBE-FIREWALL             drop external loopback traffic        firewall
//! ```
//!
//! A chain with one owner is written as a whole. In chains that all Services share,
//! single rules are inserted and deleted, so a change of a Service costs nothing for the
//! others. Only a chain that loses many rules at once is rewritten. Their order does not matter, except that one rule must be last in
//! nat KUBE-SERVICES.

pub(in crate::backend) mod plan;

pub(crate) mod apply;

use std::borrow::Cow;

use vipline_service_model::Family;

use self::apply::choice::choose;
use self::apply::cleanup::LEFTOVERS;
pub use self::apply::cleanup::is_leftover_chain;
use self::apply::installed_rules::installed;
pub use self::apply::kernel::Kernel;
use self::apply::kernel::make_counters;
use self::apply::saved::save;
use self::apply::support::check_family;
use self::apply::watch::Watch;
pub use self::plan::Planner;
use self::plan::saved::saved_rules;
use super::operations::Backend;
use crate::cleanup::Leftovers;
use crate::evaluate::{KernelState, Rules};
use crate::{Config, Engine, Error, IptablesChoice, MissingExtension, Sysctl};

/// Makes the kernel route packets from and to loopback addresses.
const ROUTE_LOCALNET: Sysctl = Sysctl::new(
    "net/ipv4/conf/all/route_localnet",
    Cow::Borrowed("1"),
    "as required by node ports on 127.0.0.0/8",
)
.unless("--iptables-localhost-nodeports=false");

/// Mode iptables.
pub(super) struct Iptables;

impl Backend for Iptables {
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

    fn sysctls(&self, config: &Config, _release: &str) -> Vec<Sysctl> {
        match config.engine.families.contains(&Family::V4) && config.serves_localhost() {
            true => vec![ROUTE_LOCALNET],
            false => Vec::new(),
        }
    }

    fn open(&self, config: &Config) -> Result<Engine, Error> {
        let backend = choose(config).backend;
        let mut settings = config.iptables;
        let mut watch = Watch::new(config.engine.intervals.retry);
        let mut kernels = Vec::new();
        for &family in &config.engine.families {
            let mut kernel = watch.open(family, backend)?;
            settings.random_fully &= kernel.has_random_fully();
            settings.nfacct = settings.nfacct && kernel.has_nfacct();
            kernels.push(kernel);
        }
        settings.nfacct = settings.nfacct && make_counters();
        let planner = Planner::new(settings);
        Ok(Engine::over(config.engine.clone(), planner, kernels).with_watch(watch))
    }

    fn plan_only(&self, config: &Config) -> Engine {
        Engine::plan_only(config.engine.clone(), Planner::from(config))
    }

    fn installed_rules(&self, config: &Config, family: Family) -> Result<Option<Rules>, Error> {
        Ok(Some(installed(config, family)?.into_rules()))
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
