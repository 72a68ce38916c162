//! `-m devgroup`: groups of interfaces.

use crate::extensions::structure::{Reader, Structure, Writer, flags, is_not};
use crate::options::field::extension;
use crate::options::negatable::Negatable;
use crate::options::number::{Masked, MaskedMatch};

extension! {
    /// Matches the groups of interfaces: `-m devgroup --src-group 5`.
    ///
    /// Only numbers are supported, not names of groups.
    pub struct Devgroup = "-m devgroup" {
        /// Group of the input interface.
        source: Option<Negatable<MaskedMatch>> = "--src-group",
        /// Group of the output interface.
        destination: Option<Negatable<MaskedMatch>> = "--dst-group",
    }
}

// enum xt_devgroup_flags
const XT_DEVGROUP_MATCH_SRC: u32 = 1;
const XT_DEVGROUP_INVERT_SRC: u32 = 2;
const XT_DEVGROUP_MATCH_DST: u32 = 4;
const XT_DEVGROUP_INVERT_DST: u32 = 8;

/// `struct xt_devgroup_info`.
impl Structure for Devgroup {
    const NAME: &'static str = "devgroup";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.u32(flags([
            (self.source.is_some(), XT_DEVGROUP_MATCH_SRC),
            (is_not(&self.source), XT_DEVGROUP_INVERT_SRC),
            (self.destination.is_some(), XT_DEVGROUP_MATCH_DST),
            (is_not(&self.destination), XT_DEVGROUP_INVERT_DST),
        ]));
        for group in [self.source, self.destination] {
            let none = Masked { value: 0, mask: 0 };
            let Masked { value, mask } = group.map_or(none, |group| group.value().0);
            out.u32(value).u32(mask);
        }
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let flags = reader.u32()?;
        let mut group = |used: u32, inverted: u32| {
            let (value, mask) = (reader.u32()?, reader.u32()?);
            let group = MaskedMatch(Masked { value, mask });
            let is_negated = flags & inverted != 0;
            Some((flags & used != 0).then(|| Negatable::new(is_negated, group)))
        };
        Some(Self {
            source: group(XT_DEVGROUP_MATCH_SRC, XT_DEVGROUP_INVERT_SRC)?,
            destination: group(XT_DEVGROUP_MATCH_DST, XT_DEVGROUP_INVERT_DST)?,
        })
    }
}
