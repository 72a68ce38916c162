//! A host with addresses and routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use vipline_nftables::Family;
use vipline_nftables::expr::AddrType;

use super::environment::{Discard, Environment, Limited, Route, RouteQuery};
use super::interface::Interface;
use super::loss::{Loss, ReversePath};

/// Addresses and routes of a host, as an [`Environment`].
///
/// A host without addresses has the interface `lo` with index 1 and the loopback addresses.
/// Destinations without a route are unreachable. Policy routing is not supported.
///
/// ```
/// use vipline_evaluate::Host;
///
/// let host = Host::new()
///     .with_addr("eth0", "192.0.2.1/24".parse()?)
///     .with_route("0.0.0.0/0".parse()?, "eth0")
///     .with_limits_exceeded(false);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Host {
    /// Addresses with prefix length, by interface.
    addrs: Vec<(Interface, IpNet)>,
    routes: Vec<HostRoute>,
    /// Names of bridges.
    bridges: Vec<String>,
    /// Names of bridges whose packets between their ports pass no rules.
    unfiltered: Vec<String>,
    /// Names of interfaces that are down.
    down: Vec<String>,
    /// Names of interfaces that do not forward packets of a family.
    not_forwarding: Vec<(String, Family)>,
    /// Reverse path filters, by the names of interfaces.
    filters: Vec<(String, ReversePath)>,
    /// Priorities of rules of policy routing.
    policies: Vec<u32>,
    is_over: Option<bool>,
}

/// A route of a [`Host`].
#[derive(Clone, Debug)]
struct HostRoute {
    destination: IpNet,
    route: Route,
    /// Preferred source address.
    source: Option<IpAddr>,
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl Host {
    /// Creates a host that has only loopback addresses.
    pub fn new() -> Self {
        let lo = Interface::new("lo").with_index(1);
        let nets = [
            (IpAddr::from(Ipv4Addr::LOCALHOST), 8),
            (IpAddr::from(Ipv6Addr::LOCALHOST), 128),
        ];
        let nets = nets.map(|(addr, len)| IpNet::new(addr, len));
        Self {
            addrs: nets
                .into_iter()
                .filter_map(Result::ok)
                .map(|net| (lo.clone(), net))
                .collect(),
            routes: Vec::new(),
            bridges: Vec::new(),
            unfiltered: Vec::new(),
            down: Vec::new(),
            not_forwarding: Vec::new(),
            filters: Vec::new(),
            policies: Vec::new(),
            is_over: None,
        }
    }

    /// Adds an address of an interface. Its network is reached through the interface.
    #[must_use]
    pub fn with_addr(mut self, interface: impl Into<Interface>, addr: IpNet) -> Self {
        let interface = interface.into();
        self.addrs.push((interface.clone(), addr));
        self.with_route(addr.trunc(), interface)
    }

    /// Adds a route. The longest prefix that contains a destination decides, and of equal
    /// prefixes the last one.
    #[must_use]
    pub fn with_route(self, destination: IpNet, interface: impl Into<Interface>) -> Self {
        let route = Route::Interface(interface.into());
        self.add(destination, route, None)
    }

    /// Adds a route with a preferred source address, as [`with_route`](Self::with_route).
    #[must_use]
    pub fn with_route_from(
        self,
        destination: IpNet,
        interface: impl Into<Interface>,
        source: IpAddr,
    ) -> Self {
        let route = Route::Interface(interface.into());
        self.add(destination, route, Some(source))
    }

    /// Adds a route that discards packets, as [`with_route`](Self::with_route).
    #[must_use]
    pub fn with_discard(self, destination: IpNet, kind: Discard) -> Self {
        self.add(destination, Route::Discard(kind, destination), None)
    }

    fn add(mut self, destination: IpNet, route: Route, source: Option<IpAddr>) -> Self {
        self.routes.push(HostRoute {
            destination,
            route,
            source,
        });
        self
    }

    /// Returns the route with the longest prefix.
    fn longest(&self, addr: IpAddr) -> Option<&HostRoute> {
        let routes = self.routes.iter();
        let matching = routes.filter(|it| it.destination.contains(&addr));
        matching.max_by_key(|it| it.destination.prefix_len())
    }

    /// Makes an interface a bridge, see [`Environment::is_bridge`].
    #[must_use]
    pub fn with_bridge(mut self, name: impl Into<String>) -> Self {
        self.bridges.push(name.into());
        self
    }

    /// Makes an interface a bridge whose packets between its ports pass no rules: module
    /// `br_netfilter` is missing, or its sysctls are off.
    #[must_use]
    pub fn with_unfiltered_bridge(mut self, name: impl Into<String>) -> Self {
        self.unfiltered.push(name.into());
        self
    }

    /// Returns whether packets between the ports of a bridge pass no rules.
    pub fn is_unfiltered_bridge(&self, name: &str) -> bool {
        self.unfiltered.iter().any(|it| it == name)
    }

    /// Makes an interface lose all packets: it is down, or has no carrier.
    #[must_use]
    pub fn with_link_down(mut self, name: impl Into<String>) -> Self {
        self.down.push(name.into());
        self
    }

    /// Makes the host lose packets of a family that an interface receives and that are not for
    /// the host: [`Loss::NotForwarded`].
    #[must_use]
    pub fn without_forwarding(mut self, name: impl Into<String>, family: Family) -> Self {
        self.not_forwarding.push((name.into(), family));
        self
    }

    /// Sets the reverse path filter of an interface, which applies to IPv4.
    #[must_use]
    pub fn with_reverse_path(mut self, name: impl Into<String>, filter: ReversePath) -> Self {
        self.filters.push((name.into(), filter));
        self
    }

    /// Records the priorities of rules of policy routing (`ip rule`) besides those that each
    /// host has. Routes do not consider them.
    #[must_use]
    pub fn with_policies(mut self, priorities: impl IntoIterator<Item = u32>) -> Self {
        self.policies.extend(priorities);
        self
    }

    /// Returns the priorities of rules of policy routing.
    pub fn policies(&self) -> &[u32] {
        &self.policies
    }

    /// Returns an interface with an address or a route by its name.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        let of_addrs = self.addrs.iter().map(|(interface, _)| interface);
        let of_routes = self.routes.iter().filter_map(|it| match &it.route {
            Route::Interface(interface) => Some(interface),
            _ => None,
        });
        of_addrs.chain(of_routes).find(|it| it.name == name)
    }

