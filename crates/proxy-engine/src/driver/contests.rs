//! Addresses that several service ports claim.
//!
//! Who gets an address is decided elsewhere, by the order of owners in the ledger (see `entry`).
//! This file finds out what is new about it, so that the operator gets one warning and the owner
//! of the losing Service one Event, instead of one at each sync.
//!
//! Nothing is searched: a change of a port can only affect the addresses that it claims now or
//! claimed before. For each of them the first two claims in the ledger tell whether there is a
//! contest, who won it, and who was displaced if that is the port itself.
//!
//! For example, `default/old` gets external IP 203.0.113.9, which `default/young` had alone:
//!
//! ```text
//! claims to 203.0.113.9:80/TCP     before: young        now: old, young
//! changed                          203.0.113.9:80/TCP   a warning: "old gets it"
//! losers                           young                an Event of Service default/young
//! ```
//!
//! What is reported is looked up when the caller takes it, not when it happened: a contest that
//! ends before the next sync was none for the kernel, either.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use vipline_reconcile::Target;
use vipline_service_model::{ObjectName, PortName};

use super::{Driver, Owner};
use crate::entry::Key;
use crate::{Address, AddressKind, ContestedAddress, Context, LostAddresses, Planner};

/// Contested addresses of a family, and unreported changes of their owners.
///
/// The cost of a change is proportional to the service port's own addresses, regardless
/// of the number of claims to each.
#[derive(Debug, Default)]
pub(super) struct Contests {
    /// Winners by contested address, as of the last plan: the ledger has only the present one.
    owners: BTreeMap<Address, Arc<PortName>>,
    /// Addresses with a new owner since the last report.
    changed: BTreeSet<Address>,
    /// Service ports that lost an address since the last report.
    losers: BTreeSet<Arc<PortName>>,
    /// Node ports that do not work at one address of the node, because it is an address of
    /// another service port with the same number. By that address.
    hidden: BTreeMap<Address, HiddenNodePort>,
    /// Those that are new since the last report of addresses, and of losers.
    newly_hidden: [BTreeSet<Address>; 2],
}

/// A node port that does not work at an address of the node.
#[derive(Clone, Debug, Eq, PartialEq)]
struct HiddenNodePort {
    /// The service port that has the address, and the kind of its claim.
    owner: Arc<PortName>,
    kind: AddressKind,
    /// The service port of the node port.
    loser: Arc<PortName>,
}

impl Contests {
    /// Returns whether no address is contested. Hidden node ports do not count: port and address
    /// are two keys of the ledger, and the driver's `exposed` says when to look for them.
    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// The number of addresses that somebody claims and does not get, including hidden node ports.
    pub(super) fn len(&self) -> usize {
        self.owners.len() + self.hidden.len()
    }

    /// Sets the owner of a contested address. Returns the former one if it was contested before.
    fn set_owner(&mut self, address: Address, owner: &Arc<PortName>) -> Option<Arc<PortName>> {
        let former = self.owners.insert(address, Arc::clone(owner));
        if former.as_ref() != Some(owner) {
            self.changed.insert(address);
        }
        former
    }
}

impl<P: Planner, K: Target<Object = P::Object>> Driver<P, K> {
    /// Returns the addresses that a service port claims, sorted.
    pub(super) fn addresses(&self, name: &Arc<PortName>) -> Vec<Address> {
        let mut addresses = Vec::new();
        let name = self.hashed(name);
        for kind in AddressKind::ALL {
            let owner = Owner::Port(kind, name.clone());
            let keys = self.ledger.keys_of(&owner);
            addresses.extend(keys.filter_map(|key| match key {
                Key::Address(address) => Some(address),
                Key::Object(_) => None,
            }));
        }
        addresses.sort_unstable();
        addresses
    }

