//! `nat`: network address translation.

use bitflags::bitflags;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, Register};
use crate::Family;

// enum nft_nat_attributes
const NFTA_NAT_TYPE: u16 = 1;
const NFTA_NAT_FAMILY: u16 = 2;
const NFTA_NAT_REG_ADDR_MIN: u16 = 3;
const NFTA_NAT_REG_ADDR_MAX: u16 = 4;
const NFTA_NAT_REG_PROTO_MIN: u16 = 5;
const NFTA_NAT_REG_PROTO_MAX: u16 = 6;
const NFTA_NAT_FLAGS: u16 = 7;
// enum nft_nat_types
const NFT_NAT_SNAT: u32 = 0;
const NFT_NAT_DNAT: u32 = 1;
// linux/netfilter/nf_nat.h
const NF_NAT_RANGE_MAP_IPS: u32 = 1 << 0;
const NF_NAT_RANGE_PROTO_SPECIFIED: u32 = 1 << 1;
const NF_NAT_RANGE_PROTO_RANDOM: u32 = 1 << 2;
const NF_NAT_RANGE_PERSISTENT: u32 = 1 << 3;
const NF_NAT_RANGE_PROTO_RANDOM_FULLY: u32 = 1 << 4;
const NF_NAT_RANGE_NETMAP: u32 = 1 << 6;

/// The `nat` expression: translates the source or destination of a connection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Nat {
    /// Source or destination.
    pub kind: NatType,
    /// Family of the addresses.
    pub family: Family,
    /// Register of the first address.
    pub addr_min: Option<Register>,
    /// Register of the last address of a range.
    pub addr_max: Option<Register>,
    /// Register of the first port.
    pub proto_min: Option<Register>,
    /// Register of the last port of a range.
    pub proto_max: Option<Register>,
    /// Selection of addresses and ports.
    pub flags: NatFlags,
}

/// A type of NAT: `enum nft_nat_types`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum NatType {
    /// Source NAT.
    Snat,
    /// Destination NAT.
    Dnat,
}

bitflags! {
    /// Selection of addresses and ports: `NF_NAT_RANGE_*` of `linux/netfilter/nf_nat.h`.
    ///
    /// The kernel adds the flags that follow from the registers: address and port
    /// given.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct NatFlags: u32 {
        /// Randomizes the port: `random`.
        const RANDOM = NF_NAT_RANGE_PROTO_RANDOM;
        /// Maps each client to the same address every time: `persistent`.
        const PERSISTENT = NF_NAT_RANGE_PERSISTENT;
        /// Randomizes the port with a random number generator: `fully-random`.
        const FULLY_RANDOM = NF_NAT_RANGE_PROTO_RANDOM_FULLY;
        /// Translates only the network part of the address.
        const NETMAP = NF_NAT_RANGE_NETMAP;
        /// Unknown flags are preserved.
        const _ = !0;
    }
}

/// Flags that follow from the registers.
const DERIVED: u32 = NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED;

impl NatFlags {
    /// Decodes flags, without those that follow from the registers.
    pub(super) fn decode(bits: u32) -> Self {
        Self::from_bits_retain(bits & !DERIVED)
    }

    /// Returns the flags for an expression without addresses.
    ///
    /// `masq` ignores ports without the flag that follows from them, and so does `redir`
    /// with other flags.
    pub(crate) fn bits_with_port(self, proto_min: Option<Register>) -> u32 {
        match proto_min {
            Some(_) => self.bits() | NF_NAT_RANGE_PROTO_SPECIFIED,
            None => self.bits(),
        }
    }

    /// Returns the flags in nft syntax, with a leading space. Unknown flags are a comment.
    pub(crate) fn text(self) -> String {
        let words = [
            (Self::RANDOM, "random"),
            (Self::FULLY_RANDOM, "fully-random"),
            (Self::PERSISTENT, "persistent"),
        ];
        let set: Vec<&str> = words
            .iter()
            .filter(|(flag, _)| self.contains(*flag))
            .map(|(_, word)| *word)
            .collect();
        let known = words
            .iter()
            .fold(Self::NETMAP, |all, (flag, _)| all | *flag);
        let mut text = match &*set {
            [] => String::new(),
            set => format!(" {}", set.join(",")),
        };
        let unknown = self.bits() & !known.bits();
        if unknown != 0 {
            text += &format!(" /* flags {unknown:#x} */");
        }
        text
    }
}

