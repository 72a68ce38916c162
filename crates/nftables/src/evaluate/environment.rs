//! Answers to questions that a ruleset leaves open: routes, interfaces and rates.

use std::net::IpAddr;

use crate::expr::{AddrType, Connlimit, Limit, Quota};

/// An interface.
///
/// Exhaustive: callers describe the interfaces of a host.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Index, if known.
    pub index: Option<u32>,
    /// Hardware type (`ARPHRD_*`), if known.
    pub hardware: Option<u16>,
    /// Group, if known.
    pub group: Option<u32>,
    /// Kind of a virtual interface, such as `veth`, if known.
    pub kind: Option<String>,
}

impl Interface {
    /// Creates an interface of which only the name is known.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Sets the index.
    #[must_use]
    pub fn with_index(mut self, index: u32) -> Self {
        self.index = Some(index);
        self
    }
}

impl From<&str> for Interface {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// A route lookup.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RouteQuery<'a> {
    /// Destination address.
    pub destination: IpAddr,
    /// Source address.
    pub source: IpAddr,
    /// Packet mark, or 0.
    pub mark: u32,
    /// Interface that received the packet. `None`: a local process sent it.
    pub input: Option<&'a Interface>,
}

/// The route of a packet.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Route {
    /// The destination is the host itself.
    Local,
    /// The packet leaves through this interface.
    Interface(Interface),
    /// There is no route, or one that discards packets.
    None,
}

/// A rate or amount that a rule limits.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Limited<'a> {
    /// `limit`
    Rate(&'a Limit),
    /// `quota`
    Bytes(&'a Quota),
    /// `ct count`
    Connections(&'a Connlimit),
}

/// Answers that the evaluator needs and that the ruleset does not contain.
///
/// `None` means unknown: the evaluation fails and names the rule. [`Host`](super::Host)
/// answers from tables of addresses and routes.
pub trait Environment {
    /// Returns the route of a packet.
    fn route(&self, query: &RouteQuery<'_>) -> Option<Route>;

    /// Returns the type of an address (`fib … type`).
    ///
    /// With an interface, only addresses of the interface are local.
    fn addr_type(&self, addr: IpAddr, interface: Option<&Interface>) -> Option<AddrType>;

    /// Returns the source address of packets through an interface, for `masquerade` and
    /// `redirect`.
    fn interface_addr(&self, interface: &Interface, destination: IpAddr) -> Option<IpAddr>;

    /// Returns whether the packet exceeds a rate or amount.
    fn is_over(&self, limited: Limited<'_>) -> Option<bool>;
}
