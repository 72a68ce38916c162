//! Planning of changed service ports.

use std::net::IpAddr;

use vipline_service_model::{Family, PortChange, PortName, Store};

use crate::driver::{Drive, Replan};
use crate::{Config, Context, Engine};

impl Engine {
    /// Plans all changes and returns the number of changed service ports.
    pub(super) fn plan(&mut self) -> usize {
        let node = self.store.node();
        let mut changes = self.store.resolve(&node);
        changes.sort_by_cached_key(|change| urgency(&change.name));
        for driver in &mut self.drivers {
            let family = driver.family();
            let cx = context(&self.config, &self.store, &self.addresses, family);
            if let Some(cleanup) = &self.cleanup {
                cleanup.set_context(&cx);
                let own = changes.iter().filter(|each| each.family == family);
                own.for_each(|change| cleanup.plan(change));
            }
            let replan = driver.set_context(cx);
            plan_changes(&mut **driver, &changes);
            if replan == Replan::All {
                for port in self.store.ports().filter(|port| port.family == family) {
                    driver.plan(port);
                }
            }
        }
        changes.len()
    }
}

/// Returns the context of a family.
pub(super) fn context(
    config: &Config,
    store: &Store,
    addresses: &[IpAddr],
    family: Family,
) -> Context {
    let node = store.node();
    Context::new(config, &node, store.service_cidrs(family), family)
        .with_addresses(config, &node, addresses)
        .with_endpoints(store.endpoints(family))
}

/// Plans the changes of the driver's family, one Service after the other.
fn plan_changes(driver: &mut dyn Drive, changes: &[PortChange]) {
    let family = driver.family();
    let planned = changes.iter().filter(|each| each.family == family);
    driver.reserve(planned.filter(|each| each.port.is_some()).count());
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
}

/// Returns the order in which Services are planned: the API server, DNS, other Services
/// of `kube-system`, all others.
fn urgency(name: &PortName) -> u8 {
    match (&*name.namespace, &*name.service) {
        ("default", "kubernetes") => 0,
        ("kube-system", service) if service.contains("dns") => 1,
        ("kube-system", _) => 2,
        _ => 3,
    }
}
