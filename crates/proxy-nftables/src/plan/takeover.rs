//! Edits that replace a table or set in use.
//!
//! Upstream kube-proxy uses the same table, `ip kube-proxy`. When this proxy starts on a node on
//! which upstream ran, the difference between the dump and the plan says: remove its sets and
//! chains, add ours. The kernel does not accept that as it stands, because rules that go away in
//! the same transaction still count as users of the sets. So the table is deleted and created
//! again, in one transaction: packets pass the old rules until it is committed, and the new ones
//! after it, and never none.
//!
//! The other case is one set of ours whose properties changed with a new version of this crate.
//! The table stays, and all rules are written again, which releases the old set.
//!
//! Both need objects that are not part of the difference, which is why a commit that
//! [is incomplete](are_incomplete) reads the table once more.

use std::collections::HashSet;

use vipline_nftables::{Key, Object};
use vipline_reconcile::{Edit, Keyed};

use super::batches::{is_divisible, stage};
use super::names;
use super::table::Table;

/// Returns whether edits must be [completed](completed) with edits of other installed
/// objects.
pub(crate) fn are_incomplete(edits: &[Edit<Object>]) -> bool {
    is_takeover(edits) || edits.iter().any(is_set_exchanged)
}

/// Adds the edits that are needed because of other installed objects.
pub(crate) fn completed(
    table: &Table,
    edits: &[Edit<Object>],
    installed: Vec<Object>,
) -> Vec<Edit<Object>> {
    if is_takeover(edits) {
        replace_table(table, edits, installed)
    } else {
        rewrite_users(edits, installed)
    }
}

/// Returns whether the installed table has another layout: that of upstream, or of an
/// earlier version of this crate.
///
/// There is no mark in the table that says whose it is, so the edits must tell:
///
/// - Upstream's table may contain objects of ours, because upstream removes few objects that
///   it does not declare: a node may have gone from upstream to this proxy and back. So
///   sets that upstream declares identify its table, whatever else is in it.
/// - A table of ours has the map of endpoints from its first transaction on. If the table
///   exists and the map does not, it is either of another layout, or of ours and someone
///   deleted the map. The other edits decide: a table of ours that lost something needs only
///   additions, and removals of elements or of unused chains, which are
///   [divisible](is_divisible). An edit that changes a chain, or removes one in use, is about a
///   layout that is not this one.
pub(crate) fn is_takeover(edits: &[Edit<Object>]) -> bool {
    let makes_table = |edit: &Edit<Object>| matches!(edit, Edit::Add(object) if is_table(object));
    let is_tidy = |edit: &Edit<Object>| is_divisible(stage(edit), edit);
    let is_incomplete = || {
        edits.iter().any(adds_backends)
            && !edits.iter().any(makes_table)
            && !edits.iter().all(is_tidy)
    };
    edits.iter().any(removes_upstream) || is_incomplete()
}

/// Returns whether an edit removes a set or map that upstream declares.
fn removes_upstream(edit: &Edit<Object>) -> bool {
    matches!(edit, Edit::Remove(Object::Set(set)) if names::is_upstream(&set.name))
}

/// Returns whether an edit creates the map of endpoints.
pub(super) fn adds_backends(edit: &Edit<Object>) -> bool {
    matches!(edit, Edit::Add(Object::Set(set)) if set.name.as_str() == names::BACKENDS)
}

/// Returns whether an edit replaces a set by one with other properties.
pub(super) fn is_set_exchanged(edit: &Edit<Object>) -> bool {
    matches!(
        edit,
        Edit::Change {
            new: Object::Set(_),
            ..
        }
    )
}

/// Returns edits that replace a table as a whole.
///
/// Deleting a table deletes all its objects, regardless of references. Deleting single
/// chains does not work: kernels before 6.2 do not see within a transaction that a chain
/// became unreferenced.
fn replace_table(
    table: &Table,
    edits: &[Edit<Object>],
    installed: Vec<Object>,
) -> Vec<Edit<Object>> {
    let former = installed.iter().find(|object| is_table(object)).cloned();
    let edited: HashSet<_> = edits.iter().map(Edit::key).collect();
    // What the edits do not mention is installed as planned, and goes with the table.
    let kept = installed
        .into_iter()
        .filter(|object| !edited.contains(&object.key()));
    let wanted = edits
        .iter()
        .filter_map(|edit| edit.clone().into_old_and_new().1)
        .chain(kept);
    // Our sets have our comments, and elements that rules added are not wanted.
    let frame: Vec<_> = table.objects().collect();
    let sets: HashSet<_> = frame.iter().map(Object::key).collect();
    let rest = wanted.filter(|object| match object {
        // In the frame.
        Object::Table(_) => false,
        Object::Set(set) => names::is_set_on_demand(&set.name),
        Object::Element(element) => {
            let set = element.set();
            names::is_set_on_demand(&set.name) || sets.contains(&Key::Set(&set.table, &set.name))
        }
        // Chains: an installed one that the edits neither change nor remove is one of ours.
        _ => true,
    });
    let rest: Vec<_> = rest.collect();
    let added = frame.iter().cloned().chain(rest).map(Edit::Add);
    former.map(Edit::Remove).into_iter().chain(added).collect()
}

