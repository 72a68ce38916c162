//! Parser of elements: addresses, networks, ports, marks and names.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

use super::words::number;
use super::{icmp, service};
use crate::{Interface, ListPosition, MacAddr, Member, Name, Port, Protocol, SetFamily, SetType};

/// First and last element of a range. Both are equal for a single element.
type Span<T> = (T, T);

/// Addresses of hosts by their names.
pub(super) type Hosts<'a> = dyn Fn(&str, SetFamily) -> Option<IpAddr> + 'a;

/// Parses the first and last element of an entry.
pub(super) fn member(
    set_type: &SetType,
    family: SetFamily,
    hosts: &Hosts<'_>,
    word: &str,
) -> Option<Span<Member>> {
    let parts: Vec<&str> = word.split(',').collect();
    let host = |word: &str| address(word).or_else(|| named(word, family, hosts));
    let addresses = |word| addresses(word, &host);
    let networks = |word| networks(word, &host);
    let ports = |word| port(word, family);
    Some(match (set_type, parts.as_slice()) {
        (SetType::HashIp | SetType::BitmapIp, [ips]) => both(addresses(ips)?, Member::Ip),
        (SetType::BitmapIpMac, [ip]) => both(addresses(ip)?, |ip| Member::IpMac(ip, None)),
        (SetType::BitmapIpMac | SetType::HashIpMac, [ip, mac]) => {
            let mac = self::mac(mac)?;
            both(addresses(ip)?, |ip| Member::IpMac(ip, Some(mac)))
        }
        (SetType::HashIpMark, [ips, mark]) => {
            let mark = number(mark)?;
            both(addresses(ips)?, |ip| Member::IpMark(ip, mark))
        }
        (SetType::HashIpPort, [ips, port]) => {
            let ((from, to), (port, end)) = (addresses(ips)?, ports(port)?);
            (Member::IpPort(from, port), Member::IpPort(to, end))
        }
        (SetType::HashIpPortIp, [ips, port, seconds]) => {
            let ((from, to), (port, end)) = (addresses(ips)?, ports(port)?);
            let (second, second_to) = addresses(seconds)?;
            let last = Member::IpPortIp(to, end, second_to);
            (Member::IpPortIp(from, port, second), last)
        }
        (SetType::HashIpPortNet, [ips, port, nets]) => {
            let ((from, to), (port, end)) = (addresses(ips)?, ports(port)?);
            let (second, second_to) = networks(nets)?;
            let last = Member::IpPortNet(to, end, second_to);
            (Member::IpPortNet(from, port, second), last)
        }
        (SetType::HashMac, [mac]) => both((self::mac(mac)?, self::mac(mac)?), Member::Mac),
        (SetType::HashNet, [nets]) => both(networks(nets)?, Member::Net),
        (SetType::HashNetIface, [nets, name]) => {
            let interface = interface(name)?;
            both(networks(nets)?, |net| {
                Member::NetIface(net, interface.clone())
            })
        }
        (SetType::HashNetNet, [nets, seconds]) => {
            let ((from, to), (second, second_to)) = (networks(nets)?, networks(seconds)?);
            (Member::NetNet(from, second), Member::NetNet(to, second_to))
        }
        (SetType::HashNetPort, [nets, port]) => {
            let ((from, to), (port, end)) = (networks(nets)?, ports(port)?);
            (Member::NetPort(from, port), Member::NetPort(to, end))
        }
        (SetType::HashNetPortNet, [nets, port, seconds]) => {
            let ((from, to), (port, end)) = (networks(nets)?, ports(port)?);
            let (second, second_to) = networks(seconds)?;
            let last = Member::NetPortNet(to, end, second_to);
            (Member::NetPortNet(from, port, second), last)
        }
        (SetType::BitmapPort, [ports]) => both(plain_ports(ports)?, Member::Port),
        (SetType::ListSet, [name]) => {
            let name = Name::new(name).ok()?;
            both((name.clone(), name), Member::Set)
        }
        _ => return None,
    })
}

