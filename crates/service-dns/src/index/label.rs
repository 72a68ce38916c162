//! Labels of domain names: those of objects, and those made of addresses.

use std::net::IpAddr;

use crate::name::MAX_LABEL;

/// Returns whether a text is a DNS label as the API defines it (RFC 1123): lower-case
/// letters, digits, and dashes between them.
pub(crate) fn is_label(text: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= MAX_LABEL
        && bytes.first().copied().is_some_and(is_alphanumeric)
        && bytes.last().copied().is_some_and(is_alphanumeric)
        && bytes
            .iter()
            .all(|&byte| is_alphanumeric(byte) || byte == b'-')
}

/// Returns the host name of an endpoint without one: its address with dashes.
///
/// A zero follows a dash at the end, where host names must not have one.
pub(crate) fn dash(addr: IpAddr) -> String {
    let mut text = addr.to_string().replace(['.', ':'], "-");
    if text.ends_with('-') {
        text.push('0');
    }
    text
}

/// Returns the address of a dashed host name. `None` if [`dash`] does not return the name.
///
/// `name` is in lower case.
pub(crate) fn undash(name: &str) -> Option<IpAddr> {
    parse_dashed(name).filter(|&addr| dash(addr) == name)
}

/// Returns the address in the name of a pod, in any form of its text: clients make the name
/// of the address that they have, such as `2001-db8-0-0-0-0-0-1`. An IPv4-mapped address is
/// the IPv4 address, as in CoreDNS.
pub(crate) fn pod_address(name: &str) -> Option<IpAddr> {
    parse_dashed(name).map(|addr| addr.to_canonical())
}

fn parse_dashed(name: &str) -> Option<IpAddr> {
    let is_v4 = name.matches('-').count() == 3 && !name.contains("--");
    match is_v4 {
        true => name.replace('-', ".").parse().ok().map(IpAddr::V4),
        false => name.replace('-', ":").parse().ok().map(IpAddr::V6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_of_the_api() {
        let longest = "a".repeat(63);
        for label in ["a", "0", "web-1", "10-0-0-1", &*longest] {
            assert!(is_label(label), "{label}");
        }
        let long = "a".repeat(64);
        for other in ["", "-a", "a-", "A", "a.b", "a_b", "é", &*long] {
            assert!(!is_label(other), "{other}");
        }
    }

    #[test]
    fn addresses_become_labels_and_labels_addresses() {
        for (addr, label) in [
            ("10.11.12.13", "10-11-12-13"),
            (
                "2001:db8:3333:4444:5555:6666:7777:8888",
                "2001-db8-3333-4444-5555-6666-7777-8888",
            ),
            (
                "2001:db8:3333:4444:5555:6666::",
                "2001-db8-3333-4444-5555-6666--0",
            ),
            ("fd00::1", "fd00--1"),
            ("::1", "--1"),
            ("1:2:3:4:5:6:7:8", "1-2-3-4-5-6-7-8"),
        ] {
            let addr: IpAddr = addr.parse().unwrap();
            assert_eq!(dash(addr), label);
            assert_eq!(undash(label), Some(addr));
        }
        let others = [
            "",
            "web-0",
            "10-0-0",
            "10-0-0-256",
            "010-0-0-1",
            "10-0-0-1-2",
            "fd00--01",
            "10.0.0.1",
            "fd00::1",
            "2001-db8--",
            "1-2-3-4-5-6-7-8-9",
            "10--0-0-1-",
        ];
        for other in others {
            assert_eq!(undash(other), None, "{other}");
        }
    }

    #[test]
    fn the_name_of_a_pod_has_any_form_of_its_address() {
        for (label, addr) in [
            ("10-0-0-1", "10.0.0.1"),
            ("2001-db8-0-0-0-0-0-1", "2001:db8::1"),
            ("fd00-0010--0005", "fd00:10::5"),
            ("2001-db8--", "2001:db8::"),
            ("--", "::"),
            ("--ffff-102-304", "1.2.3.4"),
        ] {
            assert_eq!(pod_address(label), Some(addr.parse().unwrap()), "{label}");
        }
        for other in [
            "",
            "web-0",
            "10-0-0",
            "010-0-0-1",
            "10-0-0-1-2",
            "fd00--1--2",
        ] {
            assert_eq!(pod_address(other), None, "{other}");
        }
    }
}
