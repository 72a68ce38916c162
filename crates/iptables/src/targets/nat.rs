//! Addresses and ports of `-j DNAT` and `-j SNAT`.

use std::fmt;
use std::net::IpAddr;

use crate::Family;
use crate::extensions::structure::{Reader, Writer, flags};
use crate::options::address::Address;
use crate::options::number::{self, Ports, Range};
use crate::options::service;

/// A range of addresses of one family, printed as `10.0.0.1-10.0.0.9`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct AddressRange {
    /// First address.
    pub first: IpAddr,
    /// Last address.
    pub last: IpAddr,
}

/// A port range, printed as `1-5`, or `1` if the ends are equal.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct NatPorts(pub Ports);

impl NatPorts {
    /// Parses `1` or `1-5`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.starts_with('-') || text.ends_with('-') {
            return None;
        }
        match service::port(text) {
            Some(port) => Some(port.into()),
            None => Range::parse(text, '-', Ports::ALL).map(Self),
        }
    }
}

impl<T: Into<Ports>> From<T> for NatPorts {
    fn from(ports: T) -> Self {
        Self(ports.into())
    }
}

impl fmt::Display for NatPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ports { first, last } = self.0;
        first.fmt(f)?;
        if first != last {
            write!(f, "-{last}")?;
        }
        Ok(())
    }
}

impl From<IpAddr> for AddressRange {
    fn from(only: IpAddr) -> Self {
        Self {
            first: only,
            last: only,
        }
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Address(self.first).fmt(f)?;
        if self.first != self.last {
            write!(f, "-{}", Address(self.last))?;
        }
        Ok(())
    }
}

/// The value of `--to-destination` or `--to-source`.
#[derive(Default)]
pub(super) struct Goal {
    pub(super) addresses: Option<AddressRange>,
    pub(super) ports: Option<NatPorts>,
    pub(super) base_port: Option<u16>,
}

impl Goal {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (addresses, ports) = match text.strip_prefix('[') {
            Some(text) => {
                let (addresses, rest) = text.split_once(']')?;
                let ports = match rest {
                    "" => None,
                    _ => Some(rest.strip_prefix(':')?),
                };
                (addresses, ports)
            }
            // A single colon separates the port of an IPv4 address; IPv6 addresses
            // have several.
            None => match text.split_once(':') {
                Some((addresses, ports)) if !ports.contains(':') => (addresses, Some(ports)),
                _ => (text, None),
            },
        };
        let (ports, base_port) = match ports.and_then(|ports| ports.split_once('/')) {
            Some((ports, base_port)) => (
                Some(ports),
                Some(number::parse_port(base_port).filter(|it| *it > 0)?),
            ),
            None => (ports, None),
        };
        let ports = match ports {
            Some(ports) => Some(NatPorts::parse(ports)?),
            None => None,
        };
        let addresses = match addresses {
            "" => None,
            _ => Some(parse_addresses(addresses)?),
        };
        Some(Self {
            addresses,
            ports,
            base_port,
        })
        .filter(|goal| goal.addresses.is_some() || goal.ports.is_some())
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.addresses, self.ports) {
            (Some(addresses), Some(_)) if addresses.first.is_ipv6() => write!(f, "[{addresses}]")?,
            (Some(addresses), _) => addresses.fmt(f)?,
            (None, _) => {}
        }
        if let Some(ports) = self.ports {
            write!(f, ":{ports}")?;
        }
        match self.base_port {
            Some(base_port) => write!(f, "/{base_port}"),
            None => Ok(()),
        }
    }
}

/// Parses an address range of one family.
fn parse_addresses(text: &str) -> Option<AddressRange> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
    (first.is_ipv4() == last.is_ipv4()).then_some(AddressRange { first, last })
}

// Flags of `linux/netfilter/nf_nat.h`.
const NF_NAT_RANGE_MAP_IPS: u32 = 1 << 0;
const NF_NAT_RANGE_PROTO_SPECIFIED: u32 = 1 << 1;
pub(super) const NF_NAT_RANGE_PROTO_RANDOM: u32 = 1 << 2;
pub(super) const NF_NAT_RANGE_PERSISTENT: u32 = 1 << 3;
pub(super) const NF_NAT_RANGE_PROTO_RANDOM_FULLY: u32 = 1 << 4;
pub(super) const NF_NAT_RANGE_PROTO_OFFSET: u32 = 1 << 5;

/// Addresses and ports of address translation.
pub(super) struct NatRange {
    pub(super) addresses: Option<AddressRange>,
    pub(super) ports: Option<NatPorts>,
    /// Flags except those of addresses and ports.
    pub(super) flags: u32,
}

impl NatRange {
    fn all_flags(&self) -> u32 {
        flags([
            (true, self.flags),
            (self.addresses.is_some(), NF_NAT_RANGE_MAP_IPS),
            (self.ports.is_some(), NF_NAT_RANGE_PROTO_SPECIFIED),
        ])
    }

    fn write_ports(&self, out: &mut Writer<'_>) {
        let none = Ports { first: 0, last: 0 };
        let Ports { first, last } = self.ports.map_or(none, |NatPorts(ports)| ports);
        out.be16(first).be16(last);
    }

