//! `-j NETMAP`: translation of networks.

use crate::address::Network;
use crate::field::extension;

extension! {
    /// Maps a network to another one: `-j NETMAP --to 10.1.0.0/16`.
    pub struct Netmap = "-j NETMAP" {
        /// New network; iptables requires one.
        to: Option<Network> = "--to",
    }
}
