//! Formats of names, labels, addresses and networks.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use super::Strictness;

/// Checks a DNS label: at most 63 of `a-z`, `0-9` and, except at the ends, `-`.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_label_of_any_length(text)
}

/// Checks a DNS subdomain: at most 253 bytes in labels separated by dots.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label_of_any_length)
}

fn is_label_of_any_length(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Checks a fully qualified domain name: at least two labels of at most 63 bytes.
pub fn is_fqdn(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    is_dns_subdomain(text) && text.contains('.') && text.split('.').all(is_dns_label)
}

/// Checks a label value: empty, or at most 63 bytes with letters or digits at the ends.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name_part(text)
}

/// Checks a label key: a name of at most 63 bytes, optionally after a DNS subdomain and `/`.
pub fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name_part(name),
        None => is_name_part(text),
    }
}

fn is_name_part(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = [text.bytes().next(), text.bytes().last()];
    text.len() <= 63
        && text.bytes().all(inner)
        && ends
            .iter()
            .all(|end| end.is_some_and(|it| it.is_ascii_alphanumeric()))
}

/// Parses an address as in fields older than 1.36.
pub fn address(text: &str, strictness: Strictness) -> Option<IpAddr> {
    match strictness {
        Strictness::Strict => text.parse().ok().filter(|address| !is_mapped(*address)),
        Strictness::Legacy => without_leading_zeros(text).parse().ok(),
    }
}

/// Parses an address in canonical form, as in newer fields.
pub fn canonical_address(text: &str) -> Option<IpAddr> {
    address(text, Strictness::Strict).filter(|address| address.to_string() == text)
}

/// Parses a network as in fields older than 1.36.
pub fn network(text: &str, strictness: Strictness) -> Option<IpNet> {
    let (host, length) = text.split_once('/')?;
    let prefix = length
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| length.parse().ok())??;
    let network = IpNet::new(address(host, strictness)?, prefix).ok()?;
    let is_strict = strictness == Strictness::Strict;
    let is_plain = length == prefix.to_string() && network.addr() == network.network();
    (is_plain || !is_strict).then_some(network)
}

/// Parses a network in canonical form, as in newer fields.
pub fn canonical_network(text: &str) -> Option<IpNet> {
    network(text, Strictness::Strict).filter(|network| network.to_string() == text)
}

/// Checks whether an address is an IPv4 or IPv4-mapped IPv6 address.
pub fn is_v4(address: IpAddr) -> bool {
    address.to_canonical().is_ipv4()
}

fn is_mapped(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.to_ipv4_mapped().is_some(),
    }
}

/// Removes leading zeros from each octet of an IPv4 address, including one at the end of
/// an IPv6 address.
fn without_leading_zeros(text: &str) -> String {
    if !text.contains('.') {
        return text.to_owned();
    }
    let start = text.rfind(':').map_or(0, |colon| colon + 1);
    let (groups, octets) = text.split_at(start);
    let octets = octets
        .split('.')
        .map(|octet| match octet.trim_start_matches('0') {
            "" if !octet.is_empty() => "0",
            stripped => stripped,
        });
    format!("{groups}{}", octets.collect::<Vec<_>>().join("."))
}

/// Checks an endpoint address, which must not be unspecified, loopback, link-local or
/// link-local multicast.
pub fn is_endpoint(address: IpAddr) -> bool {
    let is_local = match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local() || address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => is_v6_link_local(address),
    };
    let address = address.to_canonical();
    !is_local && !address.is_unspecified() && !address.is_loopback()
}

fn is_v6_link_local(address: Ipv6Addr) -> bool {
    let first = address.segments()[0];
    address.is_unicast_link_local() || first & 0xff0f == 0xff02
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_validated_as_by_the_api() {
        let long = "a".repeat(63);
        for (form, good, bad) in [
            (
                is_dns_label as fn(&str) -> bool,
                vec!["a", "0", "a-b", &*long],
                vec!["", "-a", "a-", "a.b", "A", "a_b"],
            ),
            (
                is_dns_subdomain,
                vec!["a.b", "0.0"],
                vec!["", "a..b", ".a", "a.", "A"],
            ),
            (is_fqdn, vec!["a.b", "a.b."], vec!["a", "a..b", ""]),
            (
                is_label_value,
                vec!["", "A_b.c", "1"],
                vec!["-", "a-", "a/b", "ä"],
            ),
            (
                is_qualified_name,
                vec!["a", "x.y/A_b", "0/0"],
                vec!["", "/a", "a/", "a/b/c", "X/a"],
            ),
        ] {
            assert!(good.iter().all(|text| form(text)), "{good:?}");
            assert!(bad.iter().all(|text| !form(text)), "{bad:?}");
        }
        assert!(!is_dns_label(&"a".repeat(64)));
        assert!(is_dns_subdomain(&"a".repeat(253)));
        assert!(!is_dns_subdomain(&"a".repeat(254)));
    }

    #[test]
    fn strict_forms_are_a_subset_of_legacy_forms() {
        for (text, strict, legacy) in [
            ("10.0.0.1", true, true),
            ("010.0.0.1", false, true),
            ("::ffff:10.0.0.1", false, true),
            ("::ffff:010.0.0.1", false, true),
            ("FD00::1", true, true),
            ("10.0.0.256", false, false),
            ("10.0.0", false, false),
            ("10.0..1", false, false),
            ("", false, false),
        ] {
            assert_eq!(
                address(text, Strictness::Strict).is_some(),
                strict,
                "{text}"
            );
            assert_eq!(
                address(text, Strictness::Legacy).is_some(),
                legacy,
                "{text}"
            );
        }
        for (text, strict, legacy) in [
            ("10.0.0.0/8", true, true),
            ("10.0.0.1/8", false, true),
            ("10.0.0.0/08", false, true),
            ("010.0.0.0/8", false, true),
            ("::ffff:10.0.0.0/104", false, true),
            ("0.0.0.0/0", true, true),
            ("::/0", true, true),
            ("10.0.0.0/33", false, false),
            ("10.0.0.0/", false, false),
            ("10.0.0.0/+8", false, false),
            ("10.0.0.0", false, false),
        ] {
            assert_eq!(
                network(text, Strictness::Strict).is_some(),
                strict,
                "{text}"
            );
            assert_eq!(
                network(text, Strictness::Legacy).is_some(),
                legacy,
                "{text}"
            );
        }
    }

    #[test]
    fn link_local_and_loopback_addresses_are_not_valid_endpoints() {
        for (text, expected) in [
            ("10.0.0.1", true),
            ("255.255.255.255", true),
            ("239.1.2.3", true),
            ("ff0e::1", true),
            ("224.0.1.1", true),
            ("224.0.0.1", false),
            ("169.254.0.1", false),
            ("127.0.0.1", false),
            ("0.0.0.0", false),
            ("::", false),
            ("::1", false),
            ("fe80::1", false),
            ("ff02::1", false),
            ("ff12::1", false),
            ("::ffff:127.0.0.1", false),
        ] {
            let address = text.parse().expect("an address");
            assert_eq!(is_endpoint(address), expected, "{text}");
        }
    }
}
