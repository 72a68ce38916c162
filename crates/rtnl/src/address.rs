//! Addresses on interfaces.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use bitflags::bitflags;
use ipnet::IpNet;

use crate::Name;

/// An address on an interface.
///
/// Its text is what `ip address add` takes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Address {
    /// The name of the interface.
    pub interface: Name,
    /// The address, and how long the prefix of its network is.
    ///
    /// With a [peer](Self::peer), the prefix is that of the peer.
    pub net: IpNet,
    /// The address at the other end, where there is only one.
    pub peer: Option<IpAddr>,
    /// Where it is valid; the kernel alone tells it of IPv6.
    pub scope: Scope,
    /// Its properties.
    pub flags: AddressFlags,
}

impl Address {
    /// Returns an address as `ip address add` would add it, an IPv6 address
    /// without finding out whether another host has it.
    ///
    /// Of an `IpAddr`, `into` makes one with the longest prefix: /32 or /128.
    pub fn new(interface: Name, net: IpNet) -> Self {
        let flags = match net {
            IpNet::V4(_) => AddressFlags::empty(),
            IpNet::V6(_) => AddressFlags::NO_DAD,
        };
        Self {
            interface,
            net,
            peer: None,
            scope: Scope::of(net.addr()),
            flags,
        }
    }

    /// Returns the address without its prefix.
    pub fn ip(&self) -> IpAddr {
        self.net.addr()
    }

    /// Tells whether the two differ in nothing that can be chosen.
    ///
    /// That an IPv6 address was tried out before it was used is no difference:
    /// both are in use now.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let chosen = |address: &Self| address.flags & AddressFlags::LASTING;
        let is_v4 = self.net.addr().is_ipv4();
        chosen(self) == chosen(other) && (!is_v4 || self.scope == other.scope)
    }

    /// Returns the text of what identifies the address.
    pub(crate) fn place(&self) -> Place<'_> {
        Place(self)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place())?;
        if self.scope != Scope::of(self.ip()) {
            write!(f, " scope {}", self.scope)?;
        }
        AddressFlags::WORDS
            .into_iter()
            .filter(|(flag, _)| self.flags.contains(*flag))
            .try_for_each(|(_, word)| write!(f, " {word}"))
    }
}

/// What identifies an address, as text.
pub(crate) struct Place<'a>(&'a Address);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { interface, net, .. } = self.0;
        match self.0.peer {
            None => write!(f, "{net} dev {interface}"),
            Some(peer) => {
                let (ip, prefix) = (net.addr(), net.prefix_len());
                write!(f, "{ip} peer {peer}/{prefix} dev {interface}")
            }
        }
    }
}

/// Where an address is valid: `RT_SCOPE_*` of `linux/rtnetlink.h`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Scope {
    /// Everywhere.
    Global,
    /// In the site, for IPv6 only.
    Site,
    /// On the link.
    Link,
    /// On the host.
    Host,
    /// Nowhere.
    Nowhere,
    /// Another one, by its number.
    Other(u8),
}

impl Scope {
    /// Returns the scope of this number.
    pub(crate) fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Global,
            200 => Self::Site,
            253 => Self::Link,
            254 => Self::Host,
            255 => Self::Nowhere,
            other => Self::Other(other),
        }
    }

    /// Returns the number of the scope.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Global => 0,
            Self::Site => 200,
            Self::Link => 253,
            Self::Host => 254,
            Self::Nowhere => 255,
            Self::Other(number) => number,
        }
    }

    /// Returns the scope that an address has unless another is chosen.
    ///
    /// That of IPv6 is what the kernel makes of the address; that of IPv4 is
    /// what `ip` chooses.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) if address.is_loopback() => Self::Host,
            IpAddr::V6(Ipv6Addr::LOCALHOST) => Self::Host,
            IpAddr::V6(address) if address.is_unicast_link_local() => Self::Link,
            IpAddr::V6(address) if is_site_local(address) => Self::Site,
            _ => Self::Global,
        }
    }
}

/// Tells whether an address is in fec0::/10, which RFC 3879 gave up.
fn is_site_local(address: Ipv6Addr) -> bool {
    let [first, ..] = address.segments();
    first & 0xffc0 == 0xfec0
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Global => "global",
            Self::Site => "site",
            Self::Link => "link",
            Self::Host => "host",
            Self::Nowhere => "nowhere",
            Self::Other(number) => return write!(f, "{number}"),
        })
    }
}

