//! `-m dccp`: DCCP ports, packet types and options.

use std::fmt;

use bitflags::bitflags;

use crate::extensions::structure::{Conditions, Reader, Structure, Writer};
use crate::matches::ports;
use crate::options::field::{extension, word_values};
use crate::options::list;
use crate::options::negatable::Negatable;
use crate::options::number::Ports;

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

// Flags `flags` and `invflags` of `struct xt_dccp_info`.
const XT_DCCP_SRC_PORTS: u16 = 1;
const XT_DCCP_DEST_PORTS: u16 = 2;
const XT_DCCP_TYPE: u16 = 4;
const XT_DCCP_OPTION: u16 = 8;

/// Bits of `typemask` for the types without name, except the first one.
const OTHER_INVALID: u16 = 0xf800;

/// `struct xt_dccp_info`.
impl Structure for Dccp {
    const NAME: &'static str = "dccp";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let mut conditions = Conditions::default();
        conditions.put(XT_DCCP_SRC_PORTS, &self.sport);
        conditions.put(XT_DCCP_DEST_PORTS, &self.dport);
        let types = conditions.put(XT_DCCP_TYPE, &self.types);
        let option = conditions.put(XT_DCCP_OPTION, &self.option);
        ports::write_or(out, &self.dport, ports::NONE);
        ports::write_or(out, &self.sport, ports::NONE);
        out.u16(conditions.used).u16(conditions.negated);
        // `INVALID` has the bits of all types without name.
        out.u16(
            types.map_or(0, |types| match types.contains(DccpTypes::INVALID) {
                true => types.bits() | OTHER_INVALID,
                false => types.bits(),
            }),
        );
        out.u8(option.unwrap_or(0));
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (dport, sport) = (ports::read(reader)?, ports::read(reader)?);
        let (used, negated) = (reader.u16()?, reader.u16()?);
        let conditions = Conditions { used, negated };
        let (types, option) = (reader.u16()?, reader.u8()?);
        let types = DccpTypes::from_bits(types & !OTHER_INVALID)?;
        Some(Self {
            sport: conditions.get(XT_DCCP_SRC_PORTS, sport),
            dport: conditions.get(XT_DCCP_DEST_PORTS, dport),
            types: conditions.get(XT_DCCP_TYPE, types),
            option: conditions.get(XT_DCCP_OPTION, option),
        })
    }
}