fn both<T>((from, to): Span<T>, member: impl Fn(T) -> Member) -> Span<Member> {
    (member(from), member(to))
}

/// Splits `NAME,before,NAME` and `NAME,after,NAME`, the old syntax of positions.
pub(super) fn listed(word: &str) -> Option<(&str, Option<ListPosition>)> {
    let Some((name, rest)) = word.split_once(',') else {
        return Some((word, None));
    };
    let (which, other) = rest.split_once(',')?;
    let other = Name::new(other).ok()?;
    let position = match which {
        "before" => ListPosition::Before(other),
        "after" => ListPosition::After(other),
        _ => return None,
    };
    Some((name, Some(position)))
}

/// Splits a range at its hyphen. Each end can be in brackets, to contain hyphens.
fn ends(word: &str) -> Option<(&str, Option<&str>)> {
    let (from, to) = match word.strip_prefix('[') {
        Some(rest) => {
            let (from, rest) = rest.split_once(']')?;
            match rest {
                "" => (from, None),
                rest => (from, Some(rest.strip_prefix('-')?)),
            }
        }
        None => match word.split_once('-') {
            Some((from, to)) => (from, Some(to)),
            None => (word, None),
        },
    };
    let bare = |to: &'_ str| match to.strip_prefix('[') {
        Some(to) => to.strip_suffix(']').map(str::len).map(|len| (1, len)),
        None => Some((0, to.len())),
    };
    match to {
        Some(to) => {
            let (start, len) = bare(to)?;
            Some((from, Some(to.get(start..start + len)?)))
        }
        None => Some((from, None)),
    }
}

/// Parses an address. IPv4 addresses can be short: `10.1` is 10.0.0.1.
pub(super) fn address(word: &str) -> Option<IpAddr> {
    word.parse()
        .ok()
        .or_else(|| short_ipv4(word).map(IpAddr::V4))
}

/// A parser of an address or the name of a host.
type Host<'a> = &'a dyn Fn(&str) -> Option<IpAddr>;

/// Returns the address of the host of this name, in the family of the set.
fn named(word: &str, family: SetFamily, hosts: &Hosts<'_>) -> Option<IpAddr> {
    let is_name = word.starts_with(|c: char| c.is_ascii_alphanumeric()) && !word.contains(':');
    let address = is_name.then(|| hosts(word, family)).flatten();
    address.filter(|address| address.is_ipv4() == (family == SetFamily::V4))
}

/// Parses one to four numbers as `inet_aton` does: the last number fills the rest.
fn short_ipv4(word: &str) -> Option<Ipv4Addr> {
    let number = |word: &str| {
        let is_decimal = word.bytes().all(|byte| byte.is_ascii_digit());
        let is_plain = is_decimal && (word == "0" || !word.starts_with('0'));
        word.parse().ok().filter(|_| is_plain)
    };
    let numbers: Vec<u32> = word.split('.').map(number).collect::<Option<_>>()?;
    let (last, bytes) = numbers.split_last()?;
    let mut value = 0_u32;
    for (index, byte) in bytes.iter().enumerate() {
        let shift = [24, 16, 8].get(index)?;
        value |= u32::from(u8::try_from(*byte).ok()?) << shift;
    }
    let room = 32 - 8 * u32::try_from(bytes.len()).ok()?;
    let fits = last.checked_shr(room).is_none_or(|rest| rest == 0);
    fits.then(|| Ipv4Addr::from(value | *last))
}

/// Parses an address, an address range or a network, which has a prefix.
fn addresses(word: &str, host: Host<'_>) -> Option<Span<IpAddr>> {
    if word.contains('/') {
        let net = network(word, host).filter(|net| net.prefix_len() > 0)?;
        return Some((net.network(), net.broadcast()));
    }
    let (from, to) = ends(word)?;
    let from = host(from)?;
    Some((from, to.map_or(Some(from), host)?))
}

