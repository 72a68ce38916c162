//! The text of values, as printed by nft.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::Datatype;
use crate::language::header::protocol_name;
use crate::value::ByteOrder;

/// Nanoseconds per second.
const NANOSECONDS: u64 = 1_000_000_000;

/// A value to be printed.
pub(crate) struct Literal<'a> {
    datatype: Datatype,
    bytes: &'a [u8],
    /// Whether an integer of a host-order type is in network byte order.
    swapped: bool,
    style: Style,
    /// Number of low bits that are not part of the number.
    shift: u32,
}

/// Notation of numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Style {
    /// Symbolic constants.
    Names,
    /// Numbers, as the ends of ranges.
    Numbers,
    /// Hexadecimal numbers, as for unnamed bytes of the packet.
    Hex,
}

impl<'a> Literal<'a> {
    pub(crate) fn new(datatype: Datatype, bytes: &'a [u8], swapped: bool) -> Self {
        Self {
            datatype,
            bytes,
            swapped,
            style: Style::Names,
            shift: 0,
        }
    }

    /// Leaves out low bits of the number.
    pub(crate) fn shifted(mut self, shift: u32) -> Self {
        self.shift = shift;
        self
    }

    /// Sets the notation of numbers.
    pub(crate) fn with_style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }

    /// Returns the value as an integer, or `None` if it has more than eight bytes.
    fn number(&self) -> Option<u64> {
        let mut number = [0; 8];
        let at = number.len().checked_sub(self.bytes.len())?;
        let (_, low) = number.split_at_mut(at);
        low.copy_from_slice(self.bytes);
        if self.datatype.order() == ByteOrder::Host
            && !self.swapped
            && cfg!(target_endian = "little")
        {
            low.reverse();
        }
        u64::from_be_bytes(number).checked_shr(self.shift)
    }
}

impl fmt::Display for Literal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.datatype, self.bytes) {
            (Datatype::Ipv4Addr | Datatype::Ipv6Addr, bytes) if bytes.len() == 4 => {
                let octets: [u8; 4] = bytes.try_into().unwrap_or_default();
                return write!(f, "{}", Ipv4Addr::from(octets));
            }
            (Datatype::Ipv4Addr | Datatype::Ipv6Addr, bytes) if bytes.len() == 16 => {
                let octets: [u8; 16] = bytes.try_into().unwrap_or_default();
                return write!(f, "{}", Ipv6Addr::from(octets));
            }
            (Datatype::CtLabel, bytes) if bytes.len() == 16 => return fmt_labels(f, bytes),
            (Datatype::EtherAddr, bytes) => {
                let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                return f.write_str(&hex.join(":"));
            }
            (Datatype::Ifname | Datatype::String, bytes) => {
                let end = bytes
                    .iter()
                    .position(|byte| *byte == 0)
                    .unwrap_or(bytes.len());
                let text = String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes));
                // A plain asterisk at the end matches any suffix.
                return match text.strip_suffix('*') {
                    Some(text) => write!(f, "\"{text}\\*\""),
                    None => write!(f, "\"{text}\""),
                };
            }
            _ => {}
        }
        let Some(number) = self.number() else {
            f.write_str("0x")?;
            return self
                .bytes
                .iter()
                .try_for_each(|byte| write!(f, "{byte:02x}"));
        };
        if self.style == Style::Hex {
            return write!(f, "{number:#x}");
        }
        if let Some(flags) = flags(self.datatype).filter(|_| number != 0) {
            return write_flags(f, flags, number);
        }
        let named = self.style == Style::Names;
        match constants(self.datatype)
            .iter()
            .find(|(word, _)| named && *word == number)
        {
            Some((_, word)) => f.write_str(word),
            None if self.datatype == Datatype::InetProto && named => match protocol(number) {
                Some(word) => f.write_str(word),
                None => write!(f, "{number}"),
            },
            None if self.datatype == Datatype::Time => {
                write!(f, "{}", Span(Duration::from_millis(number)))
            }
            // nft also reads seconds, which do not depend on the time zone.
            None if self.datatype == Datatype::Date => {
                write!(f, "{}", number / NANOSECONDS)?;
                match number % NANOSECONDS {
                    0 => Ok(()),
                    rest => write!(f, " /* and {rest} ns */"),
                }
            }
            None if self.datatype == Datatype::Classid => {
                write!(f, "{:x}:{:x}", number >> 16, number & 0xffff)
            }
            None if self.datatype == Datatype::Mark => write!(f, "{number:#010x}"),
            None if self.datatype == Datatype::EtherType => write!(f, "{number:#06x}"),
            None => write!(f, "{number}"),
        }
    }
}

