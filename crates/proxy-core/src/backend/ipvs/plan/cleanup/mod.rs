//! Selection of the virtual servers, the link and the sets to remove.
//!
//! The chains and jumps of the mode are removed together with those of mode iptables.

pub(in crate::backend::ipvs) mod names;

mod servers;

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use vipline_ipset::{Name, Sets};
use vipline_ipvs::{self as ipvs, ServiceKey};
use vipline_rtnl as rtnl;

use crate::backend::ipvs::plan::names::link as link_name;
use crate::cleanup::{self, Removal, Step};

/// Objects that were found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::backend::ipvs) struct Found {
    /// All virtual servers.
    pub(in crate::backend::ipvs) servers: Vec<ServiceKey>,
    /// Addresses of the link, if it exists.
    pub(in crate::backend::ipvs) link: Option<Vec<IpAddr>>,
    /// The sets of the mode.
    pub(in crate::backend::ipvs) sets: Sets,
}

impl cleanup::Found for Found {
    fn plan(&self, excluded: &[IpNet], removal: &mut Removal) {
        let link = self.link.as_deref();
        let addresses = link.unwrap_or_default();
        let (servers, stays) = servers::plan(&self.servers, &self.sets, addresses, excluded);
        let servers = servers.into_iter().map(Object::Server);
        let objects = servers
            .chain(link.map(|_| Object::Link))
            .chain(set_steps(&self.sets));
        removal.steps.extend(objects.map(Step::new));
        removal.stays.extend(stays);
    }
}

/// Returns the sets to remove.
fn set_steps(sets: &Sets) -> impl Iterator<Item = Object> {
    sets.iter()
        .map(|listed| Object::Set(listed.set.name.clone()))
}

/// An object to remove.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::backend::ipvs) enum Object {
    /// A virtual server.
    Server(ServiceKey),
    /// The link, with its addresses.
    Link,
    /// A set.
    Set(Name),
}

/// Displays as a shell command.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(service) => write!(f, "ipvsadm {}", ipvs::Command::Remove(*service)),
            Self::Link => {
                let remove = rtnl::Command::RemoveLink(link_name());
                write!(f, "ip {remove}")
            }
            Self::Set(name) => write!(f, "ipset destroy {name}"),
        }
    }
}
