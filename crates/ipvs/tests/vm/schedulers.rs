//! Schedulers with flags, persistence and persistence engines.

use vipline_ipvs::{
    Command, Commands, Family, Flags, Netmask, Object, Persistence, PersistenceEngine, Scheduler,
    ServiceKey, Table, Transport, VirtualServer,
};
use vipline_reconcile::diff;

use crate::{check, commands, compare, has_module, ip, with_client};

/// Returns every combination of the named flags of a scheduler, or none and all
/// flags for a scheduler without named flags.
///
/// No scheduler uses the third flag, and ipvsadm omits it for `sh` and `mh`.
fn flag_combinations(scheduler: &Scheduler) -> Vec<Flags> {
    let (first, second) = (Flags::SCHEDULER_1, Flags::SCHEDULER_2);
    let none = Flags::empty();
    match scheduler {
        Scheduler::SourceHash | Scheduler::Maglev => vec![none, first, second, first | second],
        _ => vec![none, first | second | Flags::SCHEDULER_3],
    }
}

/// Returns services for all protocols and a firewall mark, IPv4 first.
fn services() -> Vec<ServiceKey> {
    let mut services = Vec::new();
    for (family, address) in [(Family::V4, "10.0.0.1"), (Family::V6, "fd00::1")] {
        for protocol in Transport::ALL {
            services.push(ServiceKey::new(protocol, ip(address), 80));
        }
        let mark = 7.try_into().unwrap();
        services.push(ServiceKey::Mark { mark, family });
    }
    services
}

/// Returns virtual servers with all combinations of flags and persistence.
fn variants(service: ServiceKey, scheduler: Scheduler) -> Vec<VirtualServer> {
    let wide = match service.family() {
        Family::V4 => Netmask::V4([255, 255, 0, 0].into()),
        Family::V6 => Netmask::V6(64),
    };
    let host = Netmask::host(service.family());
    let mut variants = Vec::new();
    for flags in flag_combinations(&scheduler) {
        for flags in [flags, flags | Flags::ONE_PACKET] {
            for netmask in [None, Some(host), Some(wide)] {
                let mut server = VirtualServer::new(service, scheduler).with_flags(flags);
                server.persistence = netmask.map(|netmask| Persistence {
                    timeout: 300,
                    netmask,
                });
                variants.push(server);
            }
        }
    }
    variants
}

/// Returns a copy of a service with another port or mark.
fn numbered(service: ServiceKey, number: usize) -> ServiceKey {
    let number = u16::try_from(number).unwrap();
    match service {
        ServiceKey::Mark { family, .. } => ServiceKey::Mark {
            mark: (u32::from(number) + 1).try_into().unwrap(),
            family,
        },
        ServiceKey::Address {
            protocol, address, ..
        } => ServiceKey::new(protocol, address, 1000 + number),
    }
}

#[test]
fn every_scheduler_is_dumped_with_each_of_its_flags() {
    for scheduler in Scheduler::KNOWN {
        with_client(|client| {
            let services = services();
            let probe = VirtualServer::new(services[0], scheduler);
            let added = client.commit(&Commands::from_iter([Command::Add(probe)]));
            if scheduler == Scheduler::PowerOfTwo
                && let Err(error) = added
            {
                // Older kernels lack it, and some are built without it.
                assert!(error.is_unsupported(), "{error}");
                assert!(!has_module("ip_vs_twos"), "{error}");
                return;
            }
            added.unwrap();
            client.flush().unwrap();
            // Each combination is added for one service per family and then changed
            // to the next one.
            let count = variants(services[0], scheduler).len();
            let half = services.len() / 2;
            let mut installed = Table::default();
            for turn in [0, 1] {
                let mut wanted = Table::default();
                for place in 0..count {
                    for service in [services[place % half], services[half + place % half]] {
                        let service = numbered(service, place);
                        wanted.insert(variants(service, scheduler)[(place + turn) % count]);
                    }
                }
                assert_eq!(wanted.servers().count(), count * 2);
                let objects: Vec<Object> = wanted.objects().collect();
                let edits = diff(installed.objects(), &objects);
                client.commit(&Commands::from_edits(&edits)).unwrap();
                compare(client, &wanted);
                installed = wanted;
            }
        });
    }
}

#[test]
fn the_persistence_engine_is_dumped() {
    with_client(|client| {
        for (family, address) in [(Family::V4, "10.0.0.1"), (Family::V6, "fd00::1")] {
            let service = ServiceKey::new(Transport::Udp, ip(address), 5060);
            let plain = VirtualServer::new(service, Scheduler::RoundRobin)
                .with_persistence(Persistence::per_client(family, 100));
            let server = plain.with_persistence_engine(PersistenceEngine::Sip);
            check(
                client,
                &[Object::VirtualServer(server)].into_iter().collect(),
            );
            check(
                client,
                &[Object::VirtualServer(plain)].into_iter().collect(),
            );
        }
    });
}

#[test]
fn unknown_schedulers_and_engines_are_preserved_and_rejected_by_name() {
    with_client(|client| {
        let text = "-A -t 10.0.0.3:80 -s nosuch\n";
        let unknown = commands(text);
        assert_eq!(unknown.to_string(), text);
        let Command::Add(server) = unknown.as_slice()[0] else {
            panic!("it is an addition");
        };
        assert_eq!(server.scheduler, Scheduler::new("nosuch").unwrap());
        let error = client.commit(&unknown).unwrap_err();
        assert!(error.is_unsupported() && !error.is_not_found());
        assert_eq!(
            error.to_string(),
            "ipvsadm -A -t 10.0.0.3:80 -s nosuch: load the module ip_vs_nosuch"
        );
        let engine = commands("-A -u 10.0.0.3:80 -s rr -p 9 --pe nosuch");
        let error = client.commit(&engine).unwrap_err();
        assert!(error.is_unsupported(), "{error}");
        let named = "load the module ip_vs_rr or ip_vs_pe_nosuch";
        assert!(error.to_string().ends_with(named), "{error}");
        assert!(client.dump().unwrap().servers().next().is_none());
    });
}
