//! `-m conntrack`: connection tracking state.

use std::fmt;

use bitflags::bitflags;
use ipnet::IpNet;

use crate::Protocol;
use crate::extensions::structure::{Conditions, Reader, Structure, Writer};
use crate::options::address::{self, Bare};
use crate::options::list;
use crate::options::negatable::Negatable;
use crate::options::number::{Ports, Range};
use crate::options::protocol;
use crate::options::{Extension, Parsed, Unsupported, Values, set_once};

/// Matches the connection tracking state: `-m conntrack --ctstate NEW`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Conntrack {
    /// Connection states.
    pub state: Option<Negatable<CtState>>,
    /// Protocol, addresses and ports of the conntrack entry.
    pub connection: Option<Box<Connection>>,
    /// Status bits of the connection.
    pub status: Option<Negatable<CtStatus>>,
    /// Remaining lifetime in seconds.
    pub expire: Option<Negatable<Range<u32>>>,
    /// Direction of the packet.
    pub direction: Option<CtDirection>,
}

/// Protocol, addresses and ports of a conntrack entry.
///
/// Host bits of addresses are preserved, as in the kernel.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Connection {
    /// Protocol.
    pub protocol: Option<Negatable<Protocol>>,
    /// Source address in the original direction.
    pub original_source: Option<Negatable<IpNet>>,
    /// Destination address in the original direction.
    pub original_destination: Option<Negatable<IpNet>>,
    /// Source address in the reply direction.
    pub reply_source: Option<Negatable<IpNet>>,
    /// Destination address in the reply direction.
    pub reply_destination: Option<Negatable<IpNet>>,
    /// Source port in the original direction.
    pub original_sport: Option<Negatable<Ports>>,
    /// Destination port in the original direction.
    pub original_dport: Option<Negatable<Ports>>,
    /// Source port in the reply direction.
    pub reply_sport: Option<Negatable<Ports>>,
    /// Destination port in the reply direction.
    pub reply_dport: Option<Negatable<Ports>>,
}

bitflags! {
    /// Connection states.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct CtState: u8 {
        /// The packet belongs to no connection and cannot start one.
        const INVALID = 1;
        /// The packet starts a new connection.
        const NEW = 2;
        /// The packet starts a connection that an existing one expects.
        const RELATED = 4;
        /// The packet belongs to an existing connection.
        const ESTABLISHED = 8;
        /// The packet is not tracked.
        const UNTRACKED = 16;
        /// The source address is translated.
        const SNAT = 32;
        /// The destination address is translated.
        const DNAT = 64;
    }
}

bitflags! {
    /// Status bits of a connection.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct CtStatus: u8 {
        /// The connection was expected.
        const EXPECTED = 1;
        /// Packets were seen in both directions.
        const SEEN_REPLY = 2;
        /// The connection is never dropped early.
        const ASSURED = 4;
        /// The first packet has left the host.
        const CONFIRMED = 8;
    }
}

impl fmt::Display for CtState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list::write(*self, "", f)
    }
}

impl fmt::Display for CtStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list::write(*self, "NONE", f)
    }
}

/// Direction of a packet within its connection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CtDirection {
    /// The direction of the first packet.
    Original,
    /// The direction of replies.
    Reply,
}

impl CtDirection {
    /// Parses a name of any case.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut all = [Self::Original, Self::Reply].into_iter();
        all.find(|direction| direction.name().eq_ignore_ascii_case(text))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Original => "ORIGINAL",
            Self::Reply => "REPLY",
        }
    }
}

impl fmt::Display for CtDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Conntrack {
    /// Matches if the packet has one of the states.
    pub fn state(state: CtState) -> Self {
        Self {
            state: Some(Negatable::Is(state)),
            ..Self::default()
        }
    }

    /// Matches if the packet has none of the states.
    pub fn not_state(state: CtState) -> Self {
        Self {
            state: Some(Negatable::Not(state)),
            ..Self::default()
        }
    }
}

impl<'a> Extension<'a> for Conntrack {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &[
            "--ctstate",
            "--ctproto",
            "--ctorigsrc",
            "--ctorigdst",
            "--ctreplsrc",
            "--ctrepldst",
            "--ctorigsrcport",
            "--ctorigdstport",
            "--ctreplsrcport",
            "--ctrepldstport",
            "--ctstatus",
            "--ctexpire",
            "--ctdir",
        ]
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--ctstate" => set_once(&mut self.state, values.negatable(list::parse_abbreviated)?),
            "--ctstatus" => set_once(&mut self.status, values.negatable(status)?),
            "--ctexpire" => set_once(
                &mut self.expire,
                values.negatable(|text| Range::parse(text, ':', Range::<u32>::ALL))?,
            ),
            "--ctdir" => {
                let direction = values.parse(CtDirection::parse)?;
                set_once(&mut self.direction, direction)
            }
            _ if option.starts_with("--ct") => self
                .connection
                .get_or_insert_default()
                .parse_option(option, values),
            _ => Ok(false),
        }
    }
}

