//! Mode nftables: constant rules, and Services as elements of shared maps.
//!
//! One table per family, `ip kube-proxy` and `ip6 kube-proxy`.
//! Its chains and rules do not depend on which Services there are: those exist
//! only as elements, so a change of an endpoint is a change of an element.
//!
//! The way of a packet:
//!
//! ```text
//! from outside ─► nat-prerouting ─┐                    ┌─ from a process of this node
//!                                 ▼                    ▼
//!                              services ◄──────── nat-output
//!                                 │ mark what must be masqueraded   masquerade_cluster_ips
//!                                 │ vmap @service-ips               service_ips
//!                                 ▼
//!                               lb-N      one per number of slots in use
//!                                 │ dnat to … numgen random mod N map @backends      lb
//!                                 ▼
//!                    routing, with the endpoint as destination
//!                                 │
//!        ┌────────────────────────┼───────────────────────┐
//!        ▼                        ▼                       ▼
//!   filter-input           filter-forward           filter-output     new connections only
//!        │                        │                       │
//!        └─► service-endpoints-check ◄────────────────────┘
//!              @no-endpoints reject                no_endpoints
//!              @no-local-endpoints drop            no_local_endpoints
//!                                 │
//!                 cluster-ips-check (forward and output)
//!                   @cluster-ips reject            unused_ports
//!                   @service-cidrs drop            unused_cluster_ips
//!                                 │
//!                                 ▼
//!                    nat-postrouting ─► masquerading
//!                                         marked: masquerade          masquerade_marked
//!                                         @hairpin-connections        hairpin
//! ```
//!
//! What a Service adds, as elements:
//!
//! | Of | Element | Function |
//! |---|---|---|
//! | the cluster IP | `cluster-ips { VIP }` | `cluster_ip` |
//! | each endpoint | `backends { VIP . proto . port . slot : endpoint . port }` | `backend` |
//! | the number of endpoints | `service-ips { VIP . proto . port : goto lb-N }` | `balance` |
//! | each endpoint of this node | `hairpin-connections { ip . ip . proto . port }` | `hairpin` |
//! | a lack of endpoints | `no-endpoints { VIP . proto . port }` | `no_endpoints` |
//! | a lack of endpoints here | `no-local-endpoints { VIP . proto . port }` | `no_local_endpoints` |
//!
//! `goto` elements are costly, for the kernel validates their whole map: they
//! change only when a Service appears or has another number of endpoints.
//!
//! Chains `lb-N` stay until the next start once they are made: kernels before
//! 6.2 notice late that nothing refers to a chain any more.
//! The start removes those that are not in use, after its first commit.
//!
//! Many edits are committed in batches, in an order in which each batch leaves
//! rules that make sense.

mod names;

mod table;

mod base;

mod port;

mod endpoint;

mod kernel;

mod batches;

#[cfg(test)]
mod tests;

use vipline_nftables::{Object, Ruleset, Transaction};
use vipline_reconcile::Edit;
use vipline_service_model::ServicePort;

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

    fn port(cx: &Context, port: &ServicePort) -> Wants<Object> {
        port::wants(cx, port)
    }

    fn lingers(object: &Object) -> bool {
        matches!(object, Object::Chain(chain) if names::is_on_demand(&chain.name))
    }

    fn script<'a>(
        mut edits: Vec<Edit<Object>>,
        desired: impl Iterator<Item = &'a Object>,
    ) -> String {
        if let Some(table) = batches::beyond_nft(&edits) {
            let listing = Self::listing(desired);
            return format!("add table {table}\ndelete table {table}\n{listing}");
        }
        batches::sort(&mut edits);
        Transaction::from_edits(&edits).to_string()
    }

    fn listing<'a>(objects: impl Iterator<Item = &'a Object>) -> String {
        objects.cloned().collect::<Ruleset>().to_string()
    }
}