    /// Returns the addresses of an interface.
    pub fn addrs_of(&self, name: &str) -> impl Iterator<Item = IpNet> {
        let own = self.addrs.iter().filter(move |(it, _)| it.name == name);
        own.map(|(_, net)| *net)
    }

    /// Returns the names of the interfaces with a reverse path filter.
    pub fn reverse_paths(&self) -> impl Iterator<Item = (&str, ReversePath)> {
        self.filters.iter().map(|(name, filter)| (&**name, *filter))
    }

    /// Returns whether the reverse path filter of an interface drops packets from a source.
    ///
    /// `__fib_validate_source` of `net/ipv4/fib_frontend.c`. A source that is an address of the
    /// host has its own checks.
    fn is_filtered(&self, source: IpAddr, input: &Interface) -> Option<ReversePath> {
        let (_, filter) = self.filters.iter().find(|(name, _)| *name == input.name)?;
        if source.is_ipv6() || self.is_local(source, None) {
            return None;
        }
        let is_passed = match self.longest(source).map(|it| &it.route) {
            Some(Route::Interface(output)) => {
                *filter == ReversePath::Loose || output.name == input.name
            }
            _ => false,
        };
        (!is_passed).then_some(*filter)
    }

    /// Assumes that packets exceed all limits and quotas, or none. An exhausted quota and a
    /// limit of 0 connections need no assumption.
    #[must_use]
    pub fn with_limits_exceeded(mut self, is_over: bool) -> Self {
        self.is_over = Some(is_over);
        self
    }

    fn is_local(&self, addr: IpAddr, interface: Option<&Interface>) -> bool {
        let is_on = |it: &Interface| interface.is_none_or(|wanted| wanted.name == it.name);
        let is_addr = |net: &IpNet| match net.addr() {
            IpAddr::V4(own) if own.is_loopback() => net.contains(&addr),
            own => own == addr,
        };
        self.addrs.iter().any(|(it, net)| is_on(it) && is_addr(net))
    }

