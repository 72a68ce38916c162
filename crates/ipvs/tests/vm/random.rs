//! Random tables that a kernel accepts.

use proptest::collection::vec;
use proptest::prelude::*;
use vipline_ipvs::{
    Checksum, Family, Flags, Forwarding, Object, Persistence, PersistenceEngine, RealServer,
    Scheduler, ServiceKey, Table, Transport, Tunnel, VirtualServer,
};

use crate::tables::table;
use crate::{change, compare, ipvsadm, ipvsadm_reading, with_client};

/// Maximum timeout of ipvsadm in seconds.
const MAX_TIMEOUT: u32 = 31 * 24 * 60 * 60;

/// Changes a virtual server so that the kernel and ipvsadm accept it.
fn accepted_server(server: VirtualServer) -> VirtualServer {
    let is_udp = matches!(
        server.service,
        ServiceKey::Address {
            protocol: Transport::Udp,
            ..
        }
    );
    let persistence = server.persistence.map(|persistence| Persistence {
        timeout: persistence.timeout % MAX_TIMEOUT + 1,
        ..persistence
    });
    let mut flags = server.flags;
    flags.set(
        Flags::ONE_PACKET,
        is_udp && flags.contains(Flags::ONE_PACKET),
    );
    // ipvsadm does not support a third flag for schedulers with two named flags.
    if matches!(server.scheduler, Scheduler::SourceHash | Scheduler::Maglev) {
        flags.remove(Flags::SCHEDULER_3);
    }
    let mut accepted = server;
    accepted.scheduler = match accepted.scheduler {
        Scheduler::Other(_) | Scheduler::PowerOfTwo => Scheduler::RoundRobin,
        known => known,
    };
    accepted.flags = flags;
    accepted.persistence = persistence;
    accepted.persistence_engine = accepted
        .persistence_engine
        .filter(|engine| is_udp && persistence.is_some() && *engine == PersistenceEngine::Sip);
    accepted
}

/// Changes a real server so that the kernel and ipvsadm accept it.
fn accepted_real(service: &ServiceKey, real: RealServer) -> RealServer {
    let forwarding = match real.forwarding {
        // Only GUE supports remote checksums.
        Forwarding::Tunnel(Tunnel::Gre {
            checksum: Checksum::Remote,
        }) => Forwarding::Tunnel(Tunnel::Gre {
            checksum: Checksum::Full,
        }),
        tunnel @ Forwarding::Tunnel(_) => tunnel,
        _ if Family::of(real.address) != service.family() => Forwarding::Tunnel(Tunnel::Ipip),
        other => other,
    };
    let (one, other) = (real.upper_threshold >> 1, real.lower_threshold >> 1);
    real.with_forwarding(forwarding)
        .with_weight(real.weight >> 1)
        .with_upper_threshold(one.max(other))
        .with_lower_threshold(one.min(other))
}

/// Returns the table as ipvsadm would add it.
///
/// Without masquerading, ipvsadm sets the port of a real server to that of the
/// service.
fn as_added_by_ipvsadm(table: &Table) -> Table {
    let objects = table.objects().map(|object| match object {
        Object::Destination(service, real) if real.forwarding != Forwarding::Masquerade => {
            let port = service.port();
            let mut moved = real;
            moved.port = port;
            Object::Destination(service, moved)
        }
        other => other,
    });
    objects.collect()
}

/// Generates tables that a kernel accepts.
fn accepted_table() -> impl Strategy<Value = Table> {
    table().prop_map(|table| {
        let objects = table.objects().map(|object| match object {
            Object::VirtualServer(server) => Object::VirtualServer(accepted_server(server)),
            Object::Destination(service, real) => {
                Object::Destination(service, accepted_real(&service, real))
            }
        });
        objects.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3,
        failure_persistence: None,
        max_shrink_iters: 50,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_diff_leads_from_any_table_to_any_other(tables in vec(accepted_table(), 5)) {
        with_client(|client| {
            for wanted in &tables {
                let commands = change(client, wanted);
                let before = client.counters();
                client.commit(&commands).unwrap();
                let after = client.counters();
                let sends = u64::from(!commands.is_empty());
                assert_eq!(after.sends - before.sends, sends);
                assert_eq!(after.receives - before.receives, sends);
                compare(client, wanted);
                assert!(change(client, wanted).is_empty());
            }
        });
    }

    #[test]
    fn ipvsadm_restores_any_printed_table(tables in vec(accepted_table(), 3)) {
        with_client(|client| {
            for table in &tables {
                let table = as_added_by_ipvsadm(table);
                ipvsadm("-C");
                ipvsadm_reading("-R", &table.to_string());
                compare(client, &table);
            }
        });
    }
}
