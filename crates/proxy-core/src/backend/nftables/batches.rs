//! In which transactions edits are committed.

use std::collections::HashSet;

use vipline_nftables::{Object, TableId, Transaction};
use vipline_reconcile::{Edit, Keyed};

use super::names;

/// How many edits a transaction has at most, if it can be helped.
///
/// Packets wait for a transaction, and so many elements take some 30 ms.
const BATCH: usize = 16_384;

/// When an edit is made, relative to others.
///
/// Whoever is halfway through this order has rules that make sense: nothing
/// leads to what is not there yet, or not there any more.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Stage {
    /// Tables, sets and chains, and networks of cluster IPs.
    Frame,
    /// Endpoints, which nothing leads to yet.
    Endpoints,
    /// What becomes of traffic to addresses and ports.
    Services,
    /// Which addresses are in use: their other ports are refused now.
    Addresses,
    /// Addresses that are not in use any more.
    FormerAddresses,
    /// What became of traffic to addresses and ports.
    FormerServices,
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

/// Returns the transactions that make edits, to commit in turn.
pub fn transactions(edits: &[Edit<Object>]) -> impl Iterator<Item = Transaction> {
    batches(edits, BATCH).map(Transaction::from_edits)
}

/// Splits edits into transactions of at most `size` edits, to commit in turn.
///
/// Edits that do away with what somebody else programmed, or with a drift of
/// ours other than in elements, stay in one transaction whatever its size.
fn batches(edits: &[Edit<Object>], size: usize) -> impl Iterator<Item = Vec<&Edit<Object>>> {
    let mut order: Vec<_> = edits.iter().map(|edit| (stage(edit), edit)).collect();
    let divisible = order.iter().all(|&(stage, edit)| is_divisible(stage, edit));
    let late = order.iter().filter(|(stage, _)| stage.is_late()).count();
    let is_framed = order.iter().any(|(stage, _)| *stage == Stage::Frame);
    if edits.len() > size || is_framed || late > 0 {
        // Sets and chains are listed by the kernel as they came.
        order.sort_by_key(|&(stage, edit)| (stage, name(edit)));
    }
    let after = order.split_off(order.len() - late);
    let size = if divisible { size } else { usize::MAX };
    parts(order, size).chain(parts(after, size))
}

/// Tells whether an edit exchanges a set for one with other properties.
pub(super) fn is_set_exchanged(edit: &Edit<Object>) -> bool {
    matches!(
        edit,
        Edit::Change {
            new: Object::Set(_),
            ..
        }
    )
}

/// Returns the table of edits that no script can tell nft 1.0.6.
///
/// It neither exchanges a set that rules use, nor wakes a table and adds
/// chains, nor adds a rule that names the map of endpoints where the kernel has
/// that map: it finds "conflicting protocols" in the type of the map.
pub(super) fn beyond_nft(edits: &[Edit<Object>]) -> Option<&TableId> {
    let is_backends = |edit: &Edit<Object>| match edit {
        Edit::Add(Object::Set(set)) => set.name.as_str() == names::BACKENDS,
        _ => false,
    };
    let names_backends = |edit: &Edit<Object>| match (edit, edit.object()) {
        (Edit::Remove(_), _) => false,
        (_, Object::Chain(chain)) => names::is_on_demand(&chain.name),
        _ => false,
    };
    let is_named_anew = edits.iter().any(names_backends) && !edits.iter().any(is_backends);
    let edit = edits.first()?;
    let is_apart = |edit| is_set_exchanged(edit) || stage(edit) == Stage::Table;
    (is_named_anew || edits.iter().any(is_apart)).then(|| edit.object().table())
}

/// Returns edits that write the rules of all other chains anew, too.
///
/// A set that is exchanged must not be in use: its users let go of it and take
/// up the new one.
pub(super) fn with_users(edits: &[Edit<Object>], installed: Vec<Object>) -> Vec<Edit<Object>> {
    let edited: HashSet<_> = edits.iter().map(Edit::key).collect();
    let users = installed
        .into_iter()
        .filter(|object| matches!(object, Object::Chain(_)) && !edited.contains(&object.key()));
    let anew = users.map(|chain| Edit::Change {
        old: chain.clone(),
        new: chain,
    });
    anew.chain(edits.iter().cloned()).collect()
}

