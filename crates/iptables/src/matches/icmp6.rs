//! `-m icmp6`: ICMPv6 types.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::matches::icmp::{self, IcmpType};
use crate::options::negatable::Negatable;
use crate::options::{Extension, Parsed, Values};

/// Matches an ICMPv6 type: `-m icmp6 --icmpv6-type 128`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Icmp6(pub Negatable<IcmpType>);

impl Icmp6 {
    /// Matches messages of this type.
    pub fn new(ty: impl Into<IcmpType>) -> Self {
        Self(Negatable::Is(ty.into()))
    }
}

impl<'a> Extension<'a> for Icmp6 {
    fn open() -> Self {
        Self::new(0)
    }

    fn options() -> &'static [&'static str] {
        &["--icmpv6-type"]
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        if option != "--icmpv6-type" {
            return Ok(false);
        }
        values.expect_index(0)?;
        self.0 = values.negatable(|text| IcmpType::parse(text, NAMES6))?;
        Ok(true)
    }
}

impl fmt::Display for Icmp6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m icmp6")?;
        self.0.write(f, "--icmpv6-type")
    }
}

/// ICMPv6 type and code names, as listed by `ip6tables -p icmpv6 -h`.
const NAMES6: &[(&str, u8, Option<u8>)] = &[
    ("destination-unreachable", 1, None),
    ("no-route", 1, Some(0)),
    ("communication-prohibited", 1, Some(1)),
    ("beyond-scope", 1, Some(2)),
    ("address-unreachable", 1, Some(3)),
    ("port-unreachable", 1, Some(4)),
    ("failed-policy", 1, Some(5)),
    ("reject-route", 1, Some(6)),
    ("packet-too-big", 2, None),
    ("time-exceeded", 3, None),
    ("ttl-exceeded", 3, None),
    ("ttl-zero-during-transit", 3, Some(0)),
    ("ttl-zero-during-reassembly", 3, Some(1)),
    ("parameter-problem", 4, None),
    ("bad-header", 4, Some(0)),
    ("unknown-header-type", 4, Some(1)),
    ("unknown-option", 4, Some(2)),
    ("echo-request", 128, None),
    ("ping", 128, None),
    ("echo-reply", 129, None),
    ("pong", 129, None),
    ("mld-listener-query", 130, None),
    ("mld-listener-report", 131, None),
    ("mld-listener-done", 132, None),
    ("mld-listener-reduction", 132, None),
    ("router-solicitation", 133, None),
    ("router-advertisement", 134, None),
    ("neighbour-solicitation", 135, None),
    ("neighbor-solicitation", 135, None),
    ("neighbour-advertisement", 136, None),
    ("neighbor-advertisement", 136, None),
    ("redirect", 137, None),
];

/// `struct ip6t_icmp`.
impl Structure for Icmp6 {
    const NAME: &'static str = "icmp6";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        icmp::write(&self.0, out);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        icmp::read(reader).map(Self)
    }
}
