//! `-j ECN`: explicit congestion notification.

use crate::Family;
use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::extension;

extension! {
    /// Removes explicit congestion notification: `-p tcp -j ECN --ecn-tcp-remove`.
    pub struct Ecn = "-j ECN" {
        /// Whether the flags ECE and CWR of TCP are cleared; iptables requires it.
        tcp_remove: bool = "--ecn-tcp-remove",
    }
}

// Flags of `struct ipt_ECN_info`.
const IPT_ECN_OP_SET_ECE: u8 = 0x10;
const IPT_ECN_OP_SET_CWR: u8 = 0x20;

/// `struct ipt_ECN_info`.
impl Structure for Ecn {
    const NAME: &'static str = "ECN";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.u8(IPT_ECN_OP_SET_ECE | IPT_ECN_OP_SET_CWR).zeros(2);
        (self.tcp_remove && out.family() == Family::V4).then_some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let tcp_remove = reader.u8()? == IPT_ECN_OP_SET_ECE | IPT_ECN_OP_SET_CWR;
        Some(Self { tcp_remove })
    }
}
