//! Edits as a document for iptables-restore.

use vipline_iptables::{Object, Restore};
use vipline_reconcile::Edit;
use vipline_service_model::Family;

use super::base;

/// Returns edits as a document, with the program that reads it in the first line.
pub(super) fn document(family: Family, mut edits: Vec<Edit<Object>>) -> String {
    edits.sort_by_cached_key(|edit| place(edit.object()));
    let program = match family {
        Family::V4 => "iptables-restore",
        Family::V6 => "ip6tables-restore",
    };
    format!("# {program} --noflush\n{}", Restore::from_edits(&edits))
}

/// Returns the sort key of an object in a document. Jumps come in the order in which they
/// must be inserted.
pub(super) fn place(object: &Object) -> (usize, String) {
    match object {
        Object::Chain(chain) => (0, format!("{} {}", chain.table, chain.name)),
        Object::SharedRule(entry) => {
            let (table, chain) = (entry.table.as_str(), entry.chain.as_str());
            let place = base::place_of_jump(table, chain, &entry.rule);
            let text = format!("{table} {chain} {:?} {}", entry.position, entry.rule);
            (place.map_or(usize::MAX, |place| place + 1), text)
        }
    }
}
