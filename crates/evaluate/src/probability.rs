//! Exact probabilities.

use std::fmt;

use dashu_ratio::RBig;
use dashu_ratio::ops::EstimatedLog2;

/// Maximum binary logarithm of a denominator.
const MAX_BITS: f32 = 65_536.0;

/// A probability as a reduced fraction.
///
/// A denominator has up to 65,536 bits: a chain of 2,000 rules with
/// `-m statistic --mode random` has exact probabilities.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Probability(RBig);

impl Probability {
    /// The probability of a certain event.
    pub const ONE: Self = Self(RBig::ONE);

    /// Creates a probability.
    ///
    /// Returns `None` unless it is between 0 and 1.
    pub fn new(numerator: u128, denominator: u128) -> Option<Self> {
        let is_probability = denominator != 0 && numerator <= denominator;
        is_probability.then(|| Self(RBig::from_parts(numerator.into(), denominator.into())))
    }

    /// Returns the numerator of the reduced fraction, if it fits in 128 bits.
    pub fn numerator(&self) -> Option<u128> {
        self.0.numerator().try_into().ok()
    }

    /// Returns the denominator of the reduced fraction, if it fits in 128 bits.
    pub fn denominator(&self) -> Option<u128> {
        self.0.denominator().try_into().ok()
    }

    /// Returns the floating-point number that is nearest to the probability.
    pub fn as_f64(&self) -> f64 {
        self.0.to_f64().value()
    }

    /// Returns the probability that both of two independent events occur.
    ///
    /// Returns `None` if the fraction is too long.
    pub fn both(&self, other: &Self) -> Option<Self> {
        short(&self.0 * &other.0)
    }

    /// Returns the probability that one of two exclusive events occurs.
    ///
    /// Returns `None` if the sum exceeds 1 or the fraction is too long.
    pub fn either(&self, other: &Self) -> Option<Self> {
        let sum = &self.0 + &other.0;
        (sum <= RBig::ONE).then(|| short(sum))?
    }
}

/// Returns a fraction, unless it is so long that a packet of many random rules takes minutes.
fn short(fraction: RBig) -> Option<Probability> {
    // The bound is below the logarithm, and so near that it is above that of half of the number.
    let (bits, _) = fraction.denominator().log2_bounds();
    (bits <= MAX_BITS).then_some(Probability(fraction))
}

impl fmt::Display for Probability {
    /// Writes `1/3`, or `1` without a denominator.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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
        let third = of(1, 3).both(&of(1, u128::MAX)).unwrap();
        let product = "1/1020847100762815390390123822295304634365";
        assert_eq!(third.to_string(), product);
        assert_eq!(third.denominator(), None);
        let mut halved = of(1, 2);
        for _ in 0..16 {
            halved = halved.both(&halved).unwrap();
        }
        assert_eq!(halved.both(&of(1, 2)), None);
        assert_eq!(halved.either(&of(1, 3)), None);
        assert_eq!(halved.denominator(), None);
        assert_eq!(halved.both(&Probability::ONE), Some(halved));
    }
}
