//! `-j REDIRECT`: destination NAT to this host.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer, flags};
use crate::options::{Extension, Parsed, Values, set_flag, set_once};
use crate::targets::nat::{NF_NAT_RANGE_PROTO_RANDOM, NatPorts, NatRange};

/// Changes the destination to this host: `-j REDIRECT --to-ports 8080`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Redirect {
    /// Port range; `None` keeps the port.
    pub ports: Option<NatPorts>,
    /// Randomized port mapping: `--random`.
    pub random: bool,
}

impl Redirect {
    /// Redirects to a port in this range.
    pub fn to(ports: impl Into<NatPorts>) -> Self {
        Self {
            ports: Some(ports.into()),
            random: false,
        }
    }
}

impl<'a> Extension<'a> for Redirect {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &["--to-ports", "--random"]
    }

    fn min_options(&self) -> usize {
        0
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--to-ports" => set_once(&mut self.ports, values.parse(NatPorts::parse)?),
            "--random" => set_flag(&mut self.random),
            _ => Ok(false),
        }
    }
}

impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-j REDIRECT")?;
        if let Some(ports) = self.ports {
            write!(f, " --to-ports {ports}")?;
        }
        f.write_str(if self.random { " --random" } else { "" })
    }
}

/// `struct nf_nat_ipv4_multi_range_compat`, and `struct nf_nat_range` in rules of IPv6.
impl Structure for Redirect {
    const NAME: &'static str = "REDIRECT";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let range = NatRange {
            addresses: None,
            ports: self.ports,
            flags: flags([(self.random, NF_NAT_RANGE_PROTO_RANDOM)]),
        };
        range.write_compat(out)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let NatRange { ports, flags, .. } = NatRange::read_compat(reader)?;
        let random = flags & NF_NAT_RANGE_PROTO_RANDOM != 0;
        Some(Self { ports, random })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rule, Transport};

    #[test]
    fn redirect_is_parsed_and_printed() {
        let random = Redirect {
            random: true,
            ..Redirect::to(80..=90)
        };
        let table = [
            ("-p tcp -j REDIRECT", Redirect::default()),
            ("-p tcp -j REDIRECT --to-ports 80", Redirect::to(80)),
            ("-p tcp -j REDIRECT --to-ports 80-90 --random", random),
        ];
        for (text, redirect) in table {
            let rule = Rule::new()
                .with_protocol(Transport::Tcp)
                .with_target(redirect);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
        let text = "-p tcp -j REDIRECT --to-ports no-service";
        assert_eq!(Rule::parse(text).unwrap().to_string(), text);
    }
}
