//! Matches `conntrack` and `state`: `linux/netfilter/xt_conntrack.h`, revision 3.

use ipnet::IpNet;
use vipline_nftables::Bytes;

use super::structure::{Reader, Writer};
use crate::Family;
use crate::matches::{Connection, Conntrack, CtDirection, CtState, CtStatus, Match, State};
use crate::negatable::Negatable;
use crate::number::{Ports, Range};
use crate::protocol::Protocol;

// Bits of `match_flags` and `invert_flags`, by the field that they select.
const STATE: u16 = 1 << 0;
const PROTO: u16 = 1 << 1;
const ADDRESSES: [u16; 4] = [1 << 2, 1 << 3, 1 << 4, 1 << 5];
const STATUS: u16 = 1 << 6;
const EXPIRES: u16 = 1 << 7;
const PORTS: [u16; 4] = [1 << 8, 1 << 9, 1 << 10, 1 << 11];
const DIRECTION: u16 = 1 << 12;
/// The match is written as `-m state`.
const STATE_ALIAS: u16 = 1 << 13;

/// Bits of `state_mask`.
const STATES: [(CtState, u16); 7] = [
    (CtState::INVALID, 1 << 0),
    (CtState::ESTABLISHED, 1 << 1),
    (CtState::RELATED, 1 << 2),
    (CtState::NEW, 1 << 3),
    (CtState::SNAT, 1 << 6),
    (CtState::DNAT, 1 << 7),
    (CtState::UNTRACKED, 1 << 8),
];

/// The structure, with addresses and ports in the order: source and destination in the
/// original direction, source and destination in the reply direction.
#[derive(Default)]
struct Info {
    networks: [Option<IpNet>; 4],
    expires: Option<Range<u32>>,
    protocol: u8,
    ports: [Option<Ports>; 4],
    flags: u16,
    inverted: u16,
    states: u16,
    status: u16,
}

impl Info {
    /// Sets the flags of a condition, and returns its value.
    fn set_flags<T: Copy>(&mut self, flag: u16, condition: Option<Negatable<T>>) -> Option<T> {
        let condition = condition?;
        self.flags |= flag;
        if condition.is_negated() {
            self.inverted |= flag;
        }
        Some(*condition.value())
    }

    /// Returns the condition on a field, if its flag is set.
    fn condition<T>(&self, flag: u16, value: Option<T>) -> Option<Negatable<T>> {
        let value = value.filter(|_| self.flags & flag != 0)?;
        Some(Negatable::new(self.inverted & flag != 0, value))
    }

    /// Returns `None` if an address is not of the family.
    fn encode(&self, family: Family) -> Option<Bytes> {
        let mut out = Writer::default();
        for network in self.networks {
            out = match network {
                // iptables sets all bits if the rule has no mask.
                Some(network) if network.prefix_len() == network.max_prefix_len() => {
                    let out = out.address(network.addr(), family)?;
                    out.bytes(&[u8::MAX; 16])
                }
                Some(network) => {
                    let out = out.address(network.addr(), family)?;
                    out.address(network.netmask(), family)?
                }
                None => out.zeros(32),
            };
        }
        let expires = self.expires.unwrap_or(Range { first: 0, last: 0 });
        out = out
            .u32(expires.first)
            .u32(expires.last)
            .u16(self.protocol.into());
        let ports = self
            .ports
            .map(|ports| ports.unwrap_or(Ports { first: 0, last: 0 }));
        for ports in ports {
            out = out.u16(ports.first);
        }
        out = out
            .u16(self.flags)
            .u16(self.inverted)
            .u16(self.states)
            .u16(self.status);
        for ports in ports {
            out = out.u16(ports.last);
        }
        Some(out.zeros(2).finish())
    }

