//! In which transactions edits are committed.

use std::collections::HashMap;

use vipline_nftables::{Object, Transaction};
use vipline_reconcile::Edit;

use super::subject::Subject;
use super::{Planner, names};
use crate::backend::Planner as _;

/// How many plain elements a transaction writes at most, if it can be helped.
///
/// Whoever else changes rules waits for a transaction: so many elements take
/// the kernel 5 to 15 ms. Larger transactions make a load no faster.
const BATCH: usize = 4_096;

/// When an edit is made, relative to others.
///
/// Whoever is halfway through this order has rules that make sense: nothing
/// leads to what is not there yet, or not there any more.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Stage {
    /// Tables, sets and chains, and what the node and the cluster are.
    Frame,
    /// Endpoints by themselves, which nothing leads to yet.
    Endpoints,
    /// All about one address or node port of a Service at a time.
    Services,
    /// Endpoints that nothing leads to any more.
    FormerEndpoints,
    /// Chains that nothing goes to any more, in transactions of their own:
    /// kernels before 6.2 do not see within one that a chain became free.
    FormerChains,
    /// Properties of the table, likewise: a table that sleeps is woken when
    /// all is in it, and the kernel adds no chains while it wakes one.
    Table,
}

impl Stage {
    /// Tells whether edits are made after the others, on their own.
    fn is_late(self) -> bool {
        self >= Self::FormerChains
    }
}

impl Subject<'_> {
    fn stage(self, edit: &Edit<Object>) -> Stage {
        match (self, edit) {
            (Self::Node, _) => Stage::Frame,
            (Self::Endpoint, Edit::Remove(_)) => Stage::FormerEndpoints,
            (Self::Endpoint, _) => Stage::Endpoints,
            (Self::Frontend(_), _) => Stage::Services,
        }
    }
}

/// An edit, and its place in the order of all.
#[derive(Clone, Copy, Debug)]
struct Placed<'a> {
    stage: Stage,
    /// Which of the addresses and node ports it is about.
    unit: u32,
    edit: &'a Edit<Object>,
}

/// The addresses and node ports that edits are about, in the order they came.
#[derive(Debug, Default)]
struct Units<'a> {
    numbers: HashMap<&'a [u8], u32>,
    /// The last one, for most edits are about the same as those before.
    last: (&'a [u8], u32),
}

impl<'a> Units<'a> {
    fn place(&mut self, edit: &'a Edit<Object>) -> Placed<'a> {
        let (stage, unit) = match edit.object() {
            Object::Element(element) => {
                let subject = Subject::of(element);
                let unit = match subject {
                    Subject::Frontend(key) => self.number(key),
                    Subject::Endpoint | Subject::Node => 0,
                };
                (subject.stage(edit), unit)
            }
            _ => (stage(edit), 0),
        };
        Placed { stage, unit, edit }
    }

    fn number(&mut self, key: &'a [u8]) -> u32 {
        if self.last.0 != key {
            let next = u32::try_from(self.numbers.len()).expect("edits fit in memory");
            self.last = (key, *self.numbers.entry(key).or_insert(next));
        }
        self.last.1
    }
}

/// Returns the transactions that make edits, to commit in turn.
pub fn transactions(edits: &[Edit<Object>]) -> impl Iterator<Item = Transaction> {
    batches(edits, BATCH).map(Transaction::from_edits)
}

/// Splits edits into transactions of some `size`, to commit in turn.
///
/// What is about one address or node port is never split, and comes in the
/// order of the edits; if it can be helped, no Service is split.
/// Edits that do away with what somebody else programmed, or with a drift of
/// ours other than in elements, stay in one transaction whatever its size.
fn batches(edits: &[Edit<Object>], size: usize) -> impl Iterator<Item = Vec<&Edit<Object>>> {
    let mut units = Units::default();
    // A cluster IP, its port, and a handful of endpoints are a Service.
    units.numbers.reserve(edits.len() / 4);
    let mut stages: [Vec<Placed<'_>>; 6] = Default::default();
    for edit in edits {
        let placed = units.place(edit);
        stages[placed.stage as usize].push(placed);
    }
    let [
        mut frame,
        endpoints,
        mut services,
        former,
        mut chains,
        table,
    ] = stages;
    // Sets and chains are listed by the kernel as they came.
    frame.sort_by_key(|it| name(it.edit));
    services.sort_by_key(|it| it.unit);
    chains.sort_by_key(|it| name(it.edit));
    let order = [frame, endpoints, services, former].concat();
    let after = [chains, table].concat();
    let divisible = order
        .iter()
        .chain(&after)
        .all(|it| is_divisible(it.stage, it.edit));
    let size = if divisible { size } else { usize::MAX };
    parts(order, size).chain(parts(after, size))
}

/// Returns edits up to some `size` at a time.
fn parts(order: Vec<Placed<'_>>, size: usize) -> impl Iterator<Item = Vec<&Edit<Object>>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = order.get(start..).filter(|rest| !rest.is_empty())?;
        let part = rest.get(..length(rest, size))?;
        start += part.len();
        Some(part.iter().map(|it| it.edit).collect())
    })
}

