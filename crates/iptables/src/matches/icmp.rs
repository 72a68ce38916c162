//! `-m icmp`: ICMP types.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::negatable::Negatable;
use crate::options::number;
use crate::options::{Extension, Parsed, Values};

/// Matches an ICMP type: `-m icmp --icmp-type 8`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Icmp(pub Negatable<IcmpType>);

/// An ICMP type with an optional code: `3` or `3/1`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct IcmpType {
    /// Type.
    pub ty: u8,
    /// Code; `None` for any code.
    pub code: Option<u8>,
}

impl IcmpType {
    /// Parses `3` or `3/1`, or one of these names.
    pub(super) fn parse(text: &str, names: &[(&str, u8, Option<u8>)]) -> Option<Self> {
        let is_it = |known: &&(&str, u8, Option<u8>)| known.0.eq_ignore_ascii_case(text);
        if let Some((_, ty, code)) = names.iter().find(is_it) {
            return Some(Self {
                ty: *ty,
                code: *code,
            });
        }
        if let Some((_, ty, code)) = abbreviated(text, names) {
            return Some(Self { ty, code });
        }
        let (ty, code) = match text.split_once('/') {
            Some((ty, "0:255")) => (ty, None),
            Some((ty, code)) => (ty, Some(number::parse_as(code)?)),
            None => (text, None),
        };
        let ty = number::parse_as(ty)?;
        Some(Self { ty, code })
    }
}

/// Returns the only name that begins with the text.
fn abbreviated<'n>(
    text: &str,
    names: &[(&'n str, u8, Option<u8>)],
) -> Option<(&'n str, u8, Option<u8>)> {
    let is_it = |(name, ..): &&(&str, u8, Option<u8>)| {
        let start = name.get(..text.len());
        !text.is_empty() && start.is_some_and(|start| start.eq_ignore_ascii_case(text))
    };
    let mut found = names.iter().filter(is_it);
    let first = found.next()?;
    found.next().is_none().then_some(*first)
}

impl From<u8> for IcmpType {
    fn from(ty: u8) -> Self {
        Self { ty, code: None }
    }
}

impl fmt::Display for IcmpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ty.fmt(f)?;
        match self.code {
            Some(code) => write!(f, "/{code}"),
            None => Ok(()),
        }
    }
}

impl Icmp {
    /// Any message, which iptables encodes as type 255.
    pub const ANY: IcmpType = IcmpType {
        ty: 255,
        code: None,
    };

    /// Matches messages of this type.
    pub fn new(ty: impl Into<IcmpType>) -> Self {
        Self(Negatable::Is(ty.into()))
    }
}

impl<'a> Extension<'a> for Icmp {
    fn open() -> Self {
        Self::new(Self::ANY)
    }

    fn options() -> &'static [&'static str] {
        &["--icmp-type"]
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        if option != "--icmp-type" {
            return Ok(false);
        }
        values.expect_index(0)?;
        self.0 = values.negatable(|text| IcmpType::parse(text, NAMES))?;
        // Type 255 has no codes.
        self.0 = self.0.map(|it| if it.ty == 255 { Self::ANY } else { it });
        Ok(true)
    }
}

impl fmt::Display for Icmp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m icmp")?;
        if *self.0.value() == Self::ANY {
            return write!(f, " {}--icmp-type any", self.0.bang());
        }
        self.0.write(f, "--icmp-type")
    }
}

