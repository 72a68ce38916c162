//! Addresses and ports of a command line.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::arguments::Result;
use crate::{Transport, port_names};

/// Parses an address and an optional port or name of a service: `10.0.0.1:80`,
/// `10.0.0.1:http`, `[fd00::1]:80`, `fd00::1`.
pub(crate) fn split_port(text: &str, protocol: Transport) -> Result<(IpAddr, Option<u16>)> {
    if let Ok(both) = text.parse::<SocketAddr>() {
        return match both {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => Err("an address has a zone"),
            both => Ok((both.ip(), Some(both.port()))),
        };
    }
    if let Some(inner) = text.strip_prefix('[') {
        let (address, rest) = inner.split_once(']').ok_or("invalid address")?;
        let address = address.parse().map_err(|_| "invalid address")?;
        return match rest.strip_prefix(':') {
            None if rest.is_empty() => Ok((IpAddr::V6(address), None)),
            None => Err("invalid address"),
            Some(port) => Ok((IpAddr::V6(address), Some(parse_port(port, protocol)?))),
        };
    }
    if let Ok(address) = text.parse() {
        return Ok((IpAddr::V6(address), None));
    }
    // A number alone would be a firewall mark.
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("invalid address");
    }
    let (address, port) = match text.rsplit_once(':') {
        Some((address, port)) => (address, Some(port)),
        None => (text, None),
    };
    let address = ipv4(address).ok_or("invalid address")?;
    let port = port.map(|port| parse_port(port, protocol)).transpose()?;
    Ok((address.into(), port))
}

fn parse_port(text: &str, protocol: Transport) -> Result<u16> {
    let number = text.parse().ok();
    let port = number.or_else(|| port_names::port(text, protocol));
    port.ok_or("invalid port")
}

/// Parses an IPv4 address like `inet_aton`: one to four numbers, decimal, octal or
/// hexadecimal. The last number has the remaining bytes.
pub(crate) fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let parts = text.split('.').map(number);
    let parts = parts.collect::<Option<Vec<u32>>>()?;
    let (last, first) = parts.split_last()?;
    let bits = match first {
        [] => *last,
        [a] if *last < 1 << 24 => a << 24 | last,
        [a, b] if *last < 1 << 16 => a << 24 | b << 16 | last,
        [a, b, c] if *last < 1 << 8 => a << 24 | b << 16 | c << 8 | last,
        _ => return None,
    };
    let are_bytes = first.iter().all(|part| *part < 1 << 8);
    are_bytes.then(|| Ipv4Addr::from_bits(bits))
}

/// Parses a decimal, octal or hexadecimal number without sign.
fn number(text: &str) -> Option<u32> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match (hex, text.strip_prefix('0')) {
        (Some(hex), _) if hex.starts_with('+') => None,
        (Some(hex), _) => u32::from_str_radix(hex, 16).ok(),
        (None, Some(octal)) if !octal.is_empty() => u32::from_str_radix(octal, 8).ok(),
        _ => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_addresses_are_parsed_like_inet_aton() {
        for (text, address) in [
            ("10.0.0.1", Some([10, 0, 0, 1])),
            ("10.1", Some([10, 0, 0, 1])),
            ("10.1.258", Some([10, 1, 1, 2])),
            ("0x0a.0.0.010", Some([10, 0, 0, 8])),
            ("167772161", Some([10, 0, 0, 1])),
            ("0", Some([0; 4])),
            ("", None),
            ("10.", None),
            ("10.0.0.256", None),
            ("256.1", None),
            ("10.0.0.0.1", None),
            ("+1", None),
            ("0x+1", None),
            ("09", None),
            ("host", None),
        ] {
            assert_eq!(ipv4(text), address.map(Ipv4Addr::from), "{text}");
        }
    }
}