    /// Returns the first two claims to an address; the first wins.
    fn claims(&self, address: Address) -> [Option<(AddressKind, Arc<PortName>)>; 2] {
        let key = Key::Address(address);
        let claimants = self.ledger.claimants(&key);
        let mut claims = claimants.filter_map(|owner| match owner {
            Owner::Port(kind, name) => Some((*kind, Arc::clone(name.name()))),
            // Only entries of service ports have an address as their key.
            Owner::Base | Owner::OnDemand(_) => None,
        });
        [claims.next(), claims.next()]
    }

    fn is_claimed_by(&self, address: Address, name: &Arc<PortName>) -> bool {
        let key = Key::Address(address);
        let mut claimants = self.ledger.claimants(&key);
        claimants.any(|owner| matches!(owner, Owner::Port(_, other) if other.name() == name))
    }

    /// Updates the contests of the addresses that a service port claims or claimed
    /// `before`, which are sorted.
    pub(super) fn note_contests(&mut self, name: &Arc<PortName>, before: &[Address]) {
        let now = self.addresses(name);
        let mut has_lost = false;
        for &address in &now {
            let was_claimed = before.binary_search(&address).is_ok();
            has_lost |= self.note_contest(name, address, was_claimed);
        }
        if has_lost {
            self.contests.losers.insert(Arc::clone(name));
        }
        for &address in before {
            if now.binary_search(&address).is_err() {
                self.note_withdrawal(address);
            }
        }
    }

    /// Updates the contest of an address that a service port claims. Returns whether
    /// the service port lost the address.
    fn note_contest(&mut self, name: &Arc<PortName>, address: Address, was_claimed: bool) -> bool {
        let [Some((_, owner)), Some((_, second))] = self.claims(address) else {
            // The port is alone there, so what `changed` may still have of it is skipped by
            // `newly_contested`.
            self.contests.owners.remove(&address);
            return false;
        };
        let former = self.contests.set_owner(address, &owner);
        if owner != *name {
            // It is no news if the port claimed the address before and did not have it then.
            let lost_before = was_claimed && former.is_some_and(|former| former != *name);
            return !lost_before;
        }
        if former.as_ref() != Some(name) {
            // This port displaced someone. Only this port changed, so the former owner is second
            // now.
            self.contests.losers.insert(second);
        }
        false
    }

    /// Updates the contest of an address that a service port does not claim anymore.
    fn note_withdrawal(&mut self, address: Address) {
        match self.claims(address) {
            [Some((_, owner)), Some(_)] => drop(self.contests.set_owner(address, &owner)),
            _ => drop(self.contests.owners.remove(&address)),
        }
    }

    /// Updates the node ports that do not work at an address of the node, after a change of
    /// the claims to `addresses`.
    ///
    /// A node port claims its number, not the addresses of the node, which change. The rules
    /// of an IP address precede those of node ports.
    pub(super) fn note_hidden_node_ports(&mut self, addresses: &[Address]) {
        let ips = self.cx.as_ref().map(Context::node_port_ips);
        let ips = ips.unwrap_or_default();
        for &address in addresses {
            match address {
                // Not an address of this node, so no node port is served there. If the node gets
                // it, `note_node_addresses` looks at all ports again.
                Address::Ip(ip, ..) if !ips.contains(&ip) => {}
                Address::Ip(_, protocol, number) => {
                    self.note_hidden_node_port(address, Address::NodePort(protocol, number));
                }
                Address::NodePort(protocol, number) => {
                    for &ip in &ips {
                        self.note_hidden_node_port(Address::Ip(ip, protocol, number), address);
                    }
                }
            }
        }
    }

