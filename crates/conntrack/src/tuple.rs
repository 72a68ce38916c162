//! Tuples: addresses, protocol and ports of one direction of a flow.

use std::net::IpAddr;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs, NLA_F_NESTED, nest, put, put_be16, put_u8};

use crate::uapi::*;
use crate::{Family, Protocol};

/// Addresses, protocol and ports of the packets of one direction.
///
/// Exhaustive: the fields identify one direction of a flow.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Tuple {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IP protocol.
    pub protocol: Protocol,
    /// Transport layer fields.
    pub layer4: Layer4,
    /// Conntrack zone, if it applies only to this direction.
    pub zone: Option<u16>,
}

/// Transport layer fields of a tuple.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Layer4 {
    /// No fields.
    #[default]
    None,
    /// Ports, or GRE keys.
    Ports {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
    },
    /// ICMP or ICMPv6.
    Icmp {
        /// Message type.
        kind: u8,
        /// Message code.
        code: u8,
        /// Echo identifier.
        id: u16,
    },
}

impl Tuple {
    /// Creates a tuple from source and destination, each an address and a port.
    pub fn ports(protocol: Protocol, from: (IpAddr, u16), to: (IpAddr, u16)) -> Self {
        Self {
            source: from.0,
            destination: to.0,
            protocol,
            layer4: Layer4::Ports {
                source: from.1,
                destination: to.1,
            },
            zone: None,
        }
    }

    /// Returns the address family.
    pub fn family(&self) -> Family {
        Family::of(self.source)
    }

