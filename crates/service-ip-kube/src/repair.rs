//! Services compared with IPAddresses: what is lost, and what nobody has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use vipline_service_ip::{Range, ServiceRef, parse_address};

use crate::finding::{Finding, Reason};
use crate::{IpAddress, ParentRef, Service, ServiceCidr};

/// How long an address may be without its Service: that long a request for one
/// may take.
pub const CREATION_GRACE_PERIOD: Duration = Duration::from_secs(60);

/// How long the Service may be without its new address: a change of it may be
/// under way, or undone.
pub const UPDATE_GRACE_PERIOD: Duration = Duration::from_secs(5);

/// What is wrong, and what is to be done about it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Plan {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// What is to be done.
    pub actions: Vec<Action>,
    /// When to look again if nothing has changed until then.
    pub requeue_at: Option<SystemTime>,
}

/// Something to be done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// An address is given to a Service.
    Create {
        /// The address.
        ip: IpAddr,
        /// The Service.
        owner: ServiceRef,
    },
    /// An address is nobody's any more.
    Delete {
        /// The address.
        ip: IpAddr,
        /// The object that is deleted, and no other.
        uid: Box<str>,
        /// The version of it.
        version: Box<str>,
    },
    /// An address is its Service's, and gets the labels that say so.
    Label {
        /// The address.
        ip: IpAddr,
        /// The version that is changed, and no other.
        version: Box<str>,
    },
    /// An address is given to another Service.
    Recreate {
        /// The address.
        ip: IpAddr,
        /// The object that is deleted, and no other.
        uid: Box<str>,
        /// The version of it.
        version: Box<str>,
        /// The Service.
        owner: ServiceRef,
    },
}

/// The world as it is, and the plan so far.
struct Planner<'a> {
    services: BTreeMap<&'a ServiceRef, &'a Service>,
    addresses: BTreeMap<IpAddr, &'a IpAddress>,
    cidrs: &'a [ServiceCidr],
    now: SystemTime,
    /// The addresses that something is done about, and for whom.
    claimed: BTreeMap<IpAddr, &'a ServiceRef>,
    plan: Plan,
}

/// Plans how addresses become those that Services say they have.
///
/// The addresses must have been read before the Services: one whose Service is
/// made meanwhile is not taken for lost then.
#[must_use]
pub fn plan(
    services: &[Service],
    addresses: &[IpAddress],
    cidrs: &[ServiceCidr],
    now: SystemTime,
) -> Plan {
    let mut planner = Planner {
        services: services.iter().map(|one| (&one.owner, one)).collect(),
        addresses: addresses.iter().map(|one| (one.ip, one)).collect(),
        cidrs,
        now,
        claimed: BTreeMap::new(),
        plan: Plan::default(),
    };
    // Of two Services that have the same address, the older one keeps it.
    let mut by_age: Vec<&Service> = services.iter().collect();
    by_age.sort_by_key(|service| (service.created, &service.owner));
    for service in by_age.iter().filter(|one| !one.is_external_name) {
        let mut seen = BTreeSet::new();
        for ip in service.cluster_ips.iter().filter(|ip| seen.insert(*ip)) {
            planner.look_at_service(&service.owner, ip);
        }
    }
    for address in addresses.iter().filter(|one| one.is_managed()) {
        if !planner.claimed.contains_key(&address.ip) {
            planner.look_at_address(address);
        }
    }
    planner.plan
}

