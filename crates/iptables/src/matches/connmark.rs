//! `-m connmark`: connection mark.

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::extension;
use crate::options::negatable::Negatable;
use crate::options::number::{Masked, MaskedMatch};

extension! {
    /// Matches the connection mark: `-m connmark --mark 0x1/0xff`.
    pub struct Connmark = "-m connmark" {
        /// Value and mask.
        mark: Option<Negatable<MaskedMatch>> = "--mark",
    }
}

/// `struct xt_connmark_mtinfo1`.
impl Structure for Connmark {
    const NAME: &'static str = "connmark";
    const REVISION: u32 = 1;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let mark = self.mark?;
        let MaskedMatch(Masked { value, mask }) = *mark.value();
        out.u32(value).u32(mask).u8(mark.is_negated().into());
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (value, mask) = (reader.u32()?, reader.u32()?);
        let mark = MaskedMatch(Masked { value, mask });
        let mark = Some(Negatable::new(reader.u8()? != 0, mark));
        Some(Self { mark })
    }
}
