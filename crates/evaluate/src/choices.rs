//! Enumeration of all random choices.
//!
//! An evaluation is repeated for each combination of choices. Each repetition follows the
//! choices of the previous one, except for the last that has another option.

use super::Probability;

/// The choices of one evaluation, and the next combination.
#[derive(Debug, Default)]
pub(super) struct Choices {
    made: Vec<Choice>,
    /// Number of choices that the current evaluation has made.
    next: usize,
}

#[derive(Debug)]
struct Choice {
    weights: Vec<u128>,
    chosen: usize,
    /// Probability of the choices before. `None`: the fraction is too long.
    before: Option<Probability>,
}

impl Choice {
    /// Returns the probability of this choice and those before.
    fn probability(&self) -> Option<Probability> {
        let mut weights = self.weights.iter();
        let total = weights.try_fold(0_u128, |sum, weight| sum.checked_add(*weight))?;
        let weight = self.weights.get(self.chosen).copied()?;
        self.before
            .as_ref()?
            .both(&Probability::new(weight, total)?)
    }
}

impl Choices {
    /// Returns the option of the current combination.
    ///
    /// `weights` is proportional to the probability of each option; the weights are
    /// positive. A repetition with the same choices before must pass the same weights.
    pub(super) fn choose(&mut self, weights: Vec<u128>) -> usize {
        if self.made.len() == self.next {
            let before = self.probability();
            self.made.push(Choice {
                weights,
                chosen: 0,
                before,
            });
        }
        let chosen = self.made.get(self.next).map_or(0, |choice| choice.chosen);
        self.next += 1;
        chosen
    }

    /// Advances to the next combination. Returns false if there is none.
    pub(super) fn advance(&mut self) -> bool {
        self.next = 0;
        while let Some(last) = self.made.last_mut() {
            last.chosen += 1;
            if last.chosen < last.weights.len() {
                return true;
            }
            self.made.pop();
        }
        false
    }

    /// Returns the probability of the current combination, or `None` if the fraction is too
    /// long.
    pub(super) fn probability(&self) -> Option<Probability> {
        match self.made.last() {
            Some(last) => last.probability(),
            None => Some(Probability::ONE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_occurs_once_and_the_probabilities_sum_to_one() {
        let mut choices = Choices::default();
        let (mut seen, mut sum) = (Vec::new(), Probability::new(0, 1).unwrap());
        loop {
            // The second choice depends on the first.
            let first = choices.choose(vec![1, 2]);
            let second = (first == 1).then(|| choices.choose(vec![1, 1, 1]));
            seen.push((first, second));
            sum = sum.either(&choices.probability().unwrap()).unwrap();
            if !choices.advance() {
                break;
            }
        }
        assert_eq!(seen, [(0, None), (1, Some(0)), (1, Some(1)), (1, Some(2))]);
        assert_eq!(sum, Probability::ONE);
    }
}
