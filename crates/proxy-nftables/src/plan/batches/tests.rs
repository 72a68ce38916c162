//! Tests of transactions over an in-memory kernel.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use vipline_nftables::{Chain, Datatype, Name, Set, SetFlags, Value};
use vipline_reconcile::{Keyed, Memory, Target, diff};
use vipline_service_model::{DetectLocal, Family, PortName, Route, ServicePort};

use super::super::Planner;
use super::super::affinity::shard;
use super::super::table::Table;
use super::super::tests::{cx, service_port};
use super::*;

/// Plans Services with the given numbers of endpoints. A Service without endpoints
/// rejects.
fn plan(endpoints: &[u8]) -> Vec<Object> {
    let cx = cx(Family::V4, DetectLocal::NodeCidr);
    let mut objects = Planner.base(&cx);
    for (service, &count) in (1..).zip(endpoints) {
        let mut port = service_port(if count > 0 {
            Route::Cluster
        } else {
            Route::Reject
        });
        port.cluster_ip = IpAddr::from([10, 96, 0, service]);
        let endpoint = |n| vipline_service_model::Endpoint {
            addr: IpAddr::from([10, 1, service, n]),
            port: 8080,
            is_local: n == 1,
        };
        port.cluster = (0..count).map(endpoint).collect::<Arc<[_]>>();
        objects.extend(Planner.port(&cx, &port).into_objects());
    }
    let mut seen = BTreeSet::new();
    objects.retain(|object| seen.insert(format!("{:?}", object.key())));
    objects
}

fn lines(memory: &Memory<Object>, set: &str) -> BTreeSet<String> {
    let objects: Vec<_> = memory.objects().cloned().collect();
    let commands = super::super::tests::commands(&objects, set).into_iter();
    let text = |line: String| line.split(['{', '}']).nth(1).unwrap().trim().to_owned();
    commands.map(text).collect()
}

/// Panics if packets would reach missing or wrong objects.
fn assert_sound(memory: &Memory<Object>) {
    let vip_of = |slot: String| {
        slot.rsplit_once(" : ")
            .unwrap()
            .0
            .rsplit_once(" . ")
            .unwrap()
            .0
            .to_owned()
    };
    // The key of a single endpoint has no slot.
    let with_slot = |line: String| line.replacen(" : ", " . 0 : ", 1);
    let direct = (1..=6).map(|slots| {
        let lines = lines(memory, names::direct(slots).as_str());
        let lines = match slots {
            1 => lines.into_iter().map(with_slot).collect(),
            _ => lines,
        };
        (slots, lines)
    });
    let mut services = BTreeSet::new();
    let complete = |service: &str, vip: &str, slots: u32, backends: &BTreeSet<String>| {
        for slot in 0..slots {
            let slot = format!("{vip} . {slot} : ");
            assert!(
                backends.iter().any(|it| it.starts_with(&slot)),
                "{service}: {slot}"
            );
        }
    };
    for (slots, backends) in direct {
        let vips: BTreeSet<_> = backends.iter().cloned().map(vip_of).collect();
        assert_eq!(backends.len(), vips.len() * slots as usize);
        for vip in vips {
            complete(&vip, &vip, slots, &backends);
            assert!(services.insert(vip.clone()), "{vip} is in several maps");
        }
    }
    let backends = lines(memory, names::BACKENDS);
    for service in lines(memory, names::DISPATCH_IPS) {
        let (vip, slots) = service.split_once(" : goto lb-").unwrap();
        complete(&service, vip, slots.parse().unwrap(), &backends);
        assert!(services.insert(vip.to_owned()), "{vip} is in several maps");
    }
    let rejected = lines(memory, names::NO_ENDPOINTS);
    let networks = lines(memory, names::SERVICE_NETWORKS);
    for addr in lines(memory, names::ACTIVE_CLUSTER_IPS) {
        let network = Table::network(addr.parse().unwrap());
        assert!(networks.contains(&network.to_string()), "{addr}");
        let port = format!("{addr} . tcp . 80");
        assert!(
            rejected.contains(&port) || services.contains(&port),
            "{addr}"
        );
    }
}

fn commit(memory: &mut Memory<Object>, batch: Vec<&Edit<Object>>) {
    let edits: Vec<_> = batch.into_iter().cloned().collect();
    memory.commit(&edits).unwrap();
}

/// Panics if a batch contains only some of the edits of an address or node port.
fn assert_whole(batches: &[Vec<&Edit<Object>>]) {
    let mut seen = BTreeSet::new();
    for batch in batches {
        let subjects = batch.iter().filter_map(|edit| match edit.object() {
            Object::Element(element) => match Subject::of(element) {
                Subject::Frontend(key) => Some(key.to_vec()),
                _ => None,
            },
            _ => None,
        });
        let subjects: BTreeSet<_> = subjects.collect();
        assert!(seen.is_disjoint(&subjects), "{batch:?}");
        seen.extend(subjects);
    }
}

