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
// enum nft_fib_result
const NFT_FIB_RESULT_OIF: u32 = 1;
const NFT_FIB_RESULT_OIFNAME: u32 = 2;
const NFT_FIB_RESULT_ADDRTYPE: u32 = 3;
// enum nft_fib_flags
const NFTA_FIB_F_SADDR: u32 = 1 << 0;
const NFTA_FIB_F_DADDR: u32 = 1 << 1;
const NFTA_FIB_F_MARK: u32 = 1 << 2;
const NFTA_FIB_F_IIF: u32 = 1 << 3;
const NFTA_FIB_F_OIF: u32 = 1 << 4;
const NFTA_FIB_F_PRESENT: u32 = 1 << 5;
// linux/rtnetlink.h
const RTN_UNICAST: u64 = 1;
const RTN_LOCAL: u64 = 2;
const RTN_BROADCAST: u64 = 3;
const RTN_ANYCAST: u64 = 4;
const RTN_MULTICAST: u64 = 5;
const RTN_BLACKHOLE: u64 = 6;
const RTN_UNREACHABLE: u64 = 7;
const RTN_PROHIBIT: u64 = 8;

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
        const SADDR = NFTA_FIB_F_SADDR;
        /// The destination address.
        const DADDR = NFTA_FIB_F_DADDR;
        /// The packet mark.
        const MARK = NFTA_FIB_F_MARK;
        /// The input interface.
        const IIF = NFTA_FIB_F_IIF;
        /// The output interface.
        const OIF = NFTA_FIB_F_OIF;
        /// The result is only whether a route exists.
        const PRESENT = NFTA_FIB_F_PRESENT;
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
            AddrType::Unicast => RTN_UNICAST,
            AddrType::Local => RTN_LOCAL,
            AddrType::Broadcast => RTN_BROADCAST,
            AddrType::Anycast => RTN_ANYCAST,
            AddrType::Multicast => RTN_MULTICAST,
            AddrType::Blackhole => RTN_BLACKHOLE,
            AddrType::Unreachable => RTN_UNREACHABLE,
            AddrType::Prohibit => RTN_PROHIBIT,
        })
    }
}

impl FibResult {
    /// Returns the kernel's number.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Oif => NFT_FIB_RESULT_OIF,
            Self::Oifname => NFT_FIB_RESULT_OIFNAME,
            Self::AddrType => NFT_FIB_RESULT_ADDRTYPE,
        }
    }

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        match number {
            NFT_FIB_RESULT_OIF => Some(Self::Oif),
            NFT_FIB_RESULT_OIFNAME => Some(Self::Oifname),
            NFT_FIB_RESULT_ADDRTYPE => Some(Self::AddrType),
            _ => None,
        }
    }
}

impl ExprType for Fib {
    const NAME: &'static str = "fib";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_FIB_FLAGS, self.flags.bits());
        put_be32(out, NFTA_FIB_RESULT, self.result.number());
        put_be32(out, NFTA_FIB_DREG, self.destination.number());
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut flags, mut result, mut destination) = (None, None, None);
        for attr in attrs {
            let attr = attr?;
            let number = attr.be32()?;
            match attr.kind {
                NFTA_FIB_FLAGS => flags = Some(FibFlags::from_bits_retain(number)),
                NFTA_FIB_RESULT => result = FibResult::from_number(number),
                NFTA_FIB_DREG => destination = Some(Register::from_number(number)),
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