    /// Returns the tuple of replies without address translation and without a zone.
    ///
    /// ```
    /// use vipline_conntrack::{Protocol, Tuple};
    ///
    /// let (a, b) = (("10.0.0.1".parse()?, 1024), ("10.0.0.2".parse()?, 53));
    /// let query = Tuple::ports(Protocol::UDP, a, b);
    /// assert_eq!(query.inverted(), Tuple::ports(Protocol::UDP, b, a));
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    #[must_use]
    pub fn inverted(&self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            protocol: self.protocol,
            layer4: self.layer4.inverted(self.protocol),
            zone: None,
        }
    }

    /// Returns the source port or GRE key, if the tuple has ports.
    pub fn source_port(&self) -> Option<u16> {
        match self.layer4 {
            Layer4::Ports { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Returns the destination port or GRE key, if the tuple has ports.
    pub fn destination_port(&self) -> Option<u16> {
        match self.layer4 {
            Layer4::Ports { destination, .. } => Some(destination),
            _ => None,
        }
    }

    /// Returns whether two tuples are equal except for their zones.
    pub(crate) fn equals_ignoring_zone(&self, other: &Self) -> bool {
        let without_zone = |tuple: &Self| Self {
            zone: None,
            ..*tuple
        };
        without_zone(self) == without_zone(other)
    }

    /// Decodes an attribute such as `CTA_TUPLE_ORIG`.
    pub(crate) fn decode(tuple: Attr<'_>) -> Result<Self, DecodeError> {
        let with_ports = Self::decode_ports::<4>(tuple.value, [CTA_IP_V4_SRC, CTA_IP_V4_DST])
            .or_else(|| Self::decode_ports::<16>(tuple.value, [CTA_IP_V6_SRC, CTA_IP_V6_DST]));
        match with_ports {
            Some(tuple) => Ok(tuple),
            None => Self::decode_any(tuple),
        }
    }

    /// Decodes the tuple of a flow with ports and `N` bytes of address if it has exactly the
    /// form in which the kernel writes it (`ctnetlink_dump_tuples`; Linux 6.1 to 6.18).
    ///
    /// A flow has two tuples of seven attributes, and they are most of its attributes. Comparing
    /// the headers with those that are expected takes a fifth of the instructions of the loops
    /// of [`decode_any`](Self::decode_any), which takes any other form.
    #[inline]
    fn decode_ports<const N: usize>(mut rest: &[u8], addresses: [u16; 2]) -> Option<Self>
    where
        IpAddr: From<[u8; N]>,
    {
        let rest = &mut rest;
        let [source, destination] = addresses;
        take_nest(rest, CTA_TUPLE_IP, 2 * (HEADER + N))?;
        let source = take::<N>(rest, source)?;
        let destination = take::<N>(rest, destination)?;
        take_nest(rest, CTA_TUPLE_PROTO, 3 * (HEADER + PADDED))?;
        let [protocol] = take_padded(rest, CTA_PROTO_NUM)?;
        let source_port = take_padded(rest, CTA_PROTO_SRC_PORT)?;
        let destination_port = take_padded(rest, CTA_PROTO_DST_PORT)?;
        // A zone of one direction follows.
        if !rest.is_empty() {
            return None;
        }
        Some(Self {
            source: source.into(),
            destination: destination.into(),
            protocol: Protocol(protocol),
            layer4: Layer4::Ports {
                source: u16::from_be_bytes(source_port),
                destination: u16::from_be_bytes(destination_port),
            },
            zone: None,
        })
    }

    fn decode_any(tuple: Attr<'_>) -> Result<Self, DecodeError> {
        let (mut source, mut destination) = (None, None);
        let (mut protocol, mut layer4, mut zone) = (None, Layer4::None, None);
        for attr in tuple.attrs() {
            let attr = attr?;
            match attr.kind {
                CTA_TUPLE_IP => {
                    for attr in attr.attrs() {
                        let attr = attr?;
                        match attr.kind {
                            CTA_IP_V4_SRC => source = Some(address::<4>(attr)?),
                            CTA_IP_V4_DST => destination = Some(address::<4>(attr)?),
                            CTA_IP_V6_SRC => source = Some(address::<16>(attr)?),
                            CTA_IP_V6_DST => destination = Some(address::<16>(attr)?),
                            _ => {}
                        }
                    }
                }
                CTA_TUPLE_PROTO => {
                    (protocol, layer4) = Layer4::decode(attr.attrs())?;
                }
                CTA_TUPLE_ZONE => zone = Some(attr.be16()?),
                _ => {}
            }
        }
        let missing = |expected| move || DecodeError::new(expected, tuple.kind, tuple.value.len());
        Ok(Self {
            source: source.ok_or_else(missing("tuple with a source"))?,
            destination: destination.ok_or_else(missing("tuple with a destination"))?,
            protocol: protocol.ok_or_else(missing("tuple with a protocol"))?,
            layer4,
            zone,
        })
    }

    /// Appends an attribute such as `CTA_TUPLE_ORIG`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, kind: u16) {
        nest(out, kind, |out| {
            let (source, destination) = (Some(self.source), Some(self.destination));
            put_addresses(out, source, destination);
            nest(out, CTA_TUPLE_PROTO, |out| {
                put_u8(out, CTA_PROTO_NUM, self.protocol.0);
                self.layer4.encode(out, self.protocol);
            });
            if let Some(zone) = self.zone {
                put_be16(out, CTA_TUPLE_ZONE, zone);
            }
        });
    }
}

impl Layer4 {
    /// Returns the fields of replies.
    fn inverted(self, protocol: Protocol) -> Self {
        match self {
            Self::None => Self::None,
            Self::Ports {
                source,
                destination,
            } => Self::Ports {
                source: destination,
                destination: source,
            },
            Self::Icmp { kind, code, id } => Self::Icmp {
                kind: reply_type(protocol, kind),
                code,
                id,
            },
        }
    }

    #[inline]
    fn decode(attrs: Attrs<'_>) -> Result<(Option<Protocol>, Self), DecodeError> {
        let (mut protocol, mut source, mut destination) = (None, None, None);
        let (mut kind, mut code, mut id) = (None, None, None);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                CTA_PROTO_NUM => protocol = Some(Protocol(attr.u8()?)),
                CTA_PROTO_SRC_PORT => source = Some(attr.be16()?),
                CTA_PROTO_DST_PORT => destination = Some(attr.be16()?),
                CTA_PROTO_ICMP_ID | CTA_PROTO_ICMPV6_ID => id = Some(attr.be16()?),
                CTA_PROTO_ICMP_TYPE | CTA_PROTO_ICMPV6_TYPE => kind = Some(attr.u8()?),
                CTA_PROTO_ICMP_CODE | CTA_PROTO_ICMPV6_CODE => code = Some(attr.u8()?),
                _ => {}
            }
        }
        let layer4 = if source.is_some() || destination.is_some() {
            Self::Ports {
                source: source.unwrap_or_default(),
                destination: destination.unwrap_or_default(),
            }
        } else if kind.is_some() || code.is_some() || id.is_some() {
            Self::Icmp {
                kind: kind.unwrap_or_default(),
                code: code.unwrap_or_default(),
                id: id.unwrap_or_default(),
            }
        } else {
            Self::None
        };
        Ok((protocol, layer4))
    }

    fn encode(self, out: &mut Vec<u8>, protocol: Protocol) {
        match self {
            Self::None => {}
            Self::Ports {
                source,
                destination,
            } => {
                put_be16(out, CTA_PROTO_SRC_PORT, source);
                put_be16(out, CTA_PROTO_DST_PORT, destination);
            }
            Self::Icmp { kind, code, id } => {
                let (id_attr, type_attr, code_attr) = match protocol {
                    Protocol::ICMPV6 => (
                        CTA_PROTO_ICMPV6_ID,
                        CTA_PROTO_ICMPV6_TYPE,
                        CTA_PROTO_ICMPV6_CODE,
                    ),
                    _ => (CTA_PROTO_ICMP_ID, CTA_PROTO_ICMP_TYPE, CTA_PROTO_ICMP_CODE),
                };
                put_be16(out, id_attr, id);
                put_u8(out, type_attr, kind);
                put_u8(out, code_attr, code);
            }
        }
    }
}

