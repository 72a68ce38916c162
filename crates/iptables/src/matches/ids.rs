//! Conditions on a range of identifiers.

use crate::negatable::Negatable;
use crate::number::Range;

/// Removes a condition that matches every number: iptables does not store it.
pub(super) fn forget<T: PartialEq>(place: &mut Option<Negatable<Range<T>>>, all: Range<T>) {
    if *place == Some(Negatable::Is(all)) {
        *place = None;
    }
}
