//! `-m ecn`: explicit congestion notification.

use crate::extensions::structure::{Conditions, Reader, Structure, Writer};
use crate::options::field::extension;
use crate::options::negatable::Negatable;

extension! {
    /// Matches explicit congestion notification: `-p tcp -m ecn --ecn-tcp-ece`.
    pub struct Ecn = "-m ecn" {
        /// TCP flag ECE.
        tcp_ece: Option<Negatable<()>> = "--ecn-tcp-ece",
        /// TCP flag CWR.
        tcp_cwr: Option<Negatable<()>> = "--ecn-tcp-cwr",
        /// ECN field of the IP header, 0 to 3.
        ip_ect: Option<Negatable<u8>> = "--ecn-ip-ect",
    }
    complete |it| (it.tcp_ece.is_some() || it.tcp_cwr.is_some() || it.ip_ect.is_some())
        && it.ip_ect.is_none_or(|ect| *ect.value() < 4);
}

// Flags `operation` and `invert` of `struct xt_ecn_info`.
const XT_ECN_OP_MATCH_IP: u8 = 1;
const XT_ECN_OP_MATCH_ECE: u8 = 0x10;
const XT_ECN_OP_MATCH_CWR: u8 = 0x20;

/// `struct xt_ecn_info`.
impl Structure for Ecn {
    const NAME: &'static str = "ecn";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let mut conditions = Conditions::default();
        conditions.put(XT_ECN_OP_MATCH_ECE, &self.tcp_ece);
        conditions.put(XT_ECN_OP_MATCH_CWR, &self.tcp_cwr);
        let ect = conditions.put(XT_ECN_OP_MATCH_IP, &self.ip_ect);
        out.u8(conditions.used).u8(conditions.negated);
        out.u8(ect.unwrap_or(0)).zeros(1);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let [used, negated, ect, _] = reader.array()?;
        let conditions = Conditions { used, negated };
        Some(Self {
            tcp_ece: conditions.get(XT_ECN_OP_MATCH_ECE, ()),
            tcp_cwr: conditions.get(XT_ECN_OP_MATCH_CWR, ()),
            ip_ect: conditions.get(XT_ECN_OP_MATCH_IP, ect),
        })
    }
}
