//! `-m multiport`: lists of ports.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer, at, position};
use crate::options::negatable::Negatable;
use crate::options::number::Ports;
use crate::options::{Extension, Parsed, Values};

/// Matches a list of ports: `-m multiport --dports 80,443`.
///
/// The rule must have the protocol TCP, UDP, UDP-Lite, SCTP or DCCP.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Multiport {
    /// The port to match.
    pub kind: MultiportKind,
    /// At most 15 ports; a range counts as two.
    pub ports: Negatable<Vec<Ports>>,
}

/// The port that a list matches.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum MultiportKind {
    /// Destination port.
    Destination,
    /// Source or destination port.
    Either,
    /// Source port.
    Source,
}

impl Multiport {
    /// Matches the listed ports.
    pub fn new(kind: MultiportKind, ports: impl IntoIterator<Item = Ports>) -> Self {
        Self {
            kind,
            ports: Negatable::Is(ports.into_iter().collect()),
        }
    }
}

/// Maximum number of ports: `XT_MULTI_PORTS`.
const MAX: usize = 15;

fn parse(text: &str) -> Option<Vec<Ports>> {
    let one = |text: &str| Ports::parse_services(text, ':');
    let ports: Vec<_> = text.split(',').map(one).collect::<Option<_>>()?;
    let places = ports
        .iter()
        .map(|ports| 1 + usize::from(ports.first < ports.last));
    (places.sum::<usize>() <= MAX).then_some(ports)
}

impl<'a> Extension<'a> for Multiport {
    fn open() -> Self {
        Self::new(MultiportKind::Either, [])
    }

    fn options() -> &'static [&'static str] {
        &[
            "--source-ports",
            "--sports",
            "--destination-ports",
            "--dports",
            "--ports",
        ]
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        self.kind = match option {
            "--destination-ports" | "--dports" => MultiportKind::Destination,
            "--ports" => MultiportKind::Either,
            "--source-ports" | "--sports" => MultiportKind::Source,
            _ => return Ok(false),
        };
        values.expect_index(0)?;
        self.ports = values.negatable(parse)?;
        Ok(true)
    }
}

impl fmt::Display for Multiport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = match self.kind {
            MultiportKind::Destination => "--dports",
            MultiportKind::Either => "--ports",
            MultiportKind::Source => "--sports",
        };
        write!(f, "-m multiport {}{option}", self.ports.bang())?;
        let mut separator = ' ';
        for ports in self.ports.value() {
            write!(f, "{separator}{ports}")?;
            separator = ',';
        }
        Ok(())
    }
}

/// `enum xt_multiport_flags`: `XT_MULTIPORT_SOURCE`, `XT_MULTIPORT_DESTINATION`,
/// `XT_MULTIPORT_EITHER`.
const KINDS: [MultiportKind; 3] = [
    MultiportKind::Source,
    MultiportKind::Destination,
    MultiportKind::Either,
];

/// `struct xt_multiport_v1`.
impl Structure for Multiport {
    const NAME: &'static str = "multiport";
    const REVISION: u32 = 1;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        // A flag tells that the next port is the end of a range.
        let (mut ports, mut continued) = (Vec::new(), Vec::new());
        for Ports { first, last } in self.ports.value() {
            ports.push(*first);
            continued.push(u8::from(first != last));
            if first != last {
                ports.push(*last);
                continued.push(0);
            }
        }
        let unused = MAX.checked_sub(ports.len())?;
        out.u8(position(&KINDS, &self.kind)?);
        out.u8(ports.len().try_into().ok()?);
        for port in ports {
            out.u16(port);
        }
        out.zeros(unused * 2).padded(&continued, MAX)?;
        out.u8(self.ports.is_negated().into());
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let kind = at(&KINDS, reader.u8()?)?;
        let count = usize::from(reader.u8()?);
        let mut numbers = [0; MAX];
        for number in &mut numbers {
            *number = reader.u16()?;
        }
        let continued: [u8; MAX] = reader.array()?;
        let mut ends = numbers.into_iter().zip(continued).take(count);
        let mut ports = Vec::new();
        while let Some((first, is_range)) = ends.next() {
            let last = if is_range == 0 { first } else { ends.next()?.0 };
            ports.push(Ports { first, last });
        }
        let ports = Negatable::new(reader.u8()? != 0, ports);
        Some(Self { kind, ports })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rule, Transport};

    #[test]
    fn multiport_is_parsed_and_printed() {
        let web = Multiport::new(MultiportKind::Destination, [80.into(), (443..=445).into()]);
        let negated = Multiport {
            ports: Negatable::Not(vec![5.into()]),
            ..Multiport::new(MultiportKind::Source, [])
        };
        let table = [
            ("-p tcp -m multiport --dports 80,443:445", web),
            ("-p tcp -m multiport ! --sports 5", negated),
            (
                "-p tcp -m multiport --ports 0:65535",
                Multiport::new(MultiportKind::Either, [Ports::ALL]),
            ),
        ];
        for (text, multiport) in table {
            let rule = Rule::new()
                .with_protocol(Transport::Tcp)
                .with_match(multiport);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
        let text = "-p tcp -m multiport --dports 1 --sports 2";
        assert_eq!(Rule::parse(text).unwrap().to_string(), text);
    }
}
