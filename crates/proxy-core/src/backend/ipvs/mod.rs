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

mod names;

mod object;

mod base;

mod port;

mod endpoint;

mod capacity;

mod steps;

mod rejections;

mod schedulers;

mod drain;

mod installed;

mod kernel;

mod links;

mod watch;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
        let inputs = |cx: &Context| {
            (
                cx.node_address,
                cx.addresses.clone(),
                cx.node_port_ips(),
                cx.scheduler,
            )
        };
        inputs(before) != inputs(after)
    }

    fn port(cx: &Context, port: &ServicePort) -> PortObjects<Object> {
        port::objects(cx, port)
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

/// State that a kernel and its watch share, behind a mutex.
#[derive(Debug, Default)]
pub(super) struct Shared<T>(Arc<Mutex<T>>);

impl<T> Shared<T> {
    /// Locks the mutex.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