    fn is_broadcast(&self, addr: IpAddr) -> bool {
        let IpAddr::V4(v4) = addr else {
            return false;
        };
        let is_of = |net: &IpNet| net.prefix_len() < 31 && net.broadcast() == addr;
        v4.is_broadcast() || v4.is_unspecified() || self.addrs.iter().any(|(_, net)| is_of(net))
    }
}

impl Environment for Host {
    fn route(&self, query: &RouteQuery<'_>) -> Option<Route> {
        let destination = query.destination;
        if self.is_local(destination, None) {
            return Some(Route::Local);
        }
        if query.input.is_some() && (destination.is_multicast() || self.is_broadcast(destination)) {
            return Some(Route::Local);
        }
        let longest = self.longest(destination);
        Some(longest.map_or(Route::None, |it| it.route.clone()))
    }

    fn preferred_source(&self, query: &RouteQuery<'_>) -> Option<IpAddr> {
        self.longest(query.destination)?.source
    }

    fn addr_type(&self, addr: IpAddr, interface: Option<&Interface>) -> Option<AddrType> {
        Some(match () {
            () if addr.is_multicast() => AddrType::Multicast,
            () if self.is_local(addr, interface) => AddrType::Local,
            () if self.is_broadcast(addr) => AddrType::Broadcast,
            () => AddrType::Unicast,
        })
    }

    /// Returns the first address of the interface in the family of the destination. An
    /// address in the network of the destination precedes others.
    ///
    /// IPv4 addresses of the loopback network are for this host only: without another
    /// address, the interface uses the first one of the host.
    fn interface_addr(&self, interface: &Interface, destination: IpAddr) -> Option<IpAddr> {
        let is_usable = |net: &&IpNet| match net.addr() {
            IpAddr::V4(addr) => destination.is_ipv4() && !addr.is_loopback(),
            IpAddr::V6(_) => destination.is_ipv6(),
        };
        let all = || self.addrs.iter();
        let own = || {
            let own = all().filter(|(it, _)| it.name == interface.name);
            own.map(|(_, net)| net).filter(is_usable)
        };
        let near = own().find(|net| net.contains(&destination));
        let first = || own().next();
        let other = || all().map(|(_, net)| net).find(is_usable);
        near.or_else(first).or_else(other).map(IpNet::addr)
    }

    fn is_over(&self, _limited: Limited<'_>) -> Option<bool> {
        self.is_over
    }

    fn receive_loss(&self, input: &Interface) -> Option<Loss> {
        self.send_loss(input)
    }

    /// The order is that of `ip_route_input_slow` of `net/ipv4/route.c`: forwarding, then the
    /// reverse path. Packets through `lo` keep the route that they were sent with.
    fn route_loss(&self, query: &RouteQuery<'_>, is_local: bool) -> Option<Loss> {
        let input = query.input.filter(|it| it.name != "lo")?;
        let family = match query.destination {
            IpAddr::V4(_) => Family::Ip,
            IpAddr::V6(_) => Family::Ip6,
        };
        let mut stopped = self.not_forwarding.iter();
        let is_stopped = stopped.any(|(name, of)| *name == input.name && *of == family);
        if is_stopped && !is_local {
            return Some(Loss::NotForwarded(input.clone(), family));
        }
        let filter = self.is_filtered(query.source, input)?;
        Some(Loss::ReversePath(input.clone(), filter))
    }

    fn send_loss(&self, output: &Interface) -> Option<Loss> {
        let is_down = self.down.contains(&output.name);
        is_down.then(|| Loss::LinkDown(output.clone()))
    }