fn protocol(number: u64) -> Option<&'static str> {
    protocol_name(u8::try_from(number).ok()?)
}

/// Returns nft's symbolic constants of a type.
fn constants(datatype: Datatype) -> &'static [(u64, &'static str)] {
    match datatype {
        Datatype::NfProto => &[(2, "ipv4"), (10, "ipv6")],
        Datatype::CtDirection => &[(0, "original"), (1, "reply")],
        Datatype::Classid => &[(0, "none"), (0xffff_ffff, "root")],
        Datatype::Day => &[
            (0, "\"Sunday\""),
            (1, "\"Monday\""),
            (2, "\"Tuesday\""),
            (3, "\"Wednesday\""),
            (4, "\"Thursday\""),
            (5, "\"Friday\""),
            (6, "\"Saturday\""),
        ],
        Datatype::MhType => &[
            (0, "binding-refresh-request"),
            (1, "home-test-init"),
            (2, "careof-test-init"),
            (3, "home-test"),
            (4, "careof-test"),
            (5, "binding-update"),
            (6, "binding-acknowledgement"),
            (7, "binding-error"),
            (8, "fast-binding-update"),
            (9, "fast-binding-acknowledgement"),
            (10, "fast-binding-advertisement"),
            (11, "experimental-mobility-header"),
            (12, "home-agent-switch-message"),
        ],
        Datatype::Boolean => &[(0, "missing"), (1, "exists")],
        Datatype::PacketType => &[
            (0, "host"),
            (1, "broadcast"),
            (2, "multicast"),
            (3, "other"),
        ],
        Datatype::EtherType => &[(0x0800, "ip"), (0x86dd, "ip6"), (0x0806, "arp")],
        Datatype::FibAddrType => &[
            (1, "unicast"),
            (2, "local"),
            (3, "broadcast"),
            (4, "anycast"),
            (5, "multicast"),
            (6, "blackhole"),
            (7, "unreachable"),
            (8, "prohibit"),
        ],
        Datatype::IcmpType => &[
            (0, "echo-reply"),
            (3, "destination-unreachable"),
            (5, "redirect"),
            (8, "echo-request"),
            (11, "time-exceeded"),
        ],
        Datatype::Icmpv6Type => &[
            (1, "destination-unreachable"),
            (2, "packet-too-big"),
            (3, "time-exceeded"),
            (128, "echo-request"),
            (129, "echo-reply"),
            (133, "nd-router-solicit"),
            (134, "nd-router-advert"),
            (135, "nd-neighbor-solicit"),
            (136, "nd-neighbor-advert"),
        ],
        _ => &[],
    }
}

/// Returns nft's symbolic constants for the bits of a bitmask type.
fn flags(datatype: Datatype) -> Option<&'static [(u64, &'static str)]> {
    Some(match datatype {
        Datatype::CtState => &[
            (1, "invalid"),
            (2, "established"),
            (4, "related"),
            (8, "new"),
            (64, "untracked"),
        ],
        Datatype::CtStatus => &[
            (1, "expected"),
            (2, "seen-reply"),
            (4, "assured"),
            (8, "confirmed"),
            (16, "snat"),
            (32, "dnat"),
            (512, "dying"),
        ],
        Datatype::CtEvent => &[
            (1, "new"),
            (2, "related"),
            (4, "destroy"),
            (8, "reply"),
            (16, "assured"),
            (32, "protoinfo"),
            (64, "helper"),
            (128, "mark"),
            (256, "seqadj"),
            (512, "secmark"),
            (1024, "label"),
        ],
        Datatype::TcpFlag => &[
            (1, "fin"),
            (2, "syn"),
            (4, "rst"),
            (8, "psh"),
            (16, "ack"),
            (32, "urg"),
            (64, "ecn"),
            (128, "cwr"),
        ],
        _ => return None,
    })
}

