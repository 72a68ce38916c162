//! Filters: which flows are meant.

use std::net::IpAddr;

use vipline_netlink::attr::{nest, put_be16, put_be32, put_u32};

use crate::tuple::{put_addresses, put_ports};
use crate::{Family, Flow, Protocol, Status, Tuple, wire};

/// `CTA_FILTER_ORIG_FLAGS` and `CTA_FILTER_REPLY_FLAGS`.
const ORIGINAL_FLAGS: u16 = 1;
const REPLY_FLAGS: u16 = 2;

/// What of a tuple the kernel is to compare: the bits of these flags.
const COMPARE_SOURCE: u32 = 1;
const COMPARE_DESTINATION: u32 = 1 << 1;
const COMPARE_PROTOCOL: u32 = 1 << 3;
const COMPARE_SOURCE_PORT: u32 = 1 << 4;
const COMPARE_DESTINATION_PORT: u32 = 1 << 5;

/// Which flows are meant: those of which all is true that is said here.
///
/// ```
/// use vipline_conntrack::{Filter, Flow, Protocol, Status, Tuple};
///
/// let unanswered = Filter::new()
///     .protocol(Protocol::TCP)
///     .status(Status::SEEN_REPLY, Status::empty());
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
    /// The family of the addresses.
    pub family: Option<Family>,
    /// The protocol above IP.
    pub protocol: Option<Protocol>,
    /// Packets of whoever began the flow.
    pub original: Side,
    /// Answers, as they come in.
    pub reply: Side,
    /// Bits of the status, and how they are; others of the value say nothing.
    pub status: Option<(Status, Status)>,
    /// Bits of the mark, and how they are; others of the value say nothing.
    ///
    /// A flow without a mark has 0.
    pub mark: Option<(u32, u32)>,
    /// The zone, of both directions or of one; 0 is that of flows without one.
    pub zone: Option<u16>,
}

/// Which packets of one direction are meant.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Side {
    /// Where they come from.
    pub source: Option<IpAddr>,
    /// Where they go.
    pub destination: Option<IpAddr>,
    /// The port they come from.
    pub source_port: Option<u16>,
    /// The port they go to.
    pub destination_port: Option<u16>,
}

impl Side {
    /// Returns what all packets match.
    pub fn new() -> Self {
        Self::default()
    }

    /// Means packets from this address only.
    #[must_use]
    pub fn source(mut self, address: IpAddr) -> Self {
        self.source = Some(address);
        self
    }

    /// Means packets to this address only.
    #[must_use]
    pub fn destination(mut self, address: IpAddr) -> Self {
        self.destination = Some(address);
        self
    }

    /// Means packets from this port only.
    #[must_use]
    pub fn source_port(mut self, port: u16) -> Self {
        self.source_port = Some(port);
        self
    }

    /// Means packets to this port only.
    #[must_use]
    pub fn destination_port(mut self, port: u16) -> Self {
        self.destination_port = Some(port);
        self
    }

    /// Tells whether packets of a direction are meant.
    pub fn matches(&self, tuple: &Tuple) -> bool {
        let is_meant = |wanted: Option<u16>, port| wanted.is_none() || wanted == port;
        self.source.is_none_or(|address| address == tuple.source)
            && self
                .destination
                .is_none_or(|address| address == tuple.destination)
            && is_meant(self.source_port, tuple.source_port())
            && is_meant(self.destination_port, tuple.destination_port())
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.source.into_iter().chain(self.destination)
    }

    fn has_ports(&self) -> bool {
        self.source_port.is_some() || self.destination_port.is_some()
    }

    /// Appends what of this the kernel can compare, and returns what that is.
    fn encode(&self, out: &mut Vec<u8>, kind: u16, protocol: Option<Protocol>) -> u32 {
        // Of addresses of IPv6 it takes those that differ to be the same.
        let [source, destination] =
            [self.source, self.destination].map(|address| address.filter(IpAddr::is_ipv4));
        let has_ports = protocol.is_some_and(Protocol::has_ports_in_kernel_filters);
        let ports = [self.source_port, self.destination_port];
        let ports = ports.map(|port| port.filter(|_| has_ports));
        let flag = |is: bool, flag: u32| if is { flag } else { 0 };
        let flags = flag(source.is_some(), COMPARE_SOURCE)
            | flag(destination.is_some(), COMPARE_DESTINATION)
            | flag(protocol.is_some(), COMPARE_PROTOCOL)
            | flag(ports[0].is_some(), COMPARE_SOURCE_PORT)
            | flag(ports[1].is_some(), COMPARE_DESTINATION_PORT);
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
    /// Returns the filter that means all flows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Means flows between addresses of this family only.
    #[must_use]
    pub fn family(mut self, family: Family) -> Self {
        self.family = Some(family);
        self
    }

    /// Means flows of this protocol only.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = Some(protocol);
        self
    }

    /// Means flows whose packets of the original direction are such.
    #[must_use]
    pub fn original(mut self, side: Side) -> Self {
        self.original = side;
        self
    }

    /// Means flows whose answers are such.
    #[must_use]
    pub fn reply(mut self, side: Side) -> Self {
        self.reply = side;
        self
    }

