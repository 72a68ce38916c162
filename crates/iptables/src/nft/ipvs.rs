//! Match `ipvs`: `linux/netfilter/xt_ipvs.h`, revision 0.

use ipnet::IpNet;
use vipline_nftables::Bytes;

use super::structure::{Reader, Writer};
use crate::Family;
use crate::matches::{CtDirection, Ipvs, IpvsMethod};
use crate::negatable::Negatable;
use crate::protocol::Protocol;

// Bits of `bitmask` and `invert`.
const PROPERTY: u8 = 1 << 0;
const PROTOCOL: u8 = 1 << 1;
const ADDRESS: u8 = 1 << 2;
const PORT: u8 = 1 << 3;
const DIRECTION: u8 = 1 << 4;
const METHOD: u8 = 1 << 5;
const CONTROL_PORT: u8 = 1 << 6;

/// `IP_VS_CONN_F_*` of `linux/ip_vs.h`.
const METHODS: [(IpvsMethod, u8); 3] = [
    (IpvsMethod::Masq, 0),
    (IpvsMethod::Ipip, 2),
    (IpvsMethod::Gate, 3),
];

/// Conditions of the structure.
#[derive(Default)]
struct Flags {
    used: u8,
    inverted: u8,
}

impl Flags {
    /// Sets the bit of a condition, and returns its value. Returns the default without a
    /// condition.
    fn set<T: Copy + Default>(&mut self, bit: u8, condition: Option<Negatable<T>>) -> T {
        let Some(condition) = condition else {
            return T::default();
        };
        self.used |= bit;
        if condition.is_negated() {
            self.inverted |= bit;
        }
        *condition.value()
    }

    /// Returns the condition on a value, if its bit is set.
    fn condition<T>(&self, bit: u8, value: T) -> Option<Negatable<T>> {
        (self.used & bit != 0).then(|| Negatable::new(self.inverted & bit != 0, value))
    }
}

/// Returns the structure. Returns `None` if the address is not of the family.
pub(super) fn encode(it: &Ipvs, family: Family) -> Option<Bytes> {
    let mut flags = Flags::default();
    flags.set(PROPERTY, it.property);
    let protocol = flags.set(PROTOCOL, it.protocol.map(|it| it.map(|it| it.0)));
    flags.set(ADDRESS, it.address.map(|it| it.map(|_| ())));
    let port = flags.set(PORT, it.port);
    let direction = it.direction;
    flags.set(
        DIRECTION,
        direction.map(|it| Negatable::new(it == CtDirection::Reply, ())),
    );
    let number = |method| METHODS.iter().find(|(known, _)| *known == method);
    let method = it
        .method
        .map(|it| it.map(|it| number(it).map_or(0, |it| it.1)));
    let method = flags.set(METHOD, method);
    let control_port = flags.set(CONTROL_PORT, it.control_port);
    if flags.used != 0 {
        flags.used |= PROPERTY;
    }
    let out = match it.address {
        Some(address) => put_network(*address.value(), family)?,
        None => Writer::default().zeros(32),
    };
    let out = out.be16(port).u8(protocol).u8(method).be16(control_port);
    Some(out.u8(flags.inverted).u8(flags.used).finish())
}

/// Writes address and mask.
fn put_network(network: IpNet, family: Family) -> Option<Writer> {
    let out = Writer::default().address(network.addr(), family)?;
    // iptables sets all bits if the rule has no mask.
    match network.prefix_len() == network.max_prefix_len() {
        true => Some(out.bytes(&[u8::MAX; 16])),
        false => out.address(network.netmask(), family),
    }
}

/// Returns the match of a structure.
pub(super) fn decode(bytes: &[u8], family: Family) -> Option<Ipvs> {
    let mut reader = Reader::new(bytes);
    let network = IpNet::with_netmask(reader.address(family)?, reader.address(family)?).ok()?;
    let port = reader.be16()?;
    let (protocol, method) = (reader.u8()?, reader.u8()?);
    let control_port = reader.be16()?;
    let (inverted, used) = (reader.u8()?, reader.u8()?);
    let flags = Flags { used, inverted };
    let direction = flags.condition(DIRECTION, ()).map(|it| match it {
        Negatable::Is(()) => CtDirection::Original,
        Negatable::Not(()) => CtDirection::Reply,
    });
    let method = match flags.condition(METHOD, method) {
        Some(number) => {
            let number_of = |it: &&(IpvsMethod, u8)| it.1 == *number.value();
            let (method, _) = METHODS.iter().find(number_of)?;
            Some(number.map(|_| *method))
        }
        None => None,
    };
    Some(Ipvs {
        property: flags.condition(PROPERTY, ()).filter(|_| used == PROPERTY),
        protocol: flags.condition(PROTOCOL, Protocol(protocol)),
        address: flags.condition(ADDRESS, network),
        port: flags.condition(PORT, port),
        direction,
        method,
        control_port: flags.condition(CONTROL_PORT, control_port),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_has_the_layout_of_the_kernel() {
        let address: std::net::IpAddr = [203, 0, 113, 9].into();
        let mut ipvs = Ipvs::server(Protocol::TCP, address, 80);
        ipvs.direction = Some(CtDirection::Reply);
        ipvs.method = Some(Negatable::Not(IpvsMethod::Gate));
        let bytes = encode(&ipvs, Family::V4).unwrap();
        let mut expected = vec![203, 0, 113, 9];
        expected.resize(16, 0);
        expected.extend([u8::MAX; 16]);
        expected.extend([0, 80, 6, 3, 0, 0, DIRECTION | METHOD, 0b11_1111]);
        assert_eq!(*bytes, *expected);
        assert_eq!(decode(&bytes, Family::V4), Some(ipvs.clone()));
        assert_eq!(encode(&ipvs, Family::V6), None);
        assert_eq!(decode(&bytes[..39], Family::V4), None);
    }

    #[test]
    fn a_negated_property_has_no_other_condition() {
        let ipvs = Ipvs {
            property: Some(Negatable::Not(())),
            ..Ipvs::default()
        };
        let bytes = encode(&ipvs, Family::V6).unwrap();
        assert_eq!(bytes[32..], [0, 0, 0, 0, 0, 0, PROPERTY, PROPERTY]);
        assert_eq!(decode(&bytes, Family::V6), Some(ipvs));
    }
}
