//! MAC addresses of remote endpoints, which mark them as ours.

use std::net::IpAddr;

/// Start of the MAC addresses of remote endpoints. The bit for local administration is set.
const PREFIX: &str = "02-11";

/// Returns the MAC address of a remote endpoint: the prefix, and the bytes of an IPv4
/// address, or the last four bytes of an IPv6 address in reverse.
///
/// No packet carries this address.
pub(super) fn mac(address: IpAddr) -> String {
    let [a, b, c, d] = match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => {
            let [.., d, c, b, a] = address.octets();
            [a, b, c, d]
        }
    };
    format!("{PREFIX}-{a:02x}-{b:02x}-{c:02x}-{d:02x}")
}

/// Returns whether a remote endpoint with a MAC address belongs to this mode. VIP
/// endpoints have the MAC address of the host.
pub(crate) fn is_own(mac: &str, address: IpAddr, host_mac: &str) -> bool {
    let is_host = !host_mac.is_empty() && same(mac, host_mac);
    is_host || same(mac, &self::mac(address))
}

/// Returns whether two MAC addresses are equal. Separators and case do not count.
fn same(left: &str, right: &str) -> bool {
    let digits = |mac: &str| {
        let digits = mac.chars().filter(char::is_ascii_hexdigit);
        digits
            .map(|digit| digit.to_ascii_lowercase())
            .collect::<String>()
    };
    digits(left) == digits(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_has_the_bytes_of_the_address_as_in_upstream() {
        let mac = |text: &str| mac(text.parse().unwrap());
        assert_eq!(mac("192.168.2.3"), "02-11-c0-a8-02-03");
        assert_eq!(mac("192::5:3"), "02-11-03-00-05-00");
    }

    #[test]
    fn own_endpoints_are_known_by_their_mac_address() {
        let address = "10.244.2.3".parse().unwrap();
        let host = "00:15:5d:01:02:03";
        assert!(is_own("02-11-0A-F4-02-03", address, host));
        assert!(is_own("00-15-5D-01-02-03", address, host));
        assert!(!is_own("02-11-0A-F4-02-04", address, host));
        assert!(!is_own("", address, ""));
    }
}
