//! `-m frag`: fragment header of IPv6.

use crate::Family;
use crate::extensions::structure::{Conditions, Reader, Structure, Writer};
use crate::matches::ids::{self, forget};
use crate::options::field::extension;
use crate::options::negatable::Negatable;
use crate::options::number::Range;

extension! {
    /// Matches the fragment header: `-m frag --fragmore`.
    pub struct Frag = "-m frag" {
        /// Identification.
        id: Option<Negatable<Range<u32>>> = "--fragid",
        /// Length of the header.
        length: Option<Negatable<u32>> = "--fraglen",
        /// Whether reserved fields are zero.
        reserved: bool = "--fragres",
        /// First fragment.
        first: bool = "--fragfirst",
        /// Not the last fragment. Excludes `last`.
        more: bool = "--fragmore",
        /// Last fragment.
        last: bool = "--fraglast",
    }
    complete |it| !(it.more && it.last);
    normalize |it| forget(&mut it.id, Range::<u32>::ALL);
}

// Flags of `struct ip6t_frag`. The first ones are `IP6T_FRAG_INV_IDS` and
// `IP6T_FRAG_INV_LEN` in `invflags`.
const IP6T_FRAG_IDS: u8 = 1;
const IP6T_FRAG_LEN: u8 = 2;
const IP6T_FRAG_RES: u8 = 4;
const IP6T_FRAG_FST: u8 = 8;
const IP6T_FRAG_MF: u8 = 0x10;
const IP6T_FRAG_NMF: u8 = 0x20;

/// `struct ip6t_frag`.
impl Structure for Frag {
    const NAME: &'static str = "frag";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        if out.family() == Family::V4 {
            return None;
        }
        let mut conditions = Conditions::default();
        conditions.put(IP6T_FRAG_IDS, &self.id);
        let length = conditions.put(IP6T_FRAG_LEN, &self.length);
        conditions.put_flag(IP6T_FRAG_RES, self.reserved);
        conditions.put_flag(IP6T_FRAG_FST, self.first);
        conditions.put_flag(IP6T_FRAG_MF, self.more);
        conditions.put_flag(IP6T_FRAG_NMF, self.last);
        ids::write(out, &self.id, u32::MAX);
        out.u32(length.unwrap_or(0));
        out.u8(conditions.used).u8(conditions.negated);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (id, length) = (ids::read(reader)?, reader.u32()?);
        let [used, negated] = reader.array()?;
        let conditions = Conditions { used, negated };
        Some(Self {
            id: conditions.get(IP6T_FRAG_IDS, id),
            length: conditions.get(IP6T_FRAG_LEN, length),
            reserved: conditions.has(IP6T_FRAG_RES),
            first: conditions.has(IP6T_FRAG_FST),
            more: conditions.has(IP6T_FRAG_MF),
            last: conditions.has(IP6T_FRAG_NMF),
        })
    }
}
