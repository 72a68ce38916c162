//! `-m tcpmss`: maximum segment size of TCP.

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::matches::length;
use crate::options::field::extension;
use crate::options::negatable::Negatable;
use crate::options::number::Range;

extension! {
    /// Matches the maximum segment size of TCP: `-p tcp -m tcpmss --mss 1400:1500`.
    pub struct Tcpmss = "-m tcpmss" {
        /// Maximum segment size in bytes.
        mss: Option<Negatable<Range<u16>>> = "--mss",
    }
}

/// `struct xt_tcpmss_match_info`.
impl Structure for Tcpmss {
    const NAME: &'static str = "tcpmss";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        length::write(self.mss.as_ref()?, out);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mss = Some(length::read(reader)?);
        Some(Self { mss })
    }
}