fn status(text: &str) -> Option<CtStatus> {
    if text == "NONE" {
        return Some(CtStatus::empty());
    }
    list::parse(text)
}

impl Connection {
    fn parse_option(&mut self, option: &str, values: &mut Values<'_, '_>) -> Parsed {
        if option == "--ctproto" {
            let is_some = |protocol: &Protocol| protocol.0 != 0;
            let parse = |text: &str| protocol::parse(text).filter(is_some);
            let protocol = values.negatable(parse)?;
            return set_once(&mut self.protocol, protocol);
        }
        let networks = match option {
            "--ctorigsrc" => &mut self.original_source,
            "--ctorigdst" => &mut self.original_destination,
            "--ctreplsrc" => &mut self.reply_source,
            "--ctrepldst" => &mut self.reply_destination,
            _ => {
                let ports = match option {
                    "--ctorigsrcport" => &mut self.original_sport,
                    "--ctorigdstport" => &mut self.original_dport,
                    "--ctreplsrcport" => &mut self.reply_sport,
                    "--ctrepldstport" => &mut self.reply_dport,
                    // Unknown option: the new connection part must not be kept.
                    _ => return Err(Unsupported),
                };
                return set_once(ports, values.negatable(parse_ports)?);
            }
        };
        // iptables cannot print non-contiguous masks.
        set_once(networks, values.negatable(address::parse_prefix)?)
    }
}

/// Parses ports, which are decimal even with a leading 0.
fn parse_ports(text: &str) -> Option<Ports> {
    let odd = |end: &str| end.len() > 1 && end.starts_with('0');
    Ports::parse(text, ':', Ports::ALL).filter(|_| !text.split(':').any(odd))
}

impl fmt::Display for Conntrack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m conntrack")?;
        if let Some(state) = &self.state {
            state.write(f, "--ctstate")?;
        }
        if let Some(connection) = &self.connection {
            connection.fmt(f)?;
        }
        if let Some(status) = &self.status {
            status.write(f, "--ctstatus")?;
        }
        if let Some(expire) = &self.expire {
            expire.write(f, "--ctexpire")?;
        }
        match self.direction {
            Some(direction) => write!(f, " --ctdir {direction}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Connection {
    /// Writes the options, each with a leading space.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(protocol) = self.protocol {
            protocol.map(|protocol| protocol.0).write(f, "--ctproto")?;
        }
        let networks = [
            ("--ctorigsrc", &self.original_source),
            ("--ctorigdst", &self.original_destination),
            ("--ctreplsrc", &self.reply_source),
            ("--ctrepldst", &self.reply_destination),
        ];
        for (option, network) in networks {
            if let Some(network) = network {
                network.map(Bare).write(f, option)?;
            }
        }
        let ports = [
            ("--ctorigsrcport", &self.original_sport),
            ("--ctorigdstport", &self.original_dport),
            ("--ctreplsrcport", &self.reply_sport),
            ("--ctrepldstport", &self.reply_dport),
        ];
        for (option, ports) in ports {
            if let Some(ports) = ports {
                ports.write(f, option)?;
            }
        }
        Ok(())
    }
}

// Flags `match_flags` and `invert_flags` of `struct xt_conntrack_mtinfo3`.
const XT_CONNTRACK_STATE: u16 = 1 << 0;
const XT_CONNTRACK_PROTO: u16 = 1 << 1;
const XT_CONNTRACK_ORIGSRC: u16 = 1 << 2;
const XT_CONNTRACK_ORIGDST: u16 = 1 << 3;
const XT_CONNTRACK_REPLSRC: u16 = 1 << 4;
const XT_CONNTRACK_REPLDST: u16 = 1 << 5;
const XT_CONNTRACK_STATUS: u16 = 1 << 6;
const XT_CONNTRACK_EXPIRES: u16 = 1 << 7;
const XT_CONNTRACK_ORIGSRC_PORT: u16 = 1 << 8;
const XT_CONNTRACK_ORIGDST_PORT: u16 = 1 << 9;
const XT_CONNTRACK_REPLSRC_PORT: u16 = 1 << 10;
const XT_CONNTRACK_REPLDST_PORT: u16 = 1 << 11;
const XT_CONNTRACK_DIRECTION: u16 = 1 << 12;
/// The match is written as `-m state`.
const XT_CONNTRACK_STATE_ALIAS: u16 = 1 << 13;

