//! Lenient parsing of addresses and networks.

use std::net::IpAddr;

use ipnet::IpNet;

/// Parses an address in every form that kube-apiserver has stored.
///
/// API servers before 1.36 accept every form in the table, and stored objects keep it.
/// Version 1.36 still accepts IPv6 addresses that are not in canonical form. Text of the kernel
/// and of programs has strict forms: use [`str::parse`] for it.
///
/// | Stored | Address |
/// |---|---|
/// | `10.0.0.10` | 10.0.0.10 |
/// | `010.0.0.10` | 10.0.0.10: numbers with leading zeros are decimal |
/// | `::ffff:10.0.0.10` | 10.0.0.10: an IPv4-mapped address is IPv4 |
/// | `FD00:0::10` | fd00::10 |
///
/// ```
/// use vipline_inet::parse_address;
///
/// assert_eq!(parse_address("010.0.0.10"), "10.0.0.10".parse().ok());
/// assert_eq!(parse_address("::ffff:10.0.0.10"), "10.0.0.10".parse().ok());
/// assert_eq!(parse_address("10.0.0"), None);
/// ```
#[must_use]
pub fn parse_address(text: &str) -> Option<IpAddr> {
    parse_family_form(text).map(|address| address.to_canonical())
}

/// Parses a network in CIDR notation, as leniently as [`parse_address`].
///
/// Clears the host bits. The prefix length of an IPv4-mapped network is that of IPv6:
/// `::ffff:10.0.0.0/104` is 10.0.0.0/8.
///
/// ```
/// use vipline_inet::parse_network;
///
/// assert_eq!(parse_network("010.1.2.3/08"), "10.0.0.0/8".parse().ok());
/// assert_eq!(parse_network("10.0.0.1"), None);
/// ```
#[must_use]
pub fn parse_network(text: &str) -> Option<IpNet> {
    let (address, prefix) = text.split_once('/')?;
    let is_number = prefix.bytes().all(|byte| byte.is_ascii_digit());
    let prefix: u8 = prefix.parse().ok().filter(|_| is_number)?;
    let network = match (parse_family_form(address)?, prefix.checked_sub(96)) {
        (IpAddr::V6(address), Some(rest)) => match address.to_ipv4_mapped() {
            Some(address) => IpNet::new(address.into(), rest),
            None => IpNet::new(address.into(), prefix),
        },
        (address, _) => IpNet::new(address, prefix),
    };
    Some(network.ok()?.trunc())
}

/// Parses an address without converting IPv4-mapped addresses.
fn parse_family_form(text: &str) -> Option<IpAddr> {
    let plain = text.parse().ok();
    plain.or_else(|| without_leading_zeros(text).parse().ok())
}

/// Removes the leading zeros of each number: `010.0.0.010` is `10.0.0.10`.
fn without_leading_zeros(text: &str) -> String {
    let numbers = text.split_inclusive(['.', ':']);
    numbers
        .map(|number| {
            let digits = number.trim_end_matches(['.', ':']);
            let kept = match digits.trim_start_matches('0') {
                "" if !digits.is_empty() => "0",
                kept => kept,
            };
            kept.to_owned() + &number[digits.len()..]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stored_form_is_parsed() {
        for (text, address) in [
            ("10.0.0.10", "10.0.0.10"),
            ("010.0.0.10", "10.0.0.10"),
            ("010.000.00.0010", "10.0.0.10"),
            ("10.0.0.09", "10.0.0.9"),
            ("0.0.0.0", "0.0.0.0"),
            ("::ffff:10.0.0.10", "10.0.0.10"),
            ("::FFFF:010.0.0.010", "10.0.0.10"),
            ("::ffff:a00:a", "10.0.0.10"),
            ("64:ff9b::010.0.0.01", "64:ff9b::a00:1"),
            ("fd00::10", "fd00::10"),
            ("FD00:0::0010", "fd00::10"),
            ("fd00:0:0:0:0:0:0:00001", "fd00::1"),
            ("::", "::"),
            ("::0", "::"),
            ("0::1", "::1"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(parse_address(text), Some(address), "{text}");
        }
    }

    #[test]
    fn other_texts_are_not_addresses() {
        for text in [
            "",
            "None",
            "10.0.0",
            "10.0.0.",
            "10.0.0.10.",
            "10.0.0.0.1",
            "10.0.0.256",
            "10.0.0.+1",
            "0x0a.0.0.1",
            "10.0.0.10/32",
            "fd00::1%eth0",
            "fd00:::1",
            "10000::",
            " 10.0.0.1",
            "1..2.3",
            ".0.0.0.0",
            "web.example",
        ] {
            assert_eq!(parse_address(text), None, "{text:?}");
        }
    }

    #[test]
    fn networks_are_parsed_leniently_and_truncated() {
        for (text, expected) in [
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("010.1.2.3/08", Some("10.0.0.0/8")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("fd00::1/64", Some("fd00::/64")),
            ("fd00::1/128", Some("fd00::1/128")),
            ("::ffff:10.1.2.3/104", Some("10.0.0.0/8")),
            ("::ffff:10.1.2.3/16", Some("::/16")),
            ("10.0.0.0", None),
            ("10.0.0.0/33", None),
            ("10.0.0.0/104", None),
            ("fd00::/129", None),
            ("10.0.0.0/", None),
            ("10.0.0.0/-1", None),
            ("10.0.0.0/8/8", None),
        ] {
            let expected = expected.map(|text| text.parse::<IpNet>().unwrap());
            assert_eq!(parse_network(text), expected, "{text:?}");
        }
    }
}
