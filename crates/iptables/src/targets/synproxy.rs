//! `-j SYNPROXY`: TCP handshakes before a connection is tracked.

use crate::extensions::structure::{Reader, Structure, Writer, flags};
use crate::options::field::extension;

extension! {
    /// Completes TCP handshakes before a connection is tracked: `-p tcp -j SYNPROXY --mss
    /// 1460`.
    pub struct Synproxy = "-j SYNPROXY" {
        /// Whether selective acknowledgements are sent.
        sack_perm: bool = "--sack-perm",
        /// Whether timestamps are sent.
        timestamp: bool = "--timestamp",
        /// Window scale, 0 to 14.
        wscale: Option<u8> = "--wscale",
        /// Maximum segment size in bytes.
        mss: Option<u16> = "--mss",
        /// Whether explicit congestion notification is supported.
        ecn: bool = "--ecn",
    }
    complete |it| it.wscale.is_none_or(|wscale| wscale < 15);
}

// Options of `struct xt_synproxy_info`.
const XT_SYNPROXY_OPT_MSS: u8 = 0x01;
const XT_SYNPROXY_OPT_WSCALE: u8 = 0x02;
const XT_SYNPROXY_OPT_SACK_PERM: u8 = 0x04;
const XT_SYNPROXY_OPT_TIMESTAMP: u8 = 0x08;
const XT_SYNPROXY_OPT_ECN: u8 = 0x10;

/// `struct xt_synproxy_info`.
impl Structure for Synproxy {
    const NAME: &'static str = "SYNPROXY";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.u8(flags([
            (self.mss.is_some(), XT_SYNPROXY_OPT_MSS),
            (self.wscale.is_some(), XT_SYNPROXY_OPT_WSCALE),
            (self.sack_perm, XT_SYNPROXY_OPT_SACK_PERM),
            (self.timestamp, XT_SYNPROXY_OPT_TIMESTAMP),
            (self.ecn, XT_SYNPROXY_OPT_ECN),
        ]));
        out.u8(self.wscale.unwrap_or(0)).u16(self.mss.unwrap_or(0));
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (options, wscale, mss) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let has = |option: u8| options & option != 0;
        Some(Self {
            sack_perm: has(XT_SYNPROXY_OPT_SACK_PERM),
            timestamp: has(XT_SYNPROXY_OPT_TIMESTAMP),
            wscale: has(XT_SYNPROXY_OPT_WSCALE).then_some(wscale),
            mss: has(XT_SYNPROXY_OPT_MSS).then_some(mss),
            ecn: has(XT_SYNPROXY_OPT_ECN),
        })
    }
}
