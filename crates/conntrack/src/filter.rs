//! Filters of flows.

use std::net::IpAddr;

use vipline_netlink::attr::{nest, put_be16, put_be32, put_u32};

use crate::protocol::has_ports_in_kernel_filters;
use crate::tuple::{put_addresses, put_ports};
use crate::uapi::*;
use crate::{AddressRange, Family, Flow, Network, PortRange, Protocol, Status, Tuple};

/// Selects conntrack entries. All conditions that are set must match.
///
/// ```
/// use vipline_conntrack::{Filter, Flow, Protocol, Status, Tuple};
///
/// let unanswered = Filter::new()
///     .with_protocol(Protocol::TCP)
///     .with_status(Status::empty(), Status::SEEN_REPLY);
/// let tuple = Tuple::ports(
///     Protocol::TCP,
///     ("10.0.0.1".parse()?, 1024),
///     ("10.0.0.2".parse()?, 80),
/// );
/// let mut flow = Flow::new(tuple, tuple.inverted());
/// assert!(unanswered.matches(&flow));
/// flow.status |= Status::SEEN_REPLY;
/// assert!(!unanswered.matches(&flow));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Filter {
    /// Address family.
    pub family: Option<Family>,
    /// IP protocol.
    pub protocol: Option<Protocol>,
    /// Filter of the original tuple.
    pub original: TupleFilter,
    /// Filter of the reply tuple.
    pub reply: TupleFilter,
    /// Status bits to compare, as `(value, mask)`.
    pub status: Option<(Status, Status)>,
    /// Mark bits to compare, as `(value, mask)`.
    ///
    /// A flow without a mark has mark 0.
    pub mark: Option<(u32, u32)>,
    /// Zone of both directions, like `conntrack -w`. A flow without such a zone has zone
    /// 0, also if one direction has a zone.
    pub zone: Option<u16>,
    /// Labels that must be set: bit `n` is label `n`.
    pub labels: u128,
}

/// Selects tuples. All conditions that are set must match.
///
/// A port condition matches only tuples with [`Layer4::Ports`](crate::Layer4::Ports).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct TupleFilter {
    /// Network of the source address.
    pub source: Option<Network>,
    /// Network of the destination address.
    pub destination: Option<Network>,
    /// Range of the source address.
    pub source_range: Option<AddressRange>,
    /// Range of the destination address.
    pub destination_range: Option<AddressRange>,
    /// Source ports.
    pub source_port: Option<PortRange>,
    /// Destination ports.
    pub destination_port: Option<PortRange>,
    /// Zone of this direction only, like `conntrack --orig-zone` and `--reply-zone`. A
    /// tuple without a zone has zone 0.
    pub zone: Option<u16>,
}

impl TupleFilter {
    /// Creates a filter that matches all tuples.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects tuples with this source address.
    #[must_use]
    pub fn with_source(self, address: IpAddr) -> Self {
        self.with_source_network(address.into())
    }

    /// Selects tuples with this destination address.
    #[must_use]
    pub fn with_destination(self, address: IpAddr) -> Self {
        self.with_destination_network(address.into())
    }

    /// Selects tuples with a source address in this network.
    ///
    /// The kernel compares only addresses. The client compares networks.
    #[must_use]
    pub fn with_source_network(mut self, network: Network) -> Self {
        self.source = Some(network);
        self
    }

    /// Selects tuples with a destination address in this network.
    ///
    /// The kernel compares only addresses. The client compares networks.
    #[must_use]
    pub fn with_destination_network(mut self, network: Network) -> Self {
        self.destination = Some(network);
        self
    }

    /// Selects tuples with a source address in this range.
    ///
    /// The kernel compares only addresses. The client compares ranges.
    #[must_use]
    pub fn with_source_range(mut self, range: AddressRange) -> Self {
        self.source_range = Some(range);
        self
    }

    /// Selects tuples with a destination address in this range.
    ///
    /// The kernel compares only addresses. The client compares ranges.
    #[must_use]
    pub fn with_destination_range(mut self, range: AddressRange) -> Self {
        self.destination_range = Some(range);
        self
    }

