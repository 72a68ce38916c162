//! Routes of the main table, in the format of rtnetlink.
//!
//! The numbers are those of `linux/rtnetlink.h`. Files of `/proc/net` do not distinguish
//! the types of routes that discard packets, and have no preferred sources.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use vipline_evaluate::Discard;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs};

/// `RTM_NEWROUTE` and `RTM_GETROUTE`.
pub(super) const NEW_ROUTE: u16 = 24;
pub(super) const GET_ROUTE: u16 = 26;

/// `RTM_NEWRULE` and `RTM_GETRULE`.
pub(super) const NEW_RULE: u16 = 32;
pub(super) const GET_RULE: u16 = 34;

/// Priorities of the rules that each network namespace has, for the tables local, main and
/// default (`fib_default_rules_init` of `net/ipv4/fib_rules.c`).
pub(super) const DEFAULT_RULES: [u32; 3] = [0, 32_766, 32_767];

/// Length of `struct rtmsg` and of `struct fib_rule_hdr`, in bytes.
pub(super) const HEADER: usize = 12;

/// `RT_TABLE_MAIN`.
const MAIN: u32 = 254;

/// `RTA_DST`, `RTA_OIF`, `RTA_PRIORITY`, `RTA_PREFSRC`, `RTA_MULTIPATH` and `RTA_TABLE`.
const DESTINATION: u16 = 1;
const INTERFACE: u16 = 4;
const METRIC: u16 = 6;
const SOURCE: u16 = 7;
const MULTIPATH: u16 = 9;
const TABLE: u16 = 15;

/// `FRA_PRIORITY` of a rule of policy routing.
const PRIORITY: u16 = 6;

/// `RTN_UNICAST`.
const UNICAST: u8 = 1;

/// `RTNH_F_DEAD` and `RTM_F_CLONED`: the interface is down, or a cached route.
const UNUSED: u32 = 0x1 | 0x200;

/// `AF_INET` and `AF_INET6`.
const V4: u8 = 2;
const V6: u8 = 10;

/// A route of the main table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct MainRoute {
    pub(super) destination: IpNet,
    pub(super) metric: u32,
    pub(super) target: Target,
}

/// The use of a route.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Target {
    /// Index of the interface, the first one of several, and preferred source address.
    Interface(u32, Option<IpAddr>),
    Discard(Discard),
}

/// Decodes the payload of a message about a route. Returns `None` if packets to other hosts
/// do not use the route.
///
/// Routes for a TOS or a source network are not used.
pub(super) fn decode(payload: &[u8]) -> Result<Option<MainRoute>, DecodeError> {
    let incomplete = || DecodeError::new("route", 0, payload.len());
    let (header, attrs) = payload
        .split_first_chunk::<HEADER>()
        .ok_or_else(incomplete)?;
    let [family, len, source_len, tos, table, _, _, kind, flags @ ..] = *header;
    let any: IpAddr = match family {
        V4 => Ipv4Addr::UNSPECIFIED.into(),
        V6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return Ok(None),
    };
    let is_used = u32::from_ne_bytes(flags) & UNUSED == 0 && source_len == 0 && tos == 0;
    let (mut destination, mut source, mut interface) = (any, None, None);
    let (mut table, mut metric) = (u32::from(table), 0);
    for attr in Attrs::new(attrs) {
        let attr = attr?;
        match attr.kind {
            DESTINATION => destination = ip(&attr)?,
            INTERFACE => interface = Some(attr.u32()?),
            METRIC => metric = attr.u32()?,
            SOURCE => source = Some(ip(&attr)?),
            MULTIPATH => interface = first_interface(attr.value),
            TABLE => table = attr.u32()?,
            _ => {}
        }
    }
    if table != MAIN || !is_used {
        return Ok(None);
    }
    let target = match discard(kind) {
        Some(kind) => Target::Discard(kind),
        None if kind == UNICAST => Target::Interface(interface.ok_or_else(incomplete)?, source),
        None => return Ok(None),
    };
    Ok(Some(MainRoute {
        destination: IpNet::new(destination, len).map_err(|_| incomplete())?,
        metric,
        target,
    }))
}