/// Bits of `state_mask`: `XT_CONNTRACK_STATE_INVALID`, `XT_CONNTRACK_STATE_BIT` of
/// `enum ip_conntrack_info`, `XT_CONNTRACK_STATE_SNAT`, `XT_CONNTRACK_STATE_DNAT` and
/// `XT_CONNTRACK_STATE_UNTRACKED`.
const STATES: [(CtState, u16); 7] = [
    (CtState::INVALID, 1 << 0),
    (CtState::ESTABLISHED, 1 << 1),
    (CtState::RELATED, 1 << 2),
    (CtState::NEW, 1 << 3),
    (CtState::SNAT, 1 << 6),
    (CtState::DNAT, 1 << 7),
    (CtState::UNTRACKED, 1 << 8),
];

/// Returns `state_mask`.
fn state_mask(state: CtState) -> u16 {
    let set = STATES.iter().filter(|(flag, _)| state.contains(*flag));
    set.fold(0, |all, (_, bit)| all | bit)
}

/// Returns the states of `state_mask`.
fn states(mask: u16) -> CtState {
    let set = STATES.iter().filter(|(_, bit)| mask & bit != 0);
    set.fold(CtState::empty(), |all, (flag, _)| all | *flag)
}

/// Writes `struct xt_conntrack_mtinfo3` of `-m conntrack`, or of its alias `-m state`.
pub(super) fn write(it: &Conntrack, is_alias: bool, out: &mut Writer<'_>) -> Option<()> {
    let mut conditions = Conditions::default();
    let none = Connection::default();
    let connection = it.connection.as_deref().unwrap_or(&none);
    for (flag, network) in [
        (XT_CONNTRACK_ORIGSRC, &connection.original_source),
        (XT_CONNTRACK_ORIGDST, &connection.original_destination),
        (XT_CONNTRACK_REPLSRC, &connection.reply_source),
        (XT_CONNTRACK_REPLDST, &connection.reply_destination),
    ] {
        out.network(conditions.put(flag, network))?;
    }
    let expires = conditions.put(XT_CONNTRACK_EXPIRES, &it.expire);
    let expires = expires.unwrap_or(Range { first: 0, last: 0 });
    out.u32(expires.first).u32(expires.last);
    let protocol = conditions.put(XT_CONNTRACK_PROTO, &connection.protocol);
    out.u16(protocol.map_or(0, |Protocol(number)| number.into()));
    let ports = [
        (XT_CONNTRACK_ORIGSRC_PORT, &connection.original_sport),
        (XT_CONNTRACK_ORIGDST_PORT, &connection.original_dport),
        (XT_CONNTRACK_REPLSRC_PORT, &connection.reply_sport),
        (XT_CONNTRACK_REPLDST_PORT, &connection.reply_dport),
    ];
    let ports = ports.map(|(flag, ports)| {
        let ports = conditions.put(flag, ports);
        ports.unwrap_or(Ports { first: 0, last: 0 })
    });
    for ports in ports {
        out.u16(ports.first);
    }
    let states = conditions.put(XT_CONNTRACK_STATE, &it.state);
    let status = conditions.put(XT_CONNTRACK_STATUS, &it.status);
    let is_reply = |direction| Negatable::new(direction == CtDirection::Reply, ());
    conditions.put(XT_CONNTRACK_DIRECTION, &it.direction.map(is_reply));
    conditions.put_flag(XT_CONNTRACK_STATE_ALIAS, is_alias);
    out.u16(conditions.used).u16(conditions.negated);
    out.u16(states.map_or(0, state_mask));
    out.u16(status.map_or(0, |status| status.bits().into()));
    for ports in ports {
        out.u16(ports.last);
    }
    Some(())
}

