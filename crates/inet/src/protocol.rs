//! IP protocols.

use std::fmt;
use std::str::FromStr;

use crate::InvalidName;

/// An IP protocol: the number in field `protocol` of an IPv4 header or `next header` of an
/// IPv6 header.
///
/// Every number is valid, because a kernel can track or match protocols that it does not know.
/// Displays as its [`name`](Self::name), otherwise as the number.
///
/// ```
/// use vipline_inet::Protocol;
///
/// assert_eq!("icmpv6".parse(), Ok(Protocol::ICMPV6));
/// assert_eq!(Protocol::ICMPV6.to_string(), "ipv6-icmp");
/// assert_eq!("200".parse(), Ok(Protocol(200)));
/// # Ok::<(), vipline_inet::InvalidName>(())
/// ```
///
/// `Default` is 0, which rules and filters use for any protocol.
///
/// Exhaustive: a protocol is one number.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Protocol(pub u8);

impl Protocol {
    /// `IPPROTO_ICMP`: ICMP.
    pub const ICMP: Self = Self(1);
    /// `IPPROTO_IGMP`: IGMP.
    pub const IGMP: Self = Self(2);
    /// `IPPROTO_TCP`: TCP.
    pub const TCP: Self = Self(6);
    /// `IPPROTO_UDP`: UDP.
    pub const UDP: Self = Self(17);
    /// `IPPROTO_DCCP`: DCCP.
    pub const DCCP: Self = Self(33);
    /// `IPPROTO_GRE`: GRE, with keys instead of ports.
    pub const GRE: Self = Self(47);
    /// `IPPROTO_ESP`: encrypted packets of IPsec.
    pub const ESP: Self = Self(50);
    /// `IPPROTO_AH`: the authentication header of IPsec.
    pub const AH: Self = Self(51);
    /// `IPPROTO_ICMPV6`: ICMPv6.
    pub const ICMPV6: Self = Self(58);
    /// `IPPROTO_COMP`: compressed packets of IPsec.
    pub const COMP: Self = Self(108);
    /// `IPPROTO_SCTP`: SCTP.
    pub const SCTP: Self = Self(132);
    /// `IPPROTO_MH`: the mobility header of IPv6.
    pub const MH: Self = Self(135);
    /// `IPPROTO_UDPLITE`: UDP-Lite.
    pub const UDPLITE: Self = Self(136);

    /// Returns the name in Debian's `/etc/protocols`, in lower case, if the protocol has one.
    ///
    /// `iptables`, `ipset` and `nft` look names up in that file. The table is part of the crate,
    /// so that the same rule is the same text on every machine. Number 0 has no name: it is
    /// `ip` or `hopopt` there, but any protocol in rules.
    pub fn name(self) -> Option<&'static str> {
        let at = NAMES.binary_search_by_key(&self.0, |(number, _)| *number);
        Some(NAMES[at.ok()?].1)
    }

    /// Returns the protocol with a name or an alias, in upper or lower case: `tcp`, or
    /// `icmpv6` and `ipv6-icmp`. `None` for other names, and for numbers.
    ///
    /// Programs differ in the numbers that they accept beside names: `iptables` has
    /// hexadecimal and octal numbers. [`FromStr`] accepts decimal ones.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut names = NAMES.iter().chain(ALIASES);
        let (number, _) = names.find(|(_, it)| it.eq_ignore_ascii_case(name))?;
        Some(Self(*number))
    }

    /// Returns whether the header begins with a source and a destination port: TCP, UDP, DCCP,
    /// SCTP and UDP-Lite.
    pub const fn has_ports(self) -> bool {
        matches!(
            self,
            Self::TCP | Self::UDP | Self::DCCP | Self::SCTP | Self::UDPLITE
        )
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

/// Parses a name, an alias or a decimal number.
impl FromStr for Protocol {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let number = || {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse().map(Self).ok())?
        };
        Self::from_name(text)
            .or_else(number)
            .ok_or_else(|| InvalidName::Protocol { text: text.into() })
    }
}

