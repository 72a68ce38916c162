//! `-j REJECT`: the sender is told.

use std::fmt;

use crate::Family;
use crate::options::{Extension, Parsed, Unsupported, Values};

/// Defines [`Reject`] with the words for each kind.
macro_rules! rejects {
    ($($(#[$doc:meta])* $variant:ident = $name:literal $(| $other:literal)*,)*) => {
        /// What the sender of a rejected packet is told: `-j REJECT`.
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
        pub enum Reject {
            /// That the port is unreachable, in the words of the family.
            ///
            /// iptables prints those:
            /// [`Rule::for_family`](crate::Rule::for_family) tells them.
            #[default]
            Default,
            $($(#[$doc])* $variant,)*
        }

        impl Reject {
            /// Returns the word behind `--reject-with`, unless none is told.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    Self::Default => None,
                    $(Self::$variant => Some($name),)*
                }
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
    /// IPv4: the network is unreachable.
    NetUnreachable = "icmp-net-unreachable" | "net-unreach",
    /// IPv4: the host is unreachable.
    HostUnreachable = "icmp-host-unreachable" | "host-unreach",
    /// IPv4: the protocol is unreachable.
    ProtocolUnreachable = "icmp-proto-unreachable" | "proto-unreach",
    /// IPv4: the port is unreachable.
    PortUnreachable = "icmp-port-unreachable",
    /// IPv4: the network is forbidden.
    NetProhibited = "icmp-net-prohibited" | "net-prohib",
    /// IPv4: the host is forbidden.
    HostProhibited = "icmp-host-prohibited" | "host-prohib",
    /// IPv4: a rule forbids it.
    AdminProhibited = "icmp-admin-prohibited" | "admin-prohib",
    /// TCP: the connection is broken off.
    TcpReset = "tcp-reset" | "tcp-rst",
    /// IPv6: there is no route.
    Icmp6NoRoute = "icmp6-no-route" | "no-route",
    /// IPv6: a rule forbids it.
    Icmp6AdminProhibited = "icmp6-adm-prohibited" | "adm-prohibited",
    /// IPv6: the address is unreachable.
    Icmp6AddressUnreachable = "icmp6-addr-unreachable" | "addr-unreach",
    /// IPv6: the port is unreachable.
    Icmp6PortUnreachable = "icmp6-port-unreachable",
    /// IPv6: a policy forbids the source address.
    Icmp6PolicyFail = "icmp6-policy-fail" | "policy-fail",
    /// IPv6: the route rejects it.
    Icmp6RejectRoute = "icmp6-reject-route" | "reject-route",
}

impl Reject {
    /// Returns what iptables of the family prints for it.
    pub(crate) fn for_family(self, family: Family) -> Self {
        match (self, family) {
            (Self::Default, Family::V4) => Self::PortUnreachable,
            (Self::Default, Family::V6) => Self::Icmp6PortUnreachable,
            (told, _) => told,
        }
    }
}

impl<'a> Extension<'a> for Reject {
    fn open() -> Self {
        Self::Default
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
            // Both families have it.
            "port-unreach" => Self::Default,
            name => Self::parse(name).ok_or(Unsupported)?,
        };
        Ok(true)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn it_is_read_and_printed() {
        let table = [
            ("-j REJECT", Reject::Default, "-j REJECT"),
            (
                "-j REJECT --reject-with icmp-host-prohibited",
                Reject::HostProhibited,
                "-j REJECT --reject-with icmp-host-prohibited",
            ),
            (
                "-j REJECT --reject-with no-route",
                Reject::Icmp6NoRoute,
                "-j REJECT --reject-with icmp6-no-route",
            ),
            (
                "-j REJECT --reject-with tcp-rst",
                Reject::TcpReset,
                "-j REJECT --reject-with tcp-reset",
            ),
            (
                "-j REJECT --reject-with port-unreach",
                Reject::Default,
                "-j REJECT",
            ),
        ];
        for (text, reject, printed) in table {
            let rule = Rule::parse(text).unwrap();
            assert_eq!(rule, Rule::new().target(reject));
            assert_eq!(rule.to_string(), printed);
        }
        let text = "-j REJECT --reject-with echo-reply";
        assert_eq!(Rule::parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn each_family_has_its_own_words() {
        for (family, name) in [
            (Family::V4, "icmp-port-unreachable"),
            (Family::V6, "icmp6-port-unreachable"),
        ] {
            assert_eq!(Reject::Default.for_family(family).name(), Some(name));
            assert_eq!(Reject::TcpReset.for_family(family), Reject::TcpReset);
        }
    }
}
