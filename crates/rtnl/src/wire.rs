//! Encoding and decoding of rtnetlink messages.
//!
//! The attributes are those of `linux/if_link.h` and `linux/if_addr.h`.

use std::net::IpAddr;

use ipnet::IpNet;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs, put, put_u32};

use crate::uapi::*;
use crate::{Address, AddressFlags, Family, Link, Name, Scope};

/// Length of `struct ifaddrmsg`, in bytes.
const HEADER: usize = 8;

/// A request for links or addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Request {
    /// Dumps all links.
    Links,
    /// Gets a link by its name.
    Link(Name),
    /// Gets a link by its index.
    LinkByIndex(u32),
    /// Dumps the addresses of all links.
    Addresses,
    /// Dumps the addresses of the link with this index.
    ///
    /// Without [`StrictCheck`](vipline_netlink::SocketOption::StrictCheck) the kernel
    /// dumps the addresses of all links.
    AddressesOf(u32),
    /// Dumps the addresses of one family of the link with this index.
    ///
    /// Kernels without strict checks dump the addresses of all links.
    FamilyAddressesOf(Family, u32),
}

impl Request {
    /// Returns the message type.
    pub fn ty(&self) -> u16 {
        match self {
            Self::Links | Self::Link(_) | Self::LinkByIndex(_) => RTM_GETLINK,
            Self::Addresses | Self::AddressesOf(_) | Self::FamilyAddressesOf(..) => RTM_GETADDR,
        }
    }

    /// Appends the payload of the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Links => Link::encode_index(0, out),
            Self::Link(name) => Link::encode_name(name, out),
            Self::LinkByIndex(index) => Link::encode_index(*index, out),
            Self::Addresses => return put_header([AF_UNSPEC, 0, 0, 0], 0, out),
            Self::AddressesOf(index) => return put_header([AF_UNSPEC, 0, 0, 0], *index, out),
            Self::FamilyAddressesOf(family, index) => {
                return put_header([family.number(), 0, 0, 0], *index, out);
            }
        }
        put_u32(out, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    }
}

/// A decoded message of the kernel.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// A link.
    Link(Link),
    /// An IPv4 or IPv6 address.
    Address(IndexedAddress),
    /// Another message.
    Other,
}

impl Reply {
    /// Decodes the payload of a message with the type `ty`. Unknown attributes are
    /// ignored.
    ///
    /// Notifications of deletions decode to the same variants: `ty` distinguishes them.
    ///
    /// # Errors
    ///
    /// The header is too short, or an attribute is missing or malformed.
    pub fn decode(ty: u16, payload: &[u8]) -> Result<Self, DecodeError> {
        let family = payload.first().copied();
        match ty {
            RTM_NEWLINK | RTM_DELLINK => Link::decode(payload).map(Self::Link),
            // Without a header, decoding returns the error.
            RTM_NEWADDR | RTM_DELADDR if family.is_none_or(is_inet) => {
                IndexedAddress::decode(payload).map(Self::Address)
            }
            _ => Ok(Self::Other),
        }
    }

    /// Returns the address, if the message is about one.
    pub(crate) fn into_address(self) -> Option<IndexedAddress> {
        match self {
            Self::Address(address) => Some(address),
            _ => None,
        }
    }
}

/// An address with the index of its link instead of the name.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct IndexedAddress {
    /// Index of the link.
    pub index: u32,
    /// Address with prefix length, as in [`Address::net`].
    pub net: IpNet,
    /// Address of the peer on a point-to-point link.
    pub peer: Option<IpAddr>,
    /// Scope.
    pub scope: Scope,
    /// Flags.
    pub flags: AddressFlags,
}

impl IndexedAddress {
    /// Creates an address with the index of its link.
    pub fn new(address: &Address, index: u32) -> Self {
        Self {
            index,
            net: address.net,
            peer: address.peer,
            scope: address.scope,
            flags: address.flags,
        }
    }

    /// Returns the address with the name of its link.
    pub fn on(self, interface: Name) -> Address {
        Address {
            interface,
            net: self.net,
            peer: self.peer,
            scope: self.scope,
            flags: self.flags,
        }
    }

    /// Appends the payload of the message that adds the address.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let flags = (self.flags & AddressFlags::CHOSEN).bits();
        // Flags that do not fit into the header require `IFA_FLAGS` with all flags.
        let (low, all) = match u8::try_from(flags) {
            Ok(low) => (low, None),
            Err(_) => (0, Some(flags)),
        };
        self.put(low, self.scope, all, out);
    }

    /// Appends the payload of the message that deletes the address.
    pub(crate) fn encode_place(&self, out: &mut Vec<u8>) {
        self.put(0, Scope::Global, None, out);
    }

    fn put(&self, low: u8, scope: Scope, flags: Option<u32>, out: &mut Vec<u8>) {
        let family = Family::of_network(self.net);
        let header = [family.number(), self.net.prefix_len(), low, scope.number()];
        put_header(header, self.index, out);
        let local = self.net.addr();
        put_ip(IFA_LOCAL, local, out);
        if let Some(flags) = flags {
            put_u32(out, IFA_FLAGS, flags);
        }
        put_ip(IFA_ADDRESS, self.peer.unwrap_or(local), out);
    }

    /// Decodes the payload of a message about an address.
    fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let no_address = || DecodeError::new("address", 0, payload.len());
        let (header, attrs) = payload
            .split_first_chunk::<HEADER>()
            .ok_or_else(no_address)?;
        let [family, prefix, flags, scope, index @ ..] = *header;
        let family = Family::from_number(family).ok_or_else(no_address)?;
        let (mut local, mut far, mut flags) = (None, None, u32::from(flags));
        for attr in Attrs::new(attrs) {
            let attr = attr?;
            match attr.kind {
                IFA_ADDRESS => far = Some(ip(family, &attr)?),
                IFA_LOCAL => local = Some(ip(family, &attr)?),
                IFA_FLAGS => flags = attr.u32()?,
                _ => {}
            }
        }
        let address = local.or(far).ok_or_else(no_address)?;
        Ok(Self {
            index: u32::from_ne_bytes(index),
            net: IpNet::new(address, prefix).map_err(|_| no_address())?,
            peer: far.filter(|far| *far != address),
            scope: Scope::from_number(scope),
            flags: AddressFlags::from_bits_retain(flags),
        })
    }
}

fn is_inet(family: u8) -> bool {
    Family::from_number(family).is_some()
}

/// Appends `struct ifaddrmsg`: family, prefix length, flags and scope, then the index of
/// the link.
fn put_header(start: [u8; 4], index: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&start);
    out.extend_from_slice(&index.to_ne_bytes());
}

fn put_ip(kind: u16, address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => put(out, kind, &address.octets()),
        IpAddr::V6(address) => put(out, kind, &address.octets()),
    }
}

/// Decodes an address of a family.
fn ip(family: Family, attr: &Attr<'_>) -> Result<IpAddr, DecodeError> {
    let address = match family {
        Family::V4 => <[u8; 4]>::try_from(attr.value).map(IpAddr::from),
        Family::V6 => <[u8; 16]>::try_from(attr.value).map(IpAddr::from),
    };
    address.map_err(|_| attr.error("address"))
}