    /// Writes `struct nf_nat_range`, the start of `struct nf_nat_range2`, too. Returns `None`
    /// if an address is not of the family.
    pub(super) fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.u32(self.all_flags());
        match self.addresses {
            Some(AddressRange { first, last }) => out.address(first)?.address(last)?,
            None => out.zeros(32),
        };
        self.write_ports(out);
        Some(())
    }

    /// Writes `struct nf_nat_ipv4_multi_range_compat` with one range, or `struct nf_nat_range`
    /// in rules of IPv6. Returns `None` if an address is not of the family.
    pub(super) fn write_compat(&self, out: &mut Writer<'_>) -> Option<()> {
        if out.family() == Family::V6 {
            return self.write(out);
        }
        out.u32(1).u32(self.all_flags());
        match self.addresses {
            Some(AddressRange {
                first: IpAddr::V4(first),
                last: IpAddr::V4(last),
            }) => out.bytes(&first.octets()).bytes(&last.octets()),
            Some(_) => return None,
            None => out.zeros(8),
        };
        self.write_ports(out);
        Some(())
    }

    /// Reads `struct nf_nat_range`, the start of `struct nf_nat_range2`, too.
    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let flags = reader.u32()?;
        let (first, last) = (reader.address()?, reader.address()?);
        Self::read_ports(flags, AddressRange { first, last }, reader)
    }

    /// Reads `struct nf_nat_ipv4_multi_range_compat` with one range, or `struct nf_nat_range`
    /// in rules of IPv6.
    pub(super) fn read_compat(reader: &mut Reader<'_>) -> Option<Self> {
        if reader.family() == Family::V6 {
            return Self::read(reader);
        }
        if reader.u32()? != 1 {
            return None;
        }
        let flags = reader.u32()?;
        let mut address = || Some(IpAddr::from(reader.array::<4>()?));
        let (first, last) = (address()?, address()?);
        Self::read_ports(flags, AddressRange { first, last }, reader)
    }

    fn read_ports(flags: u32, addresses: AddressRange, reader: &mut Reader<'_>) -> Option<Self> {
        let (first, last) = (reader.be16()?, reader.be16()?);
        let ports = NatPorts(Ports { first, last });
        Some(Self {
            addresses: (flags & NF_NAT_RANGE_MAP_IPS != 0).then_some(addresses),
            ports: (flags & NF_NAT_RANGE_PROTO_SPECIFIED != 0).then_some(ports),
            flags: flags & !(NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED),
        })
    }
}

/// Common constructor and setter of both targets.
macro_rules! setters {
    () => {
        /// Changes the address to one of this range.
        pub fn to(addresses: impl Into<AddressRange>) -> Self {
            Self {
                addresses: Some(addresses.into()),
                ..Self::default()
            }
        }

        /// Changes the port to one of this range.
        #[must_use]
        pub fn with_ports(mut self, ports: impl Into<NatPorts>) -> Self {
            self.ports = Some(ports.into());
            self
        }
    };
}

pub(super) use setters;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::{Dnat, Snat, Target};
    use crate::{Rule, Transport};

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn dnat_and_snat_are_parsed_and_printed() {
        let range = AddressRange {
            first: address("fd00::1"),
            last: address("fd00::2"),
        };
        let all = Dnat {
            base_port: Some(100),
            random: true,
            persistent: true,
            ..Dnat::to(address("10.0.0.1")).with_ports(80..=90)
        };
        let random = Snat {
            random: true,
            random_fully: true,
            persistent: true,
            ..Snat::to(address("10.0.0.1"))
        };
        let table = [
            (
                "-p tcp -j DNAT --to-destination 10.0.0.1:80",
                Dnat::to(address("10.0.0.1")).with_ports(80).into(),
            ),
            (
                "-p tcp -j DNAT --to-destination [fd00::1]:80",
                Dnat::to(address("fd00::1")).with_ports(80).into(),
            ),
            (
                "-p tcp -j DNAT --to-destination fd00::1",
                Dnat::to(address("fd00::1")).into(),
            ),
            (
                "-p tcp -j DNAT --to-destination :80",
                Dnat::default().with_ports(80).into(),
            ),
            (
                "-p tcp -j DNAT --to-destination 10.0.0.1:80-90/100 --random --persistent",
                all.into(),
            ),
            (
                "-p tcp -j SNAT --to-source [fd00::1-fd00::2]:1-5",
                Snat::to(range).with_ports(1..=5).into(),
            ),
            (
                "-p tcp -j SNAT --to-source 10.0.0.1 --random --random-fully --persistent",
                random.into(),
            ),
        ];
        for (text, target) in table {
            let target: Target<'_> = target;
            let rule = Rule::new()
                .with_protocol(Transport::Tcp)
                .with_target(target);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
    }

    #[test]
    fn other_forms_are_normalized_and_unsupported_ones_preserved() {
        let table = [
            (
                "--to-destination=10.0.0.1-10.0.0.1:80-80",
                "--to-destination 10.0.0.1:80",
            ),
            ("--to-destination [fd00::1]", "--to-destination fd00::1"),
            (
                "--to-destination 10.0.0.1:no-service",
                "--to-destination 10.0.0.1:no-service",
            ),
            (
                "--to-destination 10.0.0.1-fd00::1",
                "--to-destination 10.0.0.1-fd00::1",
            ),
            ("--to-destination [fd00::1", "--to-destination [fd00::1"),
            ("--random", "--random"),
        ];
        for (options, printed) in table {
            let text = format!("-p tcp -j DNAT {options}");
            let rule = Rule::parse(&text).unwrap();
            assert_eq!(rule.to_string(), format!("-p tcp -j DNAT {printed}"));
        }
    }
}
