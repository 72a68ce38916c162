//! `-m dccp`: DCCP ports, packet types and options.

use std::fmt;

use bitflags::bitflags;

use crate::field::{extension, word_values};
use crate::list;
use crate::negatable::Negatable;
use crate::number::Ports;

extension! {
    /// Matches DCCP packets: `-p dccp -m dccp --dport 5001 --dccp-types REQUEST`.
    pub struct Dccp = "-m dccp" {
        /// Source port.
        sport: Option<Negatable<Ports>> = "--sport" | "--source-port",
        /// Destination port.
        dport: Option<Negatable<Ports>> = "--dport" | "--destination-port",
        /// Packet types.
        types: Option<Negatable<DccpTypes>> = "--dccp-types",
        /// Number of an option that the packet has.
        option: Option<Negatable<u8>> = "--dccp-option",
    }
    complete |_| true;
}

bitflags! {
    /// DCCP packet types.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct DccpTypes: u16 {
        /// Request of a connection.
        const REQUEST = 1;
        /// Response to a request.
        const RESPONSE = 2;
        /// Data.
        const DATA = 4;
        /// Acknowledgement.
        const ACK = 8;
        /// Data with an acknowledgement.
        const DATAACK = 16;
        /// Request to close the connection.
        const CLOSEREQ = 32;
        /// End of the connection.
        const CLOSE = 64;
        /// Reset of the connection.
        const RESET = 128;
        /// Synchronization of sequence numbers.
        const SYNC = 256;
        /// Acknowledgement of a synchronization.
        const SYNCACK = 512;
        /// Types without a name.
        const INVALID = 1024;
    }
}

impl fmt::Display for DccpTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list::write(*self, "", f)
    }
}

word_values! { DccpTypes = list::parse, }
