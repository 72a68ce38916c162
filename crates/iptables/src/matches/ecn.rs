//! `-m ecn`: explicit congestion notification.

use crate::field::extension;
use crate::negatable::Negatable;

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
