//! Matches of IPv6 extension headers: `-m frag`, `-m dst`, `-m hbh`, `-m rt`,
//! `-m ipv6header`, `-m mh` and `-m eui64`.

use std::fmt;
use std::net::Ipv6Addr;

use bitflags::bitflags;

use crate::address::Address;
use crate::field::{extension, word_values};
use crate::negatable::Negatable;
use crate::number::{self, Range};

extension! {
    /// Matches the fragment header: `-m frag --fragmore`.
    pub struct Frag = "-m frag" {
        /// Identification.
        id: Option<Negatable<Range<u32>>> = "--fragid",
        /// Length of the header.
        length: Option<Negatable<u32>> = "--fraglen",
        /// Whether reserved fields are zero.
        reserved: bool = "--fragres",
        /// First fragment.
        first: bool = "--fragfirst",
        /// Not the last fragment. Excludes `last`.
        more: bool = "--fragmore",
        /// Last fragment.
        last: bool = "--fraglast",
    }
    complete |it| !(it.more && it.last);
    normalize |it| forget(&mut it.id, Range::<u32>::ALL);
}

extension! {
    /// Matches the destination options header: `-m dst --dst-opts 4:2`.
    pub struct Dst = "-m dst" {
        /// Length of the header in bytes.
        length: Option<Negatable<u32>> = "--dst-len",
        /// Options of the header.
        options: Option<HeaderOptions> = "--dst-opts",
    }
    complete |_| true;
}

extension! {
    /// Matches the hop-by-hop options header: `-m hbh --hbh-opts 5:2`.
    pub struct Hbh = "-m hbh" {
        /// Length of the header in bytes.
        length: Option<Negatable<u32>> = "--hbh-len",
        /// Options of the header.
        options: Option<HeaderOptions> = "--hbh-opts",
    }
    complete |_| true;
}

extension! {
    /// Matches the routing header: `-m rt --rt-type 0`.
    pub struct Rt = "-m rt" {
        /// Routing type.
        ty: Option<Negatable<u32>> = "--rt-type",
        /// Number of segments left.
        segments_left: Option<Negatable<Range<u32>>> = "--rt-segsleft",
        /// Length of the header.
        length: Option<Negatable<u32>> = "--rt-len",
        /// Whether the reserved field of type 0 is zero.
        reserved: bool = "--rt-0-res",
        /// Addresses of type 0.
        addresses: Option<Addresses> = "--rt-0-addrs",
        /// Whether the addresses are only a part of those of the packet.
        not_strict: bool = "--rt-0-not-strict",
    }
    complete |it| (!it.reserved && it.addresses.is_none() || it.ty == Some(Negatable::Is(0)))
        && (!it.not_strict || it.addresses.is_some());
    normalize |it| forget(&mut it.segments_left, Range::<u32>::ALL);
}

extension! {
    /// Matches the extension headers of a packet: `-m ipv6header --header route --soft`.
    pub struct Ipv6Header = "-m ipv6header" {
        /// Headers.
        headers: Option<Negatable<Ipv6Headers>> = "--header",
        /// Whether the packet may have other headers, too.
        soft: bool = "--soft",
    }
    complete |it| it.headers.is_some();
}

extension! {
    /// Matches the mobility header: `-p mobility-header -m mh --mh-type 5`.
    pub struct Mh = "-m mh" {
        /// Message type.
        ty: Option<Negatable<Range<u8>>> = "--mh-type",
    }
    complete |_| true;
    normalize |it| forget(&mut it.ty, (0..=u8::MAX).into());
}

extension! {
    /// Matches source addresses that are made of the address of the interface: `-m eui64`.
    pub struct Eui64 = "-m eui64" {}
    complete |_| true;
}

/// Removes a condition that matches every number: iptables does not store it.
fn forget<T: PartialEq>(place: &mut Option<Negatable<Range<T>>>, all: Range<T>) {
    if *place == Some(Negatable::Is(all)) {
        *place = None;
    }
}

/// Options of a header, printed as `4:2,5`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct HeaderOptions(Vec<(u8, Option<u8>)>);

impl HeaderOptions {
    /// Maximum number of options.
    const MAX: usize = 16;