    /// Means flows in whose status the bits of `mask` are those of `value`.
    #[must_use]
    pub fn status(mut self, mask: Status, value: Status) -> Self {
        self.status = Some((mask, value));
        self
    }

    /// Means flows in whose mark the bits of `mask` are those of `value`.
    #[must_use]
    pub fn mark(mut self, mask: u32, value: u32) -> Self {
        self.mark = Some((mask, value));
        self
    }

    /// Means flows of this zone only.
    #[must_use]
    pub fn zone(mut self, zone: u16) -> Self {
        self.zone = Some(zone);
        self
    }

    /// Tells whether a flow is meant.
    pub fn matches(&self, flow: &Flow) -> bool {
        self.family.is_none_or(|family| family == flow.family())
            && self
                .protocol
                .is_none_or(|protocol| protocol == flow.original.protocol)
            && self.original.matches(&flow.original)
            && self.reply.matches(&flow.reply)
            && self
                .status
                .is_none_or(|(mask, value)| flow.status & mask == value & mask)
            && self
                .mark
                .is_none_or(|(mask, value)| flow.mark.unwrap_or(0) & mask == value & mask)
            && self.zone.is_none_or(|zone| zone == flow.zone_id())
    }

    /// Returns the family of all flows that are meant, if it is one.
    ///
    /// That of the addresses is meant without being said.
    pub(crate) fn only_family(&self) -> Option<Family> {
        let family = |address| match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        };
        self.family.or_else(|| self.addresses().map(family).next())
    }

    /// Tells whether addresses are of another family than flows can be.
    fn is_of_two_families(&self) -> bool {
        let family = self.only_family();
        self.addresses()
            .any(|address| family.is_some_and(|family| address.is_ipv4() != (family == Family::V4)))
    }

    /// Tells whether the kernel, if it can delete by tuples, deletes the very
    /// flows that are meant.
    ///
    /// The status and the zone are left to us: kernels that do not know these
    /// filters take them for none, and would delete what is not meant.
    pub(crate) fn is_exact_in_kernel(&self) -> bool {
        let has_ports = self.original.has_ports() || self.reply.has_ports();
        let is_known = |protocol: Protocol| protocol.has_ports_in_kernel_filters();
        let is_about_tuples = self.has_sides() || self.protocol.is_some();
        !self.is_of_two_families()
            && !self.addresses().any(|address| address.is_ipv6())
            && (!has_ports || self.protocol.is_some_and(is_known))
            && (!is_about_tuples || self.only_family().is_some())
            && self.status.is_none()
            && self.zone.is_none()
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.original.addresses().chain(self.reply.addresses())
    }

    fn has_sides(&self) -> bool {
        self.original != Side::default() || self.reply != Side::default()
    }

    /// Appends what of this the kernel can judge: no flow that is meant is
    /// left out by it, others may remain.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        if self.only_family().is_some() && !self.is_of_two_families() {
            let original = self
                .original
                .encode(out, wire::TUPLE_ORIGINAL, self.protocol);
            // The protocol is that of both directions, so once is enough.
            let protocol = self.protocol.filter(|_| self.reply.has_ports());
            let reply = self.reply.encode(out, wire::TUPLE_REPLY, protocol);
            if original | reply != 0 {
                nest(out, wire::FILTER, |out| {
                    for (kind, flags) in [(ORIGINAL_FLAGS, original), (REPLY_FLAGS, reply)] {
                        if flags != 0 {
                            put_u32(out, kind, flags);
                        }
                    }
                });
            }
        }
        if let Some((mask, value)) = self.mark {
            // The kernel compares all bits of it.
            put_be32(out, wire::MARK, value & mask);
            put_be32(out, wire::MARK_MASK, mask);
        }
        // The kernel refuses a mask of nothing.
        if let Some((mask, value)) = self.status.filter(|(mask, _)| !mask.is_empty()) {
            put_be32(out, wire::STATUS, (value & mask).bits());
            put_be32(out, wire::STATUS_MASK, mask.bits());
        }
        if let Some(zone) = self.zone {
            put_be16(out, wire::ZONE, zone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_deletes_by_itself_only_what_it_compares() {
        let address = "10.0.0.1".parse().unwrap();
        let port = Side::new().destination_port(53);
        let by_port = Filter::new().family(Family::V4).original(port);
        assert!(by_port.protocol(Protocol::UDP).is_exact_in_kernel());
        // It takes ports of SCTP, and deletes flows of all ports.
        assert!(!by_port.protocol(Protocol::SCTP).is_exact_in_kernel());
        assert!(!by_port.is_exact_in_kernel());

        let v4 = Filter::new().original(Side::new().source(address));
        assert!(v4.is_exact_in_kernel());
        assert!(!v4.family(Family::V6).is_exact_in_kernel());
        // It deletes flows of all other addresses of IPv6 than these.
        let v6 = Side::new().source("fd00::1".parse().unwrap());
        assert!(!Filter::new().original(v6).is_exact_in_kernel());
        assert!(!v4.zone(0).is_exact_in_kernel());
        assert!(
            !v4.status(Status::ASSURED, Status::ASSURED)
                .is_exact_in_kernel()
        );
        assert!(Filter::new().mark(0xff, 7).is_exact_in_kernel());
        assert!(!Filter::new().protocol(Protocol::TCP).is_exact_in_kernel());
    }
}
