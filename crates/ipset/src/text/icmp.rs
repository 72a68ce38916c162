//! ICMP type and code names, as `ipset` prints and parses them.

use crate::{Protocol, SetFamily};

/// A type, a code, and the name of both.
type Row = (u8, u8, &'static str);

/// ICMP names. The first name of a type and code is printed.
const ICMP: [Row; 34] = [
    (0, 0, "echo-reply"),
    (0, 0, "pong"),
    (3, 0, "network-unreachable"),
    (3, 1, "host-unreachable"),
    (3, 2, "protocol-unreachable"),
    (3, 3, "port-unreachable"),
    (3, 4, "fragmentation-needed"),
    (3, 5, "source-route-failed"),
    (3, 6, "network-unknown"),
    (3, 7, "host-unknown"),
    (3, 9, "network-prohibited"),
    (3, 10, "host-prohibited"),
    (3, 11, "TOS-network-unreachable"),
    (3, 12, "TOS-host-unreachable"),
    (3, 13, "communication-prohibited"),
    (3, 14, "host-precedence-violation"),
    (3, 15, "precedence-cutoff"),
    (4, 0, "source-quench"),
    (5, 0, "network-redirect"),
    (5, 1, "host-redirect"),
    (5, 2, "TOS-network-redirect"),
    (5, 3, "TOS-host-redirect"),
    (8, 0, "echo-request"),
    (8, 0, "ping"),
    (9, 0, "router-advertisement"),
    (10, 0, "router-solicitation"),
    (11, 0, "ttl-zero-during-transit"),
    (11, 1, "ttl-zero-during-reassembly"),
    (12, 0, "ip-header-bad"),
    (12, 1, "required-option-missing"),
    (13, 0, "timestamp-request"),
    (14, 0, "timestamp-reply"),
    (17, 0, "address-mask-request"),
    (18, 0, "address-mask-reply"),
];

/// ICMPv6 names, two of which `ipset` also accepts misspelled.
const ICMPV6: [Row; 21] = [
    (1, 0, "no-route"),
    (1, 1, "communication-prohibited"),
    (1, 3, "address-unreachable"),
    (1, 4, "port-unreachable"),
    (2, 0, "packet-too-big"),
    (3, 0, "ttl-zero-during-transit"),
    (3, 1, "ttl-zero-during-reassembly"),
    (4, 0, "bad-header"),
    (4, 1, "unknown-header-type"),
    (4, 2, "unknown-option"),
    (128, 0, "echo-request"),
    (128, 0, "ping"),
    (129, 0, "echo-reply"),
    (129, 0, "pong"),
    (133, 0, "router-solicitation"),
    (134, 0, "router-advertisement"),
    (135, 0, "neighbour-solicitation"),
    (135, 0, "neigbour-solicitation"),
    (136, 0, "neighbour-advertisement"),
    (136, 0, "neigbour-advertisement"),
    (137, 0, "redirect"),
];

/// Returns the name of a type and code, if it has one.
pub(super) fn name(protocol: Protocol, ty: u8, code: u8) -> Option<&'static str> {
    let mut rows = rows(protocol).iter();
    let row = rows.find(|row| (row.0, row.1) == (ty, code))?;
    Some(row.2)
}

/// Returns the type and code with this name.
///
/// A part of a name from its start, in any case, means the first such name.
pub(super) fn numbers(protocol: Protocol, name: &str) -> Option<(u8, u8)> {
    let starts = |row: &&Row| {
        let start = row.2.get(..name.len());
        !name.is_empty() && start.is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    let row = rows(protocol).iter().find(starts)?;
    Some((row.0, row.1))
}

/// Returns the family in which the protocol has types and codes.
pub(super) fn family(protocol: Protocol) -> Option<SetFamily> {
    match protocol {
        Protocol::ICMP => Some(SetFamily::V4),
        Protocol::ICMPV6 => Some(SetFamily::V6),
        _ => None,
    }
}

/// Returns whether the protocol has types and codes instead of ports.
pub(super) fn has_types(protocol: Protocol) -> bool {
    !rows(protocol).is_empty()
}

fn rows(protocol: Protocol) -> &'static [Row] {
    match protocol {
        Protocol::ICMP => &ICMP,
        Protocol::ICMPV6 => &ICMPV6,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn icmp_names_map_to_distinct_numbers() {
        for protocol in [Protocol::ICMP, Protocol::ICMPV6] {
            for (ty, code, name) in rows(protocol) {
                assert_eq!(numbers(protocol, name), Some((*ty, *code)));
                let printed = super::name(protocol, *ty, *code).unwrap();
                assert_eq!(numbers(protocol, printed), Some((*ty, *code)));
            }
        }
        assert_eq!(name(Protocol::TCP, 8, 0), None);
        assert_eq!(numbers(Protocol::ICMP, "packet-too-big"), None);
        assert_eq!(numbers(Protocol::ICMP, "Ping"), Some((8, 0)));
        assert_eq!(numbers(Protocol::ICMP, "ttl-zero"), Some((11, 0)));
        assert_eq!(numbers(Protocol::ICMP, ""), None);
    }
}
