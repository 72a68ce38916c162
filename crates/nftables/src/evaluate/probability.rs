//! Exact probabilities.

use std::fmt;

/// A probability as a reduced fraction.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Probability {
    numerator: u128,
    denominator: u128,
}

impl Probability {
    /// The probability of a certain event.
    pub const ONE: Self = Self {
        numerator: 1,
        denominator: 1,
    };

    /// Creates a probability. Returns `None` unless it is between 0 and 1.
    pub fn new(numerator: u128, denominator: u128) -> Option<Self> {
        (denominator != 0 && numerator <= denominator)
            .then(|| Self::reduced(numerator, denominator))
    }

    fn reduced(numerator: u128, denominator: u128) -> Self {
        let divisor = common_divisor(numerator, denominator);
        Self {
            numerator: numerator / divisor,
            denominator: denominator / divisor,
        }
    }

    /// Returns the numerator of the reduced fraction.
    pub fn numerator(self) -> u128 {
        self.numerator
    }

    /// Returns the denominator of the reduced fraction.
    pub fn denominator(self) -> u128 {
        self.denominator
    }

    /// Returns the nearest floating-point number.
    pub fn as_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }

    /// Returns the probability that both of two independent events occur.
    ///
    /// Returns `None` if the fraction does not fit in 128 bits.
    pub fn both(self, other: Self) -> Option<Self> {
        let one = common_divisor(self.numerator, other.denominator);
        let two = common_divisor(other.numerator, self.denominator);
        let numerator = (self.numerator / one).checked_mul(other.numerator / two)?;
        let denominator = (self.denominator / two).checked_mul(other.denominator / one)?;
        Some(Self::reduced(numerator, denominator))
    }

    /// Returns the probability that one of two exclusive events occurs.
    ///
    /// Returns `None` if the sum exceeds 1 or does not fit in 128 bits.
    pub fn either(self, other: Self) -> Option<Self> {
        let divisor = common_divisor(self.denominator, other.denominator);
        let scale = other.denominator / divisor;
        let denominator = self.denominator.checked_mul(scale)?;
        let one = self.numerator.checked_mul(scale)?;
        let two = other.numerator.checked_mul(self.denominator / divisor)?;
        Self::new(one.checked_add(two)?, denominator)
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
        match self.denominator {
            1 => write!(f, "{}", self.numerator),
            denominator => write!(f, "{}/{denominator}", self.numerator),
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
        assert_eq!(of(2, 3).both(of(3, 8)), Some(of(1, 4)));
        assert_eq!(of(1, 6).either(of(1, 10)), Some(of(4, 15)));
        assert_eq!(of(2, 3).either(of(2, 3)), None);
        assert_eq!(Probability::new(3, 2), None);
        assert_eq!(Probability::new(0, 0), None);
    }

    #[test]
    fn a_fraction_that_does_not_fit_is_not_rounded() {
        let tiny = of(1, u128::MAX);
        assert_eq!(tiny.both(of(1, 2)), None);
        assert_eq!(tiny.both(Probability::ONE), Some(tiny));
    }
}
