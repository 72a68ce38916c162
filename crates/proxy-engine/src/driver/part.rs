//! Changes of service ports with many addresses, planned in parts.
//!
//! A service port with 16,000 addresses has at least as many edits when its endpoint is
//! replaced, and a commit of all of them would delay the changes of other Services. So each
//! sync takes a few hundred or thousand addresses forward, and nothing is remembered in
//! between: the ledger has the former objects of the addresses that are still to come, so
//! the next part begins at the first address that differs from the plan. If the Service
//! changes again in the meantime, its next parts simply lead to the newer plan.
//!
//! The order is that in which no client loses an address that the Service keeps:
//!
//! 1. Wanted addresses get their new objects, the cluster IP and the node port first.
//! 2. Then addresses that the service port no longer wants are withdrawn.
//! 3. Objects without an address, such as the chains of endpoints, are added with the first
//!    address that may use them, and removed with the last.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use vipline_reconcile::{Edit, Keyed, Target};
use vipline_service_model::{PortChange, PortName, ServicePort};

use super::{Driver, Owner, take_on_demand};
use crate::entry::Entry;
use crate::{Address, AddressKind, Claim, Planner, PortObjects};

/// Divisor of [`Planner::EDITS_PER_SYNC`]: a change of a service port of at most a quarter of it is
/// planned as a whole, and a part of a larger one has at least as many edits.
///
/// A larger share would let a sync exceed its limit further, because its last Service may begin
/// just below the limit. A smaller one would split more Services, and each part costs a plan of the
/// whole port.
pub(crate) const SMALL_SHARE: usize = 4;

/// Cost of an edit. Objects of which several cost as much as one edit cost a fraction of it, in
/// whole numbers: a mode may say that up to 64 do (see [`Planner::additions_per_edit`]).
pub(super) const EDIT_COST: usize = 64;

/// The cost of an edit, in units of which an ordinary edit has [`EDIT_COST`].
pub(super) fn cost<P: Planner>(edit: &Edit<P::Object>) -> usize {
    match edit {
        Edit::Remove(object) => cost_of_removal::<P>(object),
        Edit::Add(object) => cost_of_addition::<P>(object),
        Edit::Change { .. } => EDIT_COST,
    }
}

/// The cost of the addition of an object: at least 1, so that no number of objects is free. A mode
/// that says 0 per edit means 1.
pub(super) fn cost_of_addition<P: Planner>(object: &P::Object) -> usize {
    (EDIT_COST / P::additions_per_edit(object).max(1)).max(1)
}

fn cost_of_removal<P: Planner>(object: &P::Object) -> usize {
    (EDIT_COST / P::removals_per_edit(object).max(1)).max(1)
}

/// Objects of one address of a service port in the ledger.
struct Held<T> {
    kind: AddressKind,
    objects: Vec<T>,
}

impl<P: Planner, K: Target<Object = P::Object>> Driver<P, K> {
    /// Plans a part of a change. Returns whether nothing of the change is left.
    pub(super) fn plan_part_of(&mut self, change: &PortChange, limit: usize) -> bool {
        let name = &change.name;
        let cx = self
            .cx
            .as_ref()
            .expect("the context is set before ports are planned");
        // As many edits as count as a small change.
        let min = P::EDITS_PER_SYNC / SMALL_SHARE;
        let held_cost = self.cost_of_removal(name);
        // The removal of a port leads away from its last value. A change without any value has
        // nothing to plan; `PortChange::between` makes none.
        let Some(target) = change.port.as_ref().or(change.former.as_ref()) else {
            self.replace_whole(name, PortObjects::default());
            return true;
        };
        if change.port.is_none() && held_cost <= min * EDIT_COST {
            self.replace_whole(name, PortObjects::default());
            return true;
        }
        let planned = self.planner.port(cx, target);
        if held_cost + cost_of_all::<P>(&planned) <= min * EDIT_COST {
            self.replace_whole(name, planned);
            return true;
        }
        let is_removal = change.port.is_none();
        match self.part(target, planned.clone(), is_removal, limit.max(min)) {
            Some((part, used)) => {
                // Addresses that are still to come need the objects of the last call: those are
                // released only by the last part, which replaces them.
                let created = self.on_demand.extend(name, used);
                self.add_on_demand(created);
                self.replace_port(name, part);
                false
            }
            None if is_removal => {
                self.replace_whole(name, PortObjects::default());
                true
            }
            None => {
                self.replace_whole(name, planned);
                true
            }
        }
    }

