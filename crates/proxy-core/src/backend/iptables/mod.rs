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

pub(in crate::backend) mod names;

pub(in crate::backend) mod rules;

pub(in crate::backend) mod base;

pub(in crate::backend) mod layout;

mod port;

mod endpoint;

mod installed;

mod kernel;

mod own_commits;

mod rejections;

mod watch;

#[cfg(test)]
mod tests;

use vipline_iptables::{Contents, Object, Restore};
use vipline_reconcile::Edit;
use vipline_service_model::{Family, ServicePort};

use crate::{Context, PortObjects, backend};

pub use kernel::Kernel;
pub(crate) use kernel::make_counters;
pub(crate) use watch::Watch;

/// The planner of mode iptables.
#[derive(Clone, Copy, Debug)]
pub enum Planner {}

impl backend::Planner for Planner {
    type Object = Object;

    fn base(cx: &Context) -> Vec<Object> {
        base::objects(cx)
    }

    fn requires_replan(before: &Context, after: &Context) -> bool {
        let inputs = |cx: &Context| {
            let flags = (
                cx.masquerade_all,
                cx.is_large,
                cx.serves_localhost,
                cx.iptables.nfacct,
            );
            (cx.local.clone(), cx.node_address, flags)
        };
        inputs(before) != inputs(after)
    }

    fn port(cx: &Context, port: &ServicePort) -> PortObjects<Object> {
        port::objects(cx, port)
    }

    fn rule_count(object: &Object) -> Option<(&'static str, usize)> {
        let (table, count) = match object {
            Object::Chain(chain) => match &chain.contents {
                Contents::Rules(rules) => (chain.table, rules.len()),
                _ => (chain.table, 0),
            },
            Object::SharedRule(entry) => {
                let (table, chain) = (entry.table.as_str(), entry.chain.as_str());
                let is_ours = names::kind(table, chain) != names::Kind::System;
                (entry.table, usize::from(is_ours))
            }
        };
        let counted = [names::FILTER, names::NAT].into_iter();
        let name = counted.into_iter().find(|name| *name == table.as_str());
        name.map(|name| (name, count))
    }

    fn text(object: &Object) -> String {
        match object {
            Object::Chain(chain) => format!("-t {} -N {}", chain.table, chain.name),
            Object::SharedRule(entry) => {
                format!("-t {} -A {} {}", entry.table, entry.chain, entry.rule)
            }
        }
    }

    fn script<'a>(
        family: Family,
        mut edits: Vec<Edit<Object>>,
        _desired: impl Iterator<Item = &'a Object>,
    ) -> String {
        edits.sort_by_cached_key(|edit| place(edit.object()));
        document(family, &edits)
    }

    fn listing<'a>(family: Family, objects: impl Iterator<Item = &'a Object>) -> String {
        let mut edits: Vec<_> = objects.cloned().map(Edit::Add).collect();
        edits.sort_by_cached_key(|edit| place(edit.object()));
        document(family, &edits)
    }
}

/// Returns edits as a document, with the program that reads it in the first line.
fn document(family: Family, edits: &[Edit<Object>]) -> String {
    let program = match family {
        Family::V4 => "iptables-restore",
        Family::V6 => "ip6tables-restore",
    };
    format!("# {program} --noflush\n{}", Restore::from_edits(edits))
}

/// Returns the sort key of an object in a document. Jumps come in the order in which they
/// must be inserted.
fn place(object: &Object) -> (usize, String) {
    match object {
        Object::Chain(chain) => (0, format!("{} {}", chain.table, chain.name)),
        Object::SharedRule(entry) => {
            let (table, chain) = (entry.table.as_str(), entry.chain.as_str());
            let place = base::place_of_jump(table, chain, &entry.rule);
            let text = format!("{table} {chain} {:?} {}", entry.position, entry.rule);
            (place.map_or(usize::MAX, |place| place + 1), text)
        }
    }
}