/// Reads `struct xt_conntrack_mtinfo3`. Returns whether it is the alias `-m state`, too.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<(Conntrack, bool)> {
    let mut networks = [None; 4];
    for network in &mut networks {
        *network = reader.network()?;
    }
    let (first, last) = (reader.u32()?, reader.u32()?);
    let expires = Range { first, last };
    let protocol = Protocol(reader.u16()?.try_into().ok()?);
    let mut first = [0; 4];
    for port in &mut first {
        *port = reader.u16()?;
    }
    let (used, negated) = (reader.u16()?, reader.u16()?);
    let conditions = Conditions { used, negated };
    let (states, status) = (states(reader.u16()?), reader.u16()?);
    let mut ports = [Ports::ALL; 4];
    for (ports, first) in ports.iter_mut().zip(first) {
        let last = reader.u16()?;
        *ports = Ports { first, last };
    }
    let network = |flag, network: Option<IpNet>| conditions.get(flag, network?);
    let connection = Connection {
        protocol: conditions.get(XT_CONNTRACK_PROTO, protocol),
        original_source: network(XT_CONNTRACK_ORIGSRC, networks[0]),
        original_destination: network(XT_CONNTRACK_ORIGDST, networks[1]),
        reply_source: network(XT_CONNTRACK_REPLSRC, networks[2]),
        reply_destination: network(XT_CONNTRACK_REPLDST, networks[3]),
        original_sport: conditions.get(XT_CONNTRACK_ORIGSRC_PORT, ports[0]),
        original_dport: conditions.get(XT_CONNTRACK_ORIGDST_PORT, ports[1]),
        reply_sport: conditions.get(XT_CONNTRACK_REPLSRC_PORT, ports[2]),
        reply_dport: conditions.get(XT_CONNTRACK_REPLDST_PORT, ports[3]),
    };
    let direction = conditions.get(XT_CONNTRACK_DIRECTION, ());
    let conntrack = Conntrack {
        state: conditions.get(XT_CONNTRACK_STATE, states),
        connection: (connection != Connection::default()).then(|| connection.into()),
        status: conditions.get(
            XT_CONNTRACK_STATUS,
            CtStatus::from_bits(status.try_into().ok()?)?,
        ),
        expire: conditions.get(XT_CONNTRACK_EXPIRES, expires),
        direction: direction.map(|direction| match direction {
            Negatable::Is(()) => CtDirection::Original,
            Negatable::Not(()) => CtDirection::Reply,
        }),
    };
    Some((conntrack, conditions.has(XT_CONNTRACK_STATE_ALIAS)))
}

/// `struct xt_conntrack_mtinfo3`.
impl Structure for Conntrack {
    const NAME: &'static str = "conntrack";
    const REVISION: u32 = 3;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        write(self, false, out)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (conntrack, is_alias) = read(reader)?;
        (!is_alias).then_some(conntrack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn conntrack_is_parsed_and_printed() {
        let connection = Connection {
            protocol: Some(Negatable::Is(Protocol::TCP)),
            original_source: Some(Negatable::Is("10.1.2.3/16".parse().unwrap())),
            original_destination: Some(Negatable::Not("10.0.0.1/32".parse().unwrap())),
            reply_source: Some(Negatable::Is("0.0.0.0/0".parse().unwrap())),
            reply_destination: None,
            original_sport: Some(Negatable::Not(1.into())),
            original_dport: Some(Negatable::Is((2..=3).into())),
            reply_sport: None,
            reply_dport: Some(Negatable::Is(Ports::ALL)),
        };
        let all = Conntrack {
            connection: Some(Box::new(connection)),
            status: Some(Negatable::Not(CtStatus::empty())),
            expire: Some(Negatable::Is((5..=10).into())),
            direction: Some(CtDirection::Reply),
            ..Conntrack::state(CtState::INVALID)
        };
        let not_tracked = CtState::RELATED | CtState::ESTABLISHED | CtState::DNAT;
        let table = [
            ("-m conntrack --ctstate NEW", Conntrack::state(CtState::NEW)),
            (
                "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT",
                Conntrack::not_state(not_tracked),
            ),
            (
                "-m conntrack --ctstate INVALID --ctproto 6 --ctorigsrc 10.1.2.3/16 ! --ctorigdst 10.0.0.1 --ctreplsrc 0.0.0.0/0 ! --ctorigsrcport 1 --ctorigdstport 2:3 --ctrepldstport 0:65535 ! --ctstatus NONE --ctexpire 5:10 --ctdir REPLY",
                all,
            ),
        ];
        for (text, conntrack) in table {
            let rule = Rule::new().with_match(conntrack);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
    }

    #[test]
    fn other_forms_are_normalized_and_unsupported_ones_preserved() {
        let table = [
            ("--ctstate dnat,NEW", "--ctstate NEW,DNAT"),
            (
                "--ctdir original --ctproto udp",
                "--ctproto 17 --ctdir ORIGINAL",
            ),
            ("--ctexpire :7", "--ctexpire 0:7"),
            ("--ctorigsrcport 010", "--ctorigsrcport 010"),
            (
                "--ctorigsrc 10.0.0.1/255.0.255.0",
                "--ctorigsrc 10.0.0.1/255.0.255.0",
            ),
            ("--ctlabel 5", "--ctlabel 5"),
            ("--ctstate NEW --ctstate NEW", "--ctstate NEW --ctstate NEW"),
        ];
        for (options, printed) in table {
            let text = format!("-m conntrack {options}");
            let rule = Rule::parse(&text).unwrap();
            assert_eq!(rule.to_string(), format!("-m conntrack {printed}"));
        }
    }
}
