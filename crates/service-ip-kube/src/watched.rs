//! Objects of watches that the caller has.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::SystemTime;

use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use kube::ResourceExt;
use vipline_service_ip::{Family, OwnerRef};

use crate::client::{Listed, Unreadable, with_invalid_ranges};
use crate::error::chain;
use crate::{Error, IpAddress, ServiceCidr};

/// An event of the caller's watches, see [`Kube::watch`](crate::Kube::watch).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// All objects, at the start of the watches and after an interruption.
    Listed {
        /// ServiceCIDRs.
        cidrs: Vec<ServiceCIDR>,
        /// IPAddresses.
        addresses: Vec<IPAddress>,
    },
    /// A ServiceCIDR was created or changed.
    Cidr(ServiceCIDR),
    /// A ServiceCIDR was deleted.
    CidrDeleted(ServiceCIDR),
    /// An IPAddress was created or changed.
    Address(IPAddress),
    /// An IPAddress was deleted.
    AddressDeleted(IPAddress),
}

impl Event {
    /// Returns whether the event can change the ranges to allocate from.
    pub(crate) const fn changes_ranges(&self) -> bool {
        match self {
            Self::Listed { .. } | Self::Cidr(_) | Self::CidrDeleted(_) => true,
            Self::Address(_) | Self::AddressDeleted(_) => false,
        }
    }
}

/// The watched objects by name, and the changes of the store.
#[derive(Debug)]
pub(crate) struct Watched {
    cidrs: BTreeMap<String, Result<ServiceCidr, Unreadable>>,
    addresses: BTreeMap<String, Result<IpAddress, Unreadable>>,
}

impl Watched {
    pub(crate) fn new(cidrs: Vec<ServiceCIDR>, addresses: Vec<IPAddress>) -> Self {
        let cidrs = cidrs.into_iter().map(parse);
        let addresses = addresses.into_iter().map(parse);
        Self {
            cidrs: cidrs.collect(),
            addresses: addresses.collect(),
        }
    }

    pub(crate) fn apply(&mut self, event: Event) {
        match event {
            Event::Listed { cidrs, addresses } => *self = Self::new(cidrs, addresses),
            Event::Cidr(object) => self.cidrs.extend([parse(object)]),
            Event::CidrDeleted(object) => _ = self.cidrs.remove(&object.name_any()),
            Event::Address(object) => self.addresses.extend([parse(object)]),
            Event::AddressDeleted(object) => _ = self.addresses.remove(&object.name_any()),
        }
    }

    /// Records an IPAddress that the store has created. Its event follows.
    pub(crate) fn created(&mut self, ip: IpAddr, uid: &str, owner: &OwnerRef, manager: &str) {
        let address = IpAddress {
            ip,
            uid: uid.into(),
            version: "".into(),
            family: Some(Family::of(ip).as_str().into()),
            manager: Some(manager.into()),
            owner: owner.clone(),
            created: SystemTime::UNIX_EPOCH,
        };
        self.addresses.insert(ip.to_string(), Ok(address));
    }

    /// Records an IPAddress that the store has deleted. Its event follows.
    pub(crate) fn deleted(&mut self, ip: IpAddr) {
        self.addresses.remove(&ip.to_string());
    }

    pub(crate) fn cidrs(&self) -> Listed<ServiceCidr> {
        with_invalid_ranges(self.cidrs.values().cloned().collect())
    }

    /// Returns the IPAddresses of a family, and those that cannot be parsed.
    pub(crate) fn addresses(&self, family: Family) -> Listed<IpAddress> {
        let addresses = self.addresses.values();
        let is_ours = |parsed: &&Result<IpAddress, Unreadable>| match parsed {
            Ok(address) => Family::of(address.ip) == family,
            Err(_) => true,
        };
        addresses.filter(is_ours).cloned().collect()
    }
}

/// Returns the name of an object and its parsed form.
fn parse<K, T>(object: K) -> (String, Result<T, Unreadable>)
where
    K: kube::Resource + k8s_openapi::Resource,
    T: TryFrom<K, Error = Error>,
{
    let name = object.name_any();
    let parsed = object.try_into();
    let parsed = parsed.map_err(|error| Unreadable::new::<K>("", &name, chain(&error)));
    (name, parsed)
}
