//! Rules with actions.

use std::net::{IpAddr, SocketAddr};

use vipline_nftables::expr::{
    Connlimit, ExthdrOp, Limit, LimitType, Log, LogLevel, NatFlags, Quota, RtKey, SocketKey,
    XfrmDirection, XfrmKey,
};
use vipline_nftables::expression::*;
use vipline_nftables::statement::*;
use vipline_nftables::{Expression, Hook};

use crate::rules::{Case, Samples, name};

impl Samples {
    pub(crate) fn actions(&self) -> Vec<Case> {
        let family = self.family;
        let (addr, socket) = (self.addr(1), SocketAddr::new(self.addr(1), 8080));
        vec![
            self.case(
                Hook::Forward,
                "IP daddr @cluster-ips reject",
                [daddr(family).in_set(&self.cluster_ips), reject()],
            ),
            self.case(
                Hook::Forward,
                "meta l4proto tcp reject with tcp reset",
                [reject_with_tcp_reset()],
            ),
            self.case(
                Hook::Forward,
                "tcp dport 22 accept",
                [tcp_dport().is(22), accept()],
            ),
            self.case(
                Hook::Forward,
                "counter log prefix \"x: \" limit rate 10/second burst 5 packets drop",
                [
                    counter(),
                    log(&name("x: ")),
                    Limit::per_second(10).into(),
                    drop(),
                ],
            ),
            self.case(
                Hook::Forward,
                "limit rate over 512 bytes/minute burst 100 bytes drop",
                [
                    Limit {
                        kind: LimitType::Bytes,
                        ..Limit::per_minute(512).with_burst(100)
                    }
                    .over()
                    .into(),
                    drop(),
                ],
            ),
            self.case(
                Hook::Forward,
                "log prefix \"y\" level debug accept",
                [
                    Log {
                        prefix: Some(name("y")),
                        level: Some(LogLevel::Debug),
                        ..Log::default()
                    }
                    .into(),
                    accept(),
                ],
            ),
            self.case(
                Hook::Forward,
                "quota over 500 bytes drop",
                [
                    Quota {
                        bytes: 500,
                        over: true,
                        ..Quota::default()
                    }
                    .into(),
                    drop(),
                ],
            ),
            self.case(
                Hook::Forward,
                "meta mark set 0x00000010",
                [mark().set_to(0x10_u32)],
            ),
            self.case(
                Hook::Forward,
                "ct mark set meta mark",
                [ct_mark().set(&mark())],
            ),
            self.case(
                Hook::Forward,
                "meta mark set meta mark & 0x0000000f | 0x00000010",
                [mark().set(&mark().and(0xf).or(0x10))],
            ),
            self.case(
                Hook::Forward,
                "meta mark set numgen inc mod 7",
                [mark().set(&numgen_inc(7))],
            ),
            self.case(
                Hook::Forward,
                "meta mark set jhash IP saddr . IP daddr mod 16 seed 0xbeef",
                [mark().set(&jhash(
                    concat([saddr(family), daddr(family)]),
                    16,
                    Some(0xbeef),
                ))],
            ),
            self.case(Hook::Prerouting, &format!("dnat to {addr}"), [dnat(addr)]),
            self.case(
                Hook::Prerouting,
                &format!("tcp dport 80 dnat to {socket}"),
                [tcp_dport().is(80), dnat(socket)],
            ),
            self.case(Hook::Postrouting, &format!("snat to {addr}"), [snat(addr)]),
            self.case(
                Hook::Prerouting,
                "tcp dport 80 redirect to :8080",
                [tcp_dport().is(80), redirect(8080)],
            ),
            self.case(Hook::Forward, "return", [return_()]),
        ]
    }

    /// Rules that translate to ranges, or copy and proxy packets.
    pub(crate) fn forwards(&self) -> Vec<Case> {
        let (addr, last) = (self.addr(1), self.addr(9));
        let socket = SocketAddr::new(addr, 8080);
        let (range, of_ports) = match addr {
            IpAddr::V4(_) => (format!("{addr}-{last}"), format!("{addr}-{last}:80-90")),
            IpAddr::V6(_) => (format!("{addr}-{last}"), format!("[{addr}]-[{last}]:80-90")),
        };
        let persistent = NatFlags::RANDOM | NatFlags::PERSISTENT;
        let ports = NatTarget::range(addr..=last, Some(80..=90));
        vec![
            self.case(
                Hook::Postrouting,
                &format!("snat to {range} random,persistent"),
                [snat_with(NatTarget::range(addr..=last, None), persistent)],
            ),
            self.case(
                Hook::Prerouting,
                &format!("tcp dport 80 dnat to {of_ports}"),
                [tcp_dport().is(80), dnat(ports)],
            ),
            self.case(Hook::Forward, &format!("dup to {addr}"), [dup(addr)]),
            self.case(
                Hook::Prerouting,
                &format!("meta l4proto tcp tproxy to {socket}"),
                [l4proto().is(6_u8), tproxy(socket)],
            ),
            self.case(
                Hook::Forward,
                "ct count over 5 drop",
                [
                    Connlimit {
                        count: 5,
                        over: true,
                    }
                    .into(),
                    drop(),
                ],
            ),
        ]
    }

    /// Rules with optional headers, routes, sockets and IPsec transformations.
    pub(crate) fn loads(&self) -> Vec<Case> {
        let header = |kind| exthdr_exists(ExthdrOp::TcpOption, kind);
        let out = |key| ipsec(XfrmDirection::Out, 1, key);
        vec![
            self.case(
                Hook::Forward,
                "tcp option sack-perm exists",
                [header(4).is(true)],
            ),
            self.case(
                Hook::Forward,
                "tcp option maxseg size 1000-1500",
                [tcp_option_maxseg_size().is(1000..=1500)],
            ),
            self.case(
                Hook::Forward,
                "tcp option maxseg size set rt mtu",
                [tcp_option_maxseg_size().set(&RtKey::Tcpmss.into())],
            ),
            self.case(
                Hook::Forward,
                "ipsec out spnum 1 spi 7",
                [out(XfrmKey::Spi).is(7_u32)],
            ),
            self.case(
                Hook::Prerouting,
                "socket transparent 1 meta mark set socket mark",
                [
                    Expression::from(SocketKey::Transparent).is(1_u8),
                    mark().set(&SocketKey::Mark.into()),
                ],
            ),
            self.case(
                Hook::Forward,
                "meta mark set meta mark << 8",
                [mark().set(&mark().shift_left(8))],
            ),
            self.case(
                Hook::Forward,
                "meta mark set (meta mark & 0x0000ff00) >> 8",
                [mark().set(&mark().and(0xff00).shift_right(8))],
            ),
        ]
    }
}
