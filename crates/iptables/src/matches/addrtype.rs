//! `-m addrtype`: kinds of addresses.

use std::fmt;

use bitflags::bitflags;

use crate::list;
use crate::maybe::Maybe;
use crate::options::{Extension, Odd, Taken, Values, flag, once};

/// Kinds of addresses: `-m addrtype --dst-type LOCAL`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AddrType {
    /// The kind of the source address.
    pub source: Option<Maybe<AddressKinds>>,
    /// The kind of the destination address.
    pub destination: Option<Maybe<AddressKinds>>,
    /// Whether only addresses of the interface it came in count as local.
    pub limit_in: bool,
    /// Whether only addresses of the interface it goes out count as local.
    pub limit_out: bool,
}

bitflags! {
    /// Kinds of addresses.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct AddressKinds: u16 {
        /// No address, such as `0.0.0.0`.
        const UNSPEC = 1;
        /// One host.
        const UNICAST = 2;
        /// This host.
        const LOCAL = 4;
        /// All hosts of a network.
        const BROADCAST = 8;
        /// The nearest of several hosts.
        const ANYCAST = 16;
        /// A group of hosts.
        const MULTICAST = 32;
        /// Packets to it vanish.
        const BLACKHOLE = 64;
        /// It cannot be reached.
        const UNREACHABLE = 128;
        /// Packets to it are forbidden.
        const PROHIBIT = 256;
        /// Another routing table knows it.
        const THROW = 512;
        /// It is translated.
        const NAT = 1024;
        /// Not used by Linux.
        const XRESOLVE = 2048;
    }
}

impl fmt::Display for AddressKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list::write(*self, "", f)
    }
}

impl AddrType {
    /// Wants a source address of one of these kinds.
    pub fn source(kinds: AddressKinds) -> Self {
        Self {
            source: Some(Maybe::Is(kinds)),
            ..Self::default()
        }
    }

    /// Wants a destination address of one of these kinds.
    pub fn destination(kinds: AddressKinds) -> Self {
        Self {
            destination: Some(Maybe::Is(kinds)),
            ..Self::default()
        }
    }
}

impl<'a> Extension<'a> for AddrType {
    fn open() -> Self {
        Self::default()
    }

    fn take(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Taken {
        let taken = match option {
            "--src-type" => once(&mut self.source, values.maybe(list::parse)?),
            "--dst-type" => once(&mut self.destination, values.maybe(list::parse)?),
            "--limit-iface-in" => flag(&mut self.limit_in),
            "--limit-iface-out" => flag(&mut self.limit_out),
            _ => Ok(false),
        };
        if self.limit_in && self.limit_out {
            return Err(Odd);
        }
        taken
    }
}

impl fmt::Display for AddrType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m addrtype")?;
        if let Some(kinds) = &self.source {
            kinds.write(f, "--src-type")?;
        }
        if let Some(kinds) = &self.destination {
            kinds.write(f, "--dst-type")?;
        }
        if self.limit_in {
            f.write_str(" --limit-iface-in")?;
        }
        if self.limit_out {
            f.write_str(" --limit-iface-out")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn it_is_read_and_printed() {
        let all = AddrType {
            source: Some(Maybe::Not(AddressKinds::UNICAST | AddressKinds::LOCAL)),
            destination: Some(Maybe::Is(AddressKinds::all())),
            limit_in: false,
            limit_out: true,
        };
        let table = [
            (
                "-m addrtype --dst-type LOCAL",
                AddrType::destination(AddressKinds::LOCAL),
            ),
            (
                "-m addrtype --src-type BROADCAST",
                AddrType::source(AddressKinds::BROADCAST),
            ),
            (
                "-m addrtype ! --src-type UNICAST,LOCAL --dst-type UNSPEC,UNICAST,LOCAL,BROADCAST,ANYCAST,MULTICAST,BLACKHOLE,UNREACHABLE,PROHIBIT,THROW,NAT,XRESOLVE --limit-iface-out",
                all,
            ),
        ];
        for (text, addrtype) in table {
            let rule = Rule::new().matching(addrtype);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
        let loose = Rule::parse("-m addrtype --dst-type multicast,local").unwrap();
        assert_eq!(loose.to_string(), "-m addrtype --dst-type LOCAL,MULTICAST");
        for text in [
            "-m addrtype",
            "-m addrtype --dst-type LOCAL,HOME",
            "-m addrtype --dst-type LOCAL --limit-iface-in --limit-iface-out",
        ] {
            assert_eq!(Rule::parse(text).unwrap().to_string(), text);
        }
    }
}
