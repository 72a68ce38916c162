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
//!   └► KUBE-SERVICES                 what is from where, by sets      services
//!        ├► KUBE-LOAD-BALANCER       of a load balancer               load_balancer
//!        ├► KUBE-NODE-PORT           node ports                       node_port
//!        └► KUBE-MARK-MASQ           the source must not be seen      masquerade
//! kube-ipvs0 has the address, so the packet is for this node          bind
//! filter INPUT, OUTPUT
//!   ├► KUBE-IPVS-FILTER              addresses of Services have no other ports   ipvs_filter
//!   ├► KUBE-PROXY-FIREWALL           who may use load balancers       firewall, source_ranges
//!   ├► KUBE-NODE-PORT                ports that load balancers ask    health_check
//!   └► KUBE-IPVS-OUT-FILTER          the node may not                 keep_node_out
//! IPVS
//!   └ virtual server                 a service port at an address     virtual_server
//!        └ real server               an endpoint                      real_server
//! nat POSTROUTING
//!   └► KUBE-POSTROUTING              masquerade what is marked        postrouting, hairpin
//! ```
//!
//! Four kernel subsystems hold this state. The sets also mark ownership: a virtual server
//! is ours if a set contains its address, because entries are added before servers and
//! removed after them. All other virtual servers belong to other programs and stay.

mod names;

mod object;

mod base;

mod port;

mod endpoint;

mod capacity;

mod steps;

mod refusals;

mod schedulers;

mod mutex;

mod drain;

mod installed;

mod kernel;

mod links;

mod watch;

#[cfg(test)]
mod tests;

use vipline_reconcile::Edit;
use vipline_service_model::{Family, ServicePort};

use crate::{Context, PortObjects, backend};

pub use kernel::Kernel;
pub use object::{Key, Object};
use steps::Steps;
pub(crate) use watch::Watch;

/// The planner of mode ipvs.
#[derive(Clone, Copy, Debug)]
pub enum Planner {}

impl backend::Planner for Planner {
    type Object = Object;

    fn base(cx: &Context) -> Vec<Object> {
        base::objects(cx)
    }

    fn requires_replan(before: &Context, after: &Context) -> bool {
        let told = |cx: &Context| {
            (
                cx.node_address,
                cx.addresses.clone(),
                cx.node_port_ips(),
                cx.scheduler,
            )
        };
        told(before) != told(after)
    }

    fn port(cx: &Context, port: &ServicePort) -> PortObjects<Object> {
        port::wants(cx, port)
    }

    fn text(object: &Object) -> String {
        object.to_string()
    }

    fn script<'a>(
        family: Family,
        edits: Vec<Edit<Object>>,
        _desired: impl Iterator<Item = &'a Object>,
    ) -> String {
        Steps::of(edits).script(family)
    }

    fn listing<'a>(family: Family, objects: impl Iterator<Item = &'a Object>) -> String {
        let mut edits: Vec<_> = objects.cloned().map(Edit::Add).collect();
        edits.sort_by_cached_key(|edit| edit.object().to_string());
        Steps::of(edits).script(family)
    }
}
