//! Limits on the number of edits of a change, and on the number of chains and sets.

use std::time::Duration;

use proxy_core::backend::iptables;
use proxy_core::{Config, Event, Report, Trigger};
use testkit::generate::{ServiceBuilder, Stack, cluster};
use vipline_iptables::Restore;
use vipline_nftables::{ElementData, Object};
use vipline_reconcile::Edit;
use vipline_service_model::api;

use super::config;
use crate::fixtures::{Kernels, MemoryKernels, apply, sync, web, web_with, with_endpoints};

#[test]
fn replacing_an_endpoint_edits_only_its_service() {
    let kernels = Kernels::default();
    let mut engine = kernels.engine(config());
    let mut now = Duration::ZERO;
    for builder in cluster(20, 5, Stack::V4) {
        apply(&mut engine, builder.events());
    }
    let endpoints = ["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5"];
    apply(
        &mut engine,
        with_endpoints(web("10.97.0.1"), &endpoints).events(),
    );
    engine.apply(Event::Synced);
    assert!(sync(&mut engine, &mut now).is_success());
    assert!(engine.poll(now).is_none());

    for (endpoints, edits) in [
        // The last endpoint in order is replaced: one slot changes.
        (
            ["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.9"],
            1,
        ),
        // The first endpoint is removed and a last one is added: all slots change.
        (
            ["10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.9", "10.1.0.10"],
            5,
        ),
    ] {
        let commits = kernels.v4.get().memory.commits();
        apply(
            &mut engine,
            with_endpoints(web("10.97.0.1"), &endpoints).events(),
        );
        let report = engine.poll(now).expect("a change is due");
        assert_eq!((report.trigger, report.ports), (Trigger::Change, 1));
        assert!(engine.poll(now).is_none());
        let kernel = kernels.v4.get();
        assert_eq!(kernel.memory.commits(), commits + 1);
        assert_eq!(kernel.last_edits.len(), edits);
        for edit in &kernel.last_edits {
            let Edit::Change {
                new: Object::Element(element),
                ..
            } = edit
            else {
                panic!("not a change of an element: {edit:?}");
            };
            assert_eq!(element.set().name.as_str(), "backends-5");
            assert!(
                element.key_bytes().starts_with(&[10, 97, 0, 1]),
                "{element}"
            );
        }
    }
    assert_eq!(kernels.v4.get().memory.dumps(), 1);
    assert_eq!(kernels.v6.get().memory.commits(), 1);
}

/// Returns the number of rules in the IPv4 table nat: in total, and written by the
/// sync.
fn nat_rules(report: &Report) -> (usize, usize) {
    let outcome = report.families[0]
        .outcome
        .as_ref()
        .expect("the sync succeeds");
    let nat = outcome.rules.iter().find(|rules| rules.table == "nat");
    let nat = nat.expect("the table has rules");
    (nat.total, nat.written)
}

#[test]
fn a_change_in_mode_iptables_writes_only_its_own_chains_in_any_cluster_size() {
    let document = |services| {
        let kernels = MemoryKernels::<vipline_iptables::Object>::default();
        let mut engine = kernels.engine_of::<iptables::Planner>(config());
        let mut now = Duration::ZERO;
        for builder in cluster(services, 5, Stack::V4) {
            apply(&mut engine, builder.events());
        }
        apply(&mut engine, web_with("10.97.0.1", 5).events());
        engine.apply(Event::Synced);
        let (loaded, written) = nat_rules(&sync(&mut engine, &mut now));
        assert_eq!(
            (loaded, written),
            (5 + (services + 1) * (2 + 3 * 5 - 1), loaded)
        );
        let endpoints = ["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.9"];
        let replaced = with_endpoints(web("10.97.0.1"), &endpoints);
        let mut documents = Vec::new();
        let moved = web_with("10.97.0.2", 5);
        for events in [replaced.events(), moved.events()] {
            apply(&mut engine, events);
            let report = sync(&mut engine, &mut now);
            let kernel = kernels.v4.get();
            let restore = Restore::from_edits(&kernel.last_edits);
            documents.push((restore.chains(), restore.to_string()));
            // A Service with a new address has as many rules as before.
            let (total, written) = nat_rules(&report);
            assert_eq!(total, loaded);
            let rules = |line: &&str| line.starts_with("-A ") || line.starts_with("-I ");
            assert_eq!(
                written,
                documents[documents.len() - 1]
                    .1
                    .lines()
                    .filter(rules)
                    .count()
            );
        }
        documents
    };
    let few = document(300);
    // The chain of the Service, that of the removed endpoint, and that of the added
    // endpoint.
    assert_eq!(few[0].0, 3, "{}", few[0].1);
    assert_eq!(few, document(10_000));
    assert!(!few[0].1.contains("KUBE-SERVICES"), "{}", few[0].1);
    // One rule is removed, and one is added.
    assert_eq!(few[1].1.matches("KUBE-SERVICES").count(), 2, "{}", few[1].1);
}