    /// Updates whether the winner of `address`, an address of the node, hides the node port with
    /// the same number from those who connect to that address.
    fn note_hidden_node_port(&mut self, address: Address, node_port: Address) {
        // Only winners: who has lost the number or the address has nothing there to hide.
        let [owner, _] = self.claims(address);
        let [loser, _] = self.claims(node_port);
        let hidden = match (owner, loser) {
            // Mode ipvs claims its node ports at each address of the node, so that this is a
            // contest as any other, and would be reported twice.
            (Some((kind, owner)), Some((_, loser)))
                if owner != loser && !self.is_claimed_by(address, &loser) =>
            {
                Some(HiddenNodePort { owner, kind, loser })
            }
            // Nobody claims one of the two, or one port has both.
            _ => None,
        };
        let contests = &mut self.contests;
        if contests.hidden.get(&address) == hidden.as_ref() {
            return;
        }
        match hidden {
            Some(hidden) => {
                contests.hidden.insert(address, hidden);
                for new in &mut contests.newly_hidden {
                    new.insert(address);
                }
            }
            None => drop(contests.hidden.remove(&address)),
        }
    }

    /// Updates all hidden node ports after a change of the node's addresses.
    pub(super) fn note_node_addresses(&mut self) {
        let former: Vec<_> = mem::take(&mut self.contests.hidden).into_iter().collect();
        let names = self.exposed.iter().map(|name| Arc::clone(name.name()));
        for name in names.collect::<Vec<_>>() {
            let addresses = self.addresses(&name);
            self.note_hidden_node_ports(&addresses);
        }
        // What was hidden before was reported before.
        for (address, hidden) in former {
            if self.contests.hidden.get(&address) == Some(&hidden) {
                for new in &mut self.contests.newly_hidden {
                    new.remove(&address);
                }
            }
        }
    }

    /// Removes and returns contested addresses with a new owner.
    pub(super) fn newly_contested(&mut self) -> Vec<ContestedAddress> {
        let changed = mem::take(&mut self.contests.changed);
        let contested = changed.into_iter().filter_map(|address| {
            let claim_count = self.ledger.claim_count(&Key::Address(address));
            let [Some((kind, owner)), Some(_)] = self.claims(address) else {
                // The contest has ended since.
                return None;
            };
            Some(ContestedAddress {
                address,
                owner,
                kind,
                claim_count,
            })
        });
        let mut contested: Vec<_> = contested.collect();
        let [hidden, _] = &mut self.contests.newly_hidden;
        for address in mem::take(hidden) {
            if let Some(hidden) = self.contests.hidden.get(&address) {
                contested.push(ContestedAddress {
                    address,
                    owner: Arc::clone(&hidden.owner),
                    kind: hidden.kind,
                    // The claim to the address, and the one to the node port.
                    claim_count: 2,
                });
            }
        }
        contested
    }

    /// Removes and returns lost addresses, one entry per Service: each becomes an Event of the
    /// Service, and a Service may lose a thousand addresses at once. An entry also counts those
    /// that the Service lost before.
    pub(super) fn newly_lost(&mut self) -> Vec<LostAddresses> {
        let losers = mem::take(&mut self.contests.losers);
        let mut by_service: BTreeMap<ObjectName, LostAddresses> = BTreeMap::new();
        let mut add = |loser: &PortName, first: Address, owner, kind| {
            let service = loser.service_name();
            let others = |lost: &mut LostAddresses| lost.others += 1;
            let entry = by_service.entry(service.clone());
            entry.and_modify(others).or_insert_with(|| LostAddresses {
                service,
                first,
                owner,
                kind,
                others: 0,
            });
        };
        for loser in losers {
            for address in self.addresses(&loser) {
                let [owner, _] = self.claims(address);
                if let Some((kind, owner)) = owner.filter(|(_, name)| *name != loser) {
                    add(&loser, address, owner, kind);
                }
            }
        }
        let [_, hidden] = &mut self.contests.newly_hidden;
        for address in mem::take(hidden) {
            if let Some(hidden) = self.contests.hidden.get(&address) {
                let owner = Arc::clone(&hidden.owner);
                add(&hidden.loser, address, owner, hidden.kind);
            }
        }
        by_service.into_values().collect()
    }
}
