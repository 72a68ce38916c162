//! The possible ends of a packet and their probabilities.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use vipline_evaluate::Probability;

/// The end of a packet.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Fate {
    /// A host or process gets the packet.
    Passed {
        /// Destination after translation.
        destination: SocketAddr,
        /// Whether the source was translated.
        is_masqueraded: bool,
    },
    /// The sender gets an error.
    Rejected,
    /// The packet is dropped.
    Dropped,
}

impl Fate {
    /// Returns the end of a packet that is not masqueraded.
    pub(crate) fn passed(destination: SocketAddr) -> Self {
        Self::Passed {
            destination,
            is_masqueraded: false,
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed {
                destination,
                is_masqueraded,
            } => {
                let masqueraded = if *is_masqueraded { " masqueraded" } else { "" };
                write!(f, "{destination}{masqueraded}")
            }
            Self::Rejected => f.write_str("rejected"),
            Self::Dropped => f.write_str("dropped"),
        }
    }
}

/// All possible ends of a packet with their probabilities.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fates(BTreeMap<Fate, Probability>);

impl Fates {
    /// Returns the only possible end.
    pub(crate) fn certain(fate: Fate) -> Self {
        [(fate, Probability::ONE)].into_iter().collect()
    }

    /// Returns ends of equal probability.
    pub(crate) fn equal(fates: Vec<Fate>) -> Self {
        let each = Probability::new(1, fates.len() as u128).expect("at least one end");
        fates.into_iter().map(|fate| (fate, each.clone())).collect()
    }

    /// Returns the ends, each changed by a function.
    pub(crate) fn map(&self, change: impl Fn(Fate) -> Fate) -> Self {
        let pairs = self.0.iter();
        pairs
            .map(|(fate, share)| (change(*fate), share.clone()))
            .collect()
    }

    /// Returns whether ends and probabilities are equal, up to an absolute tolerance of
    /// the probabilities.
    pub(crate) fn is_near(&self, other: &Self, tolerance: f64) -> bool {
        let are_near = |one: &Probability, other: &Probability| {
            one == other || (one.as_f64() - other.as_f64()).abs() < tolerance
        };
        let mut pairs = self.0.iter().zip(&other.0);
        self.0.len() == other.0.len()
            && pairs.all(|((one, share), (other, wanted))| one == other && are_near(share, wanted))
    }
}

impl FromIterator<(Fate, Probability)> for Fates {
    /// Adds the probabilities of equal ends.
    fn from_iter<I: IntoIterator<Item = (Fate, Probability)>>(all: I) -> Self {
        let mut fates: BTreeMap<Fate, Probability> = BTreeMap::new();
        for (fate, share) in all {
            let sum = match fates.get(&fate) {
                Some(other) => other.either(&share),
                None => Some(share),
            };
            fates.insert(fate, sum.expect("the probabilities sum to 1"));
        }
        Self(fates)
    }
}

impl fmt::Display for Fates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (fate, share)) in self.0.iter().enumerate() {
            let separator = if place == 0 { "" } else { ", " };
            write!(f, "{separator}{share} {fate}")?;
        }
        Ok(())
    }
}