/// Puts edits into an order that depends on nothing but what they are.
pub(super) fn sort(edits: &mut [Edit<Object>]) {
    edits.sort_by(|one, other| place(one).cmp(&place(other)));
}

/// Returns the place of an edit among others: by stage, name and key.
fn place(edit: &Edit<Object>) -> (Stage, Option<&str>, &[u8]) {
    let key: &[u8] = match edit.object() {
        Object::Element(element) => element.key_bytes(),
        _ => &[],
    };
    let set = match edit.object() {
        Object::Element(element) => Some(element.set().name.as_str()),
        _ => name(edit),
    };
    (stage(edit), set, key)
}

/// Returns at most `size` edits at a time.
fn parts(
    edits: Vec<(Stage, &Edit<Object>)>,
    size: usize,
) -> impl Iterator<Item = Vec<&Edit<Object>>> {
    let mut edits = edits.into_iter().map(|(_, edit)| edit);
    std::iter::from_fn(move || {
        let part: Vec<_> = edits.by_ref().take(size).collect();
        (!part.is_empty()).then_some(part)
    })
}

/// Tells whether an edit may be in another transaction than others.
fn is_divisible(stage: Stage, edit: &Edit<Object>) -> bool {
    match edit {
        Edit::Add(_) => true,
        Edit::Change { new: object, .. } | Edit::Remove(object) => {
            matches!(object, Object::Element(_)) || stage.is_late()
        }
    }
}

/// Returns the name of a set or chain.
fn name(edit: &Edit<Object>) -> Option<&str> {
    match edit.object() {
        Object::Set(set) => Some(set.name.as_str()),
        Object::Chain(chain) => Some(chain.name.as_str()),
        _ => None,
    }
}

fn stage(edit: &Edit<Object>) -> Stage {
    let (object, gone) = (edit.object(), matches!(edit, Edit::Remove(_)));
    let element = match object {
        Object::Element(element) => element,
        Object::Table(_) if matches!(edit, Edit::Change { .. }) => return Stage::Table,
        Object::Chain(chain) if gone && names::is_on_demand(&chain.name) => {
            return Stage::FormerChains;
        }
        _ if gone => return Stage::FormerEndpoints,
        _ => return Stage::Frame,
    };
    match (element.set().name.as_str(), gone) {
        (names::SERVICE_CIDRS, _) => Stage::Frame,
        (names::CLUSTER_IPS, false) => Stage::Addresses,
        (names::CLUSTER_IPS, true) => Stage::FormerAddresses,
        (names::BACKENDS | names::HAIRPIN_CONNECTIONS, false) => Stage::Endpoints,
        (names::BACKENDS | names::HAIRPIN_CONNECTIONS, true) => Stage::FormerEndpoints,
        (_, false) => Stage::Services,
        (_, true) => Stage::FormerServices,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;
    use std::sync::Arc;

    use vipline_nftables::Chain;
    use vipline_reconcile::{Kernel, Keyed, Memory, diff};
    use vipline_service_model::{DetectLocal, Family, Route};

    use super::super::Planner;
    use super::super::tests::{cx, service_port};
    use super::*;
    use crate::Planner as _;

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

    #[test]
    fn each_batch_leaves_rules_that_make_sense() {
        let states: [&[u8]; 6] = [&[], &[2, 3, 0], &[3, 3, 1], &[1, 0, 2, 4], &[0, 5], &[4]];
        for from in states {
            for to in states {
                let (from, to) = (plan(from), plan(to));
                let edits = diff(from.clone(), &to);
                let mut memory = Memory::new();
                memory.commit(&diff([], &from)).unwrap();
                for batch in batches(&edits, 2) {
                    assert!(batch.len() <= 2);
                    commit(&mut memory, batch);
                    assert_sound(&memory);
                }
                assert_eq!(diff(memory.dump().unwrap(), &to), []);
            }
        }
    }

    #[test]
    fn a_first_start_is_sound_at_any_time_and_a_small_change_is_one_batch() {
        let to = plan(&[2, 0, 3]);
        let edits = diff([], &to);
        let mut memory = Memory::new();
        for batch in batches(&edits, 1) {
            commit(&mut memory, batch);
            assert_sound(&memory);
        }
        assert_eq!(batches(&edits, BATCH).count(), 1);
        assert_eq!(
            batches(&[], BATCH).map(|batch| batch.len()).sum::<usize>(),
            0
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
