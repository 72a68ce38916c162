//! Parsing of addresses in the forms that the API has stored.

use std::net::IpAddr;

/// Parses an address in every form that kube-apiserver has stored.
///
/// API servers before 1.36 accept every form in the table, and stored Services keep it.
/// Version 1.36 still accepts IPv6 addresses that are not in canonical form.
///
/// | Stored | Address |
/// |---|---|
/// | `10.0.0.10` | 10.0.0.10 |
/// | `010.0.0.10` | 10.0.0.10: numbers with leading zeros are decimal |
/// | `::ffff:10.0.0.10` | 10.0.0.10: an IPv4-mapped address is IPv4 |
/// | `FD00:0::10` | fd00::10 |
///
/// ```
/// use vipline_service_ip::parse_address;
///
/// assert_eq!(parse_address("010.0.0.10"), "10.0.0.10".parse().ok());
/// assert_eq!(parse_address("::ffff:10.0.0.10"), "10.0.0.10".parse().ok());
/// assert_eq!(parse_address("10.0.0"), None);
/// ```
#[must_use]
pub fn parse_address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = without_leading_zeros(text).parse().ok()?;
    Some(address.to_canonical())
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
            ("0.0.0.0", "0.0.0.0"),
            ("::ffff:10.0.0.10", "10.0.0.10"),
            ("::FFFF:010.0.0.010", "10.0.0.10"),
            ("::ffff:a00:a", "10.0.0.10"),
            ("fd00::10", "fd00::10"),
            ("FD00:0::0010", "fd00::10"),
            ("fd00:0:0:0:0:0:0:00001", "fd00::1"),
            ("::", "::"),
            ("::0", "::"),
            ("0::1", "::1"),
        ] {
            assert_eq!(parse_address(text), address.parse().ok(), "{text}");
        }
    }

    #[test]
    fn other_texts_are_not_addresses() {
        for text in [
            "",
            "None",
            "10.0.0",
            "10.0.0.10.",
            "10.0.0.256",
            "0x0a.0.0.1",
            "10.0.0.10/32",
            "fd00::1%eth0",
            "fd00:::1",
            "10000::",
            " 10.0.0.1",
            "1..2.3",
            ".0.0.0.0",
        ] {
            assert_eq!(parse_address(text), None, "{text}");
        }
    }
}
