//! Names of addresses: `in-addr.arpa` and `ip6.arpa`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vipline_service_model::ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::question::Folded;

/// A name below `in-addr.arpa` or `ip6.arpa`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ReverseName {
    /// Network of the labels that are part of an address.
    pub(super) network: IpNet,
    /// Number of labels that are not part of an address.
    pub(super) extra: usize,
}

/// Bits of an address that one label holds.
const fn bits(network: IpNet) -> u8 {
    match network {
        IpNet::V4(_) => 8,
        IpNet::V6(_) => 4,
    }
}

impl ReverseName {
    /// Parses a name. Returns `None` if the name is outside.
    pub(super) fn parse(name: &Folded) -> Option<Self> {
        if name.count() < 2 || name.label(name.count() - 1) != Some("arpa") {
            return None;
        }
        let labels = (0..name.count() - 2)
            .rev()
            .map(|position| name.label(position));
        match name.label(name.count() - 2)? {
            "in-addr" => Some(Self::v4(labels)),
            "ip6" => Some(Self::v6(labels)),
            _ => None,
        }
    }

    fn v4<'a>(labels: impl ExactSizeIterator<Item = Option<&'a str>>) -> Self {
        let total = labels.len();
        let mut octets = [0; 4];
        let mut used = 0;
        for (octet, label) in octets.iter_mut().zip(labels) {
            let Some(value) = label.and_then(decimal) else {
                break;
            };
            *octet = value;
            used += 1;
        }
        let prefix = u8::try_from(used * 8).unwrap_or(32);
        Self {
            network: Ipv4Net::new_assert(Ipv4Addr::from(octets), prefix).into(),
            extra: total - used,
        }
    }

    fn v6<'a>(labels: impl ExactSizeIterator<Item = Option<&'a str>>) -> Self {
        let total = labels.len();
        let mut bits = 0_u128;
        let mut used = 0;
        for label in labels.take(32) {
            let Some(value) = label.and_then(nibble) else {
                break;
            };
            bits |= u128::from(value) << (124 - used * 4);
            used += 1;
        }
        let prefix = u8::try_from(used * 4).unwrap_or(128);
        Self {
            network: Ipv6Net::new_assert(Ipv6Addr::from_bits(bits), prefix).into(),
            extra: total - used,
        }
    }

    /// Returns the address if the name is that of one.
    pub(super) fn address(self) -> Option<IpAddr> {
        let is_address =
            self.extra == 0 && self.network.prefix_len() == self.network.max_prefix_len();
        is_address.then(|| self.network.addr())
    }

    /// Returns the number of labels in front of the zone of a network that contains this
    /// one. A zone has whole labels, so it may be a part of the larger network.
    pub(super) fn depth_below(self, length: u8) -> usize {
        let bits = bits(self.network);
        let zone = length.div_ceil(bits);
        let labels = self.network.prefix_len() / bits;
        usize::from(labels.saturating_sub(zone)) + self.extra
    }

    /// Returns whether the network has at least the labels of a zone with this length of
    /// the prefix.
    pub(super) fn is_within_zone(self, length: u8) -> bool {
        self.network.prefix_len() / bits(self.network) >= length.div_ceil(bits(self.network))
    }
}

/// Parses an octet without leading zeros.
fn decimal(label: &str) -> Option<u8> {
    let is_canonical = label.bytes().all(|byte| byte.is_ascii_digit())
        && (label == "0" || !label.starts_with('0'));
    is_canonical.then(|| label.parse().ok())?
}

/// Parses a hexadecimal digit.
fn nibble(label: &str) -> Option<u8> {
    (label.len() == 1).then(|| u8::from_str_radix(label, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str) -> Option<(String, usize)> {
        let reverse = ReverseName::parse(&Folded::new(&name.parse().unwrap()))?;
        Some((reverse.network.to_string(), reverse.extra))
    }

    #[test]
    fn names_are_networks_and_further_labels() {
        for (name, network, extra) in [
            ("1.0.3.10.in-addr.arpa", "10.3.0.1/32", 0),
            ("10.IN-ADDR.arpa", "10.0.0.0/8", 0),
            ("in-addr.arpa", "0.0.0.0/0", 0),
            ("256.10.in-addr.arpa", "10.0.0.0/8", 1),
            ("01.0.3.10.in-addr.arpa", "10.3.0.0/24", 1),
            ("+1.0.3.10.in-addr.arpa", "10.3.0.0/24", 1),
            ("a.1.0.3.10.in-addr.arpa", "10.3.0.1/32", 1),
            ("b.a.10.in-addr.arpa", "10.0.0.0/8", 2),
            ("8.B.d.0.1.0.0.2.ip6.arpa", "2001:db8::/32", 0),
            ("ip6.arpa", "::/0", 0),
            ("10.2.ip6.arpa", "2000::/4", 1),
            ("+.2.ip6.arpa", "2000::/4", 1),
        ] {
            assert_eq!(parse(name), Some((network.to_owned(), extra)), "{name}");
        }
        let v6 = "1.".to_owned() + &"0.".repeat(23) + "8.b.d.0.1.0.0.2.ip6.arpa";
        assert_eq!(parse(&v6), Some(("2001:db8::1/128".to_owned(), 0)));
        assert_eq!(
            parse(&format!("0.{v6}")),
            Some(("2001:db8::1/128".to_owned(), 1))
        );
        for outside in [
            "arpa",
            ".",
            "10.in-addr",
            "example.arpa",
            "in-addr.arpa.example",
        ] {
            assert_eq!(parse(outside), None, "{outside}");
        }
    }

    #[test]
    fn a_zone_has_whole_labels() {
        let name = Folded::new(&"1.0.96.10.in-addr.arpa".parse().unwrap());
        let name = ReverseName::parse(&name).unwrap();
        assert_eq!(name.depth_below(16), 2);
        assert_eq!(name.depth_below(12), 2);
        assert_eq!(name.depth_below(28), 0);
        assert_eq!(name.depth_below(0), 4);
        let network = Folded::new(&"10.in-addr.arpa".parse().unwrap());
        let network = ReverseName::parse(&network).unwrap();
        assert!(network.is_within_zone(8));
        assert!(!network.is_within_zone(12));
    }
}