    /// Creates a list of 1 to 16 option types with an optional length in bytes, otherwise
    /// returns `None`.
    pub fn new(options: impl IntoIterator<Item = (u8, Option<u8>)>) -> Option<Self> {
        let options: Vec<_> = options.into_iter().collect();
        (1..=Self::MAX)
            .contains(&options.len())
            .then_some(Self(options))
    }

    /// Returns the types with their lengths.
    pub fn get(&self) -> &[(u8, Option<u8>)] {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let option = |text: &str| match text.split_once(':') {
            Some((ty, len)) => Some((number::parse_as(ty)?, Some(number::parse_as(len)?))),
            None => Some((number::parse_as(text)?, None)),
        };
        Self::new(text.split(',').map(option).collect::<Option<Vec<_>>>()?)
    }
}

impl fmt::Display for HeaderOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (ty, len)) in self.0.iter().enumerate() {
            write!(f, "{}{ty}", if at == 0 { "" } else { "," })?;
            if let Some(len) = len {
                write!(f, ":{len}")?;
            }
        }
        Ok(())
    }
}

/// Addresses of a routing header, printed with commas.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Addresses(Vec<Ipv6Addr>);

impl Addresses {
    /// Maximum number of addresses.
    const MAX: usize = 16;

    /// Creates a list of 1 to 16 addresses, otherwise returns `None`.
    pub fn new(addresses: impl IntoIterator<Item = Ipv6Addr>) -> Option<Self> {
        let addresses: Vec<_> = addresses.into_iter().collect();
        (1..=Self::MAX)
            .contains(&addresses.len())
            .then_some(Self(addresses))
    }

    /// Returns the addresses.
    pub fn get(&self) -> &[Ipv6Addr] {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let addresses = text.split(',').map(|text| text.parse().ok());
        Self::new(addresses.collect::<Option<Vec<_>>>()?)
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, address) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "," };
            write!(f, "{separator}{}", Address((*address).into()))?;
        }
        Ok(())
    }
}

bitflags! {
    /// Extension headers. The bits are those of `struct ip6t_ipv6header_info`.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct Ipv6Headers: u8 {
        /// Hop-by-hop options.
        const HOP_BY_HOP = 0x80;
        /// Destination options.
        const DESTINATION = 0x40;
        /// Routing.
        const ROUTE = 0x20;
        /// Fragment.
        const FRAGMENT = 0x10;
        /// Authentication.
        const AUTHENTICATION = 8;
        /// Encapsulating security payload.
        const ESP = 4;
        /// No next header.
        const NONE = 2;
        /// Upper-layer protocol.
        const PROTOCOL = 1;
    }
}

/// Names that iptables prints with Debian's `/etc/protocols`, and other names of each
/// header, in the order in which they are printed.
const HEADERS: [(Ipv6Headers, &str, &[&str]); 8] = [
    (Ipv6Headers::HOP_BY_HOP, "hop-by-hop", &["hop", "0"]),
    (Ipv6Headers::DESTINATION, "ipv6-opts", &["dst", "60"]),
    (Ipv6Headers::ROUTE, "ipv6-route", &["route", "43"]),
    (Ipv6Headers::FRAGMENT, "ipv6-frag", &["frag", "44"]),
    (Ipv6Headers::AUTHENTICATION, "ah", &["auth", "51"]),
    (Ipv6Headers::ESP, "esp", &["50"]),
    (Ipv6Headers::NONE, "ipv6-nonxt", &["none", "59"]),
    (Ipv6Headers::PROTOCOL, "protocol", &["prot", "255"]),
];

impl Ipv6Headers {
    fn parse(text: &str) -> Option<Self> {
        let header = |text: &str| {
            let is_it =
                |(_, name, others): &&(_, &str, &[&str])| *name == text || others.contains(&text);
            HEADERS.iter().find(is_it).map(|(header, ..)| *header)
        };
        text.split(',').map(header).collect()
    }
}

impl fmt::Display for Ipv6Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = HEADERS.iter().filter(|(header, ..)| self.contains(*header));
        for (at, (_, name, _)) in set.enumerate() {
            write!(f, "{}{name}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

word_values! {
    HeaderOptions = HeaderOptions::parse,
    Addresses = Addresses::parse,
    Ipv6Headers = Ipv6Headers::parse,
}
