//! `-j TPROXY`: redirection to a local socket without NAT.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Family;
use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::address::Address;
use crate::options::number::Masked;
use crate::options::{Extension, Parsed, Values, set_once};

/// Redirects packets unchanged to a local socket: `-j TPROXY --on-port 80`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tproxy {
    /// Port of the socket; 0 for the destination port of the packet. iptables requires
    /// a port.
    pub port: Option<u16>,
    /// Address of the socket; the unspecified address for that of the input
    /// interface.
    ///
    /// iptables always prints the address;
    /// [`Rule::for_family`](crate::Rule::for_family) sets the default.
    pub address: Option<IpAddr>,
    /// Mark to set on the packet.
    pub mark: Masked,
}

impl Tproxy {
    /// Redirects packets to the socket with this port.
    pub fn new(port: u16) -> Self {
        Self {
            port: Some(port),
            ..Self::open()
        }
    }

    /// Sets a mark on the packet.
    #[must_use]
    pub fn with_mark(mut self, value: u32, mask: u32) -> Self {
        self.mark = Masked { value, mask };
        self
    }
}

impl<'a> Extension<'a> for Tproxy {
    fn open() -> Self {
        Self {
            port: None,
            address: None,
            mark: Masked { value: 0, mask: 0 },
        }
    }

    fn options() -> &'static [&'static str] {
        &["--on-port", "--on-ip", "--tproxy-mark"]
    }

    fn min_options(&self) -> usize {
        if self.port.is_some() { 1 } else { usize::MAX }
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            // Decimal, even with a leading 0.
            "--on-port" => set_once(&mut self.port, values.parse(|text| text.parse().ok())?),
            "--on-ip" => set_once(&mut self.address, values.parse(|text| text.parse().ok())?),
            "--tproxy-mark" => {
                self.mark = values.parse(Masked::parse)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn apply_family_defaults(&mut self, family: Family) {
        self.address.get_or_insert(match family {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        });
    }
}

impl fmt::Display for Tproxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-j TPROXY")?;
        if let Some(port) = self.port {
            write!(f, " --on-port {port}")?;
        }
        if let Some(address) = self.address {
            write!(f, " --on-ip {}", Address(address))?;
        }
        write!(f, " --tproxy-mark {}", self.mark)
    }
}

/// `struct xt_tproxy_target_info_v1`.
impl Structure for Tproxy {
    const NAME: &'static str = "TPROXY";
    const REVISION: u32 = 1;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let Masked { value, mask } = self.mark;
        out.u32(mask).u32(value);
        match self.address {
            Some(address) => out.address(address)?,
            None => out.zeros(16),
        };
        out.be16(self.port?);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (mask, value) = (reader.u32()?, reader.u32()?);
        let address = Some(reader.address()?);
        let port = Some(reader.be16()?);
        let mark = Masked { value, mask };
        Some(Self {
            port,
            address,
            mark,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rule, Transport};

    #[test]
    fn tproxy_is_parsed_and_printed() {
        let text = "-p tcp -j TPROXY --on-port 80 --on-ip 127.0.0.1 --tproxy-mark 0x1/0x1";
        let tproxy = Tproxy {
            address: Some(Ipv4Addr::LOCALHOST.into()),
            ..Tproxy::new(80).with_mark(1, 1)
        };
        let rule = Rule::new()
            .with_protocol(Transport::Tcp)
            .with_target(tproxy);
        assert_eq!(rule.to_string(), text);
        assert_eq!(Rule::parse(text), Ok(rule));
    }

    #[test]
    fn the_default_address_depends_on_the_family() {
        let table = [
            (
                Family::V4,
                "-p tcp -j TPROXY --on-port 80 --on-ip 0.0.0.0 --tproxy-mark 0x0/0x0",
            ),
            (
                Family::V6,
                "-p tcp -j TPROXY --on-port 80 --on-ip :: --tproxy-mark 0x0/0x0",
            ),
        ];
        for (family, printed) in table {
            let rule = Rule::parse("-p tcp -j TPROXY --on-port 80").unwrap();
            assert_eq!(rule.for_family(family).to_string(), printed);
        }
    }
}
