//! Strategies for tables, including ones that a kernel rejects.

use std::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use vipline_ipvs::{
    Checksum, Family, Flags, Forwarding, Netmask, Persistence, PersistenceEngine, RealServer,
    Scheduler, ServiceKey, Table, Transport, Tunnel, VirtualServer,
};

fn address() -> impl Strategy<Value = IpAddr> {
    // A small range, so that keys collide.
    let v4 = (0..4_u8).prop_map(|last| IpAddr::from([10, 0, 0, last]));
    let v6 = (0..4_u16).prop_map(|last| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]));
    prop_oneof![v4, v6]
}

pub(crate) fn service() -> impl Strategy<Value = ServiceKey> {
    let protocol = prop::sample::select(&Transport::ALL[..]);
    let by_address = (protocol, address(), 80..83_u16)
        .prop_map(|(protocol, address, port)| ServiceKey::new(protocol, address, port));
    let family = prop_oneof![Just(Family::V4), Just(Family::V6)];
    let by_mark = (1..4_u32, family).prop_map(|(mark, family)| ServiceKey::Mark {
        mark: mark.try_into().unwrap(),
        family,
    });
    prop_oneof![3 => by_address, 1 => by_mark]
}

pub(crate) fn server() -> impl Strategy<Value = VirtualServer> {
    let known = prop::sample::select(&Scheduler::KNOWN[..]);
    let other = "[!-~]{1,15}".prop_map(|name| Scheduler::new(&name).unwrap());
    let scheduler = prop_oneof![known, other];
    let flags = vec(any::<bool>(), 4);
    let engine = prop::option::of(prop_oneof![Just("sip"), Just("new")]);
    let persistence = prop::option::of((any::<u32>(), any::<bool>()));
    (service(), scheduler, flags, persistence, engine).prop_map(
        |(service, scheduler, flags, persistence, engine)| {
            let all = [
                Flags::ONE_PACKET,
                Flags::SCHEDULER_1,
                Flags::SCHEDULER_2,
                Flags::SCHEDULER_3,
            ];
            let set = all.into_iter().zip(flags).filter(|(_, is)| *is);
            let wide = match service.family() {
                Family::V4 => Netmask::V4([255, 0, 255, 0].into()),
                Family::V6 => Netmask::V6(64),
            };
            let mut server = VirtualServer::new(service, scheduler);
            server.flags = set.map(|(flag, _)| flag).collect();
            server.persistence = persistence.map(|(timeout, is_wide)| Persistence {
                timeout,
                netmask: match is_wide {
                    true => wide,
                    false => Netmask::host(service.family()),
                },
            });
            server.persistence_engine = engine.and_then(|name| PersistenceEngine::new(name).ok());
            server
        },
    )
}

fn forwarding() -> impl Strategy<Value = Forwarding> {
    let checksum = || {
        prop_oneof![
            Just(Checksum::None),
            Just(Checksum::Full),
            Just(Checksum::Remote)
        ]
    };
    prop_oneof![
        Just(Forwarding::Masquerade),
        Just(Forwarding::Direct),
        Just(Forwarding::Tunnel(Tunnel::Ipip)),
        (any::<u16>(), checksum())
            .prop_map(|(port, checksum)| Forwarding::Tunnel(Tunnel::Gue { port, checksum })),
        checksum().prop_map(|checksum| Forwarding::Tunnel(Tunnel::Gre { checksum })),
    ]
}

pub(crate) fn real() -> impl Strategy<Value = RealServer> {
    let numbers = (any::<u32>(), any::<u32>(), any::<u32>());
    (address(), 80..83_u16, forwarding(), numbers).prop_map(
        |(address, port, forwarding, (weight, upper_threshold, lower_threshold))| {
            RealServer::new(address, port)
                .with_forwarding(forwarding)
                .with_weight(weight)
                .with_upper_threshold(upper_threshold)
                .with_lower_threshold(lower_threshold)
        },
    )
}

pub(crate) fn table() -> impl Strategy<Value = Table> {
    vec((server(), vec(real(), 0..4)), 0..8).prop_map(|servers| {
        let mut table = Table::default();
        for (server, reals) in servers {
            table.insert(server);
            for real in reals {
                table.insert_destination(&server.service, real);
            }
        }
        table
    })
}
