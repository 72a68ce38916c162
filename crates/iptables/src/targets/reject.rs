//! `-j REJECT`: drop with a reply to the sender.

use std::fmt;

use crate::Family;
use crate::extensions::structure::{Reader, Structure, Writer, at, position};
use crate::options::{Extension, Parsed, Unsupported, Values};

/// Defines [`Reject`] with the option value of each variant.
macro_rules! rejects {
    ($($(#[$doc:meta])* $variant:ident = $name:literal $(| $other:literal)*,)*) => {
        /// The reply to the sender of a rejected packet: `-j REJECT`.
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
        pub enum Reject {
            /// Port unreachable, with the message of the address family.
            ///
            /// iptables always prints the message;
            /// [`Rule::for_family`](crate::Rule::for_family) sets it.
            #[default]
            Default,
            $($(#[$doc])* $variant,)*
        }

        impl Reject {
            /// Returns the value of `--reject-with`; `None` for the default.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    Self::Default => None,
                    $(Self::$variant => Some($name),)*
                }
            }

            /// Parses the beginning of a name, like iptables.
            fn parse_abbreviated(text: &str) -> Option<Self> {
                let mut all = [$((Self::$variant, $name)),*].into_iter();
                all.find(|(_, name)| !text.is_empty() && name.starts_with(text)).map(|(it, _)| it)
            }

            fn parse(text: &str) -> Option<Self> {
                match text {
                    $($name $(| $other)* => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

rejects! {
    /// IPv4: network unreachable.
    NetUnreachable = "icmp-net-unreachable" | "net-unreach",
    /// IPv4: host unreachable.
    HostUnreachable = "icmp-host-unreachable" | "host-unreach",
    /// IPv4: protocol unreachable.
    ProtocolUnreachable = "icmp-proto-unreachable" | "proto-unreach",
    /// IPv4: port unreachable.
    PortUnreachable = "icmp-port-unreachable",
    /// IPv4: network prohibited.
    NetProhibited = "icmp-net-prohibited" | "net-prohib",
    /// IPv4: host prohibited.
    HostProhibited = "icmp-host-prohibited" | "host-prohib",
    /// IPv4: administratively prohibited.
    AdminProhibited = "icmp-admin-prohibited" | "admin-prohib",
    /// TCP RST.
    TcpReset = "tcp-reset" | "tcp-rst",
    /// IPv6: no route.
    Icmp6NoRoute = "icmp6-no-route" | "no-route",
    /// IPv6: administratively prohibited.
    Icmp6AdminProhibited = "icmp6-adm-prohibited" | "adm-prohibited",
    /// IPv6: address unreachable.
    Icmp6AddressUnreachable = "icmp6-addr-unreachable" | "addr-unreach",
    /// IPv6: port unreachable.
    Icmp6PortUnreachable = "icmp6-port-unreachable",
    /// IPv6: source address failed ingress or egress policy.
    Icmp6PolicyFail = "icmp6-policy-fail" | "policy-fail",
    /// IPv6: reject route.
    Icmp6RejectRoute = "icmp6-reject-route" | "reject-route",
}

impl Reject {
    /// Returns the only family of the message.
    pub(crate) fn family(self) -> Option<Family> {
        let name = self.name()?;
        match self {
            Self::TcpReset => None,
            _ if name.starts_with("icmp6-") => Some(Family::V6),
            _ => Some(Family::V4),
        }
    }

    /// Returns the variant that iptables prints for the family.
    #[must_use]
    pub fn for_family(self, family: Family) -> Self {
        match (self, family) {
            (Self::Default, Family::V4) => Self::PortUnreachable,
            (Self::Default, Family::V6) => Self::Icmp6PortUnreachable,
            (reject, _) => reject,
        }
    }
}

impl<'a> Extension<'a> for Reject {
    fn open() -> Self {
        Self::Default
    }

    fn options() -> &'static [&'static str] {
        &["--reject-with"]
    }

    fn min_options(&self) -> usize {
        0
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        if option != "--reject-with" {
            return Ok(false);
        }
        values.expect_index(0)?;
        *self = match &*values.word()? {
            // Both families have this value.
            "port-unreach" => Self::Default,
            name => Self::parse(name)
                .or_else(|| Self::parse_abbreviated(name))
                .ok_or(Unsupported)?,
        };
        Ok(true)
    }

    fn apply_family_defaults(&mut self, family: Family) {
        *self = self.for_family(family);
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-j REJECT")?;
        match self.name() {
            Some(name) => write!(f, " --reject-with {name}"),
            None => Ok(()),
        }
    }
}

/// Returns the replies in the order of `enum ipt_reject_with` or `enum ip6t_reject_with`.
fn replies(family: Family) -> &'static [Option<Reject>] {
    match family {
        Family::V4 => &[
            Some(Reject::NetUnreachable),
            Some(Reject::HostUnreachable),
            Some(Reject::ProtocolUnreachable),
            Some(Reject::PortUnreachable),
            // IPT_ICMP_ECHOREPLY
            None,
            Some(Reject::NetProhibited),
            Some(Reject::HostProhibited),
            Some(Reject::TcpReset),
            Some(Reject::AdminProhibited),
        ],
        Family::V6 => &[
            Some(Reject::Icmp6NoRoute),
            Some(Reject::Icmp6AdminProhibited),
            // IP6T_ICMP6_NOT_NEIGHBOUR
            None,
            Some(Reject::Icmp6AddressUnreachable),
            Some(Reject::Icmp6PortUnreachable),
            // IP6T_ICMP6_ECHOREPLY
            None,
            Some(Reject::TcpReset),
            Some(Reject::Icmp6PolicyFail),
            Some(Reject::Icmp6RejectRoute),
        ],
    }
}

/// `struct ipt_reject_info` or `struct ip6t_reject_info`.
impl Structure for Reject {
    const NAME: &'static str = "REJECT";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let family = out.family();
        let wanted = Some(self.for_family(family));
        out.u32(position(replies(family), &wanted)?);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let replies = replies(reader.family());
        at(replies, reader.u32()?)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rule, Transport};

    #[test]
    fn reject_is_parsed_and_printed() {
        let table = [
            ("-p tcp -j REJECT", Reject::Default, "-p tcp -j REJECT"),
            (
                "-p tcp -j REJECT --reject-with icmp-host-prohibited",
                Reject::HostProhibited,
                "-p tcp -j REJECT --reject-with icmp-host-prohibited",
            ),
            (
                "-p tcp -j REJECT --reject-with no-route",
                Reject::Icmp6NoRoute,
                "-p tcp -j REJECT --reject-with icmp6-no-route",
            ),
            (
                "-p tcp -j REJECT --reject-with tcp-rst",
                Reject::TcpReset,
                "-p tcp -j REJECT --reject-with tcp-reset",
            ),
            (
                "-p tcp -j REJECT --reject-with port-unreach",
                Reject::Default,
                "-p tcp -j REJECT",
            ),
        ];
        for (text, reject, printed) in table {
            let rule = Rule::parse(text).unwrap();
            assert_eq!(
                rule,
                Rule::new()
                    .with_protocol(Transport::Tcp)
                    .with_target(reject)
            );
            assert_eq!(rule.to_string(), printed);
        }
        let text = "-p tcp -j REJECT --reject-with echo-reply";
        assert_eq!(Rule::parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn the_default_depends_on_the_family() {
        for (family, name) in [
            (Family::V4, "icmp-port-unreachable"),
            (Family::V6, "icmp6-port-unreachable"),
        ] {
            assert_eq!(Reject::Default.for_family(family).name(), Some(name));
            assert_eq!(Reject::TcpReset.for_family(family), Reject::TcpReset);
        }
    }
}