#[test]
fn a_changed_number_of_endpoints_moves_the_address_to_another_map_or_chain() {
    let kernels = Kernels::default();
    let mut engine = kernels.engine(config());
    let mut now = Duration::ZERO;
    let mut replace = |endpoints| {
        apply(&mut engine, web_with("10.97.0.1", endpoints).events());
        engine.apply(Event::Synced);
        sync(&mut engine, &mut now);
        kinds(&kernels.v4.get().last_edits)
    };
    replace(3);
    assert_eq!(
        replace(2),
        [["add backends-2"; 2].as_slice(), &["remove backends-3"; 3]].concat()
    );
    replace(9);
    assert_eq!(
        replace(10),
        ["add backends", "add lb-10", "change dispatch-ips"]
    );
    assert_eq!(
        replace(9),
        ["change dispatch-ips", "remove backends"],
        "the chain stays"
    );

    // The next start removes only the chain.
    let mut engine = kernels.engine(config());
    apply(&mut engine, web_with("10.97.0.1", 9).events());
    engine.apply(Event::Synced);
    sync(&mut engine, &mut now);
    assert_eq!(kinds(&kernels.v4.get().last_edits), ["remove lb-10"]);
}

/// Returns the kind and the object name of each edit, sorted.
fn kinds(edits: &[Edit<Object>]) -> Vec<String> {
    let mut kinds: Vec<_> = edits
        .iter()
        .map(|edit| match edit {
            Edit::Add(object) => format!("add {}", name_of(object)),
            Edit::Change { new, .. } => format!("change {}", name_of(new)),
            Edit::Remove(old) => format!("remove {}", name_of(old)),
        })
        .collect();
    kinds.sort();
    kinds
}

/// Returns the name of an object. An element has the name of its set.
fn name_of(object: &Object) -> &str {
    match object {
        Object::Element(element) => element.set().name.as_str(),
        Object::Chain(chain) => chain.name.as_str(),
        Object::Set(set) => set.name.as_str(),
        other => other.table().name.as_str(),
    }
}

#[test]
fn the_number_of_chains_and_sets_does_not_depend_on_the_number_of_services() {
    let count = |services| {
        let kernels = Kernels::default();
        // A node without endpoints has no hairpin elements.
        let mut engine = kernels.engine(Config::default());
        for builder in cluster(services, 5, Stack::V4) {
            apply(&mut engine, builder.events());
        }
        engine.apply(Event::Synced);
        let mut now = Duration::ZERO;
        assert!(sync(&mut engine, &mut now).is_success());
        let kernel = kernels.v4.get();
        let (elements, others): (Vec<_>, Vec<_>) = kernel
            .memory
            .objects()
            .partition(|object| matches!(object, Object::Element(_)));
        // A network has 4,096 addresses.
        let is_network = |it: &&&Object| name_of(it) == "service-networks";
        let networks = elements.iter().filter(is_network).count();
        assert!(
            (1..=1 + services.div_ceil(4_096)).contains(&networks),
            "{networks}"
        );
        assert_eq!(elements.len() - networks, services * (5 + 1));
        others.len()
    };
    assert_eq!(count(10), count(10_000));
}

#[test]
fn the_number_of_chains_and_sets_is_constant_when_services_use_every_feature() {
    let count = |services| {
        let kernels = Kernels::default();
        let mut engine = kernels.engine(config());
        let mut now = Duration::ZERO;
        for (number, builder) in (0_u16..).zip(cluster(services, 3, Stack::Dual)) {
            let mut service = builder.service();
            let spec = &mut service.spec;
            spec.kind = api::ServiceType::LoadBalancer;
            spec.ports[0].node_port = 30_000 + number;
            spec.load_balancer_source_ranges = vec!["192.168.0.0/16".into()];
            if number % 2 == 0 {
                spec.external_traffic_policy = api::TrafficPolicy::Local;
            }
            // Each of up to 64 maps of clients has chains, see the next law.
            if number < 12 && number % 3 == 0 {
                spec.session_affinity = api::Affinity::ClientIp;
            }
            let [high, low] = number.to_be_bytes();
            spec.external_ips = vec![format!("198.18.{high}.{low}")];
            service.status.load_balancer.ingress = vec![api::Ingress {
                ip: format!("203.0.{high}.{low}"),
                ..api::Ingress::default()
            }];
            apply(&mut engine, [service.into()]);
            apply(&mut engine, builder.slices().into_iter().map(Event::from));
        }
        engine.apply(Event::Synced);
        assert!(sync(&mut engine, &mut now).is_success());
        let kernel = kernels.v4.get();
        let objects = kernel.memory.objects();
        objects
            .filter(|object| !matches!(object, Object::Element(_)))
            .count()
    };
    assert_eq!(count(12), count(1_200));
}

