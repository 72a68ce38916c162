//! Conditions on a range of identifiers.

use crate::extensions::structure::{Reader, Writer};
use crate::options::negatable::Negatable;
use crate::options::number::Range;

/// Removes a condition that matches every number: iptables does not store it.
pub(super) fn forget<T: PartialEq>(place: &mut Option<Negatable<Range<T>>>, all: Range<T>) {
    if *place == Some(Negatable::Is(all)) {
        *place = None;
    }
}

/// A condition on identifiers.
pub(super) type Ids = Option<Negatable<Range<u32>>>;

/// Appends the first and the last identifier; without a condition, 0 and `last`.
pub(super) fn write(out: &mut Writer<'_>, ids: &Ids, last: u32) {
    let range = ids.map_or(Range { first: 0, last }, |ids| *ids.value());
    out.u32(range.first).u32(range.last);
}

pub(super) fn read(reader: &mut Reader<'_>) -> Option<Range<u32>> {
    let (first, last) = (reader.u32()?, reader.u32()?);
    Some(Range { first, last })
}

/// Returns a condition, unless it is the one of a match without it.
pub(super) fn condition(ids: Range<u32>, last: u32, is_negated: bool) -> Ids {
    let is_set = is_negated || ids != Range { first: 0, last };
    is_set.then(|| Negatable::new(is_negated, ids))
}
