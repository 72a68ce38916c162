//! Answers to questions that a ruleset leaves open: routes, interfaces and rates.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use vipline_nftables::expr::{AddrType, Connlimit, Limit, Quota};

use super::interface::Interface;
use super::loss::Loss;
use super::question::Question;

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

impl RouteQuery<'_> {
    /// Creates the lookup of a packet that a local process sends, with mark 0.
    pub fn new(source: IpAddr, destination: IpAddr) -> Self {
        Self {
            destination,
            source,
            mark: 0,
            input: None,
        }
    }
}

/// The route of a packet.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Route {
    /// The destination is the host itself.
    Local,
    /// The packet leaves through this interface.
    Interface(Interface),
    /// The route to this network discards packets.
    Discard(Discard, IpNet),
    /// There is no route.
    None,
}

/// The type of a route that discards packets, as in `ip route`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Discard {
    /// The sender receives an error: the host is unreachable.
    Unreachable,
    /// The sender receives an error: communication is prohibited.
    Prohibit,
    /// A received packet is dropped. A process receives an error.
    Blackhole,
    /// The lookup in the routing table ends without a route.
    Throw,
}

impl Discard {
    /// All types.
    pub const ALL: [Self; 4] = [
        Self::Unreachable,
        Self::Prohibit,
        Self::Blackhole,
        Self::Throw,
    ];

    /// Returns the name that `ip route` uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
            Self::Blackhole => "blackhole",
            Self::Throw => "throw",
        }
    }
}

impl fmt::Display for Discard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
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
    /// A match of xtables such as `-m hashlimit`, in the syntax of iptables.
    Xtables(&'a str),
}

/// Answers that the evaluator needs and that the ruleset does not contain.
///
/// `None` means unknown: the evaluation fails and names the rule. [`Host`](super::Host)
/// answers from tables of addresses and routes.
pub trait Environment {
    /// Returns the route of a packet.
    fn route(&self, query: &RouteQuery<'_>) -> Option<Route>;

    /// Returns the preferred source address of a route (`src` of `ip route`). Default: none.
    fn preferred_source(&self, query: &RouteQuery<'_>) -> Option<IpAddr> {
        let _ = query;
        None
    }

    /// Returns the type of an address (`fib … type`).
    ///
    /// With an interface, only addresses of the interface are local.
    fn addr_type(&self, addr: IpAddr, interface: Option<&Interface>) -> Option<AddrType>;

    /// Returns the source address of packets through an interface, for `masquerade` and
    /// `redirect`.
    fn interface_addr(&self, interface: &Interface, destination: IpAddr) -> Option<IpAddr>;

    /// Returns whether the packet exceeds a rate or amount.
    fn is_over(&self, limited: Limited<'_>) -> Option<bool>;

    /// Returns why the host loses a packet that an interface receives, before any rule.
    /// Default: never.
    fn receive_loss(&self, input: &Interface) -> Option<Loss> {
        let _ = input;
        None
    }

    /// Returns why the host loses a received packet after the lookup of its route. `is_local`
    /// is whether the route leads to the host itself. Default: never.
    fn route_loss(&self, query: &RouteQuery<'_>, is_local: bool) -> Option<Loss> {
        let _ = (query, is_local);
        None
    }

    /// Returns why the host loses a packet that it sends through an interface. Default: never.
    fn send_loss(&self, output: &Interface) -> Option<Loss> {
        let _ = output;
        None
    }

    /// Returns whether an interface is a bridge whose packets pass the ruleset with the port
    /// that received them (`br_netfilter`). Default: no.
    fn is_bridge(&self, interface: &Interface) -> bool {
        let _ = interface;
        false
    }

    /// Answers a question of a match of xtables: contents of IP sets and lists of `recent`,
    /// and other state outside of nf_tables. Default: unknown.
    fn answer(&self, question: &Question<'_>) -> Option<bool> {
        let _ = question;
        None
    }
}
