//! Addresses on interfaces.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use bitflags::bitflags;
use ipnet::IpNet;

use crate::Name;
use crate::uapi::*;

/// An address on an interface.
///
/// Displays as arguments of `ip address add`.
///
/// ```
/// use vipline_rtnl::{Address, Name, Scope};
///
/// let address = Address::new(Name::new("tun0")?, "10.0.0.1/32".parse()?)
///     .with_peer("10.0.0.2".parse()?)
///     .with_scope(Scope::Link);
/// assert_eq!(
///     address.to_string(),
///     "10.0.0.1 peer 10.0.0.2/32 dev tun0 scope link"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Address {
    /// Name of the interface.
    pub interface: Name,
    /// Address with prefix length.
    ///
    /// With a [peer](Self::peer), the prefix length is that of the peer.
    pub net: IpNet,
    /// Address of the peer on a point-to-point link.
    pub peer: Option<IpAddr>,
    /// Scope; the kernel derives the scope of an IPv6 address and ignores this field.
    pub scope: Scope,
    /// Flags.
    pub flags: AddressFlags,
}

impl Address {
    /// Creates an address with the defaults of `ip address add`.
    ///
    /// IPv6 addresses have [`NO_DAD`](AddressFlags::NO_DAD), so they are usable at once.
    /// The conversion from `IpAddr` to `IpNet` sets the prefix length 32 or 128.
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

    /// Sets the address of the peer on a point-to-point link.
    #[must_use]
    pub fn with_peer(mut self, peer: IpAddr) -> Self {
        self.peer = Some(peer);
        self
    }

    /// Sets the scope. The kernel derives the scope of an IPv6 address and ignores this one.
    #[must_use]
    pub fn with_scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Adds flags.
    #[must_use]
    pub fn with_flags(mut self, flags: AddressFlags) -> Self {
        self.flags |= flags;
        self
    }

    /// Returns the address without its prefix.
    pub fn ip(&self) -> IpAddr {
        self.net.addr()
    }

    /// Returns whether two addresses are equal in all configurable properties.
    ///
    /// Flags of duplicate address detection are ignored: both addresses are usable.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let chosen = |address: &Self| address.flags & AddressFlags::LASTING;
        let is_v4 = self.net.addr().is_ipv4();
        chosen(self) == chosen(other) && (!is_v4 || self.scope == other.scope)
    }

    /// Returns the text of the key of the address.
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

/// Displays the key of an address.
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

/// Scope of an address (`RT_SCOPE_*` of `linux/rtnetlink.h`).
///
/// Exhaustive: `Other` holds all other values.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Scope {
    /// Valid everywhere.
    #[doc(alias = "RT_SCOPE_UNIVERSE")]
    Global,
    /// Valid within the site, IPv6 only.
    #[doc(alias = "RT_SCOPE_SITE")]
    Site,
    /// Valid on the link.
    #[doc(alias = "RT_SCOPE_LINK")]
    Link,
    /// Valid on the host.
    #[doc(alias = "RT_SCOPE_HOST")]
    Host,
    /// Valid nowhere.
    #[doc(alias = "RT_SCOPE_NOWHERE")]
    Nowhere,
    /// Another scope.
    Other(u8),
}

impl Scope {
    /// Creates a scope from its number.
    pub(crate) fn from_number(number: u8) -> Self {
        match number {
            RT_SCOPE_UNIVERSE => Self::Global,
            RT_SCOPE_SITE => Self::Site,
            RT_SCOPE_LINK => Self::Link,
            RT_SCOPE_HOST => Self::Host,
            RT_SCOPE_NOWHERE => Self::Nowhere,
            other => Self::Other(other),
        }
    }

    /// Returns the number of the scope.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Global => RT_SCOPE_UNIVERSE,
            Self::Site => RT_SCOPE_SITE,
            Self::Link => RT_SCOPE_LINK,
            Self::Host => RT_SCOPE_HOST,
            Self::Nowhere => RT_SCOPE_NOWHERE,
            Self::Other(number) => number,
        }
    }

    /// Returns the default scope of an address.
    ///
    /// The kernel derives the scope of IPv6 addresses; `ip` chooses that of IPv4
    /// addresses.
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

