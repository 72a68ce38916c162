//! Bitwise operations of expressions: masks, prefixes and shifts.

use crate::Bytes;
use crate::expression::{Expression, Term};
use crate::language::invalid::{InvalidValue, Reason};
use crate::language::operand::Constant;
use crate::value::End;
use crate::value::bytes::zip;

impl<T> Expression<T> {
    /// Returns the bitwise AND with a mask: `meta mark & 0x1`.
    #[must_use]
    pub fn and(self, mask: impl Constant<T>) -> Self {
        self.with_operand(mask, |mask| (mask.clone(), Bytes::repeat(0, mask.len())))
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
    pub fn or(self, bits: impl Constant<T>) -> Self {
        self.with_operand(bits, |bits| (zip(bits, bits, |bit, _| !bit), bits.clone()))
    }

    /// Returns the bitwise XOR: `meta mark ^ 0x1`.
    #[must_use]
    pub fn xor(self, bits: impl Constant<T>) -> Self {
        self.with_operand(bits, |bits| (Bytes::repeat(0xff, bits.len()), bits.clone()))
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
        let of = Box::new(self.untyped());
        Self::typed(Term::Shift { of, left, bits })
    }

    /// Returns the operation with a constant, whose mask and bits `parts` returns.
    fn with_operand(
        self,
        operand: impl Constant<T>,
        parts: impl Fn(&Bytes) -> (Bytes, Bytes),
    ) -> Self {
        let (this, values) = (self.clone().untyped(), operand.into_values());
        let encoded = match &*values {
            [value] => this
                .check(value)
                .and_then(|()| this.bytes_of(value, this.order(), End::First)),
            _ => Err(Reason::Interval),
        };
        match encoded {
            Ok(bytes) => {
                let (mask, xor) = parts(&bytes);
                self.with_bits(mask, xor)
            }
            Err(reason) => {
                let invalid = InvalidValue::new(&this, &values, reason);
                Self::typed(Term::Invalid(Box::new(invalid)))
            }
        }
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
            term => (Box::new(Expression::of(term)), mask, xor),
        };
        Self::typed(Term::Bits { of, mask, xor })
    }
}

#[cfg(test)]
mod tests {
    use crate::expression::{ip_daddr, ip6_daddr};

    #[test]
    fn a_prefix_keeps_the_first_bits() {
        for (of, len, expected) in [
            (ip_daddr().untyped(), 20, "ip daddr & 255.255.240.0"),
            (ip_daddr().untyped(), 0, "ip daddr & 0.0.0.0"),
            (ip_daddr().untyped(), 200, "ip daddr & 255.255.255.255"),
            (
                ip6_daddr().untyped(),
                116,
                "ip6 daddr & ffff:ffff:ffff:ffff:ffff:ffff:ffff:f000",
            ),
        ] {
            assert_eq!(of.prefix(len).to_string(), expected);
        }
    }
}