    fn replace_whole(&mut self, name: &Arc<PortName>, mut planned: PortObjects<P::Object>) {
        self.set_on_demand(name, &mut planned);
        self.replace_port(name, planned);
    }

    /// Returns the objects of the next part, and the objects of it that several service ports
    /// may use. Returns `None` if the rest of the change is within the limit.
    ///
    /// `planned` are the objects of the target. If the change `is_removal`, the target is the
    /// removed service port.
    #[expect(
        clippy::type_complexity,
        reason = "two results that the caller needs at once"
    )]
    fn part(
        &self,
        target: &ServicePort,
        mut planned: PortObjects<P::Object>,
        is_removal: bool,
        limit: usize,
    ) -> Option<(PortObjects<P::Object>, Vec<P::Object>)> {
        let mut used = take_on_demand::<P>(&mut planned);
        let mut held = self.held(&target.name);
        let mut left = limit.saturating_mul(EDIT_COST);
        // At least 1, so that also addresses without objects use up the part.
        let removal = |objects: &[P::Object]| -> usize {
            let costs = objects.iter().map(cost_of_removal::<P>);
            costs.sum::<usize>().max(1)
        };
        let mut is_done = true;
        // Whether an address keeps objects that the target does not have. They may need former
        // objects without an address.
        let mut is_mixed = false;
        let mut claims = Vec::new();
        // The cluster IP and the node port have precedence over external addresses.
        planned.claims.sort_by_key(|claim| match claim.kind {
            AddressKind::ClusterIp => 0,
            AddressKind::NodePort => 1,
            AddressKind::LoadBalancerIp => 2,
            AddressKind::ExternalIp => 3,
        });
        let mut unwanted = Vec::new();
        for claim in planned.claims {
            let former = held.remove(&claim.address);
            let is_current = former.as_ref().is_some_and(|held| held.is_same(&claim));
            match former {
                Some(former) if is_removal => {
                    is_mixed |= !is_current;
                    unwanted.push(former.into_claim(claim.address));
                }
                // An earlier part has withdrawn it, or none has ever added it.
                _ if is_removal => {}
                // Free: the ledger finds no difference.
                _ if is_current => claims.push(claim),
                // Not in this part: the address keeps what it has, or is not served yet.
                former if left == 0 => {
                    is_done = false;
                    is_mixed |= former.is_some();
                    claims.extend(former.map(|held| held.into_claim(claim.address)));
                }
                former => {
                    // An upper bound, as if no object stayed. The address changes as a whole, so
                    // the last one of a part may exceed the limit.
                    let former = former.map_or(0, |held| removal(&held.objects));
                    let added = claim.objects.iter().map(cost_of_addition::<P>);
                    let cost = former + added.sum::<usize>();
                    left = left.saturating_sub(cost.max(1));
                    claims.push(claim);
                }
            }
        }
        // What the target does not have at all is withdrawn first.
        is_mixed |= is_removal && !held.is_empty();
        let others = held.into_iter();
        let mut others: Vec<_> = others.map(|(at, held)| held.into_claim(at)).collect();
        // A map has no order, but equal histories must lead to equal parts.
        others.sort_unstable_by_key(|claim| claim.address);
        let mut kept = Vec::new();
        // External addresses, which come last in the plan, are withdrawn first.
        for claim in others.into_iter().chain(unwanted.into_iter().rev()) {
            // Withdrawals wait until all wanted addresses are served. A removal has none.
            if left == 0 || !is_done && !is_removal {
                kept.push(claim);
            } else {
                left = left.saturating_sub(removal(&claim.objects));
            }
        }
        if is_done && kept.is_empty() {
            return None;
        }
        let served = claims.iter().chain(&kept);
        let subset = subset(target, served.map(|claim| (claim.address, claim.kind)));
        // The caller had a context to plan with, so there is one.
        let mut own = self.planner.port(self.cx.as_ref()?, &subset);
        used.extend(take_on_demand::<P>(&mut own));
        let of_subset: HashMap<_, _> = own
            .claims
            .iter()
            .map(|claim| (claim.address, claim))
            .collect();
        // Addresses that are about to be withdrawn have the objects of the target, unless its
        // endpoints changed as well.
        is_mixed |= !is_removal
            && kept.iter().any(|claim| {
                let of_target = of_subset.get(&claim.address);
                of_target.is_none_or(|target| !is_same(&target.objects, &claim.objects))
            });
        claims.extend(kept);
        let mut own = own.own;
        // All former ones, because nothing says which of them an address needs. What the target has
        // too is in the list twice, and the ledger takes the first of equal keys: the target's.
        if is_mixed {
            own.extend(self.held_without_address(&target.name));
        }
        Some((PortObjects { own, claims }, used))
    }

    /// The cost of the removal of a service port, from what it has in the ledger.
    fn cost_of_removal(&self, name: &Arc<PortName>) -> usize {
        let owners = self.owners_of(name);
        let objects = owners
            .iter()
            .flat_map(|owner| self.ledger.objects_of(owner));
        let objects = objects.flat_map(Entry::objects);
        objects.map(cost_of_removal::<P>).sum()
    }

    /// Returns the objects of a service port in the ledger by address.
    fn held(&self, name: &Arc<PortName>) -> HashMap<Address, Held<P::Object>> {
        let mut held = HashMap::new();
        for owner in self.owners_of(name) {
            let Owner::Port(kind, _) = owner else {
                continue;
            };
            for entry in self.ledger.objects_of(&owner) {
                if let Entry::Address(address, objects) = entry {
                    let objects = objects.to_vec();
                    held.insert(*address, Held { kind, objects });
                }
            }
        }
        held
    }

    /// Returns the objects of a service port in the ledger that belong to no address.
    fn held_without_address(&self, name: &Arc<PortName>) -> Vec<P::Object> {
        let owners = self.owners_of(name);
        let entries = owners
            .iter()
            .flat_map(|owner| self.ledger.objects_of(owner));
        let objects = entries.filter_map(|entry| match entry {
            Entry::Object(object) => Some(object.clone()),
            Entry::Address(..) => None,
        });
        objects.collect()
    }

    fn owners_of(&self, name: &Arc<PortName>) -> [Owner; AddressKind::ALL.len()] {
        let name = self.hashed(name);
        AddressKind::ALL.map(|kind| Owner::Port(kind, name.clone()))
    }
}