bitflags! {
    /// Properties of an address: `IFA_F_*` of `linux/if_addr.h`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub struct AddressFlags: u32 {
        /// IPv4: another address of its network was there first, and when that
        /// goes, so does this, unless `promote_secondaries` is set.
        ///
        /// IPv6: it is a temporary one, for privacy.
        #[doc(alias = "IFA_F_TEMPORARY")]
        const SECONDARY = 0x1;
        /// Nobody asks whether another host has it before it is used.
        const NO_DAD = 0x2;
        /// It is used while that is being asked.
        const OPTIMISTIC = 0x4;
        /// Another host has it.
        const DAD_FAILED = 0x8;
        /// It is the home address of a mobile host.
        const HOME_ADDRESS = 0x10;
        /// No new connections are made from it.
        const DEPRECATED = 0x20;
        /// It is being asked whether another host has it.
        const TENTATIVE = 0x40;
        /// It stays until it is removed.
        const PERMANENT = 0x80;
        /// Temporary addresses are made of it.
        const MANAGE_TEMPORARY = 0x100;
        /// It came without a route to its network.
        const NO_PREFIX_ROUTE = 0x200;
        /// The group of this multicast address is joined.
        const AUTO_JOIN = 0x400;
        /// It was made so as to tell nothing of the hardware.
        const STABLE_PRIVACY = 0x800;
        /// Other flags are kept as they are.
        const _ = !0;
    }
}

impl AddressFlags {
    /// What can be chosen, and matters as long as the address is there.
    const LASTING: Self = Self::HOME_ADDRESS
        .union(Self::MANAGE_TEMPORARY)
        .union(Self::NO_PREFIX_ROUTE)
        .union(Self::AUTO_JOIN);

    /// What can be chosen; the kernel alone tells all else.
    pub(crate) const CHOSEN: Self = Self::LASTING.union(Self::NO_DAD).union(Self::OPTIMISTIC);

    /// What can be chosen, and the words of `ip` for it.
    const WORDS: [(Self, &str); 6] = [
        (Self::HOME_ADDRESS, "home"),
        (Self::MANAGE_TEMPORARY, "mngtmpaddr"),
        (Self::NO_DAD, "nodad"),
        (Self::OPTIMISTIC, "optimistic"),
        (Self::NO_PREFIX_ROUTE, "noprefixroute"),
        (Self::AUTO_JOIN, "autojoin"),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(net: &str) -> Address {
        Address::new(Name::new("lo").unwrap(), net.parse().unwrap())
    }

    #[test]
    fn what_the_kernel_adds_is_no_difference_and_what_is_chosen_is() {
        for net in ["10.0.0.1/32", "fd00::1/128"] {
            let wanted = address(net);
            let told = |change: &dyn Fn(&mut Address)| {
                let mut told = wanted;
                change(&mut told);
                wanted.is_like(&told)
            };
            assert!(told(&|told| told.flags |= AddressFlags::PERMANENT));
            assert!(told(&|told| told.flags |= AddressFlags::SECONDARY));
            assert!(told(&|told| told.flags |= AddressFlags::TENTATIVE));
            assert!(told(&|told| told.flags ^= AddressFlags::NO_DAD));
            assert!(!told(&|told| told.flags |= AddressFlags::NO_PREFIX_ROUTE));
            // The kernel alone tells the scope of IPv6.
            let is_v6 = wanted.ip().is_ipv6();
            assert_eq!(told(&|told| told.scope = Scope::Link), is_v6);
        }
    }

    #[test]
    fn an_address_has_the_scope_that_ip_and_the_kernel_give_it() {
        for (ip, scope) in [
            ("10.0.0.1", Scope::Global),
            ("127.1.2.3", Scope::Host),
            ("169.254.0.1", Scope::Global),
            ("::1", Scope::Host),
            ("fe80::1", Scope::Link),
            ("febf::1", Scope::Link),
            ("fec0::1", Scope::Site),
            ("feff::1", Scope::Site),
            ("fd00::1", Scope::Global),
        ] {
            assert_eq!(Scope::of(ip.parse().unwrap()), scope, "{ip}");
        }
    }

    #[test]
    fn only_what_is_not_as_usual_is_in_the_text() {
        assert_eq!(address("10.0.0.1/32").to_string(), "10.0.0.1/32 dev lo");
        assert_eq!(address("127.0.0.2/8").to_string(), "127.0.0.2/8 dev lo");
        let mut odd = address("fd00::1/64");
        odd.peer = Some("fd00::2".parse().unwrap());
        odd.scope = Scope::Other(7);
        odd.flags |= AddressFlags::PERMANENT | AddressFlags::NO_PREFIX_ROUTE;
        let text = "fd00::1 peer fd00::2/64 dev lo scope 7 nodad noprefixroute";
        assert_eq!(odd.to_string(), text);
    }

    #[test]
    fn a_scope_keeps_its_number() {
        assert!((0..=u8::MAX).all(|number| Scope::from_number(number).number() == number));
    }
}
