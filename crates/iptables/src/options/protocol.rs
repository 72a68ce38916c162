//! IP protocols in the syntax of iptables.

use vipline_inet::Protocol;

use crate::options::number;

/// Parses a name or a number; 0 and `all` are any protocol.
///
/// Names of `libxtables` that are not in `/etc/protocols` are `all`, `mh` and `ipv6-mh`.
pub(crate) fn parse(text: &str) -> Option<Protocol> {
    match text {
        "all" => Some(Protocol::default()),
        "mh" | "ipv6-mh" => Some(Protocol::MH),
        _ => {
            let number = || number::parse_as(text).map(Protocol);
            Protocol::from_name(text).or_else(number)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_have_names_and_numbers() {
        for (text, printed) in [
            ("6", "tcp"),
            ("0x6", "tcp"),
            ("TCP", "tcp"),
            ("icmpv6", "ipv6-icmp"),
            ("mh", "mobility-header"),
            ("ipv6-mh", "mobility-header"),
            ("200", "200"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), printed);
        }
        assert_eq!(parse("all"), Some(Protocol(0)));
        assert_eq!(parse("no-such"), None);
        assert_eq!(parse("256"), None);
    }
}