    /// Selects tuples with this source port.
    #[must_use]
    pub fn with_source_port(self, port: u16) -> Self {
        self.with_source_ports(port.into())
    }

    /// Selects tuples with this destination port.
    #[must_use]
    pub fn with_destination_port(self, port: u16) -> Self {
        self.with_destination_ports(port.into())
    }

    /// Selects tuples with a source port in this range.
    ///
    /// The kernel compares only single ports. The client compares ranges.
    #[must_use]
    pub fn with_source_ports(mut self, ports: PortRange) -> Self {
        self.source_port = Some(ports);
        self
    }

    /// Selects tuples with a destination port in this range.
    ///
    /// The kernel compares only single ports. The client compares ranges.
    #[must_use]
    pub fn with_destination_ports(mut self, ports: PortRange) -> Self {
        self.destination_port = Some(ports);
        self
    }

    /// Selects tuples whose direction alone has this zone.
    #[must_use]
    pub fn with_zone(mut self, zone: u16) -> Self {
        self.zone = Some(zone);
        self
    }

    /// Returns whether the filter matches a tuple.
    pub fn matches(&self, tuple: &Tuple) -> bool {
        let is_in = |wanted: Option<Network>, address| wanted.is_none_or(|it| it.contains(address));
        let is_between =
            |wanted: Option<AddressRange>, address| wanted.is_none_or(|it| it.contains(address));
        let has_port = |wanted: Option<PortRange>, port: Option<u16>| {
            wanted.is_none_or(|range| port.is_some_and(|port| range.contains(port)))
        };
        is_in(self.source, tuple.source)
            && is_in(self.destination, tuple.destination)
            && is_between(self.source_range, tuple.source)
            && is_between(self.destination_range, tuple.destination)
            && has_port(self.source_port, tuple.source_port())
            && has_port(self.destination_port, tuple.destination_port())
            && self.zone.is_none_or(|zone| zone == tuple.zone.unwrap_or(0))
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let networks = self.source.into_iter().chain(self.destination);
        let ranges = self.source_range.into_iter().chain(self.destination_range);
        let first = ranges.map(AddressRange::first);
        networks.map(Network::address).chain(first)
    }

    /// Returns whether the kernel can compare all conditions.
    fn is_exact_in_kernel(&self) -> bool {
        let is_single = |network: Network| network.single().is_some();
        let is_one_port = |ports: PortRange| ports.single().is_some();
        self.zone.is_none()
            && self.source_range.is_none()
            && self.destination_range.is_none()
            && self.source.is_none_or(is_single)
            && self.destination.is_none_or(is_single)
            && self.source_port.is_none_or(is_one_port)
            && self.destination_port.is_none_or(is_one_port)
    }

    fn has_ports(&self) -> bool {
        self.source_port.is_some() || self.destination_port.is_some()
    }

    /// Appends the conditions that the kernel can compare, and returns their flags.
    fn encode(&self, out: &mut Vec<u8>, kind: u16, protocol: Option<Protocol>) -> u32 {
        // The kernel matches IPv6 addresses that differ.
        let [source, destination] =
            [self.source, self.destination].map(|it| it.and_then(Network::single));
        let [source, destination] =
            [source, destination].map(|address| address.filter(IpAddr::is_ipv4));
        let has_ports = protocol.is_some_and(has_ports_in_kernel_filters);
        let ports = [self.source_port, self.destination_port];
        let ports = ports.map(|ports| ports.and_then(PortRange::single));
        let ports = ports.map(|port| port.filter(|_| has_ports));
        let flag = |is: bool, flag: u32| if is { flag } else { 0 };
        let flags = flag(source.is_some(), CTA_FILTER_F_CTA_IP_SRC)
            | flag(destination.is_some(), CTA_FILTER_F_CTA_IP_DST)
            | flag(protocol.is_some(), CTA_FILTER_F_CTA_PROTO_NUM)
            | flag(ports[0].is_some(), CTA_FILTER_F_CTA_PROTO_SRC_PORT)
            | flag(ports[1].is_some(), CTA_FILTER_F_CTA_PROTO_DST_PORT);
        if flags != 0 {
            nest(out, kind, |out| {
                put_addresses(out, source, destination);
                if let Some(protocol) = protocol {
                    put_ports(out, protocol, ports);
                }
            });
        }
        flags
    }
}

