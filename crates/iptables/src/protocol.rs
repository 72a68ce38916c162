//! IP protocols.

use std::fmt;

use crate::number;

/// An IP protocol number, printed by name if it has one.
///
/// The names are those of Debian's `/etc/protocols`.
///
/// Exhaustive: a protocol is one number.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Protocol(pub u8);

impl Protocol {
    /// ICMP.
    pub const ICMP: Self = Self(1);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// ICMPv6.
    pub const ICMP6: Self = Self(58);
    /// SCTP.
    pub const SCTP: Self = Self(132);

    /// Parses a name or a number; 0 is any protocol.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // Fast path for common names.
        match text {
            "tcp" => return Some(Self::TCP),
            "udp" => return Some(Self::UDP),
            "all" => return Some(Self(0)),
            "icmpv6" => return Some(Self::ICMP6),
            "mh" | "ipv6-mh" => return Some(Self(135)),
            _ => {}
        }
        if let Some(number) = number::parse_as(text) {
            return Some(Self(number));
        }
        let is_it = |(_, name): &&(u8, &str)| name.eq_ignore_ascii_case(text);
        NAMES.iter().find(is_it).map(|(number, _)| Self(*number))
    }

    /// Returns the name, if the protocol has one.
    pub fn name(self) -> Option<&'static str> {
        let at = NAMES.binary_search_by_key(&self.0, |(number, _)| *number);
        Some(NAMES[at.ok()?].1)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_have_names_and_numbers() {
        assert!(NAMES.is_sorted_by(|one, next| one.0 < next.0));
        for (number, name) in NAMES {
            assert_eq!(Protocol::parse(name), Some(Protocol(*number)), "{name}");
            assert_eq!(Protocol(*number).to_string(), *name);
        }
        for (text, printed) in [
            ("6", "tcp"),
            ("TCP", "tcp"),
            ("icmpv6", "ipv6-icmp"),
            ("200", "200"),
        ] {
            assert_eq!(Protocol::parse(text).unwrap().to_string(), printed);
        }
        assert_eq!(Protocol::parse("all"), Some(Protocol(0)));
        assert_eq!(Protocol::parse("no-such"), None);
        assert_eq!(Protocol::parse("256"), None);
    }
}