impl ExprType for Nat {
    const NAME: &'static str = "nat";

    fn encode(&self, out: &mut Vec<u8>) {
        let kind = match self.kind {
            NatType::Snat => NFT_NAT_SNAT,
            NatType::Dnat => NFT_NAT_DNAT,
        };
        put_be32(out, NFTA_NAT_TYPE, kind);
        put_be32(out, NFTA_NAT_FAMILY, self.family.number().into());
        for (kind, register) in [
            (NFTA_NAT_REG_ADDR_MIN, self.addr_min),
            (NFTA_NAT_REG_ADDR_MAX, self.addr_max),
            (NFTA_NAT_REG_PROTO_MIN, self.proto_min),
            (NFTA_NAT_REG_PROTO_MAX, self.proto_max),
        ] {
            if let Some(register) = register {
                put_be32(out, kind, register.number());
            }
        }
        if !self.flags.is_empty() {
            put_be32(out, NFTA_NAT_FLAGS, self.flags.bits());
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut kind, mut family, mut flags) = (None, None, NatFlags::empty());
        let mut registers = [None; 4];
        for attr in attrs {
            let attr = attr?;
            let number = attr.be32()?;
            match (attr.kind, number) {
                (NFTA_NAT_TYPE, NFT_NAT_SNAT) => kind = Some(NatType::Snat),
                (NFTA_NAT_TYPE, NFT_NAT_DNAT) => kind = Some(NatType::Dnat),
                (NFTA_NAT_FAMILY, number) => {
                    family = u8::try_from(number).ok().and_then(Family::from_number);
                }
                (NFTA_NAT_REG_ADDR_MIN, n) => registers[0] = Some(Register::from_number(n)),
                (NFTA_NAT_REG_ADDR_MAX, n) => registers[1] = Some(Register::from_number(n)),
                (NFTA_NAT_REG_PROTO_MIN, n) => registers[2] = Some(Register::from_number(n)),
                (NFTA_NAT_REG_PROTO_MAX, n) => registers[3] = Some(Register::from_number(n)),
                (NFTA_NAT_FLAGS, bits) => flags = NatFlags::decode(bits),
                _ => return Ok(None),
            }
        }
        let (Some(kind), Some(family)) = (kind, family) else {
            return Ok(None);
        };
        let [addr_min, addr_max, proto_min, proto_max] = registers;
        Ok(Some(Self {
            kind,
            family,
            addr_min,
            addr_max: addr_max.filter(|_| addr_max != addr_min),
            proto_min,
            proto_max: proto_max.filter(|_| proto_max != proto_min),
            flags,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn both_types_round_trip() {
        assert_identity(Nat {
            kind: NatType::Dnat,
            family: Family::Ip,
            addr_min: Some(Register::word(0)),
            addr_max: None,
            proto_min: Some(Register::word(1)),
            proto_max: None,
            flags: NatFlags::empty(),
        });
        assert_identity(Nat {
            kind: NatType::Snat,
            family: Family::Ip6,
            addr_min: Some(Register::word(0)),
            addr_max: Some(Register::word(4)),
            proto_min: None,
            proto_max: None,
            flags: NatFlags::PERSISTENT | NatFlags::FULLY_RANDOM,
        });
    }

    #[test]
    fn unknown_flags_are_not_left_out() {
        let flags = NatFlags::RANDOM | NatFlags::from_bits_retain(0x20);
        assert_eq!(flags.text(), " random /* flags 0x20 */");
    }

    #[test]
    fn flags_that_follow_from_the_registers_are_left_out() {
        assert_eq!(NatFlags::decode(0x13), NatFlags::FULLY_RANDOM);
    }
}