/// Returns how many edits the first part has: whole Services if some fit, else
/// whole units, else the first unit whatever its size.
fn length(order: &[Placed<'_>], size: usize) -> usize {
    let (mut sum, mut units_end, mut services_end) = (0, None, None);
    for (at, former) in (1..).zip(order) {
        sum += former.cost();
        let next = order.get(at);
        if next.is_some_and(|next| former.is_bound_to(next)) {
            continue;
        }
        if sum > size {
            return services_end.or(units_end).unwrap_or(at);
        }
        units_end = Some(at);
        if next.is_some_and(Placed::begins_service) {
            services_end = units_end;
        }
    }
    order.len()
}

impl Placed<'_> {
    /// Tells whether the next edit must be in the same transaction.
    fn is_bound_to(&self, next: &Self) -> bool {
        let is_whole = matches!(self.stage, Stage::Frame | Stage::Services);
        is_whole && (self.stage, self.unit) == (next.stage, next.unit)
    }

    /// Tells whether a Service begins with the edit: its cluster IP comes first.
    fn begins_service(&self) -> bool {
        match self.edit.object() {
            Object::Element(element) => element.set().name.as_str() == names::CLUSTER_IPS,
            _ => false,
        }
    }

    /// Returns how many plain elements take the kernel as long as the edit.
    fn cost(&self) -> usize {
        let [add, remove] = match self.edit.object() {
            // To remove one, the kernel goes through those before it.
            Object::Element(element) if element.key_end().is_some() => [4, 512],
            _ => [1, 1],
        };
        match self.edit {
            Edit::Add(_) => add,
            Edit::Remove(_) => remove,
            Edit::Change { .. } => add + remove,
        }
    }
}

/// Tells whether an edit may be in another transaction than others.
pub(super) fn is_divisible(stage: Stage, edit: &Edit<Object>) -> bool {
    match edit {
        Edit::Add(_) => true,
        Edit::Change { new: object, .. } | Edit::Remove(object) => {
            matches!(object, Object::Element(_)) || stage.is_late()
        }
    }
}

/// Returns the name of a set or chain.
pub(super) fn name(edit: &Edit<Object>) -> Option<&str> {
    match edit.object() {
        Object::Set(set) => Some(set.name.as_str()),
        Object::Chain(chain) => Some(chain.name.as_str()),
        _ => None,
    }
}

