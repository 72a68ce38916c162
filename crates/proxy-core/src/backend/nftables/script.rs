//! Edits as a script that nft loads.

use vipline_nftables::{Object, Ruleset, TableId, Transaction};
use vipline_reconcile::Edit;

use super::Planner;
use super::batches::{Stage, name, stage};
use super::takeover::{adds_backends, is_set_exchanged, is_take_over};
use crate::backend::Planner as _;

/// Returns edits that lead to the desired state as a script.
pub(super) fn script<'a>(
    mut edits: Vec<Edit<Object>>,
    desired: impl Iterator<Item = &'a Object>,
) -> String {
    if let Some(table) = beyond_nft(&edits) {
        let listing = listing(desired);
        return format!("add table {table}\ndelete table {table}\n{listing}");
    }
    sort(&mut edits);
    Transaction::from_edits(&edits).to_string()
}

/// Returns a whole state as a script.
pub(super) fn listing<'a>(objects: impl Iterator<Item = &'a Object>) -> String {
    objects.cloned().collect::<Ruleset>().to_string()
}

/// Returns the table of edits that no script can tell nft 1.0.6.
///
/// It neither exchanges a set that rules use, nor wakes a table and adds
/// chains, nor adds a rule that names the map of endpoints where the kernel has
/// that map: it finds "conflicting protocols" in the type of the map.
/// The table of somebody else is replaced as a whole.
fn beyond_nft(edits: &[Edit<Object>]) -> Option<&TableId> {
    let names_backends = |edit: &Edit<Object>| match edit {
        Edit::Remove(_) => false,
        _ => Planner::is_removal_delayed(edit.object()),
    };
    let is_named_anew = edits.iter().any(names_backends) && !edits.iter().any(adds_backends);
    let edit = edits.first()?;
    let is_apart = |edit| is_set_exchanged(edit) || stage(edit) == Stage::Table;
    (is_named_anew || is_take_over(edits) || edits.iter().any(is_apart))
        .then(|| edit.object().table())
}

/// Puts edits into an order that depends on nothing but what they are.
fn sort(edits: &mut [Edit<Object>]) {
    edits.sort_by(|one, other| place(one).cmp(&place(other)));
}

/// Returns the place of an edit in a script: by stage, name and key.
fn place(edit: &Edit<Object>) -> (Stage, Option<&str>, &[u8]) {
    match edit.object() {
        Object::Element(element) => {
            let set = element.set().name.as_str();
            (stage(edit), Some(set), element.key_bytes())
        }
        _ => (stage(edit), name(edit), &[]),
    }
}
