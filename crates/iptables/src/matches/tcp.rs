//! `-m tcp`: TCP ports, flags and options.

use std::fmt;

use bitflags::bitflags;

use crate::extensions::structure::{Reader, Structure, Writer, flags, is_not};
use crate::matches::ports::{self, setters};
use crate::options::list;
use crate::options::negatable::Negatable;
use crate::options::number::{self, Ports};
use crate::options::{Extension, Parsed, Values, set_once};

/// Matches TCP ports, flags and options: `-m tcp --dport 80`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tcp {
    /// Source port.
    pub sport: Option<Negatable<Ports>>,
    /// Destination port.
    pub dport: Option<Negatable<Ports>>,
    /// Number of a TCP option that must be present.
    pub option: Option<Negatable<u8>>,
    /// TCP flags.
    pub flags: Option<Negatable<FlagsMatch>>,
}

/// A condition on TCP flags.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FlagsMatch {
    /// Flags to compare.
    pub mask: Flags,
    /// Flags that must be set. The others of the mask must be clear.
    pub set: Flags,
}

bitflags! {
    /// TCP flags.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct Flags: u8 {
        /// FIN.
        const FIN = 1;
        /// SYN.
        const SYN = 2;
        /// RST.
        const RST = 4;
        /// PSH.
        const PSH = 8;
        /// ACK.
        const ACK = 16;
        /// URG.
        const URG = 32;
    }
}

impl FlagsMatch {
    /// The first packet of a connection: `--syn`.
    pub const SYN: Self = Self {
        mask: Flags::FIN
            .union(Flags::SYN)
            .union(Flags::RST)
            .union(Flags::ACK),
        set: Flags::SYN,
    };
}

impl Tcp {
    setters!();

    /// Matches the first packet of a connection.
    #[must_use]
    pub fn with_syn(self) -> Self {
        self.with_flags(FlagsMatch::SYN.mask, FlagsMatch::SYN.set)
    }

    /// Matches packets with the flags `set` set and the other flags of `mask` clear.
    #[must_use]
    pub fn with_flags(mut self, mask: Flags, set: Flags) -> Self {
        self.flags = Some(Negatable::Is(FlagsMatch { mask, set }));
        self
    }
}

impl<'a> Extension<'a> for Tcp {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &[
            "--source-port",
            "--sport",
            "--destination-port",
            "--dport",
            "--syn",
            "--tcp-flags",
            "--tcp-option",
        ]
    }

    fn min_options(&self) -> usize {
        0
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        if ports::take(&mut self.sport, &mut self.dport, option, values)? {
            ports::forget_all(&mut self.sport, &mut self.dport);
            return Ok(true);
        }
        match option {
            "--tcp-option" => set_once(&mut self.option, values.negatable(number::parse_as)?),
            "--syn" => set_once(
                &mut self.flags,
                Negatable::new(values.negated(), FlagsMatch::SYN),
            ),
            "--tcp-flags" => {
                let negated = values.negated();
                let mask = values.parse(parse_flags)?;
                let set = values.parse(parse_flags)?;
                set_once(
                    &mut self.flags,
                    Negatable::new(negated, FlagsMatch { mask, set }),
                )
            }
            _ => Ok(false),
        }
    }
}

impl fmt::Display for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m tcp")?;
        ports::write(&self.sport, &self.dport, f)?;
        if let Some(option) = &self.option {
            option.write(f, "--tcp-option")?;
        }
        match &self.flags {
            Some(flags) => flags.write(f, "--tcp-flags"),
            None => Ok(()),
        }
    }
}

/// Parses comma-separated names, `ALL` or `NONE`.
fn parse_flags(text: &str) -> Option<Flags> {
    match text {
        "ALL" => Some(Flags::all()),
        "NONE" => Some(Flags::empty()),
        _ => list::parse(text),
    }
}

impl fmt::Display for FlagsMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list::write(self.mask, "NONE", f)?;
        f.write_str(" ")?;
        list::write(self.set, "NONE", f)
    }
}

// Flags `invflags` of `struct xt_tcp`.
const XT_TCP_INV_SRCPT: u8 = 1;
const XT_TCP_INV_DSTPT: u8 = 2;
const XT_TCP_INV_FLAGS: u8 = 4;
const XT_TCP_INV_OPTION: u8 = 8;

/// `struct xt_tcp`, for the number of an option and for a match without options. Rules
/// contain expressions of nf_tables for ports and flags.
impl Structure for Tcp {
    const NAME: &'static str = "tcp";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        ports::write_or(out, &self.sport, Ports::ALL);
        ports::write_or(out, &self.dport, Ports::ALL);
        out.u8(self.option.map_or(0, |option| *option.value()));
        match &self.flags {
            Some(flags) => out
                .u8(flags.value().mask.bits())
                .u8(flags.value().set.bits()),
            None => out.zeros(2),
        };
        out.u8(flags([
            (is_not(&self.sport), XT_TCP_INV_SRCPT),
            (is_not(&self.dport), XT_TCP_INV_DSTPT),
            (is_not(&self.flags), XT_TCP_INV_FLAGS),
            (is_not(&self.option), XT_TCP_INV_OPTION),
        ]));
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (sport, dport) = (ports::read(reader)?, ports::read(reader)?);
        let [option, mask, set, inverted] = reader.array()?;
        let [mask, set] = [mask, set].map(Flags::from_bits);
        let flags = FlagsMatch {
            mask: mask?,
            set: set?,
        };
        let is_not = |flag| inverted & flag != 0;
        Some(Self {
            sport: ports::condition(sport, is_not(XT_TCP_INV_SRCPT)),
            dport: ports::condition(dport, is_not(XT_TCP_INV_DSTPT)),
            option: (option != 0).then(|| Negatable::new(is_not(XT_TCP_INV_OPTION), option)),
            flags: (!flags.mask.is_empty())
                .then(|| Negatable::new(is_not(XT_TCP_INV_FLAGS), flags)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rule, Transport};

    #[test]
    fn tcp_is_parsed_and_printed() {
        let table = [
            ("-p tcp -m tcp", Tcp::new()),
            ("-p tcp -m tcp --dport 80", Tcp::new().with_dport(80)),
            (
                "-p tcp -m tcp --sport 1:2 ! --dport 3",
                Tcp::new().with_sport(1..=2).with_not_dport(3),
            ),
            (
                "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN",
                Tcp::new().with_syn(),
            ),
            (
                "-p tcp -m tcp --tcp-flags FIN,SYN,RST,PSH,ACK,URG NONE",
                Tcp::new().with_flags(Flags::all(), Flags::empty()),
            ),
            (
                "-p tcp -m tcp ! --tcp-option 7",
                Tcp {
                    option: Some(Negatable::Not(7)),
                    ..Tcp::new()
                },
            ),
        ];
        for (text, tcp) in table {
            let rule = Rule::new().with_protocol(Transport::Tcp).with_match(tcp);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
    }

    #[test]
    fn other_forms_are_normalized() {
        let table = [
            (
                "-p tcp -m tcp --source-port :2 --destination-port=3:",
                "-p tcp -m tcp --sport 0:2 --dport 3:65535",
            ),
            ("-p tcp -m tcp --dport 0:65535", "-p tcp -m tcp"),
            (
                "-p tcp -m tcp ! --syn",
                "-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN",
            ),
            (
                "-p tcp -m tcp --tcp-flags ACK,SYN SYN",
                "-p tcp -m tcp --tcp-flags SYN,ACK SYN",
            ),
        ];
        for (text, printed) in table {
            assert_eq!(Rule::parse(text).unwrap().to_string(), printed);
        }
    }
}
