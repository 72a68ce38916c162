//! Lookups in sets and maps.

use vipline_nftables::expr::{DynsetOp, SetRef};
use vipline_nftables::{Element, Set};

use super::cause::Cause;
use super::index::contains;
use super::walk::Walk;

/// Returns the element that matches a key, with the updates of the evaluation so far.
pub(super) fn find(walk: &Walk<'_>, set: &SetRef, key: &[u8]) -> Result<Option<Element>, Cause> {
    let name = match set {
        SetRef::Named(name) => name,
        SetRef::Anonymous(anonymous) => {
            let elements = &anonymous.elements;
            let found = elements.iter().find(|it| contains(it, key));
            let found = found.or_else(|| elements.iter().find(|it| it.is_catch_all()));
            return Ok(found.cloned());
        }
    };
    let table = walk.table()?;
    let indexed = walk.index.set(table, name)?;
    let mut found = indexed.find(key);
    let updates = walk.updates.iter().filter(|update| {
        update.table == *table && update.set == *name && contains(&update.element, key)
    });
    let mut is_decided = found.is_some();
    for update in updates {
        is_decided = true;
        found = match update.op {
            DynsetOp::Delete => None,
            // An update does not change the data of an element.
            DynsetOp::Add | DynsetOp::Update => found.or(Some(&update.element)),
        };
    }
    if !is_decided && !indexed.is_complete() {
        return Err(Cause::DynamicSet(name.clone()));
    }
    Ok(found.or_else(|| indexed.catch_all()).cloned())
}

/// Returns the set that an expression uses, and its known elements.
pub(super) fn resolve<'w>(
    walk: &'w Walk<'_>,
    set: &'w SetRef,
) -> Result<(&'w Set, &'w [Element]), Cause> {
    match set {
        SetRef::Anonymous(anonymous) => Ok((&anonymous.set, &anonymous.elements)),
        SetRef::Named(name) => {
            let indexed = walk.index.set(walk.table()?, name)?;
            Ok((&indexed.set, indexed.elements()))
        }
    }
}

/// Returns whether a set has no space for another element.
pub(super) fn is_full(walk: &Walk<'_>, set: &SetRef) -> Result<bool, Cause> {
    let (spec, elements) = resolve(walk, set)?;
    let Some(size) = spec.size else {
        return Ok(false);
    };
    let (table, name) = (walk.table()?, set.name());
    let mut count = elements.iter().filter(|it| !it.is_catch_all()).count();
    for update in &walk.updates {
        if update.table == *table && update.set == *name {
            count = match update.op {
                DynsetOp::Delete => count.saturating_sub(1),
                DynsetOp::Add | DynsetOp::Update => count + 1,
            };
        }
    }
    Ok(count >= size as usize)
}
