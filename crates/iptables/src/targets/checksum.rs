//! `-j CHECKSUM`: missing checksums.

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::extension;

extension! {
    /// Computes missing checksums: `-j CHECKSUM --checksum-fill`.
    pub struct Checksum = "-j CHECKSUM" {
        /// Whether the checksum is computed; iptables requires it.
        fill: bool = "--checksum-fill",
    }
}

const XT_CHECKSUM_OP_FILL: u8 = 1;

/// `struct xt_CHECKSUM_info`.
impl Structure for Checksum {
    const NAME: &'static str = "CHECKSUM";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.u8(XT_CHECKSUM_OP_FILL);
        self.fill.then_some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let fill = reader.u8()? == XT_CHECKSUM_OP_FILL;
        Some(Self { fill })
    }
}