/// Parses a network, or an address range as networks of full prefix length.
fn networks(word: &str, host: Host<'_>) -> Option<Span<IpNet>> {
    if word.contains('/') {
        let net = network(word, host)?;
        return Some((net, net));
    }
    let (from, to) = ends(word)?;
    let from = host(from)?;
    let to = to.map_or(Some(from), host)?;
    Some((from.into(), to.into()))
}

/// Parses `ADDRESS/PREFIX`.
fn network(word: &str, host: Host<'_>) -> Option<IpNet> {
    let (ip, prefix) = word.split_once('/')?;
    let (ip, rest) = ends(ip)?;
    let net = IpNet::new(host(ip)?, number(prefix)?).ok();
    net.filter(|_| rest.is_none()).map(|net| net.trunc())
}

/// Parses the IPv4 range of a bitmap: `FROM-TO` or a network.
pub(super) fn address_range(word: &str) -> Option<Span<Ipv4Addr>> {
    if word.contains('/') {
        return ipv4_network(word);
    }
    let (from, to) = ends(word)?;
    match (address(from)?, address(to?)?) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Some((from, to)),
        _ => None,
    }
}

/// Returns the first and last address of an IPv4 network.
pub(super) fn ipv4_network(word: &str) -> Option<Span<Ipv4Addr>> {
    match network(word, &address)? {
        IpNet::V4(net) => Some((Ipv4Net::network(&net), Ipv4Net::broadcast(&net))),
        IpNet::V6(_) => None,
    }
}

/// Parses `[PROTOCOL:]PORT[-PORT]`, `PROTOCOL:TYPE/CODE` or `PROTOCOL:ICMP-NAME`.
fn port(word: &str, family: SetFamily) -> Option<Span<Port>> {
    let (protocol, ports) = word.split_once(':').unwrap_or(("tcp", word));
    let protocol = named_protocol(protocol)?;
    if has_ports(protocol) {
        let (from, to) = port_numbers(protocol, ports)?;
        return Some((Port::new(protocol, from), Port::new(protocol, to)));
    }
    let number = match icmp::has_types(protocol) {
        true if icmp::family(protocol) != Some(family) => return None,
        true => icmp_type(protocol, ports)?,
        false => Some(0).filter(|_| ports == "0")?,
    };
    let port = Port::new(protocol, number);
    Some((port, port))
}

/// Parses the name or the number of a protocol.
fn named_protocol(word: &str) -> Option<Protocol> {
    Protocol::from_name(word).or_else(|| number(word).map(Protocol))
}

/// Returns whether elements have ports of the protocol. DCCP, which also has ports, is not one
/// of these in the kernel.
fn has_ports(protocol: Protocol) -> bool {
    protocol.has_ports() && protocol != Protocol::DCCP
}

/// Parses `TYPE/CODE` or a name.
fn icmp_type(protocol: Protocol, word: &str) -> Option<u16> {
    let (ty, code) = match icmp::numbers(protocol, word) {
        Some(numbers) => numbers,
        None => {
            let (ty, code) = word.split_once('/')?;
            (number(ty)?, number(code)?)
        }
    };
    Some(u16::from_be_bytes([ty, code]))
}

/// Parses `[PROTOCOL:]PORT[-PORT]` of a bitmap, whose protocol has no meaning.
pub(super) fn plain_ports(word: &str) -> Option<Span<u16>> {
    match word.split_once(':') {
        Some((protocol, ports)) => {
            let protocol = named_protocol(protocol)?;
            port_numbers(protocol, ports)
                .filter(|_| matches!(protocol, Protocol::TCP | Protocol::UDP))
        }
        None => port_numbers(Protocol::TCP, word),
    }
}

