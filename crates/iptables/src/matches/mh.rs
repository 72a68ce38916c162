//! `-m mh`: mobility header of IPv6.

use crate::Family;
use crate::extensions::structure::{Reader, Structure, Writer, is_not};
use crate::matches::ids::forget;
use crate::options::field::extension;
use crate::options::negatable::Negatable;
use crate::options::number::Range;

extension! {
    /// Matches the mobility header: `-p mobility-header -m mh --mh-type 5`.
    pub struct Mh = "-m mh" {
        /// Message type.
        ty: Option<Negatable<Range<u8>>> = "--mh-type",
    }
    complete |_| true;
    normalize |it| forget(&mut it.ty, (0..=u8::MAX).into());
}

const IP6T_MH_INV_TYPE: u8 = 1;

/// `struct ip6t_mh`.
impl Structure for Mh {
    const NAME: &'static str = "mh";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let all = Range::from(0..=u8::MAX);
        let Range { first, last } = self.ty.map_or(all, |ty| *ty.value());
        out.u8(first).u8(last);
        out.u8(if is_not(&self.ty) {
            IP6T_MH_INV_TYPE
        } else {
            0
        });
        (out.family() == Family::V6).then_some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let [first, last, inverted] = reader.array()?;
        let ty = Negatable::new(inverted & IP6T_MH_INV_TYPE != 0, Range { first, last });
        let mut it = Self { ty: Some(ty) };
        forget(&mut it.ty, (0..=u8::MAX).into());
        Some(it)
    }
}
