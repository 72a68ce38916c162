//! Rules with actions.

use std::net::SocketAddr;

use vipline_nftables::Hook;
use vipline_nftables::expr::{Limit, LimitType, Log, LogLevel, Quota};
use vipline_nftables::expression::*;
use vipline_nftables::statement::*;

use crate::rules::{Case, Samples, name};

impl Samples {
    #[allow(clippy::too_many_lines, reason = "a table of rules")]
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
                [tcp_dport().is(22_u16), accept()],
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
                [tcp_dport().is(80_u16), dnat(socket)],
            ),
            self.case(Hook::Postrouting, &format!("snat to {addr}"), [snat(addr)]),
            self.case(
                Hook::Prerouting,
                "tcp dport 80 redirect to :8080",
                [tcp_dport().is(80_u16), redirect(8080)],
            ),
            self.case(Hook::Forward, "return", [return_()]),
        ]
    }
}