/// Returns the ICMP type of the reply to an ICMP type.
fn reply_type(protocol: Protocol, kind: u8) -> u8 {
    match (protocol, kind) {
        (Protocol::ICMP, ICMP_ECHO) => ICMP_ECHOREPLY,
        (Protocol::ICMP, ICMP_ECHOREPLY) => ICMP_ECHO,
        (Protocol::ICMP, ICMP_TIMESTAMP) => ICMP_TIMESTAMPREPLY,
        (Protocol::ICMP, ICMP_TIMESTAMPREPLY) => ICMP_TIMESTAMP,
        (Protocol::ICMP, ICMP_INFO_REQUEST) => ICMP_INFO_REPLY,
        (Protocol::ICMP, ICMP_INFO_REPLY) => ICMP_INFO_REQUEST,
        (Protocol::ICMP, ICMP_ADDRESS) => ICMP_ADDRESSREPLY,
        (Protocol::ICMP, ICMP_ADDRESSREPLY) => ICMP_ADDRESS,
        (Protocol::ICMPV6, ICMPV6_ECHO_REQUEST) => ICMPV6_ECHO_REPLY,
        (Protocol::ICMPV6, ICMPV6_ECHO_REPLY) => ICMPV6_ECHO_REQUEST,
        (Protocol::ICMPV6, ICMPV6_NI_QUERY) => ICMPV6_NI_REPLY,
        (Protocol::ICMPV6, ICMPV6_NI_REPLY) => ICMPV6_NI_QUERY,
        _ => kind,
    }
}

/// Bytes of the header of an attribute.
const HEADER: usize = 4;
/// Bytes of a value of at most four bytes with its padding.
const PADDED: usize = 4;

/// Takes the header of an attribute with this type and length of value from the front.
#[inline]
fn take_header(rest: &mut &[u8], kind: u16, value: usize) -> Option<()> {
    let ([length @ .., a, b], after) = rest.split_first_chunk::<HEADER>()?;
    let is_expected = usize::from(u16::from_ne_bytes(*length)) == HEADER + value
        && u16::from_ne_bytes([*a, *b]) == kind;
    *rest = after;
    is_expected.then_some(())
}

/// Takes the header of an attribute with nested attributes of this length.
#[inline]
fn take_nest(rest: &mut &[u8], kind: u16, value: usize) -> Option<()> {
    take_header(rest, kind | NLA_F_NESTED, value)
}

