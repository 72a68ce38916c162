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

pub(crate) use apply::cleanup::LEFTOVERS;
pub use apply::kernel::Kernel;
pub(crate) use apply::watch::Watch;
pub use plan::Planner;
pub use plan::object::{Key, Object};