    fn decode(bytes: &[u8], family: Family) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let mut info = Self::default();
        for network in &mut info.networks {
            let (address, mask) = (reader.address(family)?, reader.address(family)?);
            *network = IpNet::with_netmask(address, mask).ok();
        }
        let (first, last) = (reader.u32()?, reader.u32()?);
        info.expires = Some(Range { first, last });
        info.protocol = reader.u16()?.try_into().ok()?;
        let mut first = [0; 4];
        for port in &mut first {
            *port = reader.u16()?;
        }
        [info.flags, info.inverted] = [reader.u16()?, reader.u16()?];
        [info.states, info.status] = [reader.u16()?, reader.u16()?];
        for (ports, first) in info.ports.iter_mut().zip(first) {
            let last = reader.u16()?;
            *ports = Some(Ports { first, last });
        }
        Some(info)
    }
}

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

/// Returns the structure of `-m state`.
pub(super) fn encode_state(State(state): &State, family: Family) -> Option<Bytes> {
    let mut info = Info {
        states: state_mask(*state.value()),
        ..Info::default()
    };
    info.set_flags(STATE, Some(*state));
    info.flags |= STATE_ALIAS;
    info.encode(family)
}

/// Returns the structure of `-m conntrack`.
pub(super) fn encode(conntrack: &Conntrack, family: Family) -> Option<Bytes> {
    let mut info = Info::default();
    if let Some(state) = info.set_flags(STATE, conntrack.state) {
        info.states = state_mask(state);
    }
    if let Some(status) = info.set_flags(STATUS, conntrack.status) {
        info.status = status.bits().into();
    }
    info.expires = info.set_flags(EXPIRES, conntrack.expire);
    let is_reply = |direction| Negatable::new(direction == CtDirection::Reply, ());
    info.set_flags(DIRECTION, conntrack.direction.map(is_reply));
    if let Some(connection) = &conntrack.connection {
        if let Some(Protocol(number)) = info.set_flags(PROTO, connection.protocol) {
            info.protocol = number;
        }
        let networks = [
            connection.original_source,
            connection.original_destination,
            connection.reply_source,
            connection.reply_destination,
        ];
        info.networks =
            pairs(ADDRESSES, networks).map(|(flag, network)| info.set_flags(flag, network));
        let ports = [
            connection.original_sport,
            connection.original_dport,
            connection.reply_sport,
            connection.reply_dport,
        ];
        info.ports = pairs(PORTS, ports).map(|(flag, ports)| info.set_flags(flag, ports));
    }
    info.encode(family)
}

/// Returns the match of a structure.
pub(super) fn decode(bytes: &[u8], family: Family) -> Option<Match<'static>> {
    let info = Info::decode(bytes, family)?;
    let state = info.condition(STATE, Some(states(info.states)));
    if info.flags & STATE_ALIAS != 0 {
        return Some(State(state?).into());
    }
    let status = CtStatus::from_bits(info.status.try_into().ok()?)?;
    let [
        original_source,
        original_destination,
        reply_source,
        reply_destination,
    ] = pairs(ADDRESSES, info.networks).map(|(flag, network)| info.condition(flag, network));
    let [original_sport, original_dport, reply_sport, reply_dport] =
        pairs(PORTS, info.ports).map(|(flag, ports)| info.condition(flag, ports));
    let connection = Connection {
        protocol: info.condition(PROTO, Some(Protocol(info.protocol))),
        original_source,
        original_destination,
        reply_source,
        reply_destination,
        original_sport,
        original_dport,
        reply_sport,
        reply_dport,
    };
    let direction = info.condition(DIRECTION, Some(()));
    let direction = direction.map(|direction| match direction {
        Negatable::Is(()) => CtDirection::Original,
        Negatable::Not(()) => CtDirection::Reply,
    });
    let conntrack = Conntrack {
        state,
        connection: (connection != Connection::default()).then(|| connection.into()),
        status: info.condition(STATUS, Some(status)),
        expire: info.condition(EXPIRES, info.expires),
        direction,
    };
    Some(conntrack.into())
}

/// Pairs the values of two arrays.
fn pairs<A: Copy, B: Copy>(left: [A; 4], right: [B; 4]) -> [(A, B); 4] {
    let ([a, b, c, d], [e, f, g, h]) = (left, right);
    [(a, e), (b, f), (c, g), (d, h)]
}