impl<'a> Planner<'a> {
    /// Looks whether a Service has an address that it says it has.
    fn look_at_service(&mut self, owner: &'a ServiceRef, text: &str) {
        let Some(ip) = parse_address(text) else {
            return self.find(
                Reason::ClusterIpNotValid,
                Some(owner),
                text,
                "is no address",
            );
        };
        let mut ranges = self.cidrs.iter().flat_map(|cidr| &cidr.ranges);
        if !ranges.any(|range| range.number(ip).is_ok()) {
            let words = "is in no ServiceCIDR";
            return self.find(Reason::ClusterIpOutOfRange, Some(owner), text, words);
        }
        if self.claimed.get(&ip).is_some_and(|other| *other != owner) {
            return self.taken(owner, text);
        }
        let Some(&address) = self.addresses.get(&ip) else {
            let words = "is not allocated; it is allocated again";
            self.find(Reason::ClusterIpNotAllocated, Some(owner), text, words);
            self.claim(ip, owner, None);
            return;
        };
        if address.parent == ParentRef::service(owner) {
            if !address.is_labelled() {
                self.claimed.insert(ip, owner);
                let version = address.version.clone();
                self.plan.actions.push(Action::Label { ip, version });
            }
            return;
        }
        if !address.is_managed() {
            return self.taken(owner, text);
        }
        let other = address.parent.owner();
        match other.as_ref().map(|other| self.services.get(other)) {
            Some(Some(other)) if has(other, ip) => self.taken(owner, text),
            // That one does not have it: what is wrong is the address.
            Some(Some(_)) => {}
            None | Some(None) => {
                let words = "is allocated to something else; it is allocated again";
                self.find(Reason::ClusterIpNotAllocated, Some(owner), text, words);
                self.claim(ip, owner, Some(address));
            }
        }
    }

    /// Looks whether an address is one that its Service says it has.
    fn look_at_address(&mut self, address: &IpAddress) {
        let text = address.ip.to_string();
        let Some(owner) = address.parent.owner() else {
            let words = "was of a Service, and is attached to something else; it is freed";
            self.find(Reason::IpAddressNotAllocated, None, &text, words);
            return self.free(address);
        };
        let Some(&service) = self.services.get(&owner) else {
            if self.is_younger(address, CREATION_GRACE_PERIOD) {
                return;
            }
            let words = "is of a Service that is not there; it is freed";
            self.find(Reason::IpAddressNotAllocated, Some(&owner), &text, words);
            return self.free(address);
        };
        if has(service, address.ip)
            || service.is_external_name && self.is_younger(address, CREATION_GRACE_PERIOD)
            || address.created >= service.created && self.is_younger(address, UPDATE_GRACE_PERIOD)
        {
            return;
        }
        let words = "is of a Service that does not have it; it is freed";
        self.find(Reason::IpAddressWrongReference, Some(&owner), &text, words);
        self.free(address);
    }

    /// Tells whether an address is younger than some age; when it reaches that
    /// it is looked at again.
    fn is_younger(&mut self, address: &IpAddress, age: Duration) -> bool {
        let end = address.created + age;
        let is_younger = self.now < end;
        if is_younger {
            let again = self.plan.requeue_at.map_or(end, |again| again.min(end));
            self.plan.requeue_at = Some(again);
        }
        is_younger
    }

    fn taken(&mut self, owner: &ServiceRef, text: &str) {
        let words = "belongs to another one; the Service must be made anew";
        self.find(Reason::ClusterIpAlreadyAllocated, Some(owner), text, words);
    }

    fn find(
        &mut self,
        reason: Reason,
        owner: Option<&ServiceRef>,
        text: &str,
        words: &'static str,
    ) {
        self.plan.findings.push(Finding {
            reason,
            service: owner.cloned(),
            address: text.into(),
            message: words.into(),
        });
    }

    /// Gives an address to a Service, instead of what there is.
    fn claim(&mut self, ip: IpAddr, owner: &'a ServiceRef, address: Option<&IpAddress>) {
        self.claimed.insert(ip, owner);
        let owner = owner.clone();
        self.plan.actions.push(match address {
            None => Action::Create { ip, owner },
            Some(address) => Action::Recreate {
                ip,
                uid: address.uid.clone(),
                version: address.version.clone(),
                owner,
            },
        });
    }

    fn free(&mut self, address: &IpAddress) {
        self.plan.actions.push(Action::Delete {
            ip: address.ip,
            uid: address.uid.clone(),
            version: address.version.clone(),
        });
        // Some Service may have said that it has it.
        self.plan.requeue_at = Some(self.now);
    }
}

/// Tells whether a Service says that it has an address.
fn has(service: &Service, ip: IpAddr) -> bool {
    let mut ips = service.cluster_ips.iter();
    ips.any(|text| parse_address(text) == Some(ip))
}

#[cfg(test)]
mod tests;
