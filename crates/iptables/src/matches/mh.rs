//! `-m mh`: mobility header of IPv6.

use crate::field::extension;
use crate::matches::ids::forget;
use crate::negatable::Negatable;
use crate::number::Range;

extension! {
    /// Matches the mobility header: `-p mobility-header -m mh --mh-type 5`.
    pub struct Mh = "-m mh" {
        /// Message type.
        ty: Option<Negatable<Range<u8>>> = "--mh-type",
    }
    complete |_| true;
    normalize |it| forget(&mut it.ty, (0..=u8::MAX).into());
}
