//! `-j DSCP`: differentiated services code point.

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::matches::DscpValue;
use crate::options::field::extension;

extension! {
    /// Sets the differentiated services code point: `-j DSCP --set-dscp 0x2e`.
    pub struct Dscp = "-j DSCP" {
        /// Code point; iptables requires one.
        dscp: Option<DscpValue> = "--set-dscp" | "--set-dscp-class",
    }
}

/// `struct xt_DSCP_info`.
impl Structure for Dscp {
    const NAME: &'static str = "DSCP";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.u8(self.dscp?.get());
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let dscp = Some(DscpValue::new(reader.u8()?)?);
        Some(Self { dscp })
    }
}
