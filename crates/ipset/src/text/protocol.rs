//! Protocol names, as in `/etc/protocols`.

/// Protocol numbers and names. A number without a name is printed as a number.
const PROTOCOLS: [(u8, &str); 57] = [
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
    // Aliases, which are parsed only.
    (50, "ipsec-esp"),
    (51, "ipsec-ah"),
    (58, "icmpv6"),
];

/// Returns the name of a protocol, if it has one.
pub(super) fn name(protocol: u8) -> Option<&'static str> {
    let mut rows = PROTOCOLS.iter();
    rows.find(|row| row.0 == protocol).map(|row| row.1)
}

/// Returns the protocol with this name, in any case.
pub(super) fn number(name: &str) -> Option<u8> {
    let mut rows = PROTOCOLS.iter();
    let row = rows.find(|row| row.1.eq_ignore_ascii_case(name))?;
    Some(row.0)
}

/// Returns whether the protocol has ports: TCP, UDP, SCTP and UDP-Lite.
pub(super) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 132 | 136)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_map_to_numbers_and_back() {
        for (protocol, name) in PROTOCOLS {
            assert_eq!(number(name), Some(protocol));
            assert_eq!(number(self::name(protocol).unwrap()), Some(protocol));
        }
        assert_eq!(number("ICMPv6"), Some(58));
        assert_eq!(name(77), None);
    }
}
