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
//! others. Their order does not matter, except that one rule must be last in
//! nat KUBE-SERVICES.

pub(in crate::backend) mod plan;

mod apply;

pub(crate) use apply::cleanup::LEFTOVERS;
pub use apply::kernel::Kernel;
pub(crate) use apply::kernel::make_counters;
pub(crate) use apply::watch::Watch;
pub use plan::Planner;
pub(crate) use plan::cleanup::names::Names;