/// Protocol numbers and names, sorted by number.
const NAMES: &[(u8, &str)] = &[
    (1, "icmp"),
    (2, "igmp"),
    (3, "ggp"),
    (4, "ipencap"),
    (5, "st"),
    (6, "tcp"),
    (8, "egp"),
    (9, "igp"),
    (12, "pup"),
    (17, "udp"),
    (20, "hmp"),
    (22, "xns-idp"),
    (27, "rdp"),
    (29, "iso-tp4"),
    (33, "dccp"),
    (36, "xtp"),
    (37, "ddp"),
    (38, "idpr-cmtp"),
    (41, "ipv6"),
    (43, "ipv6-route"),
    (44, "ipv6-frag"),
    (45, "idrp"),
    (46, "rsvp"),
    (47, "gre"),
    (50, "esp"),
    (51, "ah"),
    (57, "skip"),
    (58, "ipv6-icmp"),
    (59, "ipv6-nonxt"),
    (60, "ipv6-opts"),
    (73, "rspf"),
    (81, "vmtp"),
    (88, "eigrp"),
    (89, "ospf"),
    (93, "ax.25"),
    (94, "ipip"),
    (97, "etherip"),
    (98, "encap"),
    (103, "pim"),
    (108, "ipcomp"),
    (112, "vrrp"),
    (115, "l2tp"),
    (124, "isis"),
    (132, "sctp"),
    (133, "fc"),
    (135, "mobility-header"),
    (136, "udplite"),
    (137, "mpls-in-ip"),
    (138, "manet"),
    (139, "hip"),
    (140, "shim6"),
    (141, "wesp"),
    (142, "rohc"),
    (143, "ethernet"),
];

/// Further names, which are parsed only. `icmpv6` is an alias in the programs, the others are
/// those of `/etc/protocols` that differ from the name.
const ALIASES: &[(u8, &str)] = &[
    (4, "ip-encap"),
    (50, "ipsec-esp"),
    (51, "ipsec-ah"),
    (58, "icmpv6"),
    (73, "cphb"),
    (89, "ospfigp"),
];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_number_displays_as_text_that_parses_to_it() {
        for number in 0..=u8::MAX {
            let protocol = Protocol(number);
            assert_eq!(protocol.to_string().parse(), Ok(protocol));
            let name = protocol.name();
            assert_eq!(name.and_then(Protocol::from_name), name.map(|_| protocol));
        }
    }

    #[test]
    fn numbers_and_names_occur_once() {
        assert!(NAMES.is_sorted_by(|one, next| one.0 < next.0));
        for (number, name) in NAMES.iter().chain(ALIASES) {
            assert_eq!(Protocol::from_name(name), Some(Protocol(*number)), "{name}");
            assert_eq!(*name, name.to_ascii_lowercase());
        }
    }

    #[test]
    #[allow(
        clippy::disallowed_methods,
        reason = "compares with a file of the machine"
    )]
    fn names_are_those_of_the_file_of_the_machine() {
        let file = fs::read_to_string("/etc/protocols").expect("Debian package netbase");
        let mut count = 0;
        for line in file.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let (Some(name), Some(number)) = (words.next(), words.next()) else {
                continue;
            };
            // The file also has numbers of sockets, such as 262 of MPTCP.
            let Ok(protocol) = number.parse().map(Protocol) else {
                continue;
            };
            // A later version of the file may have names that the table lacks.
            let Some(known) = protocol.name() else {
                continue;
            };
            assert_eq!(known, name, "{line}");
            for alias in words {
                assert_eq!(Protocol::from_name(alias), Some(protocol), "{line}");
            }
            count += 1;
        }
        assert_eq!(count, NAMES.len(), "the file has every name");
    }

    #[test]
    fn constants_have_the_numbers_of_their_names() {
        for (protocol, name) in [
            (Protocol::ICMP, "icmp"),
            (Protocol::IGMP, "igmp"),
            (Protocol::TCP, "tcp"),
            (Protocol::UDP, "udp"),
            (Protocol::DCCP, "dccp"),
            (Protocol::GRE, "gre"),
            (Protocol::ESP, "esp"),
            (Protocol::AH, "ah"),
            (Protocol::ICMPV6, "ipv6-icmp"),
            (Protocol::COMP, "ipcomp"),
            (Protocol::SCTP, "sctp"),
            (Protocol::MH, "mobility-header"),
            (Protocol::UDPLITE, "udplite"),
        ] {
            assert_eq!(protocol.name(), Some(name));
        }
        let with_ports = (0..=u8::MAX).filter(|number| Protocol(*number).has_ports());
        assert_eq!(with_ports.collect::<Vec<_>>(), [6, 17, 33, 132, 136]);
    }

    #[test]
    fn other_texts_are_unknown() {
        for text in ["", "256", "+6", "-1", "0x6", "tcp ", "all", "no-such"] {
            let error = text.parse::<Protocol>().unwrap_err();
            assert_eq!(error.text(), text);
        }
        assert_eq!("TCP".parse(), Ok(Protocol::TCP));
        assert_eq!(Protocol::default().to_string(), "0");
    }
}
