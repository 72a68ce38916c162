//! What `conntrack` and the kernel do with transport protocols.

use vipline_inet::Protocol;

/// Returns the name in the output of `conntrack`, or `None` for a protocol that it prints as
/// `unknown`.
///
/// `conntrack` does not read `/etc/protocols`: it prints `icmpv6` instead of `ipv6-icmp`.
pub(crate) fn name(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::ICMPV6 => Some("icmpv6"),
        Protocol::ICMP
        | Protocol::TCP
        | Protocol::UDP
        | Protocol::DCCP
        | Protocol::GRE
        | Protocol::SCTP
        | Protocol::UDPLITE => protocol.name(),
        _ => None,
    }
}

/// Returns whether the kernel compares ports of this protocol in filters.
///
/// For other protocols the kernel accepts ports but ignores them.
pub(crate) fn has_ports_in_kernel_filters(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::TCP | Protocol::UDP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_protocols_have_a_name() {
        let names = (0..=u8::MAX).filter_map(|number| name(Protocol(number)));
        let expected = [
            "icmp", "tcp", "udp", "dccp", "gre", "icmpv6", "sctp", "udplite",
        ];
        assert_eq!(names.collect::<Vec<_>>(), expected);
    }
}