/// Returns when an edit is made.
pub(super) fn stage(edit: &Edit<Object>) -> Stage {
    let (object, gone) = (edit.object(), matches!(edit, Edit::Remove(_)));
    match object {
        Object::Element(element) => Subject::of(element).stage(edit),
        Object::Table(_) if matches!(edit, Edit::Change { .. }) => Stage::Table,
        Object::Chain(_) if gone && Planner::lingers(object) => Stage::FormerChains,
        _ if gone => Stage::FormerEndpoints,
        _ => Stage::Frame,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;
    use std::sync::Arc;

    use ipnet::IpNet;
    use vipline_nftables::{Chain, Datatype, Name, Set, SetFlags, Value};
    use vipline_reconcile::{Kernel, Keyed, Memory, diff};
    use vipline_service_model::{DetectLocal, Family, Route};

    use super::super::Planner;
    use super::super::tests::{cx, service_port};
    use super::*;

    /// Plans Services with so many endpoints each; with none they reject.
    fn plan(endpoints: &[u8]) -> Vec<Object> {
        let cx = cx(Family::V4, DetectLocal::NodeCidr);
        let mut objects = Planner::base(&cx);
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
            objects.extend(Planner::port(&cx, &port).into_objects());
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

    /// Fails where packets would be led astray.
    fn assert_sound(memory: &Memory<Object>) {
        let backends = lines(memory, names::BACKENDS);
        let few = (1..=8).flat_map(|slots| {
            let vips = lines(memory, names::slots(slots).as_str()).into_iter();
            vips.map(move |vip| format!("{vip} : goto lb-{slots}"))
        });
        let many = lines(memory, names::SERVICE_IPS);
        let services: BTreeSet<_> = few.chain(many).collect();
        let rejected = lines(memory, names::NO_ENDPOINTS);
        for service in &services {
            let (vip, slots) = service.split_once(" : goto lb-").unwrap();
            for slot in 0..slots.parse().unwrap() {
                let slot = format!("{vip} . {slot} : ");
                assert!(
                    backends.iter().any(|it| it.starts_with(&slot)),
                    "{service}: {slot}"
                );
            }
        }
        for addr in lines(memory, names::CLUSTER_IPS) {
            let port = format!("{addr} . tcp . 80");
            assert!(
                rejected.contains(&port) || services.iter().any(|it| it.starts_with(&port)),
                "{addr}"
            );
        }
    }

    fn commit(memory: &mut Memory<Object>, batch: Vec<&Edit<Object>>) {
        let edits: Vec<_> = batch.into_iter().cloned().collect();
        memory.commit(&edits).unwrap();
    }

    /// Fails if a batch has a part of what is about an address or node port.
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
    fn each_batch_leaves_rules_that_make_sense() {
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
            let is_one = element.set().name.as_str() == names::CLUSTER_IPS;
            is_one.then(|| element.to_string())
        });
        let expected = (1..=200).map(|service| format!("10.96.0.{service}"));
        assert!(cluster_ips.eq(expected));
    }

    /// Adds, in a set whose keys have these fields, elements of these values.
    fn elements(set: &str, fields: &[Datatype], keys: &[&[Value]]) -> Vec<Edit<Object>> {
        let table = plan(&[])[0].table().clone();
        let key: Vec<_> = fields.iter().map(|&field| field.into()).collect();
        let set = Set::set(table, Name::new(set).unwrap(), key).with_flags(SetFlags::INTERVAL);
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
            edits.extend(elements("cluster-ips", &[Ipv4Addr], &[&[vip(service)]]));
            let fields = [Ipv4Addr, InetProto, InetService];
            let key = [vip(service), tcp.clone(), port(80)];
            edits.extend(elements("slots-2", &fields, &[&key]));
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
    fn what_takes_the_kernel_long_counts_more() {
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
    fn endpoints_by_themselves_come_first_and_go_last() {
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
    fn chains_go_in_a_transaction_of_their_own() {
        let edits = diff(plan(&[9, 10]), &plan(&[9]));
        let batches: Vec<_> = batches(&edits, BATCH).collect();
        let sizes: Vec<_> = batches.iter().map(|batch| batch.len()).collect();
        assert_eq!(sizes, [edits.len() - 1, 1]);
        assert!(batches[1].iter().all(|edit| stage(edit).is_late()));
    }

    #[test]
    fn what_somebody_else_programmed_goes_in_one_transaction() {
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
}
