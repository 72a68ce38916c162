//! Natural numbers of any size, for exact probabilities.

use std::cmp::Ordering;
use std::fmt::{self, Write};

/// Number of bits of a digit.
const BITS: u32 = u32::BITS;
/// Number of digits of a number of 128 bits.
const LOW: usize = 4;

/// A natural number: its lowest 128 bits, and higher digits of 32 bits, lowest first.
///
/// The highest digit is not zero.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Natural {
    low: u128,
    high: Vec<u32>,
}

impl Natural {
    pub(super) const fn new(low: u128) -> Self {
        Self {
            low,
            high: Vec::new(),
        }
    }

    fn from_digits(mut digits: Vec<u32>) -> Self {
        while digits.last() == Some(&0) {
            digits.pop();
        }
        let high = digits.split_off(digits.len().min(LOW));
        let add = |low: u128, digit: &u32| low << BITS | u128::from(*digit);
        let low = digits.iter().rev().fold(0, add);
        Self { low, high }
    }

    /// Returns the digits of 32 bits, lowest first.
    fn digits(&self) -> Vec<u32> {
        let low = (0..LOW as u32).map(|at| (self.low >> (at * BITS)) as u32);
        let mut digits: Vec<u32> = low.chain(self.high.iter().copied()).collect();
        while digits.last() == Some(&0) {
            digits.pop();
        }
        digits
    }

    /// Returns the number if it fits in 128 bits.
    pub(super) fn to_u128(&self) -> Option<u128> {
        self.high.is_empty().then_some(self.low)
    }

    /// Returns the number of bits without leading zeros.
    pub(super) fn bits(&self) -> u32 {
        let digits = u32::try_from(self.high.len()).unwrap_or(u32::MAX);
        match self.high.last() {
            Some(last) => (digits + LOW as u32).saturating_mul(BITS) - last.leading_zeros(),
            None => u128::BITS - self.low.leading_zeros(),
        }
    }

    /// Returns the number of trailing zero bits. That of zero is zero.
    pub(super) fn trailing_zeros(&self) -> u32 {
        let mut zeros = 0;
        for digit in self.digits() {
            zeros += digit.trailing_zeros();
            if digit != 0 {
                break;
            }
        }
        zeros
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        let (one, other) = (self.digits(), other.digits());
        let (mut digits, mut carry) = (Vec::new(), 0_u64);
        for at in 0..one.len().max(other.len()) {
            let of = |digits: &[u32]| u64::from(digits.get(at).copied().unwrap_or(0));
            carry += of(&one) + of(&other);
            digits.push(carry as u32);
            carry >>= BITS;
        }
        digits.push(carry as u32);
        Self::from_digits(digits)
    }

    pub(super) fn times(&self, other: &Self) -> Self {
        if let (Some(one), Some(other)) = (self.to_u128(), other.to_u128())
            && let Some(product) = one.checked_mul(other)
        {
            return Self::new(product);
        }
        let (one, other) = (self.digits(), other.digits());
        let mut digits = vec![0_u32; one.len() + other.len()];
        for (at, digit) in one.iter().enumerate() {
            let mut carry = 0;
            let rest = digits.iter_mut().skip(at);
            let factors = other.iter().copied().chain([0]);
            for (place, factor) in rest.zip(factors) {
                carry += u64::from(*place) + u64::from(*digit) * u64::from(factor);
                *place = carry as u32;
                carry >>= BITS;
            }
        }
        Self::from_digits(digits)
    }

    pub(super) fn shifted_left(&self, bits: u32) -> Self {
        let mut digits = vec![0; (bits / BITS) as usize];
        let (bits, mut carry) = (bits % BITS, 0_u64);
        for digit in self.digits() {
            carry |= u64::from(digit) << bits;
            digits.push(carry as u32);
            carry >>= BITS;
        }
        digits.push(carry as u32);
        Self::from_digits(digits)
    }

    pub(super) fn shifted_right(&self, bits: u32) -> Self {
        let all = self.digits();
        let rest = all.get((bits / BITS) as usize..).unwrap_or(&[]);
        let above = rest.iter().skip(1).copied().chain([0]);
        let pairs = rest.iter().zip(above);
        let digits = pairs.map(|(digit, above)| {
            let wide = u64::from(above) << BITS | u64::from(*digit);
            (wide >> (bits % BITS)) as u32
        });
        Self::from_digits(digits.collect())
    }

    /// Divides by a number below 2⁹⁶ other than zero. Returns quotient and remainder.
    pub(super) fn divided(&self, divisor: u128) -> (Self, u128) {
        let mut rest = 0;
        let mut digits = self.digits();
        for digit in digits.iter_mut().rev() {
            rest = rest << BITS | u128::from(*digit);
            *digit = (rest / divisor) as u32;
            rest %= divisor;
        }
        (Self::from_digits(digits), rest)
    }

    /// Returns the number as a fraction from 1/2 to 1 and a power of two.
    pub(super) fn as_float(&self) -> (f64, i32) {
        let bits = self.bits();
        let top = match bits.checked_sub(u64::BITS) {
            Some(shift) => self.shifted_right(shift),
            None => self.shifted_left(u64::BITS - bits),
        };
        let scale = 2_f64.powi(-(u64::BITS as i32));
        let exponent = i32::try_from(bits).unwrap_or(i32::MAX);
        (top.low as f64 * scale, exponent)
    }
}

impl Ord for Natural {
    fn cmp(&self, other: &Self) -> Ordering {
        let len = self.high.len().cmp(&other.high.len());
        let high = || self.high.iter().rev().cmp(other.high.iter().rev());
        len.then_with(high).then_with(|| self.low.cmp(&other.low))
    }
}

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Natural {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The greatest power of ten in a digit.
        const GROUP: u128 = 1_000_000_000;
        let (mut groups, mut rest) = (Vec::new(), self.clone());
        while rest > Self::new(GROUP - 1) {
            let (quotient, group) = rest.divided(GROUP);
            groups.push(group);
            rest = quotient;
        }
        let mut text = rest.low.to_string();
        for group in groups.iter().rev() {
            write!(text, "{group:09}")?;
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a number of many digits.
    fn power(base: u128, exponent: u32) -> Natural {
        let base = Natural::new(base);
        (0..exponent).fold(Natural::new(1), |all, _| all.times(&base))
    }

    #[test]
    fn numbers_above_128_bits_are_computed_exactly() {
        let big = power(10, 45);
        assert_eq!(big.to_string(), format!("1{}", "0".repeat(45)));
        assert_eq!(big.plus(&Natural::new(7)).divided(10), (power(10, 44), 7));
        assert_eq!(power(3, 90).times(&power(3, 20)), power(3, 110));
        assert_eq!(power(2, 200), Natural::new(1).shifted_left(200));
        assert_eq!(
            (power(2, 200).bits(), power(2, 200).trailing_zeros()),
            (201, 200)
        );
        assert_eq!(power(6, 70).shifted_right(70), power(3, 70));
        assert!(power(3, 101) > power(3, 100));
        assert_eq!(power(3, 100).to_u128(), None);
        let carry = Natural::new(u128::MAX).plus(&Natural::new(1));
        assert_eq!(carry, power(2, 128));
    }

    #[test]
    fn a_number_is_a_fraction_and_a_power_of_two() {
        assert_eq!(Natural::new(1).as_float(), (0.5, 1));
        assert_eq!(Natural::new(3).as_float(), (0.75, 2));
        assert_eq!(
            power(2, 300).times(&Natural::new(3)).as_float(),
            (0.75, 302)
        );
    }
}