    fn is_bridge(&self, interface: &Interface) -> bool {
        self.bridges.contains(&interface.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host::new()
            .with_addr("a", "10.0.0.1/24".parse().unwrap())
            .with_addr("b", "10.0.1.1/24".parse().unwrap())
            .with_route("10.0.0.0/8".parse().unwrap(), "b")
    }

    #[test]
    fn the_longest_prefix_decides() {
        let route = |addr: &str| {
            let query = RouteQuery {
                destination: addr.parse().unwrap(),
                source: "10.0.0.9".parse().unwrap(),
                mark: 0,
                input: None,
            };
            host().route(&query).unwrap()
        };
        assert_eq!(route("10.0.0.1"), Route::Local);
        assert_eq!(route("127.1.2.3"), Route::Local);
        assert_eq!(route("10.0.0.7"), Route::Interface("a".into()));
        assert_eq!(route("10.9.0.7"), Route::Interface("b".into()));
        assert_eq!(route("192.0.2.1"), Route::None);
    }

    #[test]
    fn a_longer_prefix_that_discards_packets_decides() {
        let net: IpNet = "10.0.0.7/32".parse().unwrap();
        let host = host().with_discard(net, Discard::Unreachable);
        let route = |addr: &str| {
            let source = "10.0.0.9".parse().unwrap();
            host.route(&RouteQuery::new(source, addr.parse().unwrap()))
        };
        let unreachable = Route::Discard(Discard::Unreachable, net);
        assert_eq!(route("10.0.0.7"), Some(unreachable));
        assert_eq!(route("10.0.0.8"), Some(Route::Interface("a".into())));
    }

    #[test]
    fn a_host_loses_packets_by_links_forwarding_and_reverse_paths() {
        let host = host()
            .with_link_down("c")
            .without_forwarding("a", Family::Ip)
            .with_reverse_path("b", ReversePath::Strict)
            .with_reverse_path("d", ReversePath::Loose);
        let loss = |source: &str, destination: &str, input: &str, is_local| {
            let input = Interface::from(input);
            let query = RouteQuery {
                destination: destination.parse().unwrap(),
                source: source.parse().unwrap(),
                mark: 0,
                input: Some(&input),
            };
            host.route_loss(&query, is_local).map(|it| it.to_string())
        };
        let contains = |loss: Option<String>, text| loss.is_some_and(|it| it.contains(text));
        assert!(contains(
            loss("10.0.0.9", "10.0.1.9", "a", false),
            "ip_forward"
        ));
        assert_eq!(loss("10.0.0.9", "10.0.0.1", "a", true), None);
        assert_eq!(
            loss("fd00::9", "fd00::1", "a", false),
            None,
            "IPv6 is forwarded"
        );
        // The route to 10.0.0.9 leads through a.
        assert!(contains(
            loss("10.0.0.9", "10.0.1.1", "b", true),
            "another interface"
        ));
        assert_eq!(loss("10.9.0.9", "10.0.1.1", "b", true), None);
        assert_eq!(loss("10.0.0.9", "10.0.1.1", "d", true), None);
        assert!(contains(
            loss("192.0.2.9", "10.0.1.1", "d", true),
            "has no route"
        ));
        assert!(host.receive_loss(&"c".into()).is_some());
        assert!(host.send_loss(&"c".into()).is_some());
        assert!(host.send_loss(&"a".into()).is_none());
    }

    #[test]
    fn a_source_is_an_address_of_the_interface_and_not_of_the_loopback_network() {
        let of = |interface: &str, destination: &str| {
            let destination = destination.parse().unwrap();
            host().interface_addr(&interface.into(), destination)
        };
        assert_eq!(of("b", "192.0.2.1"), "10.0.1.1".parse().ok());
        assert_eq!(of("lo", "127.0.0.1"), "10.0.0.1".parse().ok());
        assert_eq!(of("lo", "::1"), "::1".parse().ok());
        assert_eq!(of("b", "fd00::1"), "::1".parse().ok());
    }

    #[test]
    fn an_address_is_local_on_its_interface_only() {
        let of = |addr: &str, interface: Option<&str>| {
            let interface = interface.map(Interface::from);
            host().addr_type(addr.parse().unwrap(), interface.as_ref())
        };
        assert_eq!(of("10.0.0.1", None), Some(AddrType::Local));
        assert_eq!(of("10.0.0.1", Some("a")), Some(AddrType::Local));
        assert_eq!(of("10.0.0.1", Some("b")), Some(AddrType::Unicast));
        assert_eq!(of("10.0.1.255", None), Some(AddrType::Broadcast));
        assert_eq!(of("224.0.0.1", None), Some(AddrType::Multicast));
        assert_eq!(of("192.0.2.1", None), Some(AddrType::Unicast));
    }
}
