//! `-j DSCP`: differentiated services code point.

use crate::field::extension;
use crate::matches::DscpValue;

extension! {
    /// Sets the differentiated services code point: `-j DSCP --set-dscp 0x2e`.
    pub struct Dscp = "-j DSCP" {
        /// Code point; iptables requires one.
        dscp: Option<DscpValue> = "--set-dscp" | "--set-dscp-class",
    }
}
