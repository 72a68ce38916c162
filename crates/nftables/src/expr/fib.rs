//! `fib`: route lookups.

use bitflags::bitflags;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, Register};
use crate::Value;

// enum nft_fib_attributes
const NFTA_FIB_DREG: u16 = 1;
const NFTA_FIB_RESULT: u16 = 2;
const NFTA_FIB_FLAGS: u16 = 3;

/// The `fib` expression: looks up the route of an address.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Fib {
    /// Keys of the lookup.
    pub flags: FibFlags,
    /// Result of the lookup.
    pub result: FibResult,
    /// Destination register.
    pub destination: Register,
}

bitflags! {
    /// Keys of a route lookup: `enum nft_fib_flags`.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct FibFlags: u32 {
        /// The source address.
        const SADDR = 1;
        /// The destination address.
        const DADDR = 2;
        /// The packet mark.
        const MARK = 4;
        /// The input interface.
        const IIF = 8;
        /// The output interface.
        const OIF = 16;
        /// The result is only whether a route exists.
        const PRESENT = 32;
        /// Unknown flags are preserved.
        const _ = !0;
    }
}

/// Result of a route lookup: `enum nft_fib_result`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum FibResult {
    /// The index of the interface of the route.
    Oif,
    /// The name of the interface of the route.
    Oifname,
    /// The route type of the address.
    AddrType,
}

/// A route type: `RTN_*` of `linux/rtnetlink.h`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AddrType {
    /// An address of another host.
    Unicast,
    /// A local address.
    Local,
    /// A broadcast address.
    Broadcast,
    /// An anycast address.
    Anycast,
    /// A multicast address.
    Multicast,
    /// Packets are dropped silently.
    Blackhole,
    /// Packets are rejected as unreachable.
    Unreachable,
    /// Packets are rejected as prohibited.
    Prohibit,
}

impl From<AddrType> for Value {
    fn from(kind: AddrType) -> Self {
        Self::Integer(match kind {
            AddrType::Unicast => 1,
            AddrType::Local => 2,
            AddrType::Broadcast => 3,
            AddrType::Anycast => 4,
            AddrType::Multicast => 5,
            AddrType::Blackhole => 6,
            AddrType::Unreachable => 7,
            AddrType::Prohibit => 8,
        })
    }
}

impl ExprType for Fib {
    const NAME: &'static str = "fib";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_FIB_FLAGS, self.flags.bits());
        let result = match self.result {
            FibResult::Oif => 1,
            FibResult::Oifname => 2,
            FibResult::AddrType => 3,
        };
        put_be32(out, NFTA_FIB_RESULT, result);
        put_be32(out, NFTA_FIB_DREG, self.destination.number());
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut flags, mut result, mut destination) = (None, None, None);
        for attr in attrs {
            let attr = attr?;
            let number = attr.be32()?;
            match (attr.kind, number) {
                (NFTA_FIB_FLAGS, bits) => flags = Some(FibFlags::from_bits_retain(bits)),
                (NFTA_FIB_RESULT, 1) => result = Some(FibResult::Oif),
                (NFTA_FIB_RESULT, 2) => result = Some(FibResult::Oifname),
                (NFTA_FIB_RESULT, 3) => result = Some(FibResult::AddrType),
                (NFTA_FIB_DREG, number) => destination = Some(Register::from_number(number)),
                _ => return Ok(None),
            }
        }
        let (Some(flags), Some(result), Some(destination)) = (flags, result, destination) else {
            return Ok(None);
        };
        Ok(Some(Self {
            flags,
            result,
            destination,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn lookups_round_trip() {
        for result in [FibResult::Oif, FibResult::Oifname, FibResult::AddrType] {
            let flags = FibFlags::DADDR | FibFlags::MARK;
            assert_identity(Fib {
                flags,
                result,
                destination: Register::word(0),
            });
        }
    }
}