/// Takes an attribute whose value needs no padding.
#[inline]
fn take<const N: usize>(rest: &mut &[u8], kind: u16) -> Option<[u8; N]> {
    take_header(rest, kind, N)?;
    let (value, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*value)
}

/// Takes an attribute whose value has at most four bytes, and its padding.
#[inline]
fn take_padded<const N: usize>(rest: &mut &[u8], kind: u16) -> Option<[u8; N]> {
    take_header(rest, kind, N)?;
    let (padded, after) = rest.split_first_chunk::<PADDED>()?;
    *rest = after;
    padded.first_chunk().copied()
}

fn address<const N: usize>(attr: Attr<'_>) -> Result<IpAddr, DecodeError>
where
    IpAddr: From<[u8; N]>,
{
    let bytes: Result<[u8; N], _> = attr.value.try_into();
    bytes.map(IpAddr::from).map_err(|_| attr.error("address"))
}

/// Appends `CTA_TUPLE_IP` with the given addresses.
pub(crate) fn put_addresses(out: &mut Vec<u8>, source: Option<IpAddr>, to: Option<IpAddr>) {
    nest(out, CTA_TUPLE_IP, |out| {
        for (address, v4, v6) in [
            (source, CTA_IP_V4_SRC, CTA_IP_V6_SRC),
            (to, CTA_IP_V4_DST, CTA_IP_V6_DST),
        ] {
            match address {
                None => {}
                Some(IpAddr::V4(ip)) => put(out, v4, &ip.octets()),
                Some(IpAddr::V6(ip)) => put(out, v6, &ip.octets()),
            }
        }
    });
}

/// Appends `CTA_TUPLE_PROTO` with a protocol and the given ports.
pub(crate) fn put_ports(out: &mut Vec<u8>, protocol: Protocol, ports: [Option<u16>; 2]) {
    nest(out, CTA_TUPLE_PROTO, |out| {
        put_u8(out, CTA_PROTO_NUM, protocol.0);
        let [source, destination] = ports;
        for (kind, port) in [
            (CTA_PROTO_SRC_PORT, source),
            (CTA_PROTO_DST_PORT, destination),
        ] {
            if let Some(port) = port {
                put_be16(out, kind, port);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Result<Tuple, DecodeError> {
        let tuple = Attrs::new(bytes).next().expect("one attribute")?;
        let decoded = Tuple::decode(tuple);
        assert_eq!(
            decoded.as_ref().ok(),
            Tuple::decode_any(tuple).as_ref().ok()
        );
        decoded
    }

    #[test]
    fn the_form_that_the_kernel_writes_is_decoded_like_any_other() {
        for (from, to) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
            let tuple = Tuple::ports(Protocol::TCP, (from, 40_000), (to, 443));
            let mut bytes = Vec::new();
            tuple.encode(&mut bytes, CTA_TUPLE_ORIG);
            assert_eq!(decoded(&bytes).unwrap(), tuple);
            // Each byte changed, also those of headers and padding.
            for at in 4..bytes.len() {
                for change in [1, 0x80, 0xff] {
                    let mut changed = bytes.clone();
                    changed[at] ^= change;
                    let _ = decoded(&changed);
                }
            }
            let zone = Tuple {
                zone: Some(7),
                ..tuple
            };
            bytes.clear();
            zone.encode(&mut bytes, CTA_TUPLE_ORIG);
            assert_eq!(decoded(&bytes).unwrap(), zone);
        }
    }

    #[test]
    fn a_tuple_with_ports_is_decoded_at_once() {
        let ends = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let tuple = Tuple::ports(Protocol::UDP, (ends.0, 1024), (ends.1, 53));
        let mut bytes = Vec::new();
        tuple.encode(&mut bytes, CTA_TUPLE_REPLY);
        let decoded = Tuple::decode_ports::<4>(&bytes[4..], [CTA_IP_V4_SRC, CTA_IP_V4_DST]);
        assert_eq!(decoded, Some(tuple));
    }
}
