//! Planning of changed service ports.

use std::net::IpAddr;

use vipline_service_model::{Family, PortChange, PortName, Store};

use crate::driver::{Drive, Replan};
use crate::{Config, Context, Engine};

impl Engine {
    /// Plans all changes.
    pub(super) fn plan(&mut self) {
        self.plan_with(Extent::Everything);
    }

    /// Plans all changes without a sync. Functions that take a shared reference, such as
    /// [`context`](Self::context) and [`desired_rules_of`](Self::desired_rules_of), then consider
    /// them.
    pub fn plan_changes(&mut self) {
        self.plan();
    }

    /// Returns everything besides Services that the rules of a family depend on.
    pub fn context(&self, family: Family) -> Context {
        context(&self.config, &self.store, &self.addresses, family)
    }

    /// Plans the changes of the next sync, and returns the number of changed service ports.
    ///
    /// The first sync plans everything: rules that an earlier process installed must not
    /// be removed only because their Service is not planned yet.
    pub(super) fn plan_next(&mut self) -> usize {
        self.plan_with(match self.has_planned {
            true => Extent::OneSync,
            false => Extent::Everything,
        })
    }

    fn plan_with(&mut self, extent: Extent) -> usize {
        let node = self.store.node();
        let mut changes = self.store.resolve(&node);
        changes.sort_by_cached_key(|change| urgency(&change.name));
        self.has_planned |= self.store.is_synced();
        let mut count = 0;
        for (driver, backlog) in self.drivers.iter_mut().zip(&mut self.backlogs) {
            let driver = &mut **driver;
            let family = driver.family();
            let cx = context(&self.config, &self.store, &self.addresses, family);
            let cleanup = self.cleanup.as_ref();
            if let Some(cleanup) = cleanup {
                cleanup.set_node_addresses(family, cx.node_port_ips());
            }
            // Flows of an address are stale once all of its rules have changed.
            let note = |change: &PortChange| {
                if let Some(cleanup) = cleanup {
                    cleanup.apply(change);
                }
            };
            let replan = driver.set_context(cx);
            if extent == Extent::OneSync {
                backlog.add(changes.iter().filter(|each| each.family == family));
                if replan == Replan::All {
                    let ports = self.store.ports();
                    backlog.add_again(ports.filter(|port| port.family == family));
                }
                count += backlog.plan(driver, note);
                continue;
            }
            let waiting = backlog.take();
            for changes in [&waiting, &changes] {
                let own = changes.iter().filter(|each| each.family == family);
                own.for_each(note);
                count += plan_changes(driver, changes);
            }
            if replan == Replan::All {
                for port in self.store.ports().filter(|port| port.family == family) {
                    driver.plan(port);
                }
            }
        }
        count
    }
}

/// Which changes are planned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Extent {
    Everything,
    /// As many as one sync may commit.
    OneSync,
}

/// Returns the context of a family. No method, because the plan borrows the drivers meanwhile.
fn context(config: &Config, store: &Store, addresses: &[IpAddr], family: Family) -> Context {
    let node = store.node();
    Context::new(config, &node, store.service_cidrs(family), family)
        .with_addresses(config, &node, addresses)
        .with_endpoints(store.endpoints(family))
}

/// Plans the changes of the driver's family, one Service after the other. Returns their
/// number.
fn plan_changes(driver: &mut dyn Drive, changes: &[PortChange]) -> usize {
    let family = driver.family();
    let planned = changes.iter().filter(|each| each.family == family);
    driver.reserve(planned.clone().filter(|each| each.port.is_some()).count());
    let count = planned.count();
    for ports in changes.chunk_by(|one, next| one.name.is_same_service(&next.name)) {
        let mut ports = ports.iter().filter(|each| each.family == family).peekable();
        if let Some(first) = ports.peek() {
            driver.retry(&first.name);
        }
        ports.for_each(|change| match &change.port {
            Some(port) => driver.plan(port),
            None => driver.plan_removal(&change.name),
        });
    }
    count
}

/// Returns the order in which Services are planned: the API server, DNS, other Services
/// of `kube-system`, all others.
pub(super) fn urgency(name: &PortName) -> u8 {
    match (&*name.namespace, &*name.service) {
        ("default", "kubernetes") => 0,
        ("kube-system", service) if service.contains("dns") => 1,
        ("kube-system", _) => 2,
        _ => 3,
    }
}