/// Returns whether values of a type are bitmasks.
pub(crate) fn is_bitmask(datatype: Datatype) -> bool {
    flags(datatype).is_some() || datatype == Datatype::CtLabel
}

/// Writes the numbers of the labels that are set. Each label is a bit.
fn fmt_labels(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let label = bytes.try_into().map_or(0, u128::from_ne_bytes);
    let bits: Vec<String> = (0..128)
        .filter(|bit| label >> bit & 1 != 0)
        .map(|bit| bit.to_string())
        .collect();
    match &*bits {
        [] => f.write_str("0x0"),
        bits => f.write_str(&bits.join(",")),
    }
}

fn write_flags(f: &mut fmt::Formatter<'_>, flags: &[(u64, &str)], number: u64) -> fmt::Result {
    let known: u64 = flags.iter().fold(0, |known, (bit, _)| known | bit);
    let mut words: Vec<String> = flags
        .iter()
        .filter(|(bit, _)| number & bit != 0)
        .map(|(_, word)| (*word).to_string())
        .collect();
    if number & !known != 0 {
        words.push(format!("{:#x}", number & !known));
    }
    f.write_str(&words.join(","))
}

/// A duration in nft syntax.
pub(crate) struct Span(pub(crate) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        for (unit, text) in [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")] {
            let count = match unit {
                86_400 => seconds / unit,
                3_600 => seconds % 86_400 / unit,
                60 => seconds % 3_600 / unit,
                _ => seconds % 60,
            };
            if count != 0 {
                write!(f, "{count}{text}")?;
            }
        }
        let milliseconds = self.0.subsec_millis();
        if milliseconds != 0 || seconds == 0 {
            write!(f, "{milliseconds}ms")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_display_in_nft_syntax() {
        let mark = 0x4000_u32.to_ne_bytes();
        let state = 6_u32.to_ne_bytes();
        let slot = 3_u32.to_ne_bytes();
        for (datatype, bytes, text) in [
            (Datatype::Ipv4Addr, &[10, 0, 0, 1][..], "10.0.0.1"),
            (Datatype::Ipv6Addr, &Ipv6Addr::LOCALHOST.octets(), "::1"),
            (Datatype::InetProto, &[6], "tcp"),
            (Datatype::InetProto, &[99], "99"),
            (Datatype::InetService, &[0, 80], "80"),
            (Datatype::Mark, &mark, "0x00004000"),
            (Datatype::CtState, &state, "established,related"),
            (Datatype::Integer, &slot, "3"),
            (Datatype::Ifname, b"cni0\0\0", "\"cni0\""),
            (
                Datatype::EtherAddr,
                &[0, 1, 2, 3, 4, 255],
                "00:01:02:03:04:ff",
            ),
            (Datatype::CtLabel, &[0xab; 9], "0xababababababababab"),
        ] {
            assert_eq!(Literal::new(datatype, bytes, false).to_string(), text);
        }
    }

    #[test]
    fn a_time_displays_as_seconds() {
        let date = 1_561_132_800_000_000_001_u64.to_ne_bytes();
        let text = Literal::new(Datatype::Date, &date, false).to_string();
        assert_eq!(text, "1561132800 /* and 1 ns */");
        let expiration = 90_000_u32.to_ne_bytes();
        let text = Literal::new(Datatype::Time, &expiration, false).to_string();
        assert_eq!(text, "1m30s");
        let class = 0x000a_0001_u32.to_ne_bytes();
        let text = Literal::new(Datatype::Classid, &class, false).to_string();
        assert_eq!(text, "a:1");
    }

    #[test]
    fn an_integer_in_network_order_displays_the_same() {
        let literal = Literal::new(Datatype::Mark, &[0, 0, 0x40, 0], true);
        assert_eq!(literal.to_string(), "0x00004000");
    }
}
