//! `-j TPROXY`: a socket of this host gets the packet as it is.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Family;
use crate::address::Address;
use crate::number::Masked;
use crate::options::{Extension, Parsed, Values, set_once};

/// Gives the packet to a socket of this host: `-j TPROXY --on-port 80`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tproxy {
    /// The port of the socket; that of the packet if it is 0.
    pub port: Option<u16>,
    /// The address of the socket; that of the interface if it is all zeros.
    ///
    /// iptables prints it always: [`Rule::for_family`](crate::Rule::for_family)
    /// tells it.
    pub address: Option<IpAddr>,
    /// The mark that the packet gets.
    pub mark: Masked,
}

impl Tproxy {
    /// Gives the packet to the socket of this port.
    pub fn new(port: u16) -> Self {
        Self {
            port: Some(port),
            ..Self::open()
        }
    }

    /// Gives the packet a mark.
    #[must_use]
    pub fn mark(mut self, value: u32, mask: u32) -> Self {
        self.mark = Masked { value, mask };
        self
    }

    /// Tells the address of the family where none is told.
    pub(super) fn apply_family_defaults(&mut self, family: Family) {
        self.address.get_or_insert(match family {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        });
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

    fn min_options(&self) -> usize {
        if self.port.is_some() { 1 } else { usize::MAX }
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            // Even what begins with 0 is decimal.
            "--on-port" => set_once(&mut self.port, values.parse(|text| text.parse().ok())?),
            "--on-ip" => set_once(&mut self.address, values.parse(|text| text.parse().ok())?),
            "--tproxy-mark" => {
                self.mark = values.parse(Masked::parse)?;
                Ok(true)
            }
            _ => Ok(false),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn it_is_read_and_printed() {
        let text = "-j TPROXY --on-port 80 --on-ip 127.0.0.1 --tproxy-mark 0x1/0x1";
        let tproxy = Tproxy {
            address: Some(Ipv4Addr::LOCALHOST.into()),
            ..Tproxy::new(80).mark(1, 1)
        };
        let rule = Rule::new().target(tproxy);
        assert_eq!(rule.to_string(), text);
        assert_eq!(Rule::parse(text), Ok(rule));
    }

    #[test]
    fn the_family_tells_the_address() {
        let table = [
            (
                Family::V4,
                "-j TPROXY --on-port 80 --on-ip 0.0.0.0 --tproxy-mark 0x0/0x0",
            ),
            (
                Family::V6,
                "-j TPROXY --on-port 80 --on-ip :: --tproxy-mark 0x0/0x0",
            ),
        ];
        for (family, printed) in table {
            let rule = Rule::parse("-j TPROXY --on-port 80").unwrap();
            assert_eq!(rule.for_family(family).to_string(), printed);
        }
    }
}
