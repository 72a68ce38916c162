//! Messages of rtnetlink: what is asked, and what the kernel says.
//!
//! The numbers are those of `linux/rtnetlink.h` and `linux/if_addr.h`.

use std::net::IpAddr;

use ipnet::IpNet;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs, put, put_u32};

use crate::{Address, AddressFlags, Link, Name, Scope};

/// `RTM_NEWLINK`: a link, or that one is to come.
pub(crate) const NEW_LINK: u16 = 16;
/// `RTM_DELLINK`: a link is to go.
pub(crate) const DELETE_LINK: u16 = 17;
/// `RTM_GETLINK`: which links there are.
const GET_LINK: u16 = 18;
/// `RTM_NEWADDR`: an address, or that one is to come.
pub(crate) const NEW_ADDRESS: u16 = 20;
/// `RTM_DELADDR`: an address is to go.
pub(crate) const DELETE_ADDRESS: u16 = 21;
/// `RTM_GETADDR`: which addresses there are.
const GET_ADDRESS: u16 = 22;

/// `IFLA_EXT_MASK` of `linux/if_link.h`: what is asked of links.
const MASK: u16 = 29;
/// `RTEXT_FILTER_SKIP_STATS`: not what passed through them.
const WITHOUT_STATISTICS: u32 = 1 << 3;

/// The length of `struct ifaddrmsg`.
const HEADER: usize = 8;
/// `IFA_ADDRESS`: the address, or that of the peer.
const ADDRESS: u16 = 1;
/// `IFA_LOCAL`: the address.
const LOCAL: u16 = 2;
/// `IFA_FLAGS`: all flags, of which the header has room for eight.
const FLAGS: u16 = 8;

/// `AF_INET`.
const V4: u8 = 2;
/// `AF_INET6`.
const V6: u8 = 10;

/// A question to the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Request {
    /// All links, in a dump.
    Links,
    /// The link of this name.
    Link(Name),
    /// The link of this number.
    LinkAt(u32),
    /// The addresses on all links, in a dump.
    Addresses,
    /// The addresses on the link of this number, in a dump.
    ///
    /// The kernel tells those on all links unless dumps are
    /// [filtered](vipline_netlink::Socket::set_strict_check).
    AddressesOf(u32),
}

impl Request {
    /// Returns the type of the message.
    pub fn ty(&self) -> u16 {
        match self {
            Self::Links | Self::Link(_) | Self::LinkAt(_) => GET_LINK,
            Self::Addresses | Self::AddressesOf(_) => GET_ADDRESS,
        }
    }

    /// Appends the payload of the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Links => Link::encode_index(0, out),
            Self::Link(name) => Link::encode_name(name, out),
            Self::LinkAt(index) => Link::encode_index(*index, out),
            Self::Addresses => return put_header([0; 4], 0, out),
            Self::AddressesOf(index) => return put_header([0; 4], *index, out),
        }
        put_u32(out, MASK, WITHOUT_STATISTICS);
    }
}

/// What the kernel says in one message.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Answer {
    /// A link.
    Link(Link),
    /// An address of IPv4 or IPv6.
    Address(Numbered),
    /// Something else.
    Other,
}

impl Answer {
    /// Reads the payload of a message of this type.
    ///
    /// # Errors
    ///
    /// Attributes that are missing or make no sense; others are skipped.
    pub fn decode(ty: u16, payload: &[u8]) -> Result<Self, DecodeError> {
        match (ty, payload.first()) {
            (NEW_LINK | DELETE_LINK, _) => Link::decode(payload).map(Self::Link),
            (NEW_ADDRESS | DELETE_ADDRESS, Some(&(V4 | V6)) | None) => {
                Numbered::decode(payload).map(Self::Address)
            }
            _ => Ok(Self::Other),
        }
    }
}

/// An address on a link that is known by its number alone.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Numbered {
    /// The number of the link.
    pub index: u32,
    /// The address, and how long the prefix of its network is.
    pub net: IpNet,
    /// The address at the other end.
    pub peer: Option<IpAddr>,
    /// Where it is valid.
    pub scope: Scope,
    /// Its properties.
    pub flags: AddressFlags,
}

impl Numbered {
    /// Returns an address with the number of its link.
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

    /// Appends the payload of the message by which the address comes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let flags = (self.flags & AddressFlags::CHOSEN).bits();
        // Flags that the header has no room for stand behind it with all others.
        let (low, all) = match u8::try_from(flags) {
            Ok(low) => (low, None),
            Err(_) => (0, Some(flags)),
        };
        self.put(low, self.scope, all, out);
    }

    /// Appends the payload of the message by which the address goes.
    pub(crate) fn encode_place(&self, out: &mut Vec<u8>) {
        self.put(0, Scope::Global, None, out);
    }

    fn put(&self, low: u8, scope: Scope, flags: Option<u32>, out: &mut Vec<u8>) {
        let family = match self.net {
            IpNet::V4(_) => V4,
            IpNet::V6(_) => V6,
        };
        let header = [family, self.net.prefix_len(), low, scope.number()];
        put_header(header, self.index, out);
        let local = self.net.addr();
        put_ip(LOCAL, local, out);
        if let Some(flags) = flags {
            put_u32(out, FLAGS, flags);
        }
        put_ip(ADDRESS, self.peer.unwrap_or(local), out);
    }

    /// Reads the payload of a message about an address.
    fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let no_address = || DecodeError::new("address", 0, payload.len());
        let (header, attrs) = payload
            .split_first_chunk::<HEADER>()
            .ok_or_else(no_address)?;
        let [family, prefix, flags, scope, index @ ..] = *header;
        let (mut local, mut far, mut flags) = (None, None, u32::from(flags));
        for attr in Attrs::new(attrs) {
            let attr = attr?;
            match attr.kind {
                ADDRESS => far = Some(ip(family, &attr)?),
                LOCAL => local = Some(ip(family, &attr)?),
                FLAGS => flags = attr.u32()?,
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

/// Appends `struct ifaddrmsg`: family, length of the prefix, flags and scope,
/// then the number of the link.
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

/// Reads an address of this family.
fn ip(family: u8, attr: &Attr<'_>) -> Result<IpAddr, DecodeError> {
    let address = match family {
        V4 => <[u8; 4]>::try_from(attr.value).map(IpAddr::from),
        _ => <[u8; 16]>::try_from(attr.value).map(IpAddr::from),
    };
    address.map_err(|_| attr.error("address"))
}
