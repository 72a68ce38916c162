//! Labels of domain names: those of objects, and those made of addresses.

use std::net::{IpAddr, Ipv6Addr};

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
    let is_v4 = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'-')
    };
    let addr = match is_v4(name) && !name.contains("--") {
        true => name.replace('-', ".").parse().ok().map(IpAddr::V4),
        false => None,
    };
    let addr = addr.or_else(|| {
        let text = name.replace('-', ":");
        let addr: Ipv6Addr = text.parse().ok()?;
        Some(addr.into())
    })?;
    (dash(addr) == name).then_some(addr)
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
}
