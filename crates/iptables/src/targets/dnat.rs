//! `-j DNAT`: destination NAT.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer, flags};
use crate::options::{Extension, Parsed, Values, set_flag, set_once};
use crate::targets::nat::{
    AddressRange, Goal, NF_NAT_RANGE_PERSISTENT, NF_NAT_RANGE_PROTO_OFFSET,
    NF_NAT_RANGE_PROTO_RANDOM, NatPorts, NatRange, setters,
};

/// Changes the destination: `-j DNAT --to-destination 10.0.0.1:80`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Dnat {
    /// Address range.
    pub addresses: Option<AddressRange>,
    /// Port range.
    pub ports: Option<NatPorts>,
    /// Base port for shifted port ranges: `/PORT`.
    pub base_port: Option<u16>,
    /// Randomized port mapping: `--random`.
    pub random: bool,
    /// Same address for all connections of a client: `--persistent`.
    pub persistent: bool,
}

impl Dnat {
    setters!();
}

impl<'a> Extension<'a> for Dnat {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &["--to-destination", "--random", "--persistent"]
    }

    fn min_options(&self) -> usize {
        // `--random` alone is incomplete.
        match (self.addresses, self.ports) {
            (None, None) => usize::MAX,
            _ => 1,
        }
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--to-destination" => {
                let goal = values.parse(Goal::parse)?;
                if goal.base_port.is_some() {
                    self.base_port = goal.base_port;
                }
                if let Some(addresses) = goal.addresses {
                    set_once(&mut self.addresses, addresses)?;
                }
                match goal.ports {
                    Some(ports) => set_once(&mut self.ports, ports),
                    None => Ok(true),
                }
            }
            "--random" => set_flag(&mut self.random),
            "--persistent" => set_flag(&mut self.persistent),
            _ => Ok(false),
        }
    }
}

impl fmt::Display for Dnat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let goal = Goal {
            addresses: self.addresses,
            ports: self.ports,
            base_port: self.base_port,
        };
        write!(f, "-j DNAT --to-destination {goal}")?;
        if self.random {
            f.write_str(" --random")?;
        }
        if self.persistent {
            f.write_str(" --persistent")?;
        }
        Ok(())
    }
}

/// `struct nf_nat_range2`.
impl Structure for Dnat {
    const NAME: &'static str = "DNAT";
    const REVISION: u32 = 2;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let range = NatRange {
            addresses: self.addresses,
            ports: self.ports,
            flags: flags([
                (self.random, NF_NAT_RANGE_PROTO_RANDOM),
                (self.persistent, NF_NAT_RANGE_PERSISTENT),
                (self.base_port.is_some(), NF_NAT_RANGE_PROTO_OFFSET),
            ]),
        };
        range.write(out)?;
        out.be16(self.base_port.unwrap_or(0)).zeros(2);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let NatRange {
            addresses,
            ports,
            flags,
        } = NatRange::read(reader)?;
        let base_port = reader.be16()?;
        Some(Self {
            addresses,
            ports,
            base_port: (flags & NF_NAT_RANGE_PROTO_OFFSET != 0).then_some(base_port),
            random: flags & NF_NAT_RANGE_PROTO_RANDOM != 0,
            persistent: flags & NF_NAT_RANGE_PERSISTENT != 0,
        })
    }
}