/// Decodes the priority of a rule of policy routing, 0 if it has none.
pub(super) fn priority(payload: &[u8]) -> Result<u32, DecodeError> {
    let incomplete = || DecodeError::new("rule", 0, payload.len());
    let (_, attrs) = payload
        .split_first_chunk::<HEADER>()
        .ok_or_else(incomplete)?;
    let mut priority = 0;
    for attr in Attrs::new(attrs) {
        let attr = attr?;
        if attr.kind == PRIORITY {
            priority = attr.u32()?;
        }
    }
    Ok(priority)
}

/// Returns the type of a route that discards packets: `RTN_BLACKHOLE` and those after it.
fn discard(kind: u8) -> Option<Discard> {
    match kind {
        6 => Some(Discard::Blackhole),
        7 => Some(Discard::Unreachable),
        8 => Some(Discard::Prohibit),
        9 => Some(Discard::Throw),
        _ => None,
    }
}

/// Returns the interface of the first `struct rtnexthop`.
fn first_interface(hops: &[u8]) -> Option<u32> {
    let [_, _, _, _, index @ ..]: [u8; 8] = *hops.first_chunk()?;
    Some(u32::from_ne_bytes(index))
}

fn ip(attr: &Attr<'_>) -> Result<IpAddr, DecodeError> {
    let v4 = <[u8; 4]>::try_from(attr.value).map(IpAddr::from);
    let addr = v4.or_else(|_| <[u8; 16]>::try_from(attr.value).map(IpAddr::from));
    addr.map_err(|_| attr.error("address"))
}

#[cfg(test)]
mod tests {
    use vipline_netlink::attr::{put, put_u32};

    use super::*;

    /// A message: family, prefix length, type, and attributes of 32 bits.
    fn message(family: u8, len: u8, kind: u8, attrs: &[(u16, u32)]) -> Vec<u8> {
        let mut payload = vec![family, len, 0, 0, 254, 0, 0, kind, 0, 0, 0, 0];
        for (kind, value) in attrs {
            put_u32(&mut payload, *kind, *value);
        }
        payload
    }

    fn text(payload: &[u8]) -> Option<String> {
        let route = decode(payload).unwrap()?;
        let MainRoute {
            destination,
            metric,
            target,
        } = route;
        Some(format!("{destination} {metric} {target:?}"))
    }

    #[test]
    fn routes_of_the_main_table_are_decoded() {
        let mut node = message(V4, 32, 7, &[(METRIC, 5)]);
        put(&mut node, DESTINATION, &[10, 244, 1, 13]);
        let expected = "10.244.1.13/32 5 Discard(Unreachable)";
        assert_eq!(text(&node).as_deref(), Some(expected));
        let mut default = message(V6, 0, UNICAST, &[(INTERFACE, 2), (METRIC, 1024)]);
        let source = "fd00::5".parse::<Ipv6Addr>().unwrap();
        put(&mut default, SOURCE, &source.octets());
        let expected = "::/0 1024 Interface(2, Some(fd00::5))";
        assert_eq!(text(&default).as_deref(), Some(expected));
        let mut paths = message(V4, 0, UNICAST, &[]);
        put(&mut paths, MULTIPATH, &[8, 0, 0, 0, 7, 0, 0, 0]);
        let index = u32::from_ne_bytes([7, 0, 0, 0]);
        let expected = format!("0.0.0.0/0 0 Interface({index}, None)");
        assert_eq!(text(&paths), Some(expected));
    }

    #[test]
    fn rules_have_a_priority() {
        let rule = message(V4, 0, 1, &[(PRIORITY, 100)]);
        assert_eq!(priority(&rule), Ok(100));
        assert_eq!(priority(&message(V4, 0, 1, &[])), Ok(0));
        assert!(priority(&[V4]).is_err());
    }

    #[test]
    fn other_routes_are_not_used() {
        let of_table = message(V4, 0, UNICAST, &[(INTERFACE, 2), (TABLE, 100)]);
        let local = message(V4, 0, 2, &[(INTERFACE, 1)]);
        let mut dead = message(V4, 0, UNICAST, &[(INTERFACE, 2)]);
        dead[8..HEADER].copy_from_slice(&1_u32.to_ne_bytes());
        for payload in [of_table, local, dead] {
            assert_eq!(text(&payload), None);
        }
        assert!(decode(&message(V4, 0, UNICAST, &[])).is_err());
        assert!(decode(&[V4]).is_err());
    }
}