impl Filter {
    /// Creates a filter that matches all flows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects flows of this address family.
    #[must_use]
    pub fn with_family(mut self, family: Family) -> Self {
        self.family = Some(family);
        self
    }

    /// Selects flows of this IP protocol.
    #[must_use]
    pub fn with_protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = Some(protocol);
        self
    }

    /// Selects flows by their original tuple.
    #[must_use]
    pub fn with_original(mut self, tuple: TupleFilter) -> Self {
        self.original = tuple;
        self
    }

    /// Selects flows by their reply tuple.
    #[must_use]
    pub fn with_reply(mut self, tuple: TupleFilter) -> Self {
        self.reply = tuple;
        self
    }

    /// Selects flows whose status bits of `mask` equal those of `value`.
    #[must_use]
    pub fn with_status(mut self, value: Status, mask: Status) -> Self {
        self.status = Some((value, mask));
        self
    }

    /// Selects flows whose mark bits of `mask` equal those of `value`.
    #[must_use]
    pub fn with_mark(mut self, value: u32, mask: u32) -> Self {
        self.mark = Some((value, mask));
        self
    }

    /// Selects flows with this zone of both directions, like `conntrack -w`.
    ///
    /// [`TupleFilter::with_zone`] selects the zone of one direction.
    #[must_use]
    pub fn with_zone(mut self, zone: u16) -> Self {
        self.zone = Some(zone);
        self
    }

    /// Selects flows with this label, from 0 to 127, in addition to earlier ones.
    ///
    /// Higher numbers are ignored.
    #[must_use]
    pub fn with_label(mut self, label: u8) -> Self {
        self.labels |= 1_u128.checked_shl(label.into()).unwrap_or(0);
        self
    }

    /// Returns whether the filter matches a flow.
    pub fn matches(&self, flow: &Flow) -> bool {
        self.family.is_none_or(|family| family == flow.family())
            && self
                .protocol
                .is_none_or(|protocol| protocol == flow.original.protocol)
            && self.original.matches(&flow.original)
            && self.reply.matches(&flow.reply)
            && self
                .status
                .is_none_or(|(value, mask)| flow.status & mask == value & mask)
            && self
                .mark
                .is_none_or(|(value, mask)| flow.mark.unwrap_or(0) & mask == value & mask)
            && self.zone.is_none_or(|zone| zone == flow.zone.unwrap_or(0))
            && flow.label_bits() & self.labels == self.labels
    }

    /// Returns whether all flows of the [only family](Self::only_family) match.
    pub(crate) fn compares_only_family(&self) -> bool {
        let family_only = Self {
            family: self.family,
            ..Self::new()
        };
        *self == family_only
    }

    /// Returns the only family of matching flows, if there is one.
    ///
    /// An address implies its family.
    pub(crate) fn only_family(&self) -> Option<Family> {
        self.family
            .or_else(|| self.addresses().map(Family::of).next())
    }

    /// Returns whether the conditions contradict each other in their families.
    fn is_of_two_families(&self) -> bool {
        let family = self.only_family();
        self.addresses()
            .any(|address| family.is_some_and(|family| address.is_ipv4() != (family == Family::V4)))
    }

    /// Returns whether a kernel that can flush by tuple deletes exactly the matching
    /// flows.
    ///
    /// Filters with a status or a zone return `false`: kernels without these conditions
    /// ignore them and would delete other flows.
    pub(crate) fn is_exact_in_kernel(&self) -> bool {
        let has_ports = self.original.has_ports() || self.reply.has_ports();
        let compares_tuples = self.has_tuple_filters() || self.protocol.is_some();
        !self.is_of_two_families()
            && !self.addresses().any(|address| address.is_ipv6())
            && (!has_ports || self.protocol.is_some_and(has_ports_in_kernel_filters))
            && (!compares_tuples || self.only_family().is_some())
            && self.original.is_exact_in_kernel()
            && self.reply.is_exact_in_kernel()
            && self.status.is_none()
            && self.zone.is_none()
            && self.labels == 0
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.original.addresses().chain(self.reply.addresses())
    }

    fn has_tuple_filters(&self) -> bool {
        self.original != TupleFilter::default() || self.reply != TupleFilter::default()
    }

    /// Appends the conditions that the kernel can compare.
    ///
    /// The kernel then returns all matching flows, and possibly others.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        if self.only_family().is_some() && !self.is_of_two_families() {
            let original = self.original.encode(out, CTA_TUPLE_ORIG, self.protocol);
            // Both directions have the same protocol, so one comparison is enough.
            let protocol = self.protocol.filter(|_| self.reply.has_ports());
            let reply = self.reply.encode(out, CTA_TUPLE_REPLY, protocol);
            if original | reply != 0 {
                nest(out, CTA_FILTER, |out| {
                    for (kind, flags) in [
                        (CTA_FILTER_ORIG_FLAGS, original),
                        (CTA_FILTER_REPLY_FLAGS, reply),
                    ] {
                        if flags != 0 {
                            put_u32(out, kind, flags);
                        }
                    }
                });
            }
        }
        if let Some((value, mask)) = self.mark {
            // The kernel compares the value with the masked mark.
            put_be32(out, CTA_MARK, value & mask);
            put_be32(out, CTA_MARK_MASK, mask);
        }
        // The kernel rejects an empty mask.
        if let Some((value, mask)) = self.status.filter(|(_, mask)| !mask.is_empty()) {
            put_be32(out, CTA_STATUS, (value & mask).bits());
            put_be32(out, CTA_STATUS_MASK, mask.bits());
        }
        // The kernel compares the zone of any direction: flows of which only one
        // direction has a zone do not have zone 0.
        if let Some(zone) = self.zone.filter(|zone| *zone != 0) {
            put_be16(out, CTA_ZONE, zone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_filters_that_the_kernel_compares_exactly_are_flushed_by_the_kernel() {
        let address = "10.0.0.1".parse().unwrap();
        let port = TupleFilter::new().with_destination_port(53);
        let by_port = Filter::new().with_family(Family::V4).with_original(port);
        assert!(by_port.with_protocol(Protocol::UDP).is_exact_in_kernel());
        // The kernel accepts SCTP ports, but deletes flows of all ports.
        assert!(!by_port.with_protocol(Protocol::SCTP).is_exact_in_kernel());
        assert!(!by_port.is_exact_in_kernel());

        let v4 = Filter::new().with_original(TupleFilter::new().with_source(address));
        assert!(v4.is_exact_in_kernel());
        assert!(!v4.with_family(Family::V6).is_exact_in_kernel());
        // The kernel deletes flows of other IPv6 addresses, too.
        let v6 = TupleFilter::new().with_source("fd00::1".parse().unwrap());
        assert!(!Filter::new().with_original(v6).is_exact_in_kernel());
        assert!(!v4.with_zone(0).is_exact_in_kernel());
        assert!(
            !v4.with_status(Status::ASSURED, Status::ASSURED)
                .is_exact_in_kernel()
        );
        let network = Network::new(address, 24).unwrap();
        let network = TupleFilter::new().with_source_network(network);
        assert!(!Filter::new().with_original(network).is_exact_in_kernel());
        let range = AddressRange::new(address, address).unwrap();
        for range in [
            TupleFilter::new().with_source_range(range),
            TupleFilter::new().with_destination_range(range),
        ] {
            let filter = Filter::new().with_original(range);
            assert!(!filter.is_exact_in_kernel());
            assert_eq!(filter.only_family(), Some(Family::V4));
        }
        let ports = TupleFilter::new().with_source_ports(PortRange::new(1, 2));
        let ports = by_port.with_protocol(Protocol::UDP).with_original(ports);
        assert!(!ports.is_exact_in_kernel());
        assert!(
            !v4.with_reply(TupleFilter::new().with_zone(0))
                .is_exact_in_kernel()
        );
        assert!(!v4.with_label(1).is_exact_in_kernel());
        assert!(Filter::new().with_mark(7, 0xff).is_exact_in_kernel());
        assert!(
            !Filter::new()
                .with_protocol(Protocol::TCP)
                .is_exact_in_kernel()
        );
    }
}
