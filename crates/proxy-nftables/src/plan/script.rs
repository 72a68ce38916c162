//! Edits as a script for nft.

use vipline_nftables::{Object, Ruleset, TableId, Transaction};
use vipline_reconcile::Edit;

use super::batches::{Stage, name, stage};
use super::names;
use super::takeover::{adds_backends, is_set_exchanged, is_takeover};

/// Returns edits that lead to the desired state as a script.
pub(super) fn script<'a>(
    mut edits: Vec<Edit<Object>>,
    desired: impl Iterator<Item = &'a Object>,
) -> String {
    if let Some(table) = unsupported_by_nft(&edits) {
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

/// Returns the table of edits that nft 1.0.6 cannot apply, so that the script must
/// replace the whole table.
///
/// nft 1.0.6 cannot replace a set that rules use. It cannot wake a dormant table and add
/// chains in one script. It cannot add a rule that uses an existing map of endpoints: it
/// reports "conflicting protocols" for the type of the map. A table of another program is
/// also replaced as a whole.
fn unsupported_by_nft(edits: &[Edit<Object>]) -> Option<&TableId> {
    let users = [
        names::SERVICES,
        names::AFFINITY,
        names::SHORT_AFFINITY,
        names::NODEPORT_AFFINITY,
        names::SHORT_NODEPORT_AFFINITY,
    ];
    let names_backends = |edit: &Edit<Object>| match (edit, edit.object()) {
        (Edit::Remove(_), _) => false,
        (_, Object::Chain(chain)) => {
            users.contains(&chain.name.as_str()) || names::is_chain_on_demand(&chain.name)
        }
        (_, Object::Set(set)) => names::is_set_on_demand(&set.name),
        _ => false,
    };
    let is_named_anew = edits.iter().any(names_backends) && !edits.iter().any(adds_backends);
    let edit = edits.first()?;
    let is_apart = |edit| is_set_exchanged(edit) || stage(edit) == Stage::Table;
    (is_named_anew || is_takeover(edits) || edits.iter().any(is_apart))
        .then(|| edit.object().table())
}

/// Sorts edits by their contents only.
fn sort(edits: &mut [Edit<Object>]) {
    edits.sort_by(|one, other| place(one).cmp(&place(other)));
}

/// Returns the sort key of an edit: stage, name and element key.
fn place(edit: &Edit<Object>) -> (Stage, Option<&str>, &[u8]) {
    match edit.object() {
        Object::Element(element) => {
            let set = element.set().name.as_str();
            (stage(edit), Some(set), element.key_bytes())
        }
        _ => (stage(edit), name(edit), &[]),
    }
}
