//! Generators of loads from optional headers, routes, sockets and IPsec transformations,
//! and of statements that forward, copy, queue, limit or proxy packets.

use std::time::Duration;

use proptest::option;
use proptest::prelude::*;
use vipline_nftables::Family;
use vipline_nftables::expr::*;

use super::register;

fn exthdr() -> impl Strategy<Value = Expr> {
    let location = (0..256_u32, 1..64_u32);
    let access =
        (location, register(), 0..4_u8).prop_map(
            |((offset, len), register, access)| match access {
                present @ (0 | 1) => ExthdrAccess::Load {
                    destination: register,
                    offset,
                    len,
                    present: present == 1,
                },
                2 => ExthdrAccess::Store {
                    source: register,
                    offset,
                    len,
                },
                _ => ExthdrAccess::Reset,
            },
        );
    (0..5_u32, any::<u8>(), access).prop_map(|(op, kind, access)| {
        let op = ExthdrOp::from_number(op);
        Exthdr { op, kind, access }.into()
    })
}

pub(super) fn loads() -> impl Strategy<Value = Expr> {
    let sockets = prop_oneof![
        Just(SocketKey::Transparent),
        Just(SocketKey::Mark),
        Just(SocketKey::Wildcard),
        (1..256_u32).prop_map(SocketKey::Cgroupv2),
        (4..9_u32).prop_map(SocketKey::Other),
    ];
    let ttl = prop_oneof![
        Just(OsfTtl::True),
        Just(OsfTtl::Less),
        Just(OsfTtl::NoCheck)
    ];
    prop_oneof![
        exthdr(),
        (0..7_u32, register()).prop_map(|(key, destination)| {
            let key = RtKey::from_number(key);
            Rt { key, destination }.into()
        }),
        (sockets, register()).prop_map(|(key, destination)| Socket { key, destination }.into()),
        (0..9_u32, any::<bool>(), any::<u32>(), register()).prop_map(
            |(key, out, spnum, destination)| {
                let direction = if out {
                    XfrmDirection::Out
                } else {
                    XfrmDirection::In
                };
                Xfrm {
                    key: XfrmKey::from_number(key),
                    direction,
                    spnum,
                    destination,
                }
                .into()
            }
        ),
        (ttl, any::<bool>(), register()).prop_map(|(ttl, version, destination)| {
            Osf {
                ttl,
                version,
                destination,
            }
            .into()
        }),
    ]
}

pub(super) fn actions() -> impl Strategy<Value = Expr> {
    let target = prop_oneof![
        any::<(u16, u16)>().prop_map(|(first, total)| QueueTarget::Numbers { first, total }),
        register().prop_map(QueueTarget::Register),
    ];
    let addr = option::of(register().prop_map(|register| (Family::Ip6, register)));
    prop_oneof![
        any::<(u32, bool)>().prop_map(|(count, over)| Connlimit { count, over }.into()),
        option::of(0..1_000_000_u64).prop_map(|used| {
            let used = used.map(Duration::from_millis);
            Last { used }.into()
        }),
        any::<(u16, u8, u32)>().prop_map(|(mss, wscale, flags)| {
            let flags = SynproxyFlags::from_bits_retain(flags);
            Synproxy { mss, wscale, flags }.into()
        }),
        (option::of(register()), option::of(register())).prop_map(|(addr, device)| Dup {
            addr,
            device
        }
        .into()),
        (register(), addr).prop_map(|(device, addr)| Fwd { device, addr }.into()),
        (target, any::<u16>()).prop_map(|(target, flags)| {
            let flags = QueueFlags::from_bits_retain(flags);
            Queue { target, flags }.into()
        }),
    ]
}
