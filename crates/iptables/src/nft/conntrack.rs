//! Matches `conntrack` and `state`: `linux/netfilter/xt_conntrack.h`, revision 3.

use std::net::IpAddr;

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
    /// Marks a field as used, and returns its value.
    fn take<T: Copy>(&mut self, flag: u16, value: &Option<Negatable<T>>) -> Option<T> {
        let value = value.as_ref()?;
        self.flags |= flag;
        if value.is_negated() {
            self.inverted |= flag;
        }
        Some(*value.value())
    }

    /// Returns the condition on a field, if it is used.
    fn give<T>(&self, flag: u16, value: Option<T>) -> Option<Negatable<T>> {
        let value = value.filter(|_| self.flags & flag != 0)?;
        Some(Negatable::new(self.inverted & flag != 0, value))
    }

    fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        for network in self.networks {
            out = match network {
                // iptables sets all bits if the rule has no mask.
                Some(network) if network.prefix_len() == network.max_prefix_len() => {
                    put_address(out, network.addr()).bytes(&[u8::MAX; 16])
                }
                Some(network) => put_address(put_address(out, network.addr()), network.netmask()),
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
        out.zeros(2).finish()
    }

    fn decode(bytes: &[u8], family: Family) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let mut info = Self::default();
        for network in &mut info.networks {
            let (address, mask) = (reader.array()?, reader.array()?);
            let [address, mask] = [address, mask].map(|bytes| address_of(bytes, family));
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

/// Appends `union nf_inet_addr`.
pub(super) fn put_address(out: Writer, address: IpAddr) -> Writer {
    match address {
        IpAddr::V4(address) => out.bytes(&address.octets()).zeros(12),
        IpAddr::V6(address) => out.bytes(&address.octets()),
    }
}

/// Returns the address in `union nf_inet_addr`.
pub(super) fn address_of(bytes: [u8; 16], family: Family) -> IpAddr {
    match family {
        Family::V4 => {
            let [a, b, c, d, ..] = bytes;
            [a, b, c, d].into()
        }
        Family::V6 => bytes.into(),
    }
}

fn states(state: CtState) -> u16 {
    let set = STATES.iter().filter(|(flag, _)| state.contains(*flag));
    set.fold(0, |all, (_, bit)| all | bit)
}

fn state(states: u16) -> CtState {
    let set = STATES.iter().filter(|(_, bit)| states & bit != 0);
    set.fold(CtState::empty(), |all, (flag, _)| all | *flag)
}

/// Returns the structure of `-m state`.
pub(super) fn encode_state(State(wanted): &State) -> Bytes {
    let mut info = Info::default();
    let wanted = info.take(STATE, &Some(*wanted));
    info.states = states(wanted.unwrap_or(CtState::empty()));
    info.flags |= STATE_ALIAS;
    info.encode()
}

/// Returns the structure of `-m conntrack`.
pub(super) fn encode(conntrack: &Conntrack) -> Bytes {
    let mut info = Info::default();
    if let Some(state) = info.take(STATE, &conntrack.state) {
        info.states = states(state);
    }
    if let Some(status) = info.take(STATUS, &conntrack.status) {
        info.status = status.bits().into();
    }
    info.expires = info.take(EXPIRES, &conntrack.expire);
    if let Some(direction) = conntrack.direction {
        info.flags |= DIRECTION;
        if direction == CtDirection::Reply {
            info.inverted |= DIRECTION;
        }
    }
    if let Some(connection) = &conntrack.connection {
        if let Some(Protocol(number)) = info.take(PROTO, &connection.protocol) {
            info.protocol = number;
        }
        let networks = [
            &connection.original_source,
            &connection.original_destination,
            &connection.reply_source,
            &connection.reply_destination,
        ];
        info.networks = pairs(ADDRESSES, networks).map(|(flag, network)| info.take(flag, network));
        let ports = [
            &connection.original_sport,
            &connection.original_dport,
            &connection.reply_sport,
            &connection.reply_dport,
        ];
        info.ports = pairs(PORTS, ports).map(|(flag, ports)| info.take(flag, ports));
    }
    info.encode()
}

/// Returns the match of a structure.
pub(super) fn decode(bytes: &[u8], family: Family) -> Option<Match<'static>> {
    let info = Info::decode(bytes, family)?;
    let wanted = info.give(STATE, Some(state(info.states)));
    if info.flags & STATE_ALIAS != 0 {
        return Some(State(wanted?).into());
    }
    let status = CtStatus::from_bits(info.status.try_into().ok()?)?;
    let [
        original_source,
        original_destination,
        reply_source,
        reply_destination,
    ] = pairs(ADDRESSES, info.networks).map(|(flag, network)| info.give(flag, network));
    let [original_sport, original_dport, reply_sport, reply_dport] =
        pairs(PORTS, info.ports).map(|(flag, ports)| info.give(flag, ports));
    let connection = Connection {
        protocol: info.give(PROTO, Some(Protocol(info.protocol))),
        original_source,
        original_destination,
        reply_source,
        reply_destination,
        original_sport,
        original_dport,
        reply_sport,
        reply_dport,
    };
    let direction = info.give(DIRECTION, Some(()));
    let direction = direction.map(|direction| match direction {
        Negatable::Is(()) => CtDirection::Original,
        Negatable::Not(()) => CtDirection::Reply,
    });
    let conntrack = Conntrack {
        state: wanted,
        connection: (connection != Connection::default()).then(|| connection.into()),
        status: info.give(STATUS, Some(status)),
        expire: info.give(EXPIRES, info.expires),
        direction,
    };
    Some(conntrack.into())
}

/// Pairs the values of two arrays.
fn pairs<A: Copy, B: Copy>(left: [A; 4], right: [B; 4]) -> [(A, B); 4] {
    let ([a, b, c, d], [e, f, g, h]) = (left, right);
    [(a, e), (b, f), (c, g), (d, h)]
}