fn is_table(object: &Object) -> bool {
    matches!(object, Object::Table(_))
}

/// Returns the edits together with edits that rewrite the rules of all other chains.
///
/// A set cannot be replaced while rules use it: the rewritten rules release the old set
/// and use the new one. The chains are changed to themselves, which the kernel sees as a flush
/// and new rules.
fn rewrite_users(edits: &[Edit<Object>], installed: Vec<Object>) -> Vec<Edit<Object>> {
    let edited: HashSet<_> = edits.iter().map(Edit::key).collect();
    let users = installed
        .into_iter()
        .filter(|object| matches!(object, Object::Chain(_)) && !edited.contains(&object.key()));
    let added = users.map(|chain| Edit::Change {
        old: chain.clone(),
        new: chain,
    });
    added.chain(edits.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Planner;
    use proxy_engine::Planner as _;
    use vipline_nftables::statement::drop;
    use vipline_nftables::{Chain, Datatype, Name, Rule, Set, SetFlags, Transaction};
    use vipline_reconcile::diff;
    use vipline_service_model::{DetectLocal, Family, Route};

    use super::super::batches::transactions;
    use super::super::tests::{cx, planned, service_port};
    use super::*;

    fn plan() -> Vec<Object> {
        let cx = cx(Family::V4, DetectLocal::NodeCidr);
        let mut objects = Planner.base(&cx);
        objects.extend(planned(&cx, &service_port(Route::Cluster)));
        objects
    }

    /// Returns a table with our name that contains a wanted cluster IP and an unwanted
    /// chain.
    fn foreign_table(plan: &[Object]) -> Vec<Object> {
        let table = plan[0].table();
        let addr = Datatype::Ipv4Addr;
        let dynamic = Set::new(table.clone(), Name::new("affinity-x").unwrap(), addr)
            .with_flags(SetFlags::DYNAMIC);
        let rules = [Rule::new(table.family, [drop()]).expect("a verdict has no value")];
        let chain = Chain::new(table.clone(), Name::new("service-x").unwrap());
        let is_cluster_ip = |object: &&Object| match object {
            Object::Set(set) => set.name.as_str() == names::ACTIVE_CLUSTER_IPS,
            Object::Element(element) => element.set().name.as_str() == names::ACTIVE_CLUSTER_IPS,
            _ => false,
        };
        let mut objects = vec![
            plan[0].clone(),
            dynamic.clone().into(),
            chain.with_rules(rules).into(),
        ];
        objects.extend(plan.iter().filter(is_cluster_ip).cloned());
        objects
    }

    #[test]
    fn the_table_of_another_program_is_replaced_as_a_whole() {
        let plan = plan();
        let mut installed = foreign_table(&plan);
        let edits = diff(installed.clone(), &plan);
        assert!(is_takeover(&edits) && are_incomplete(&edits));
        let Object::Set(dynamic) = &installed[1] else {
            panic!("a set: {:?}", installed[1]);
        };
        let client = dynamic.element(&[std::net::Ipv4Addr::LOCALHOST.into()]);
        installed.push(client.unwrap().into());
        let edits = completed(Table::of(Family::V4), &edits, installed);
        let added = Transaction::from_edits(&diff([], &plan)).to_string();
        let mut transactions = transactions(&edits);
        let text = transactions.next().unwrap().to_string();
        assert!(transactions.next().is_none());
        let (first, rest) = text.split_once('\n').unwrap();
        assert_eq!(first, "delete table ip kube-proxy");
        let sorted = |text: &str| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(rest), sorted(&added));
    }

    #[test]
    fn no_set_of_ours_has_a_name_that_upstream_declares() {
        let objects = plan().into_iter();
        let sets = objects.filter_map(|object| match object {
            Object::Set(set) => Some(set.name.clone()),
            _ => None,
        });
        let sets: Vec<_> = sets.collect();
        assert!(sets.len() > 20, "{sets:?}");
        let shared = sets.iter().find(|name| names::is_upstream(name));
        assert_eq!(shared, None);
        assert!(names::is_upstream(&Name::new("affinity-x").unwrap()));
    }

    #[test]
    fn our_table_is_never_taken_over_regardless_of_drift() {
        let plan = plan();
        let stray = Chain::new(plan[0].table().clone(), Name::new("stray").unwrap());
        for objects in [1, plan.len() / 2, plan.len()] {
            let mut installed = plan[..objects].to_vec();
            assert!(!is_takeover(&diff(installed.clone(), &plan)), "{objects}");
            installed.push(stray.clone().into());
            let is_ours = objects > 1;
            assert_eq!(is_takeover(&diff(installed, &plan)), !is_ours, "{objects}");
        }
        assert!(!is_takeover(&diff([], &plan)));
    }
}
