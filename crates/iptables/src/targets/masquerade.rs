//! `-j MASQUERADE`: source NAT to the interface address.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer, flags};
use crate::options::{Extension, Parsed, Values, set_flag, set_once};
use crate::targets::nat::{
    NF_NAT_RANGE_PROTO_RANDOM, NF_NAT_RANGE_PROTO_RANDOM_FULLY, NatPorts, NatRange,
};

/// Changes the source to an address of the outgoing interface: `-j MASQUERADE`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Masquerade {
    /// Source port range.
    pub ports: Option<NatPorts>,
    /// Randomized port mapping: `--random`.
    pub random: bool,
    /// Fully randomized port mapping: `--random-fully`.
    pub random_fully: bool,
}

impl Masquerade {
    /// Masquerades without port options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Enables fully randomized port mapping.
    #[must_use]
    pub fn with_random_fully(mut self) -> Self {
        self.random_fully = true;
        self
    }
}

impl<'a> Extension<'a> for Masquerade {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &["--to-ports", "--random", "--random-fully"]
    }

    fn min_options(&self) -> usize {
        0
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--to-ports" => set_once(&mut self.ports, values.parse(NatPorts::parse)?),
            "--random" => set_flag(&mut self.random),
            "--random-fully" => set_flag(&mut self.random_fully),
            _ => Ok(false),
        }
    }
}

impl fmt::Display for Masquerade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-j MASQUERADE")?;
        if let Some(ports) = self.ports {
            write!(f, " --to-ports {ports}")?;
        }
        if self.random {
            f.write_str(" --random")?;
        }
        if self.random_fully {
            f.write_str(" --random-fully")?;
        }
        Ok(())
    }
}

/// `struct nf_nat_ipv4_multi_range_compat`, and `struct nf_nat_range` in rules of IPv6.
impl Structure for Masquerade {
    const NAME: &'static str = "MASQUERADE";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let range = NatRange {
            addresses: None,
            ports: self.ports,
            flags: flags([
                (self.random, NF_NAT_RANGE_PROTO_RANDOM),
                (self.random_fully, NF_NAT_RANGE_PROTO_RANDOM_FULLY),
            ]),
        };
        range.write_compat(out)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let NatRange { ports, flags, .. } = NatRange::read_compat(reader)?;
        Some(Self {
            ports,
            random: flags & NF_NAT_RANGE_PROTO_RANDOM != 0,
            random_fully: flags & NF_NAT_RANGE_PROTO_RANDOM_FULLY != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rule, Transport};

    #[test]
    fn masquerade_is_parsed_and_printed() {
        let all = Masquerade {
            ports: Some((1000..=2000).into()),
            random: true,
            random_fully: true,
        };
        let table = [
            ("-p tcp -j MASQUERADE", Masquerade::new()),
            (
                "-p tcp -j MASQUERADE --random-fully",
                Masquerade::new().with_random_fully(),
            ),
            (
                "-p tcp -j MASQUERADE --to-ports 1000-2000 --random --random-fully",
                all,
            ),
        ];
        for (text, masquerade) in table {
            let rule = Rule::new()
                .with_protocol(Transport::Tcp)
                .with_target(masquerade);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
        for text in [
            "-p tcp -j MASQUERADE --to-ports 1-",
            "-p tcp -j MASQUERADE --to-source 10.0.0.1",
        ] {
            assert_eq!(Rule::parse(text).unwrap().to_string(), text);
        }
    }
}