#[test]
fn rules_are_consistent_after_each_batch() {
    let counts: [&[u8]; 6] = [&[], &[2, 3, 0], &[3, 3, 1], &[1, 0, 2, 4], &[0, 5], &[4]];
    let states = counts.map(plan);
    for from in states.iter().chain([&Vec::new()]) {
        for to in &states {
            let edits = diff(from.clone(), to);
            let mut memory = Memory::new();
            memory.commit(&diff([], from)).unwrap();
            let small: Vec<_> = batches(&edits, 2).collect();
            assert_whole(&small);
            for batch in small {
                commit(&mut memory, batch);
                assert_sound(&memory);
            }
            assert_eq!(diff(memory.dump().unwrap(), to), []);
        }
    }
}

#[test]
fn services_come_in_the_order_of_the_edits_and_batches_are_full() {
    let counts = [3; 200];
    let edits = diff([], &plan(&counts));
    let size = 100;
    let batches: Vec<_> = batches(&edits, size).collect();
    assert_whole(&batches);
    let (last, full) = batches.split_last().unwrap();
    for batch in full {
        assert!((size - 5..=size).contains(&batch.len()), "{}", batch.len());
    }
    assert!(last.len() <= size);
    let cluster_ips = batches.iter().flatten().filter_map(|edit| {
        let Object::Element(element) = edit.object() else {
            return None;
        };
        let is_one = element.set().name.as_str() == names::ACTIVE_CLUSTER_IPS;
        is_one.then(|| element.to_string())
    });
    let expected = (1..=200).map(|service| format!("10.96.0.{service}"));
    assert!(cluster_ips.eq(expected));
}

/// Returns edits that add elements to a set with these key fields.
fn elements(set: &str, fields: &[Datatype], keys: &[&[Value]]) -> Vec<Edit<Object>> {
    let table = plan(&[])[0].table().clone();
    let set = Set::new(table, Name::new(set).unwrap(), fields).with_flags(SetFlags::INTERVAL);
    let element = |key: &&[Value]| Edit::Add(set.element(key).unwrap().into());
    keys.iter().map(element).collect()
}

#[test]
fn node_ports_are_units_and_stay_with_their_service() {
    use Datatype::{InetProto, InetService, Ipv4Addr};
    let vip = |n: u8| Value::from(IpAddr::from([10, 96, 0, n]));
    let (tcp, port) = (Value::from(6_u8), |n: u16| Value::from(n));
    let mut edits = Vec::new();
    for service in 1..=4_u8 {
        let number = port(30_000 + u16::from(service));
        edits.extend(elements(
            "active-cluster-ips",
            &[Ipv4Addr],
            &[&[vip(service)]],
        ));
        let fields = [Ipv4Addr, InetProto, InetService];
        let key = [vip(service), tcp.clone(), port(80)];
        edits.extend(elements("masquerade-ips", &fields, &[&key]));
        let slot = [InetProto, InetService, Datatype::Integer];
        let slots = [0_u32, 1].map(|slot| [tcp.clone(), number.clone(), slot.into()]);
        edits.extend(elements(
            "nodeport-backends",
            &slot,
            &[&slots[0], &slots[1]],
        ));
    }
    for (size, expected) in [
        (4, [4; 4].as_slice()),
        (6, &[4; 4]),
        (8, &[8; 2]),
        (2, &[2; 8]),
    ] {
        let batches: Vec<_> = batches(&edits, size).collect();
        assert_whole(&batches);
        let sizes: Vec<_> = batches.iter().map(Vec::len).collect();
        assert_eq!(sizes, expected, "{size}");
    }
}

#[test]
fn expensive_edits_count_more() {
    use Datatype::{InetProto, InetService, Ipv4Addr};
    let ranges = (0..10_u8).flat_map(|n| {
        let vip = IpAddr::from([10, 96, 0, n]).into();
        let range: IpNet = format!("198.51.{n}.0/24").parse().unwrap();
        let key = [vip, Value::from(6_u8), Value::from(80_u16), range.into()];
        elements(
            "source-ranges",
            &[Ipv4Addr, InetProto, InetService, Ipv4Addr],
            &[&key],
        )
    });
    let ranges: Vec<_> = ranges.collect();
    assert_eq!(batches(&ranges, 20).count(), 2);
    let change = |edit: &Edit<Object>| Edit::Change {
        old: edit.object().clone(),
        new: edit.object().clone(),
    };
    let changes: Vec<_> = ranges.iter().map(change).collect();
    assert_eq!(batches(&changes, 1_100).count(), 5);
}

