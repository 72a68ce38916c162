//! `-j SNAT`: source NAT.

use std::fmt;

use crate::Family;
use crate::extensions::structure::{Reader, Structure, Writer, flags};
use crate::options::{Extension, Parsed, Values, set_flag, set_once};
use crate::targets::nat::{
    AddressRange, Goal, NF_NAT_RANGE_PERSISTENT, NF_NAT_RANGE_PROTO_RANDOM,
    NF_NAT_RANGE_PROTO_RANDOM_FULLY, NatPorts, NatRange, setters,
};

/// Changes the source: `-j SNAT --to-source 10.0.0.1`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Snat {
    /// Address range.
    pub addresses: Option<AddressRange>,
    /// Port range.
    pub ports: Option<NatPorts>,
    /// Randomized port mapping: `--random`.
    pub random: bool,
    /// Fully randomized port mapping: `--random-fully`.
    pub random_fully: bool,
    /// Same address for all connections of a client: `--persistent`.
    pub persistent: bool,
}

impl Snat {
    setters!();
}

impl<'a> Extension<'a> for Snat {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &["--to-source", "--random", "--random-fully", "--persistent"]
    }

    fn min_options(&self) -> usize {
        match (self.addresses, self.ports) {
            (None, None) => usize::MAX,
            _ => 1,
        }
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--to-source" => {
                let goal = values
                    .parse(|text| Goal::parse(text).filter(|goal| goal.base_port.is_none()))?;
                if let Some(addresses) = goal.addresses {
                    set_once(&mut self.addresses, addresses)?;
                }
                match goal.ports {
                    Some(ports) => set_once(&mut self.ports, ports),
                    None => Ok(true),
                }
            }
            "--random" => set_flag(&mut self.random),
            "--random-fully" => set_flag(&mut self.random_fully),
            "--persistent" => set_flag(&mut self.persistent),
            _ => Ok(false),
        }
    }
}

impl fmt::Display for Snat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let goal = Goal {
            addresses: self.addresses,
            ports: self.ports,
            base_port: None,
        };
        write!(f, "-j SNAT --to-source {goal}")?;
        if self.random {
            f.write_str(" --random")?;
        }
        if self.random_fully {
            f.write_str(" --random-fully")?;
        }
        if self.persistent {
            f.write_str(" --persistent")?;
        }
        Ok(())
    }
}

/// `struct nf_nat_ipv4_multi_range_compat`, and `struct nf_nat_range` in rules of IPv6.
impl Structure for Snat {
    const NAME: &'static str = "SNAT";

    fn revision(family: Family) -> u32 {
        match family {
            Family::V4 => 0,
            Family::V6 => 1,
        }
    }

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let range = NatRange {
            addresses: self.addresses,
            ports: self.ports,
            flags: flags([
                (self.random, NF_NAT_RANGE_PROTO_RANDOM),
                (self.random_fully, NF_NAT_RANGE_PROTO_RANDOM_FULLY),
                (self.persistent, NF_NAT_RANGE_PERSISTENT),
            ]),
        };
        range.write_compat(out)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let NatRange {
            addresses,
            ports,
            flags,
        } = NatRange::read_compat(reader)?;
        Some(Self {
            addresses,
            ports,
            random: flags & NF_NAT_RANGE_PROTO_RANDOM != 0,
            random_fully: flags & NF_NAT_RANGE_PROTO_RANDOM_FULLY != 0,
            persistent: flags & NF_NAT_RANGE_PERSISTENT != 0,
        })
    }
}