/// Returns whether an address is in fec0::/10, which RFC 3879 deprecated.
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
    /// Flags of an address (`IFA_F_*` of `linux/if_addr.h`).
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub struct AddressFlags: u32 {
        /// IPv4: secondary address, which the kernel deletes with the primary address of
        /// its network unless `promote_secondaries` is set.
        ///
        /// IPv6: temporary address (privacy extensions).
        #[doc(alias = "IFA_F_TEMPORARY")]
        #[doc(alias = "IFA_F_SECONDARY")]
        const SECONDARY = IFA_F_SECONDARY;
        /// The kernel skips duplicate address detection.
        #[doc(alias = "IFA_F_NODAD")]
        const NO_DAD = IFA_F_NODAD;
        /// The address is used during duplicate address detection.
        #[doc(alias = "IFA_F_OPTIMISTIC")]
        const OPTIMISTIC = IFA_F_OPTIMISTIC;
        /// Duplicate address detection found another host with the address.
        #[doc(alias = "IFA_F_DADFAILED")]
        const DAD_FAILED = IFA_F_DADFAILED;
        /// Home address (Mobile IPv6).
        #[doc(alias = "IFA_F_HOMEADDRESS")]
        const HOME_ADDRESS = IFA_F_HOMEADDRESS;
        /// Deprecated: not chosen as the source address of new connections.
        #[doc(alias = "IFA_F_DEPRECATED")]
        const DEPRECATED = IFA_F_DEPRECATED;
        /// Duplicate address detection is in progress.
        #[doc(alias = "IFA_F_TENTATIVE")]
        const TENTATIVE = IFA_F_TENTATIVE;
        /// Permanent: has no lifetime.
        #[doc(alias = "IFA_F_PERMANENT")]
        const PERMANENT = IFA_F_PERMANENT;
        /// The kernel creates temporary addresses from this one.
        #[doc(alias = "IFA_F_MANAGETEMPADDR")]
        const MANAGE_TEMPORARY = IFA_F_MANAGETEMPADDR;
        /// The kernel adds no prefix route.
        #[doc(alias = "IFA_F_NOPREFIXROUTE")]
        const NO_PREFIX_ROUTE = IFA_F_NOPREFIXROUTE;
        /// The kernel joins the group of this multicast address.
        #[doc(alias = "IFA_F_MCAUTOJOIN")]
        const AUTO_JOIN = IFA_F_MCAUTOJOIN;
        /// Stable privacy address (RFC 7217).
        #[doc(alias = "IFA_F_STABLE_PRIVACY")]
        const STABLE_PRIVACY = IFA_F_STABLE_PRIVACY;
        /// Unknown flags are preserved.
        const _ = !0;
    }
}

impl AddressFlags {
    /// Configurable flags that matter during the lifetime of the address.
    const LASTING: Self = Self::HOME_ADDRESS
        .union(Self::MANAGE_TEMPORARY)
        .union(Self::NO_PREFIX_ROUTE)
        .union(Self::AUTO_JOIN);

    /// Configurable flags; the kernel sets all others.
    pub(crate) const CHOSEN: Self = Self::LASTING.union(Self::NO_DAD).union(Self::OPTIMISTIC);

    /// Configurable flags with their names in `ip`.
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
    fn addresses_differ_in_configurable_properties_only() {
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
            // The kernel determines the scope of IPv6 addresses.
            let is_v6 = wanted.ip().is_ipv6();
            assert_eq!(told(&|told| told.scope = Scope::Link), is_v6);
        }
    }

    #[test]
    fn the_default_scope_is_that_of_ip_and_of_the_kernel() {
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
    fn the_text_omits_defaults() {
        assert_eq!(address("10.0.0.1/32").to_string(), "10.0.0.1/32 dev lo");
        assert_eq!(address("127.0.0.2/8").to_string(), "127.0.0.2/8 dev lo");
        let odd = address("fd00::1/64")
            .with_peer("fd00::2".parse().unwrap())
            .with_scope(Scope::Other(7))
            .with_flags(AddressFlags::PERMANENT | AddressFlags::NO_PREFIX_ROUTE);
        let text = "fd00::1 peer fd00::2/64 dev lo scope 7 nodad noprefixroute";
        assert_eq!(odd.to_string(), text);
    }

    #[test]
    fn a_scope_keeps_its_number() {
        assert!((0..=u8::MAX).all(|number| Scope::from_number(number).number() == number));
    }
}