#[test]
fn endpoints_are_added_first_and_removed_last() {
    let here = plan(&[2, 3]);
    let stage_of = |batch: &Vec<&Edit<Object>>| stage(batch[0]);
    let gone = diff(here.clone(), &plan(&[]));
    let stages: Vec<_> = batches(&gone, 1).map(|batch| stage_of(&batch)).collect();
    assert!(
        stages.is_sorted() && stages.contains(&Stage::FormerEndpoints),
        "{stages:?}"
    );
    let new = diff(plan(&[]), &here);
    let stages: Vec<_> = batches(&new, 1).map(|batch| stage_of(&batch)).collect();
    assert!(
        stages.is_sorted() && stages.contains(&Stage::Endpoints),
        "{stages:?}"
    );
}

#[test]
fn chains_are_removed_in_a_separate_transaction() {
    let edits = diff(plan(&[9, 10]), &plan(&[9]));
    let batches: Vec<_> = batches(&edits, BATCH).collect();
    let sizes: Vec<_> = batches.iter().map(|batch| batch.len()).collect();
    assert_eq!(sizes, [edits.len() - 1, 1]);
    assert!(batches[1].iter().all(|edit| stage(edit).is_late()));
}

#[test]
fn the_table_of_another_program_is_replaced_in_one_transaction() {
    let mut before = plan(&[9]);
    let stray = Chain::new(before[0].table().clone(), names::name("stray"));
    before.push(stray.into());
    let edits = diff(before, &plan(&[10, 11]));
    let sizes: Vec<_> = batches(&edits, 2).map(|batch| batch.len()).collect();
    assert_eq!(
        sizes,
        [edits.len() - 1, 1],
        "chain lb-9 goes after the rest"
    );
}

/// Returns a service port with session affinity and a timeout of its own.
fn sticky(number: u8) -> ServicePort {
    let mut port = service_port(Route::Cluster);
    port.name = Arc::new(PortName {
        service: format!("sticky-{number}").into(),
        ..PortName::clone(&port.name)
    });
    port.cluster_ip = IpAddr::from([10, 96, 1, number]);
    port.affinity = Some(10_800 + u32::from(number));
    port
}

#[test]
fn sets_and_chains_of_affinity_are_split_and_come_after_base_objects() {
    let cx = cx(Family::V4, DetectLocal::NodeCidr);
    let mut objects = Planner.base(&cx);
    let ports = (0..100).map(sticky);
    let ports: Vec<_> = ports.collect();
    for port in &ports {
        objects.extend(Planner.port(&cx, port).into_objects());
    }
    let shards = ports.iter().map(|port| shard(names::pool(&port.name)));
    let shards = shards.collect::<BTreeSet<_>>().len();
    let mut seen = BTreeSet::new();
    objects.retain(|object| seen.insert(format!("{:?}", object.key())));
    let edits = diff([], &objects);
    let size = 160;
    let batches: Vec<_> = batches(&edits, size).collect();
    let of_affinity = |batch: &Vec<&Edit<Object>>| {
        let stages = batch.iter().map(|edit| stage(edit));
        stages.filter(|stage| *stage == Stage::OfAffinity).count()
    };
    let counts: Vec<_> = batches.iter().map(of_affinity).collect();
    assert_eq!(counts.iter().sum::<usize>(), shards * 3 + ports.len());
    assert!(
        counts.iter().all(|count| *count <= size / OF_AFFINITY),
        "{counts:?}"
    );
    let mut memory = Memory::new();
    let order: Vec<_> = batches.iter().flatten().map(|edit| stage(edit)).collect();
    assert!(order.is_sorted(), "{order:?}");
    for batch in batches {
        // A chain refers to sets of its batch or of an earlier batch.
        commit(&mut memory, batch);
        let names: BTreeSet<_> = memory.objects().filter_map(set_name).collect();
        for object in memory.objects() {
            let Object::Chain(chain) = object else {
                continue;
            };
            for rule in chain.rules.iter() {
                let text = rule.to_string();
                let named = text.split(' ').filter_map(|infix| infix.strip_prefix('@'));
                for name in named {
                    assert!(names.contains(name), "{}: {text}", chain.name);
                }
            }
        }
    }
    assert_eq!(diff(memory.dump().unwrap(), &objects), []);
}

fn set_name(object: &Object) -> Option<&str> {
    match object {
        Object::Set(set) => Some(set.name.as_str()),
        _ => None,
    }
}
