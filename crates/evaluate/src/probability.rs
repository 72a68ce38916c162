//! Exact probabilities.

use std::fmt;

use super::natural::Natural;

/// Maximum number of bits of numerator and denominator.
const MAX_BITS: u32 = 1 << 16;
/// Exclusive upper bound of the odd part of a denominator.
const MAX_ODD: u128 = 1 << 96;

/// A probability as a reduced fraction.
///
/// Numerator and denominator have up to 65,536 bits: a chain of 2,000 rules with
/// `-m statistic --mode random` has exact probabilities.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Probability {
    numerator: Natural,
    /// Exponent of two in the denominator.
    twos: u32,
    /// Odd factor of the denominator.
    odd: u128,
}

impl Probability {
    /// The probability of a certain event.
    pub const ONE: Self = Self {
        numerator: Natural::new(1),
        twos: 0,
        odd: 1,
    };

    /// Creates a probability.
    ///
    /// Returns `None` unless it is between 0 and 1, and if the odd part of the reduced
    /// denominator has more than 96 bits.
    pub fn new(numerator: u128, denominator: u128) -> Option<Self> {
        if denominator == 0 || numerator > denominator {
            return None;
        }
        let divisor = common_divisor(numerator, denominator);
        let twos = (denominator / divisor).trailing_zeros();
        let odd = (denominator / divisor) >> twos;
        let numerator = Natural::new(numerator / divisor);
        (odd < MAX_ODD).then_some(Self {
            numerator,
            twos,
            odd,
        })
    }

    fn reduced(numerator: Natural, twos: u32, odd: u128) -> Option<Self> {
        let shift = numerator.trailing_zeros().min(twos);
        let is_zero = numerator == Natural::default();
        let (numerator, twos) = match is_zero {
            true => (numerator, 0),
            false => (numerator.shifted_right(shift), twos - shift),
        };
        let (_, rest) = numerator.divided(odd);
        let divisor = common_divisor(odd, rest);
        let (numerator, odd) = match divisor {
            1 => (numerator, odd),
            divisor => (numerator.divided(divisor).0, odd / divisor),
        };
        let fits = odd < MAX_ODD && twos <= MAX_BITS && numerator.bits() <= MAX_BITS;
        fits.then_some(Self {
            numerator,
            twos,
            odd,
        })
    }

    fn whole_denominator(&self) -> Natural {
        Natural::new(self.odd).shifted_left(self.twos)
    }

    /// Returns the numerator of the reduced fraction, if it fits in 128 bits.
    pub fn numerator(&self) -> Option<u128> {
        self.numerator.to_u128()
    }

    /// Returns the denominator of the reduced fraction, if it fits in 128 bits.
    pub fn denominator(&self) -> Option<u128> {
        self.whole_denominator().to_u128()
    }

    /// Returns a floating-point number near the probability.
    pub fn as_f64(&self) -> f64 {
        let (numerator, high) = self.numerator.as_float();
        let (denominator, low) = self.whole_denominator().as_float();
        match numerator {
            0.0 => 0.0,
            numerator => numerator / denominator * 2_f64.powi(high - low),
        }
    }

    /// Returns the probability that both of two independent events occur.
    ///
    /// Returns `None` if the fraction is too long.
    pub fn both(&self, other: &Self) -> Option<Self> {
        let one = common_divisor(self.numerator.divided(other.odd).1, other.odd);
        let two = common_divisor(other.numerator.divided(self.odd).1, self.odd);
        let (numerator, factor) = (
            self.numerator.divided(one).0,
            other.numerator.divided(two).0,
        );
        let odd = (self.odd / two).checked_mul(other.odd / one);
        let odd = odd.filter(|odd| *odd < MAX_ODD)?;
        let twos = self.twos.checked_add(other.twos)?;
        Self::reduced(numerator.times(&factor), twos, odd)
    }

    /// Returns the probability that one of two exclusive events occurs.
    ///
    /// Returns `None` if the sum exceeds 1 or the fraction is too long.
    pub fn either(&self, other: &Self) -> Option<Self> {
        let divisor = common_divisor(self.odd, other.odd);
        let odd = self.odd.checked_mul(other.odd / divisor);
        let odd = odd.filter(|odd| *odd < MAX_ODD)?;
        let twos = self.twos.max(other.twos);
        let scaled = |it: &Self| {
            let numerator = it.numerator.times(&Natural::new(odd / it.odd));
            numerator.shifted_left(twos - it.twos)
        };
        let numerator = scaled(self).plus(&scaled(other));
        let one = Natural::new(odd).shifted_left(twos);
        (numerator <= one).then(|| Self::reduced(numerator, twos, odd))?
    }
}

/// Returns the greatest common divisor, at least 1.
pub(super) fn common_divisor(mut one: u128, mut other: u128) -> u128 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one.max(1)
}

impl fmt::Display for Probability {
    /// Writes `1/3`, or `1` without a denominator.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.twos, self.odd) {
            (0, 1) => write!(f, "{}", self.numerator),
            _ => write!(f, "{}/{}", self.numerator, self.whole_denominator()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numerator: u128, denominator: u128) -> Probability {
        Probability::new(numerator, denominator).unwrap()
    }

    #[test]
    fn fractions_are_reduced_and_exact() {
        assert_eq!(of(2, 6).to_string(), "1/3");
        assert_eq!(of(4, 4), Probability::ONE);
        assert_eq!(of(0, 7), of(0, 1));
        assert_eq!(of(2, 3).both(&of(3, 8)), Some(of(1, 4)));
        assert_eq!(of(1, 6).either(&of(1, 10)), Some(of(4, 15)));
        assert_eq!(of(0, 6).either(&of(0, 10)), Some(of(0, 1)));
        assert_eq!(of(2, 3).either(&of(2, 3)), None);
        assert_eq!(Probability::new(3, 2), None);
        assert_eq!(Probability::new(0, 0), None);
        assert_eq!(
            (of(2, 6).numerator(), of(2, 6).denominator()),
            (Some(1), Some(3))
        );
    }

    #[test]
    fn a_chain_of_random_rules_has_exact_probabilities() {
        // The parts of 2³¹ that a rule of a chain with 100 rules selects.
        let parts = |left: u128| (1_u128 << 31) / left;
        let (mut rest, mut sum) = (Probability::ONE, of(0, 1));
        for left in (1..=100).rev() {
            let parts = parts(left);
            let share = rest.both(&of(parts, 1 << 31)).unwrap();
            assert!(
                (share.as_f64() - 0.01).abs() < 1e-6,
                "{left}: {}",
                share.as_f64()
            );
            sum = sum.either(&share).unwrap();
            rest = rest.both(&of((1 << 31) - parts, 1 << 31)).unwrap();
        }
        assert_eq!((sum, rest), (Probability::ONE, of(0, 1)));
    }

    #[test]
    fn a_fraction_that_is_too_long_is_not_rounded() {
        assert_eq!(Probability::new(1, u128::MAX), None);
        let tiny = of(1, MAX_ODD - 1);
        assert_eq!(tiny.both(&of(1, 3)).map(|it| it.to_string()), None);
        assert_eq!(tiny.both(&Probability::ONE), Some(tiny));
        let mut halved = of(1, 2);
        for _ in 0..MAX_BITS.ilog2() {
            halved = halved.both(&halved).unwrap();
        }
        assert_eq!(halved.both(&of(1, 2)), None);
        assert_eq!(halved.denominator(), None);
    }
}
