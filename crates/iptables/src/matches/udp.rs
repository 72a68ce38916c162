//! `-m udp`: UDP ports.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer, flags, is_not};
use crate::matches::ports::{self, setters};
use crate::options::negatable::Negatable;
use crate::options::number::Ports;
use crate::options::{Extension, Parsed, Values};

/// Matches UDP ports: `-m udp --dport 53`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Udp {
    /// Source port.
    pub sport: Option<Negatable<Ports>>,
    /// Destination port.
    pub dport: Option<Negatable<Ports>>,
}

impl Udp {
    setters!();
}

impl<'a> Extension<'a> for Udp {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &["--source-port", "--sport", "--destination-port", "--dport"]
    }

    fn min_options(&self) -> usize {
        0
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        let taken = ports::take(&mut self.sport, &mut self.dport, option, values)?;
        ports::forget_all(&mut self.sport, &mut self.dport);
        Ok(taken)
    }
}

impl fmt::Display for Udp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m udp")?;
        ports::write(&self.sport, &self.dport, f)
    }
}

// Flags `invflags` of `struct xt_udp`.
const XT_UDP_INV_SRCPT: u8 = 1;
const XT_UDP_INV_DSTPT: u8 = 2;

/// `struct xt_udp`, for a match without options. Rules contain expressions of nf_tables for
/// ports.
impl Structure for Udp {
    const NAME: &'static str = "udp";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        ports::write_or(out, &self.sport, Ports::ALL);
        ports::write_or(out, &self.dport, Ports::ALL);
        out.u8(flags([
            (is_not(&self.sport), XT_UDP_INV_SRCPT),
            (is_not(&self.dport), XT_UDP_INV_DSTPT),
        ]));
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (sport, dport) = (ports::read(reader)?, ports::read(reader)?);
        let inverted = reader.u8()?;
        Some(Self {
            sport: ports::condition(sport, inverted & XT_UDP_INV_SRCPT != 0),
            dport: ports::condition(dport, inverted & XT_UDP_INV_DSTPT != 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rule, Transport};

    #[test]
    fn udp_is_parsed_and_printed() {
        let table = [
            ("-p udp -m udp", Udp::new()),
            ("-p udp -m udp --dport 53", Udp::new().with_dport(53)),
            (
                "-p udp -m udp ! --sport 5 --dport 7:9",
                Udp::new().with_not_sport(5).with_dport(7..=9),
            ),
        ];
        for (text, udp) in table {
            let rule = Rule::new().with_protocol(Transport::Udp).with_match(udp);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
        let loose = Rule::parse("-p udp -m udp --sport 0: --destination-port 5:5").unwrap();
        assert_eq!(loose.to_string(), "-p udp -m udp --dport 5");
    }
}
