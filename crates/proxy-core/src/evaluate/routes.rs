//! The main routing tables in the format of `/proc/net`.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// `RTF_UP` and `RTF_REJECT` of `linux/route.h`.
const UP: u32 = 0x1;
const REJECT: u32 = 0x200;

/// `RTF_ANYCAST`, `RTF_CACHE` and `RTF_LOCAL` of `linux/ipv6_route.h`.
const NOT_UNICAST: u32 = 0x0010_0000 | 0x0100_0000 | 0x8000_0000;

/// A route to other hosts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct ProcRoute {
    pub(super) destination: IpNet,
    pub(super) interface: String,
    pub(super) metric: u32,
}

/// Parses `/proc/net/route`. Skips lines that are no routes to other hosts.
pub(super) fn ipv4(text: &str) -> Vec<ProcRoute> {
    text.lines().filter_map(ipv4_line).collect()
}

fn ipv4_line(line: &str) -> Option<ProcRoute> {
    let mut words = line.split_ascii_whitespace();
    let interface = words.next()?.to_owned();
    // The numbers are big-endian addresses, read as integers of the processor.
    let addr = |word: &str| {
        let number = u32::from_str_radix(word, 16).ok()?;
        Some(Ipv4Addr::from(number.to_ne_bytes()))
    };
    let destination = addr(words.next()?)?;
    let flags = u32::from_str_radix(words.nth(1)?, 16).ok()?;
    let metric = words.nth(2)?.parse().ok()?;
    let mask = addr(words.next()?)?;
    let destination = Ipv4Net::with_netmask(destination, mask).ok()?;
    (flags & UP != 0 && flags & REJECT == 0).then_some(ProcRoute {
        destination: destination.into(),
        interface,
        metric,
    })
}

/// Parses `/proc/net/ipv6_route`. Skips lines that are no routes to other hosts.
pub(super) fn ipv6(text: &str) -> Vec<ProcRoute> {
    text.lines().filter_map(ipv6_line).collect()
}

fn ipv6_line(line: &str) -> Option<ProcRoute> {
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    let [destination, len, _, _, _, metric, _, _, flags, interface] = words[..] else {
        return None;
    };
    let destination = u128::from_str_radix(destination, 16).ok()?;
    let destination = Ipv6Addr::from(destination);
    let len = u8::from_str_radix(len, 16).ok()?;
    let destination = Ipv6Net::new(destination, len).ok()?;
    let flags = u32::from_str_radix(flags, 16).ok()?;
    let is_unicast = flags & (REJECT | NOT_UNICAST) == 0 && !destination.addr().is_multicast();
    (flags & UP != 0 && is_unicast).then_some(ProcRoute {
        destination: destination.into(),
        interface: interface.to_owned(),
        metric: u32::from_str_radix(metric, 16).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(routes: Vec<ProcRoute>) -> Vec<String> {
        let text = |it: ProcRoute| format!("{} {} {}", it.destination, it.interface, it.metric);
        routes.into_iter().map(text).collect()
    }

    #[test]
    fn routes_of_ipv4_are_read_without_the_header_and_rejecting_routes() {
        let little_endian = cfg!(target_endian = "little");
        let [network, gateway, mask] = match little_endian {
            true => ["0001A8C0", "0101A8C0", "00FFFFFF"],
            false => ["C0A80100", "C0A80101", "FFFFFF00"],
        };
        let text = format!(
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
             eth0\t00000000\t{gateway}\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
             eth0\t{network}\t00000000\t0001\t0\t0\t0\t{mask}\t0\t0\t0\n\
             *\t{network}\t00000000\t0201\t0\t0\t0\t{mask}\t0\t0\t0\n"
        );
        assert_eq!(
            texts(ipv4(&text)),
            ["0.0.0.0/0 eth0 100", "192.168.1.0/24 eth0 0"]
        );
    }

    #[test]
    fn routes_of_ipv6_are_read_without_local_multicast_and_rejecting_ones() {
        let zero = "0".repeat(32);
        let line = |destination: &str, len: &str, flags: &str, interface: &str| {
            format!(
                "{destination} {len} {zero} 00 {zero} 00000100 00000001 00000000 {flags} {interface}\n"
            )
        };
        let net = format!("fd000010{}", "0".repeat(24));
        let own = format!("fd000010{}1", "0".repeat(23));
        let multicast = format!("ff{}", "0".repeat(30));
        let text = line(&net, "40", "00000001", "eth0")
            + &line(&own, "80", "80200001", "eth0")
            + &line(&multicast, "08", "00000001", "eth0")
            + &line(&zero, "00", "00200200", "lo")
            + &line(&zero, "00", "00000003", "eth1");
        assert_eq!(
            texts(ipv6(&text)),
            ["fd00:10::/64 eth0 256", "::/0 eth1 256"]
        );
    }
}
