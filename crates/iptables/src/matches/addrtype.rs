//! `-m addrtype`: address types.

use std::fmt;

use bitflags::bitflags;

use crate::extensions::structure::{Reader, Structure, Writer, flags, is_not};
use crate::options::list;
use crate::options::negatable::Negatable;
use crate::options::{Extension, Parsed, Unsupported, Values, set_flag, set_once};

/// Matches address types: `-m addrtype --dst-type LOCAL`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AddrType {
    /// Types of the source address.
    pub source: Option<Negatable<AddressTypes>>,
    /// Types of the destination address.
    pub destination: Option<Negatable<AddressTypes>>,
    /// Whether the check is limited to the incoming interface.
    pub limit_in: bool,
    /// Whether the check is limited to the outgoing interface.
    pub limit_out: bool,
}

bitflags! {
    /// Address types: `RTN_*` of `linux/rtnetlink.h`.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct AddressTypes: u16 {
        /// Unspecified, such as `0.0.0.0`.
        const UNSPEC = 1;
        /// Unicast.
        const UNICAST = 2;
        /// An address of this host.
        const LOCAL = 4;
        /// Broadcast.
        const BROADCAST = 8;
        /// Anycast.
        const ANYCAST = 16;
        /// Multicast.
        const MULTICAST = 32;
        /// Blackhole route.
        const BLACKHOLE = 64;
        /// Unreachable route.
        const UNREACHABLE = 128;
        /// Prohibit route.
        const PROHIBIT = 256;
        /// Throw route.
        const THROW = 512;
        /// NAT route.
        const NAT = 1024;
        /// External resolver; not used by Linux.
        const XRESOLVE = 2048;
    }
}

impl fmt::Display for AddressTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list::write(*self, "", f)
    }
}

impl AddrType {
    /// Matches source addresses of these types.
    pub fn source(types: AddressTypes) -> Self {
        Self {
            source: Some(Negatable::Is(types)),
            ..Self::default()
        }
    }

    /// Matches destination addresses of these types.
    pub fn destination(types: AddressTypes) -> Self {
        Self {
            destination: Some(Negatable::Is(types)),
            ..Self::default()
        }
    }
}

impl<'a> Extension<'a> for AddrType {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &[
            "--src-type",
            "--dst-type",
            "--limit-iface-in",
            "--limit-iface-out",
        ]
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        let taken = match option {
            "--src-type" => set_once(&mut self.source, values.negatable(list::parse)?),
            "--dst-type" => set_once(&mut self.destination, values.negatable(list::parse)?),
            "--limit-iface-in" => set_flag(&mut self.limit_in),
            "--limit-iface-out" => set_flag(&mut self.limit_out),
            _ => Ok(false),
        };
        if self.limit_in && self.limit_out {
            return Err(Unsupported);
        }
        taken
    }
}

impl fmt::Display for AddrType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m addrtype")?;
        if let Some(types) = &self.source {
            types.write(f, "--src-type")?;
        }
        if let Some(types) = &self.destination {
            types.write(f, "--dst-type")?;
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

// Flags of `struct xt_addrtype_info_v1`.
const XT_ADDRTYPE_INVERT_SOURCE: u32 = 1;
const XT_ADDRTYPE_INVERT_DEST: u32 = 2;
const XT_ADDRTYPE_LIMIT_IFACE_IN: u32 = 4;
const XT_ADDRTYPE_LIMIT_IFACE_OUT: u32 = 8;

/// `struct xt_addrtype_info_v1`.
impl Structure for AddrType {
    const NAME: &'static str = "addrtype";
    const REVISION: u32 = 1;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        for types in [&self.source, &self.destination] {
            out.u16(types.map_or(0, |types| types.value().bits()));
        }
        out.u32(flags([
            (is_not(&self.source), XT_ADDRTYPE_INVERT_SOURCE),
            (is_not(&self.destination), XT_ADDRTYPE_INVERT_DEST),
            (self.limit_in, XT_ADDRTYPE_LIMIT_IFACE_IN),
            (self.limit_out, XT_ADDRTYPE_LIMIT_IFACE_OUT),
        ]));
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (source, destination, flags) = (reader.u16()?, reader.u16()?, reader.u32()?);
        let types = |bits, flag| {
            let types = AddressTypes::from_bits(bits).filter(|types| !types.is_empty())?;
            Some(Negatable::new(flags & flag != 0, types))
        };
        Some(Self {
            source: types(source, XT_ADDRTYPE_INVERT_SOURCE),
            destination: types(destination, XT_ADDRTYPE_INVERT_DEST),
            limit_in: flags & XT_ADDRTYPE_LIMIT_IFACE_IN != 0,
            limit_out: flags & XT_ADDRTYPE_LIMIT_IFACE_OUT != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn addrtype_is_parsed_and_printed() {
        let all = AddrType {
            source: Some(Negatable::Not(AddressTypes::UNICAST | AddressTypes::LOCAL)),
            destination: Some(Negatable::Is(AddressTypes::all())),
            limit_in: false,
            limit_out: true,
        };
        let table = [
            (
                "-m addrtype --dst-type LOCAL",
                AddrType::destination(AddressTypes::LOCAL),
            ),
            (
                "-m addrtype --src-type BROADCAST",
                AddrType::source(AddressTypes::BROADCAST),
            ),
            (
                "-m addrtype ! --src-type UNICAST,LOCAL --dst-type UNSPEC,UNICAST,LOCAL,BROADCAST,ANYCAST,MULTICAST,BLACKHOLE,UNREACHABLE,PROHIBIT,THROW,NAT,XRESOLVE --limit-iface-out",
                all,
            ),
        ];
        for (text, addrtype) in table {
            let rule = Rule::new().with_match(addrtype);
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
