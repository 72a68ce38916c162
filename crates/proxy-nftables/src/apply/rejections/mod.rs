//! Mapping of rejected operations of a transaction to edits.

use std::collections::{HashMap, HashSet};

use vipline_netlink::Errno;
use vipline_nftables::{ElementData, Name, Object, RejectedOperation, Subject, Verdict};
use vipline_reconcile::{Attempt, Cause, Edit, Keyed, Reason};

use crate::plan::names;

/// Finds the edits of a `batch` that the kernel rejected.
///
/// Returns `None` if the kernel rejected an object that the rules of all Services need,
/// or the transaction as a whole. If the error refers to several elements at once, no
/// edit is named.
pub(super) fn attempt(
    edits: &[&Edit<Object>],
    batch: &[usize],
    refused: &[RejectedOperation],
) -> Option<Attempt> {
    let places: HashMap<_, _> = batch
        .iter()
        .map(|&index| (edits[index].key(), index))
        .collect();
    let chains = refused_chains(refused);
    let (mut named, mut seen) = (Vec::new(), HashSet::new());
    for refusal in refused {
        let object = match &refusal.request.subject {
            Subject::Object(object) => (**object).clone(),
            Subject::Rule(chain, _) => Object::Chain(chain.clone()),
            Subject::Elements { .. } => continue,
            _ => return None,
        };
        let index = *places.get(&object.key())?;
        if !is_isolatable(edits[index]) {
            return None;
        }
        if seen.insert(index) {
            let is_dependent = goes_to(edits[index]).is_some_and(|name| chains.contains(name));
            let reason = reason(refusal);
            named.push((
                index,
                match is_dependent {
                    true => reason.with_cause(Cause::Dependent),
                    false => reason,
                },
            ));
        }
    }
    let first = refused.first()?;
    Some(Attempt::Rejected {
        applied: Vec::new(),
        named,
        reason: reason(first),
    })
}

/// Returns the edits of elements that go to chains which were not added.
pub(super) fn dependents(edits: &[&Edit<Object>], rejected: &[usize]) -> Vec<usize> {
    let added = rejected.iter().filter_map(|&index| match edits[index] {
        Edit::Add(Object::Chain(chain)) => Some(&chain.name),
        _ => None,
    });
    let added: HashSet<_> = added.collect();
    if added.is_empty() {
        return Vec::new();
    }
    let depends = |edit: &Edit<Object>| goes_to(edit).is_some_and(|name| added.contains(name));
    (0..edits.len())
        .filter(|&index| depends(edits[index]))
        .collect()
}

/// Returns the chain that an element goes to after an edit.
fn goes_to(edit: &Edit<Object>) -> Option<&Name> {
    let (Edit::Add(Object::Element(element))
    | Edit::Change {
        new: Object::Element(element),
        ..
    }) = edit
    else {
        return None;
    };
    match element.data() {
        Some(ElementData::Verdict(Verdict::Goto(name) | Verdict::Jump(name))) => Some(name),
        _ => None,
    }
}

fn refused_chains(refused: &[RejectedOperation]) -> HashSet<&Name> {
    let chains = refused.iter().filter_map(|it| match &it.request.subject {
        Subject::Object(object) => match &**object {
            Object::Chain(chain) => Some(&chain.name),
            _ => None,
        },
        Subject::Rule(chain, _) => Some(&chain.name),
        _ => None,
    });
    chains.collect()
}

/// Returns whether the rules of other Services work without an edit. True for elements,
/// on-demand chains and sets, and removals.
fn is_isolatable(edit: &Edit<Object>) -> bool {
    match edit {
        Edit::Add(Object::Chain(chain)) => names::is_chain_on_demand(&chain.name),
        Edit::Add(Object::Set(set)) => names::is_set_on_demand(&set.name),
        Edit::Add(Object::Element(_))
        | Edit::Change {
            new: Object::Element(_),
            ..
        }
        | Edit::Remove(Object::Element(_) | Object::Chain(_) | Object::Set(_)) => true,
        _ => false,
    }
}

fn reason(refused: &RejectedOperation) -> Reason {
    let errno = refused.errno;
    let cause = match errno {
        Errno::EXIST | Errno::NOENT => Cause::Conflict,
        _ => Cause::Rejected,
    };
    Reason::rejected(Some(errno.0), refused.reason()).with_cause(cause)
}

#[cfg(test)]
mod tests;