/// The objects of the IPv4 table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Counts {
    chains: usize,
    sets: usize,
    verdicts: usize,
    elements: usize,
}

/// Counts the objects of Services with session affinity and two endpoints each.
fn with_affinity(services: usize) -> Counts {
    let kernels = Kernels::default();
    let mut engine = kernels.engine(Config::default());
    for builder in cluster(services, 2, Stack::V4) {
        let mut service = builder.service();
        service.spec.session_affinity = api::Affinity::ClientIp;
        apply(&mut engine, [service.into()]);
        apply(&mut engine, builder.slices().into_iter().map(Event::from));
    }
    engine.apply(Event::Synced);
    let mut now = Duration::ZERO;
    assert!(sync(&mut engine, &mut now).is_success());
    let kernel = kernels.v4.get();
    let mut counts = Counts {
        chains: 0,
        sets: 0,
        verdicts: 0,
        elements: 0,
    };
    for object in kernel.memory.objects() {
        match object {
            Object::Chain(_) => counts.chains += 1,
            Object::Set(_) => counts.sets += 1,
            Object::Element(element) => match element.data() {
                Some(ElementData::Verdict(_)) => counts.verdicts += 1,
                _ => counts.elements += 1,
            },
            _ => {}
        }
    }
    counts
}

#[test]
fn session_affinity_adds_elements_but_neither_chains_nor_sets_nor_verdicts_per_service() {
    const SHARDS: usize = 64;
    let [none, few, many, most] = [0, 10, 1_000, 10_000].map(with_affinity);
    // A map of clients, the chains `recall-K`, `forget-K` and `learn-10800-K`, and a verdict
    // for each of them.
    let of_all_shards = Counts {
        chains: none.chains + 3 * SHARDS,
        sets: none.sets + SHARDS,
        verdicts: none.verdicts + 3 * SHARDS,
        ..most
    };
    assert_eq!(most, of_all_shards);
    let objects = |counts: Counts| [counts.chains, counts.sets, counts.verdicts];
    assert_eq!(
        objects(many),
        objects(most),
        "the number of Services has no influence"
    );
    let limits = objects(none).into_iter().zip([3, 1, 3]);
    for (count, (before, each)) in objects(few).into_iter().zip(limits) {
        assert!(count <= before + 10 * each, "{few:?}");
    }
    // Cluster IP, two slots, pool and two tokens; networks and the protocol are shared.
    let per_service = (most.elements - many.elements) as f64 / 9_000.0;
    assert!((6.0..6.01).contains(&per_service), "{per_service}");
}

#[test]
fn one_more_service_with_session_affinity_is_one_transaction_of_elements() {
    let edits = [1_000, 3_000].map(|services| {
        let kernels = Kernels::default();
        let mut engine = kernels.engine(Config::default());
        let sticky = |builder: ServiceBuilder| {
            let mut service = builder.service();
            service.spec.session_affinity = api::Affinity::ClientIp;
            let slices = builder.slices().into_iter().map(Event::from);
            [service.into()].into_iter().chain(slices)
        };
        let mut builders: Vec<_> = cluster(services + 1, 2, Stack::V4).collect();
        // The shard of the last Service has other Services.
        let last = builders.swap_remove(0);
        for builder in builders {
            apply(&mut engine, sticky(builder));
        }
        engine.apply(Event::Synced);
        let mut now = Duration::ZERO;
        sync(&mut engine, &mut now);
        apply(&mut engine, sticky(last));
        sync(&mut engine, &mut now);
        kinds(&kernels.v4.get().last_edits)
    });
    let expected = [
        "add active-cluster-ips",
        "add backends-2",
        "add backends-2",
        "add pool-ips",
        "add recorded",
        "add recorded",
    ];
    for edits in edits {
        assert_eq!(edits, expected);
    }
}