/// Parses a port or a range of ports: numbers, or names of services. A name with a
/// hyphen must be in brackets.
fn port_numbers(protocol: Protocol, word: &str) -> Option<Span<u16>> {
    let one = |word: &str| number(word).or_else(|| service::port(protocol, word));
    let (from, to) = ends(word)?;
    let from = one(from)?;
    Some((from, to.map_or(Some(from), one)?))
}

/// Parses an Ethernet address: six hexadecimal numbers.
fn mac(word: &str) -> Option<MacAddr> {
    let mut words = word.split(':');
    let mut bytes = [0; 6];
    for byte in &mut bytes {
        let digits = words.next()?;
        let plain = (1..=2).contains(&digits.len()) && !digits.starts_with('+');
        *byte = u8::from_str_radix(digits, 16).ok().filter(|_| plain)?;
    }
    words.next().is_none().then_some(MacAddr(bytes))
}

fn interface(word: &str) -> Option<Interface> {
    let interface = match word.strip_prefix("physdev:") {
        Some(name) => Interface::bridge_port(name),
        None => Interface::new(word),
    };
    (1..=15)
        .contains(&interface.name.len())
        .then_some(interface)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_can_be_short_like_those_of_inet_aton() {
        let cases = [
            ("10.1", Some("10.0.0.1")),
            ("0", Some("0.0.0.0")),
            ("10.1.258", Some("10.1.1.2")),
            ("0x0a000001", None),
            ("10.0.0.256", None),
            ("1.2.3.4.5", None),
            ("", None),
            ("fd00::1", Some("fd00::1")),
        ];
        for (word, expected) in cases {
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(address(word), expected, "{word}");
        }
    }

    #[test]
    fn names_of_hosts_are_resolved_in_the_family_of_the_set() {
        let hosts = |name: &str, family| match (name, family) {
            ("web", SetFamily::V4) => Some("10.0.0.1".parse().unwrap()),
            ("web-1", _) => Some("fd00::1".parse().unwrap()),
            _ => None,
        };
        let member = |family, word| member(&SetType::HashIp, family, &hosts, word);
        let one = |text: &str| {
            let address: IpAddr = text.parse().unwrap();
            Some((Member::Ip(address), Member::Ip(address)))
        };
        assert_eq!(member(SetFamily::V4, "web"), one("10.0.0.1"));
        assert_eq!(member(SetFamily::V4, "[web]"), one("10.0.0.1"));
        assert_eq!(member(SetFamily::V6, "[web-1]"), one("fd00::1"));
        // The other family, the range from `web` to `1`, and a name without an address.
        assert_eq!(member(SetFamily::V4, "[web-1]"), None);
        assert_eq!(member(SetFamily::V6, "web-1"), None);
        assert_eq!(member(SetFamily::V4, "none"), None);
    }

    #[test]
    fn range_ends_can_be_in_brackets() {
        assert_eq!(ends("[a-b]-[c]"), Some(("a-b", Some("c"))));
        assert_eq!(ends("[a]"), Some(("a", None)));
        assert_eq!(ends("1-2"), Some(("1", Some("2"))));
        assert_eq!(ends("[a"), None);
        assert_eq!(ends("[a]b"), None);
    }

    #[test]
    fn elements_that_the_type_cannot_hold_are_refused() {
        let cases = [
            (SetType::HashIpPort, "10.0.0.1,gre:5"),
            (SetType::HashIpPort, "10.0.0.1,icmpv6:echo-request"),
            (SetType::HashIpMac, "10.0.0.1"),
            (SetType::HashMac, "1:2:3:4:5"),
            (SetType::HashMac, "1:2:3:4:5:+6"),
            (SetType::HashNetIface, "10.0.0.0/8,sixteen-letters-"),
            (SetType::BitmapPort, "icmp:0/0"),
            (SetType::HashIp, "10.0.0.1/33"),
            (SetType::HashIp, "0/0"),
        ];
        for (set_type, word) in cases {
            let found = member(&set_type, SetFamily::V4, &|_, _| None, word);
            assert_eq!(found, None, "{word}");
        }
    }
}
