//! Mode nftables: constant rules, and Services as elements of shared maps.
//!
//! One table per family, `ip kube-proxy` and `ip6 kube-proxy`.
//! Its chains and rules do not depend on which Services there are: those exist
//! only as elements, so a change of an endpoint is a change of an element.
//!
//! The way of a packet:
//!
//! ```text
//! from outside ─► filter-prerouting-pre-dnat     filter-output-pre-dnat ◄─ from a process of this node
//!                   └────────► firewall-check ◄────────┘                        new connections only
//!                                @firewall-ips … != @source-ranges drop        source_ranges
//!                 nat-prerouting ─┐                    ┌─ nat-output
//!                                 ▼                    ▼
//!                              services
//!                                 │ mark what must be masqueraded   masquerade_cluster_ips, masquerade_external
//!                                 ├─► short-circuit, of @local-policy-ips        to_short_circuit
//!                                 │     from pods: vmap @short-ips               short_circuit
//!                                 │     from the node: mark, vmap @short-ips ──► lb-short-N
//!                                 │ @slots-N goto lb-N, for N up to 8           few_slots
//!                                 │ vmap @service-ips                            dispatch
//!                                 └─► nodeports, of addresses of the node        to_nodeports
//!                                       the same, by port alone ──► lb-nodeport-N, lb-short-nodeport-N
//!                                 ▼
//!                               lb-N      one per number of slots in use
//!                                 │ dnat to … numgen random mod N map @backends      lb
//!                                 │ (lb-N-affinity: first dnat to … map @affinity    sticky)
//!                                 ▼
//!                    routing, with the endpoint as destination
//!                                 │
//!        ┌────────────────────────┼───────────────────────┐
//!        ▼                        ▼                       ▼
//!   filter-input           filter-forward           filter-output     new connections only
//!        ├► nodeport-endpoints-check (of addresses of the node)
//!        │    @no-endpoints-nodeports reject             no_endpoints
//!        │    @no-local-endpoints-nodeports drop         no_local_endpoints
//!        └─► service-endpoints-check ◄────────────────────┘
//!              @no-endpoints reject                no_endpoints
//!              @no-local-endpoints drop            no_local_endpoints
//!                                 │
//!                 cluster-ips-check (forward and output)
//!                   @cluster-ips reject            unused_ports
//!                   @service-cidrs drop            unused_cluster_ips
//!                                 │
//!                 filter-postrouting, and filter-input for endpoints here
//!                   affinity-learning              learners
//!                     learn-T: update @affinity    learn
//!                                 ▼
//!                    nat-postrouting ─► masquerading
//!                                         marked: masquerade          masquerade_marked
//!                                         @hairpin-connections        hairpin
//! ```
//!
//! What a Service adds, as elements; V is `VIP . proto . port`, and a port of
//! the node has sets of its own, of `proto . port`:
//!
//! | Of | Element | Function |
//! |---|---|---|
//! | the cluster IP | `cluster-ips { VIP }` | `active` |
//! | | the route of the policy for internal traffic | `cluster_ip` |
//! | an external IP or that of a load balancer | as the cluster IP, with the route of outsiders | `external_ip` |
//! | the node port | `service-nodeports { proto . port : goto lb-nodeport-N }` | `node_port` |
//! | each endpoint | `backends { V . slot : endpoint . port }` | `backends` |
//! | the number of endpoints | `slots-N { V }`, or `service-ips { V : goto lb-N }` | `balance` |
//! | external policy Cluster | `masquerade-ips { V }` | `masquerade` |
//! | external policy Local | `local-policy-ips { V }`, `short-ips`, `short-backends` | `short_circuit` |
//! | source ranges | `firewall-ips { V }`, `source-ranges { V . network }` | `source_ranges` |
//! | session affinity | `service-ips { V : goto lb-N-affinity }` | `balance` |
//! | | `affinity-endpoints { V . endpoint . port }` | `may_be_remembered` |
//! | | `affinity-ips { V : goto learn-T }` | `remember` |
//! | each endpoint of this node | `hairpin-connections { ip . ip . proto . port }` | `hairpin` |
//! | a lack of endpoints | `no-endpoints { V }` | `no_endpoints` |
//! | a lack of endpoints here | `no-local-endpoints { V }` | `no_local_endpoints` |
//!
//! `goto` elements are costly, for the kernel validates their whole map: what
//! most Services have is in plain sets instead.
//!
//! Of Services that claim one address the older has it, with all its elements.
//!
//! Chains `lb-N` and `learn-T` stay until the next start once they are made:
//! kernels before 6.2 notice late that nothing refers to a chain any more.
//! The start removes those that are not in use, after its first commit.
//!
//! Many edits are committed in batches, in an order in which each batch leaves
//! rules that make sense.

mod names;

mod table;

mod base;

mod port;

mod endpoint;

mod affinity;

mod kernel;

mod subject;

mod batches;

mod takeover;

mod script;

#[cfg(test)]
mod tests;

use vipline_nftables::Object;
use vipline_reconcile::Edit;
use vipline_service_model::{Family, ServicePort};

use crate::{Context, Wants, backend};

pub use batches::transactions;
pub use kernel::Kernel;
pub(crate) use kernel::Watch;
pub use names::TABLE;

/// The planner of mode nftables.
#[derive(Clone, Copy, Debug)]
pub enum Planner {}

impl backend::Planner for Planner {
    type Object = Object;

    fn base(cx: &Context) -> Vec<Object> {
        base::objects(cx)
    }

    /// Source ranges depend on the node's address, and nothing else on anything.
    fn concerns_ports(before: &Context, after: &Context) -> bool {
        before.node_address != after.node_address
    }

    fn port(cx: &Context, port: &ServicePort) -> Wants<Object> {
        port::wants(cx, port)
    }

    fn lingers(object: &Object) -> bool {
        matches!(object, Object::Chain(chain) if names::is_on_demand(&chain.name))
    }

    fn script<'a>(
        _family: Family,
        edits: Vec<Edit<Object>>,
        desired: impl Iterator<Item = &'a Object>,
    ) -> String {
        script::script(edits, desired)
    }

    fn listing<'a>(_family: Family, objects: impl Iterator<Item = &'a Object>) -> String {
        script::listing(objects)
    }
}
