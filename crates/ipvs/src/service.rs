//! The key of a service, which identifies a virtual server.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use vipline_inet::{Family, Transport};
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs, put, put_be16, put_u16, put_u32};

use crate::uapi::*;

/// Decodes an address family (`AF_*`).
pub(crate) fn decode_family(attr: &Attr<'_>) -> Result<Family, DecodeError> {
    u8::try_from(attr.u16()?)
        .ok()
        .and_then(Family::from_number)
        .ok_or_else(|| attr.error("address family of IPVS"))
}

/// Decodes an address of a family: `union nf_inet_addr`.
pub(crate) fn decode_address(family: Family, attr: &Attr<'_>) -> Result<IpAddr, DecodeError> {
    let address = match family {
        Family::V4 => attr
            .value
            .first_chunk::<4>()
            .map(|bytes| IpAddr::from(*bytes)),
        Family::V6 => attr
            .value
            .first_chunk::<16>()
            .map(|bytes| IpAddr::from(*bytes)),
    };
    address.ok_or_else(|| attr.error("address"))
}

/// Appends an address: `union nf_inet_addr`.
pub(crate) fn put_address(out: &mut Vec<u8>, kind: u16, address: IpAddr) {
    let mut union = [0; 16];
    match address {
        IpAddr::V4(address) => union[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => union = address.octets(),
    }
    put(out, kind, &union);
}

/// The key of a service, which identifies a virtual server.
///
/// `Display` prints the `ipvsadm` options that identify the service, such as
/// `-t 10.0.0.1:80` or `-f 7 -6`.
///
/// Exhaustive: a service is an address with a port, or a mark.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ServiceKey {
    /// A protocol, an address and a port.
    Address {
        /// Protocol.
        protocol: Transport,
        /// Destination address.
        address: IpAddr,
        /// Destination port; 0 for all ports, which only persistent servers support.
        port: u16,
    },
    /// A firewall mark.
    Mark {
        /// The mark.
        mark: NonZeroU32,
        /// Address family of the packets.
        family: Family,
    },
}

impl ServiceKey {
    /// Creates the key of a service with protocol, address and port.
    pub fn new(protocol: Transport, address: IpAddr, port: u16) -> Self {
        Self::Address {
            protocol,
            address,
            port,
        }
    }

    /// Returns the address family.
    pub fn family(&self) -> Family {
        match self {
            Self::Address { address, .. } => Family::of(*address),
            Self::Mark { family, .. } => *family,
        }
    }

    /// Returns the port; 0 for a firewall mark.
    pub fn port(&self) -> u16 {
        match self {
            Self::Address { port, .. } => *port,
            Self::Mark { .. } => 0,
        }
    }

    /// Decodes the attributes that identify a service and skips all others.
    pub(crate) fn decode(attrs: Attrs<'_>) -> Result<Self, DecodeError> {
        let mut parts = Parts::default();
        for attr in attrs {
            parts.take(attr?);
        }
        parts.service()
    }

    /// Appends the attributes that identify the service.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u16(out, IPVS_SVC_ATTR_AF, self.family().number().into());
        match self {
            Self::Mark { mark, .. } => put_u32(out, IPVS_SVC_ATTR_FWMARK, mark.get()),
            Self::Address {
                protocol,
                address,
                port,
            } => {
                put_u16(out, IPVS_SVC_ATTR_PROTOCOL, protocol.number().into());
                put_address(out, IPVS_SVC_ATTR_ADDR, *address);
                put_be16(out, IPVS_SVC_ATTR_PORT, *port);
            }
        }
    }
}

/// Collects the attributes that identify a service.
#[derive(Default)]
pub(crate) struct Parts<'a> {
    family: Option<Attr<'a>>,
    protocol: Option<Attr<'a>>,
    address: Option<Attr<'a>>,
    port: Option<Attr<'a>>,
    mark: Option<Attr<'a>>,
}

impl<'a> Parts<'a> {
    /// Collects an attribute and ignores those that do not identify a service.
    pub(crate) fn take(&mut self, attr: Attr<'a>) {
        let part = match attr.kind {
            IPVS_SVC_ATTR_AF => &mut self.family,
            IPVS_SVC_ATTR_PROTOCOL => &mut self.protocol,
            IPVS_SVC_ATTR_ADDR => &mut self.address,
            IPVS_SVC_ATTR_PORT => &mut self.port,
            IPVS_SVC_ATTR_FWMARK => &mut self.mark,
            _ => return,
        };
        *part = Some(attr);
    }

    /// Builds the key from the collected attributes.
    pub(crate) fn service(&self) -> Result<ServiceKey, DecodeError> {
        let missing = || {
            DecodeError::new(
                "virtual server with an address or a mark",
                IPVS_SVC_ATTR_AF,
                0,
            )
        };
        let family = decode_family(self.family.as_ref().ok_or_else(missing)?)?;
        let mark = self.mark.map_or(Ok(0), |attr| attr.u32())?;
        if let Some(mark) = NonZeroU32::new(mark) {
            return Ok(ServiceKey::Mark { mark, family });
        }
        let number = self.protocol.ok_or_else(missing)?;
        let protocol = Transport::ALL
            .into_iter()
            .find(|protocol| number.u16() == Ok(protocol.number().into()))
            .ok_or_else(|| number.error("protocol of IPVS"))?;
        let address = self.address.ok_or_else(missing)?;
        Ok(ServiceKey::Address {
            protocol,
            address: decode_address(family, &address)?,
            port: self.port.map_or(Ok(0), |attr| attr.be16())?,
        })
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mark {
                mark,
                family: Family::V4,
            } => write!(f, "-f {mark}"),
            Self::Mark {
                mark,
                family: Family::V6,
            } => write!(f, "-f {mark} -6"),
            Self::Address {
                protocol,
                address,
                port,
            } => {
                let option = match protocol {
                    Transport::Tcp => "-t",
                    Transport::Udp => "-u",
                    Transport::Sctp => "--sctp-service",
                };
                write!(f, "{option} {}", SocketAddr::new(*address, *port))
            }
        }
    }
}