impl<T: Keyed> Held<T> {
    fn is_same(&self, claim: &Claim<T>) -> bool {
        self.kind == claim.kind && is_same(&self.objects, &claim.objects)
    }

    fn into_claim(self, address: Address) -> Claim<T> {
        let Self { kind, objects } = self;
        Claim {
            address,
            kind,
            objects,
        }
    }
}

/// Returns whether two lists have the same objects in the same order. A planner is a pure function:
/// if its order changed from call to call, no address would ever be current, and parts never end.
fn is_same<T: Keyed>(these: &[T], others: &[T]) -> bool {
    let same = |(one, other): (&T, &T)| one.key() == other.key() && one.is_equivalent(other);
    these.len() == others.len() && these.iter().zip(others).all(same)
}

/// The cost of the addition of all objects of a service port.
fn cost_of_all<P: Planner>(planned: &PortObjects<P::Object>) -> usize {
    let claimed = planned.claims.iter().flat_map(|claim| &claim.objects);
    let all = planned.own.iter().chain(claimed);
    all.map(cost_of_addition::<P>).sum()
}

/// Returns the service port with the external addresses of these claims only. External
/// addresses that it does not have are added.
fn subset(
    target: &ServicePort,
    served: impl Iterator<Item = (Address, AddressKind)>,
) -> ServicePort {
    let mut kinds: HashMap<IpAddr, AddressKind> = served
        .filter_map(|(address, kind)| match address {
            Address::Ip(addr, ..) => Some((addr, kind)),
            // Not in a list: the target keeps its node port.
            Address::NodePort(..) => None,
        })
        .collect();
    let is_served = |addr: &&IpAddr| **addr == target.cluster_ip || kinds.contains_key(addr);
    let lists = [&target.load_balancer_ips, &target.external_ips];
    let [mut load_balancer_ips, mut external_ips] =
        lists.map(|list| list.iter().filter(is_served).copied().collect::<Vec<_>>());
    for addr in load_balancer_ips.iter().chain(&external_ips) {
        kinds.remove(addr);
    }
    let mut others: Vec<_> = kinds.into_iter().collect();
    // As in `part`: a map has no order.
    others.sort_unstable();
    for (addr, kind) in others {
        match kind {
            AddressKind::LoadBalancerIp => load_balancer_ips.push(addr),
            AddressKind::ExternalIp => external_ips.push(addr),
            // The target keeps its cluster IP, and its node port at the addresses of the node. A
            // former cluster IP has no place in it: `part` then keeps the former objects without
            // an address, because nothing of the subset equals those of that address.
            AddressKind::ClusterIp | AddressKind::NodePort => {}
        }
    }
    ServicePort {
        load_balancer_ips: load_balancer_ips.into(),
        external_ips: external_ips.into(),
        ..target.clone()
    }
}
