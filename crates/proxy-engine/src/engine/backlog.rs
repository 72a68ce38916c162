//! Changes that wait for their commit.
//!
//! A commit has a bounded number of edits, so a large change is spread over several syncs.
//! The changes of other Services must not wait for it: each sync takes the small changes
//! first, also those that arrived later. If not everything fits, large ones wait for the next sync,
//! so that a small change waits for a part of a large one at most once: while it arrives, and not
//! in its own commit, too. That next sync has large changes in any case, beside new small ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use vipline_service_model::{ObjectName, PortChange, PortName, ServicePort};

use super::planning::urgency;
use crate::driver::Drive;
use crate::driver::part::SMALL_SHARE;

/// Share of the edits of a sync that is left for large changes if they waited for the sync before,
/// so that a stream of small ones does not hold them up for ever.
const SHARE_OF_LARGE: usize = 4;

/// Changes of one family that are not planned yet, by Service.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Services in order of arrival.
    services: BTreeMap<u64, Waiting>,
    numbers: HashMap<ObjectName, u64>,
    next: u64,
    /// Whether large changes waited for the small ones of the last sync.
    has_deferred_large: bool,
}

/// Changes of one Service. A later change of a service port replaces the earlier one.
#[derive(Debug)]
struct Waiting {
    service: ObjectName,
    urgency: u8,
    /// Whether nothing of the Service changed, and only its rules depend on something else.
    is_only_replanned: bool,
    /// Estimated number of objects of all changes.
    size: usize,
    changes: BTreeMap<Arc<PortName>, PortChange>,
}

impl Backlog {
    /// Returns whether no change waits.
    pub(super) fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// Adds changes. Fast if those of one Service are next to each other.
    pub(super) fn add<'a>(&mut self, changes: impl Iterator<Item = &'a PortChange>) {
        let mut last = None;
        for change in changes {
            let waiting = self.waiting(&change.name, &mut last);
            waiting.is_only_replanned = false;
            waiting.size += size(change);
            let name = Arc::clone(&change.name);
            waiting.changes.insert(name, change.clone());
        }
    }

    /// Adds service ports that must be planned again although their Services did not change.
    /// They come after all changes.
    pub(super) fn add_again<'a>(&mut self, ports: impl Iterator<Item = &'a Arc<ServicePort>>) {
        let mut last = None;
        for port in ports {
            let waiting = self.waiting(&port.name, &mut last);
            let change = || PortChange::again(port);
            let change = waiting
                .changes
                .entry(Arc::clone(&port.name))
                .or_insert_with(change);
            waiting.size += size(change);
        }
    }

    /// Returns the entry of a Service. `last` is that of the last call.
    fn waiting<'a>(
        &mut self,
        name: &'a PortName,
        last: &mut Option<(&'a PortName, u64)>,
    ) -> &mut Waiting {
        let number = match *last {
            Some((former, number)) if former.is_same_service(name) => number,
            _ => self.number(name),
        };
        *last = Some((name, number));
        self.services.entry(number).or_insert_with(|| Waiting {
            service: name.service_name(),
            urgency: urgency(name),
            is_only_replanned: true,
            size: 0,
            changes: BTreeMap::new(),
        })
    }

    fn number(&mut self, name: &PortName) -> u64 {
        let next = &mut self.next;
        *self.numbers.entry(name.service_name()).or_insert_with(|| {
            *next += 1;
            *next
        })
    }

    /// Removes and returns all changes.
    pub(super) fn take(&mut self) -> Vec<PortChange> {
        self.numbers.clear();
        let services = std::mem::take(&mut self.services).into_values();
        services.flat_map(|it| it.changes.into_values()).collect()
    }

    /// Plans as many changes as one sync may commit. Calls `planned` with each change that
    /// is planned to its end, and returns their number.
    pub(super) fn plan(
        &mut self,
        driver: &mut dyn Drive,
        mut planned: impl FnMut(&PortChange),
    ) -> usize {
        let end = driver
            .planned_edits()
            .saturating_add(driver.edits_per_sync());
        // All ports of a small Service change in one commit.
        let order = self.order(driver.edits_per_sync() / SMALL_SHARE);
        let is_small_waiting = order.first().is_some_and(|(class, ..)| *class == 0);
        let is_large_waiting = order.last().is_some_and(|(class, ..)| *class > 0);
        let size: usize = self.services.values().map(|it| it.size).sum();
        let defers_large = is_small_waiting
            && is_large_waiting
            && !self.has_deferred_large
            && size > driver.edits_per_sync();
        self.has_deferred_large = defers_large;
        let reserve = match is_large_waiting && !defers_large {
            true => driver.edits_per_sync() / SHARE_OF_LARGE,
            false => 0,
        };
        let mut count = 0;
        for (class, _, number) in order {
            if defers_large && class > 0 {
                break;
            }
            let reserved = if class == 0 { reserve } else { 0 };
            let left = |driver: &dyn Drive| end.saturating_sub(driver.planned_edits() + reserved);
            if left(driver) == 0 {
                continue;
            }
            let Some(waiting) = self.services.get_mut(&number) else {
                continue;
            };
            if let Some(name) = waiting.changes.keys().next() {
                driver.retry(name);
            }
            while let Some(change) = waiting.changes.first_entry() {
                let limit = match class {
                    0 => usize::MAX,
                    _ => left(driver),
                };
                if limit == 0 || !driver.plan_part(change.get(), limit) {
                    break;
                }
                planned(change.get());
                change.remove();
                count += 1;
            }
            if waiting.changes.is_empty() {
                self.numbers.remove(&waiting.service);
                self.services.remove(&number);
            }
        }
        count
    }

    /// Returns the Services in the order in which they are planned, as (class, urgency,
    /// number). Services of less than `max_small` objects have class 0; each further class has
    /// twice the size, and Services that did not change come last.
    fn order(&self, max_small: usize) -> Vec<(u32, u8, u64)> {
        let services = self.services.iter();
        let mut order: Vec<_> = services
            .map(|(&number, it)| {
                let large = (it.size / max_small).checked_ilog2();
                let class = match it.is_only_replanned {
                    true => u32::MAX,
                    false => large.map_or(0, |it| it + 1),
                };
                (class, it.urgency, number)
            })
            .collect();
        order.sort_unstable();
        order
    }
}

/// Returns the estimated number of objects that a change concerns.
fn size(change: &PortChange) -> usize {
    let both = [&change.former, &change.port].into_iter().flatten();
    both.map(|port| of_port(port)).max().unwrap_or(1)
}

fn of_port(port: &ServicePort) -> usize {
    let addresses = 2 + port.external_ips.len() + port.load_balancer_ips.len();
    let endpoints = port.cluster.len().max(port.local.len());
    addresses.saturating_mul(1 + endpoints)
}
