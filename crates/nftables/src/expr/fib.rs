//! `fib`: what the routing tables say about an address.

use bitflags::bitflags;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, List, Register};
use crate::Value;
use crate::expression::Expression;
use crate::text::Listing;

// enum nft_fib_attributes
const NFTA_FIB_DREG: u16 = 1;
const NFTA_FIB_RESULT: u16 = 2;
const NFTA_FIB_FLAGS: u16 = 3;

/// Looks an address up in the routing tables.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Fib {
    /// What the lookup starts from.
    pub flags: FibFlags,
    /// What of the route found is wanted.
    pub result: FibResult,
    /// Where it goes.
    pub destination: Register,
}

bitflags! {
    /// What a lookup starts from: `enum nft_fib_flags`.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct FibFlags: u32 {
        /// The source address.
        const SADDR = 1;
        /// The destination address.
        const DADDR = 2;
        /// The packet mark, too.
        const MARK = 4;
        /// The device it came in by, too.
        const IIF = 8;
        /// The device it goes out by, too.
        const OIF = 16;
        /// Asks only whether there is a route.
        const PRESENT = 32;
        /// Other flags are kept as they are.
        const _ = !0;
    }
}

/// What is wanted of a route: `enum nft_fib_result`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum FibResult {
    /// The index of the device.
    Oif,
    /// The name of the device.
    Oifname,
    /// What the address is to this machine.
    AddrType,
}

/// What an address is to this machine: `RTN_*` of `linux/rtnetlink.h`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AddrType {
    /// Somebody else's.
    Unicast,
    /// An address of this machine.
    Local,
    /// A broadcast address.
    Broadcast,
    /// An anycast address.
    Anycast,
    /// A multicast address.
    Multicast,
    /// An address whose packets are thrown away.
    Blackhole,
    /// An address that cannot be reached.
    Unreachable,
    /// An address that may not be reached.
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

impl List for Fib {
    fn list(&self, listing: &mut Listing) {
        listing.load(self.destination, Expression::fib(self.flags, self.result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn lookups_come_back() {
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