/// ICMP type and code names, as listed by `iptables -p icmp -h`.
const NAMES: &[(&str, u8, Option<u8>)] = &[
    ("any", 255, None),
    ("echo-reply", 0, None),
    ("pong", 0, None),
    ("destination-unreachable", 3, None),
    ("network-unreachable", 3, Some(0)),
    ("host-unreachable", 3, Some(1)),
    ("protocol-unreachable", 3, Some(2)),
    ("port-unreachable", 3, Some(3)),
    ("fragmentation-needed", 3, Some(4)),
    ("source-route-failed", 3, Some(5)),
    ("network-unknown", 3, Some(6)),
    ("host-unknown", 3, Some(7)),
    ("network-prohibited", 3, Some(9)),
    ("host-prohibited", 3, Some(10)),
    ("TOS-network-unreachable", 3, Some(11)),
    ("TOS-host-unreachable", 3, Some(12)),
    ("communication-prohibited", 3, Some(13)),
    ("host-precedence-violation", 3, Some(14)),
    ("precedence-cutoff", 3, Some(15)),
    ("source-quench", 4, None),
    ("redirect", 5, None),
    ("network-redirect", 5, Some(0)),
    ("host-redirect", 5, Some(1)),
    ("TOS-network-redirect", 5, Some(2)),
    ("TOS-host-redirect", 5, Some(3)),
    ("echo-request", 8, None),
    ("ping", 8, None),
    ("router-advertisement", 9, None),
    ("router-solicitation", 10, None),
    ("time-exceeded", 11, None),
    ("ttl-exceeded", 11, None),
    ("ttl-zero-during-transit", 11, Some(0)),
    ("ttl-zero-during-reassembly", 11, Some(1)),
    ("parameter-problem", 12, None),
    ("ip-header-bad", 12, Some(0)),
    ("required-option-missing", 12, Some(1)),
    ("timestamp-request", 13, None),
    ("timestamp-reply", 14, None),
    ("address-mask-request", 17, None),
    ("address-mask-reply", 18, None),
];

/// Writes `struct ipt_icmp` or `struct ip6t_icmp`.
pub(super) fn write(wanted: &Negatable<IcmpType>, out: &mut Writer<'_>) {
    let IcmpType { ty, code } = wanted.value();
    let (first, last) = match code {
        Some(code) => (*code, *code),
        None => (0, u8::MAX),
    };
    // The last byte is `IPT_ICMP_INV` or 0.
    out.u8(*ty).u8(first).u8(last);
    out.u8(wanted.is_negated().into());
}

/// Reads `struct ipt_icmp` or `struct ip6t_icmp`. iptables has no other ranges of codes.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Negatable<IcmpType>> {
    let [ty, first, last, inverted] = reader.array()?;
    let code = match (first, last) {
        (0, u8::MAX) => None,
        (first, last) if first == last => Some(first),
        _ => return None,
    };
    Some(Negatable::new(inverted != 0, IcmpType { ty, code }))
}

/// `struct ipt_icmp`.
impl Structure for Icmp {
    const NAME: &'static str = "icmp";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        write(&self.0, out);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let wanted = read(reader)?;
        let IcmpType { ty, code } = wanted.value();
        // The kernel ignores the code of `any`.
        let is_other_any = *ty == Self::ANY.ty && code.is_some();
        (!is_other_any).then_some(Self(wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;
    use crate::matches::Icmp6;

    #[test]
    fn icmp_types_are_printed_as_numbers() {
        let table = [
            (
                "-p icmp -m icmp --icmp-type 8",
                "-p icmp -m icmp --icmp-type 8",
            ),
            (
                "-p icmp -m icmp --icmp-type Ping",
                "-p icmp -m icmp --icmp-type 8",
            ),
            (
                "-p icmp -m icmp ! --icmp-type host-unreachable",
                "-p icmp -m icmp ! --icmp-type 3/1",
            ),
            (
                "-p icmp -m icmp --icmp-type any",
                "-p icmp -m icmp --icmp-type any",
            ),
            (
                "-p icmp -m icmp --icmp-type 255/3",
                "-p icmp -m icmp --icmp-type any",
            ),
            (
                "-p icmp --icmp-type 0x3/0x1",
                "-p icmp -m icmp --icmp-type 3/1",
            ),
            (
                "-p ipv6-icmp -m icmpv6 --icmpv6-type no-route",
                "-p ipv6-icmp -m icmp6 --icmpv6-type 1/0",
            ),
            (
                "-p ipv6-icmp -m icmp6 --icmpv6-type 255",
                "-p ipv6-icmp -m icmp6 --icmpv6-type 255",
            ),
            ("-p icmp -m icmp", "-p icmp -m icmp"),
            (
                "-p ipv6-icmp -m icmp6 --icmpv6-type any",
                "-p ipv6-icmp -m icmp6 --icmpv6-type any",
            ),
        ];
        for (text, printed) in table {
            assert_eq!(Rule::parse(text).unwrap().to_string(), printed);
        }
        let rule = Rule::new()
            .with_match(Icmp::new(8))
            .with_match(Icmp6::new(128));
        assert_eq!(
            rule.to_string(),
            "-m icmp --icmp-type 8 -m icmp6 --icmpv6-type 128"
        );
    }
}
