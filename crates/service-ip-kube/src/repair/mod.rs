//! Comparison of Services with IPAddresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use vipline_service_ip::{OwnerRef, Range, parse_address};

use crate::finding::{Finding, Reason};
use crate::{IpAddress, Service, ServiceCidr};

/// Time for which an address may exist without its Service: the maximum duration of a
/// create request.
pub const CREATION_GRACE_PERIOD: Duration = Duration::from_secs(60);

/// Time for which an existing Service may lack a new address: an update may be in
/// progress or be rolled back.
pub const UPDATE_GRACE_PERIOD: Duration = Duration::from_secs(5);

/// Findings and actions.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// Findings.
    pub findings: Vec<Finding>,
    /// Actions.
    pub actions: Vec<Action>,
    /// Latest time of the next call.
    pub requeue_at: Option<SystemTime>,
}

/// A change of an IPAddress.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Creates the IPAddress of a Service.
    Create {
        /// The address.
        ip: IpAddr,
        /// The Service.
        owner: OwnerRef,
    },
    /// Deletes an IPAddress.
    Delete {
        /// The address.
        ip: IpAddr,
        /// UID of the object, as precondition.
        uid: Box<str>,
        /// Resource version, as precondition.
        version: Box<str>,
    },
    /// Sets the labels of the IPAddress of a Service.
    Label {
        /// The address.
        ip: IpAddr,
        /// Resource version, as precondition.
        version: Box<str>,
    },
    /// Deletes an IPAddress and creates it for another Service.
    Recreate {
        /// The address.
        ip: IpAddr,
        /// UID of the object, as precondition.
        uid: Box<str>,
        /// Resource version, as precondition.
        version: Box<str>,
        /// The Service.
        owner: OwnerRef,
    },
}

/// Input and partial plan.
struct Planner<'a> {
    services: BTreeMap<&'a OwnerRef, &'a Service>,
    addresses: BTreeMap<IpAddr, &'a IpAddress>,
    cidrs: &'a [ServiceCidr],
    now: SystemTime,
    /// Addresses with an action, and the Service of each.
    claimed: BTreeMap<IpAddr, &'a OwnerRef>,
    plan: Plan,
}

/// Plans the reconciliation of IPAddresses with the cluster IPs of Services.
///
/// The caller must list the addresses before the Services. Otherwise the address of a
/// Service created in between would have no Service.
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
    // The older one of two Services with the same address keeps it.
    let mut by_age: Vec<&Service> = services.iter().collect();
    by_age.sort_by_key(|service| (service.created, &service.owner));
    for service in by_age.iter().filter(|one| !one.is_external_name) {
        let mut seen = BTreeSet::new();
        for ip in service.cluster_ips.iter().filter(|ip| seen.insert(*ip)) {
            planner.check_service(&service.owner, ip);
        }
    }
    for address in addresses.iter().filter(|one| one.is_managed()) {
        if !planner.claimed.contains_key(&address.ip) {
            planner.check_address(address);
        }
    }
    planner.plan
}

impl<'a> Planner<'a> {
    /// Checks that an address of a Service is allocated to it.
    fn check_service(&mut self, owner: &'a OwnerRef, text: &str) {
        let Some(ip) = parse_address(text) else {
            return self.report(
                Reason::ClusterIpNotValid,
                Some(owner),
                text,
                "is not an address",
            );
        };
        let mut ranges = self.cidrs.iter().flat_map(|cidr| &cidr.ranges);
        if !ranges.any(|range| range.number(ip).is_ok()) {
            let words = "is in no ServiceCIDR";
            return self.report(Reason::ClusterIpOutOfRange, Some(owner), text, words);
        }
        if self.claimed.get(&ip).is_some_and(|other| *other != owner) {
            return self.report_duplicate(owner, text);
        }
        let Some(&address) = self.addresses.get(&ip) else {
            let words = "is not allocated; allocating it";
            self.report(Reason::ClusterIpNotAllocated, Some(owner), text, words);
            self.claim(ip, owner, None);
            return;
        };
        if address.owner == *owner {
            if !address.is_labelled() {
                self.claimed.insert(ip, owner);
                let version = address.version.clone();
                self.plan.actions.push(Action::Label { ip, version });
            }
            return;
        }
        if !address.is_managed() {
            return self.report_duplicate(owner, text);
        }
        match self.services.get(&address.owner) {
            Some(other) if has(other, ip) => self.report_duplicate(owner, text),
            // The other Service does not have the address, see `check_address`.
            Some(_) => {}
            None => {
                let words = "is allocated to another object; allocating it again";
                self.report(Reason::ClusterIpNotAllocated, Some(owner), text, words);
                self.claim(ip, owner, Some(address));
            }
        }
    }

    /// Checks that the Service of an address has it.
    fn check_address(&mut self, address: &IpAddress) {
        let text = address.ip.to_string();
        let owner = &address.owner;
        if !owner.is_service() {
            let words = "refers to an object that is not a Service; releasing it";
            self.report(Reason::IpAddressNotAllocated, None, &text, words);
            return self.release(address);
        }
        let Some(&service) = self.services.get(owner) else {
            if self.is_younger(address, CREATION_GRACE_PERIOD) {
                return;
            }
            let words = "refers to a Service that does not exist; releasing it";
            self.report(Reason::IpAddressNotAllocated, Some(owner), &text, words);
            return self.release(address);
        };
        if has(service, address.ip)
            || service.is_external_name && self.is_younger(address, CREATION_GRACE_PERIOD)
            || address.created >= service.created && self.is_younger(address, UPDATE_GRACE_PERIOD)
        {
            return;
        }
        let words = "refers to a Service that does not have it; releasing it";
        self.report(Reason::IpAddressWrongReference, Some(owner), &text, words);
        self.release(address);
    }

    /// Returns whether an address is younger than `age`. If so, schedules the next call
    /// for the time when it reaches `age`.
    fn is_younger(&mut self, address: &IpAddress, age: Duration) -> bool {
        let end = address.created + age;
        let is_younger = self.now < end;
        if is_younger {
            let again = self.plan.requeue_at.map_or(end, |again| again.min(end));
            self.plan.requeue_at = Some(again);
        }
        is_younger
    }

    fn report_duplicate(&mut self, owner: &OwnerRef, text: &str) {
        let words = "belongs to another owner; recreate the Service";
        self.report(Reason::ClusterIpAlreadyAllocated, Some(owner), text, words);
    }

    fn report(
        &mut self,
        reason: Reason,
        owner: Option<&OwnerRef>,
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

    /// Allocates an address to a Service, in place of an existing object.
    fn claim(&mut self, ip: IpAddr, owner: &'a OwnerRef, address: Option<&IpAddress>) {
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

    fn release(&mut self, address: &IpAddress) {
        self.plan.actions.push(Action::Delete {
            ip: address.ip,
            uid: address.uid.clone(),
            version: address.version.clone(),
        });
        // A Service may have the address: check it after the release.
        self.plan.requeue_at = Some(self.now);
    }
}

/// Returns whether a Service has an address.
fn has(service: &Service, ip: IpAddr) -> bool {
    let mut ips = service.cluster_ips.iter();
    ips.any(|text| parse_address(text) == Some(ip))
}

#[cfg(test)]
mod tests;
