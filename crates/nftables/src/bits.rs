//! Bitwise operations of expressions: masks, prefixes and shifts.

use crate::Bytes;
use crate::datatype::ByteOrder;
use crate::expression::{Expression, Term};

impl Expression {
    /// Returns the bitwise AND with a mask: `meta mark & 0x1`.
    #[must_use]
    pub fn and(self, mask: u32) -> Self {
        let [mask, none] = [self.integer(mask), self.integer(0)];
        self.with_bits(mask, none)
    }

    /// Returns the first `len` bits of an address, followed by zeros:
    /// `ip daddr & 255.255.240.0`.
    ///
    /// A `len` of at least the size of the expression changes nothing. The value must be
    /// in network byte order.
    #[must_use]
    pub fn prefix(self, len: u8) -> Self {
        let (mut mask, mut left) = (Bytes::new(), u32::from(len));
        for _ in 0..self.bytes() {
            let bits = left.min(8);
            left -= bits;
            let ones = u8::MAX.checked_shr(bits).unwrap_or(0);
            mask.extend(&[!ones]);
        }
        let none = Bytes::repeat(0, mask.len());
        self.with_bits(mask, none)
    }

    /// Returns the bitwise OR: `meta mark | 0x1`.
    #[must_use]
    pub fn or(self, bits: u32) -> Self {
        let [mask, bits] = [self.integer(!bits), self.integer(bits)];
        self.with_bits(mask, bits)
    }

    /// Returns the bitwise XOR: `meta mark ^ 0x1`.
    #[must_use]
    pub fn xor(self, bits: u32) -> Self {
        let [mask, bits] = [self.integer(u32::MAX), self.integer(bits)];
        self.with_bits(mask, bits)
    }

    /// Returns the value, shifted to the left by a number of bits: `meta mark << 8`.
    #[must_use]
    pub fn shift_left(self, bits: u32) -> Self {
        self.shift(true, bits)
    }

    /// Returns the value, shifted to the right by a number of bits: `meta mark >> 8`.
    #[must_use]
    pub fn shift_right(self, bits: u32) -> Self {
        self.shift(false, bits)
    }

    pub(crate) fn shift(self, left: bool, bits: u32) -> Self {
        let of = Box::new(self);
        Self(Term::Shift { of, left, bits })
    }

    /// Encodes a number in the size and byte order of the expression. Truncates it.
    fn integer(&self, number: u32) -> Bytes {
        let len = usize::from(self.bytes());
        let big = number.to_be_bytes();
        let mut bytes = Bytes::repeat(0, len.saturating_sub(4));
        bytes.extend(big.get(4_usize.saturating_sub(len)..).unwrap_or(&big));
        if self.order() == ByteOrder::Host && cfg!(target_endian = "little") {
            bytes.as_mut_slice().reverse();
        }
        bytes
    }

    /// Returns `value & mask ^ xor`, merged with an existing mask.
    pub(crate) fn with_bits(self, mask: Bytes, xor: Bytes) -> Self {
        let (of, mask, xor) = match self.0 {
            Term::Bits {
                of,
                mask: old_mask,
                xor: old_xor,
            } => {
                let new_mask = zip(&old_mask, &mask, |a, b| a & b);
                let kept = zip(&old_xor, &mask, |a, b| a & b);
                (of, new_mask, zip(&kept, &xor, |a, b| a ^ b))
            }
            term => (Box::new(Self(term)), mask, xor),
        };
        Self(Term::Bits { of, mask, xor })
    }
}

/// Combines two byte strings bytewise, up to the length of the shorter one.
pub(crate) fn zip(one: &[u8], other: &[u8], join: impl Fn(u8, u8) -> u8) -> Bytes {
    let mut joined = Bytes::new();
    for (a, b) in one.iter().zip(other) {
        joined.extend(&[join(*a, *b)]);
    }
    joined
}

#[cfg(test)]
mod tests {
    use crate::expression::{ip_daddr, ip6_daddr};

    #[test]
    fn a_prefix_keeps_the_first_bits() {
        for (of, len, expected) in [
            (ip_daddr(), 20, "ip daddr & 255.255.240.0"),
            (ip_daddr(), 0, "ip daddr & 0.0.0.0"),
            (ip_daddr(), 200, "ip daddr & 255.255.255.255"),
            (
                ip6_daddr(),
                116,
                "ip6 daddr & ffff:ffff:ffff:ffff:ffff:ffff:ffff:f000",
            ),
        ] {
            assert_eq!(of.prefix(len).to_string(), expected);
        }
    }
}
