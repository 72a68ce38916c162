//! `-m quota`: a number of bytes.

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::extension;
use crate::options::negatable::Negatable;

extension! {
    /// Matches until a number of bytes has passed: `-m quota --quota 1000000`.
    pub struct Quota = "-m quota" {
        /// Number of bytes.
        quota: Option<Negatable<u64>> = "--quota",
    }
}

const XT_QUOTA_INVERT: u32 = 1;

/// `struct xt_quota_info`.
impl Structure for Quota {
    const NAME: &'static str = "quota";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let quota = self.quota?;
        out.u32(if quota.is_negated() {
            XT_QUOTA_INVERT
        } else {
            0
        });
        out.zeros(4).u64(*quota.value()).pointer();
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let is_negated = reader.u32()? & XT_QUOTA_INVERT != 0;
        reader.bytes(4)?;
        let quota = Some(Negatable::new(is_negated, reader.u64()?));
        Some(Self { quota })
    }
}
