//! Schedulers: how a virtual server chooses a real server.

use std::fmt;

use crate::{Flags, Name};

/// How a virtual server chooses the real server of a new connection.
///
/// The kernel has each in a module of its own, `ip_vs_rr` and so on, which it
/// loads when the scheduler is first used.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Scheduler {
    /// `rr`: one after the other.
    RoundRobin,
    /// `wrr`: one after the other, as often as their weights say.
    WeightedRoundRobin,
    /// `lc`: the one with the fewest connections.
    LeastConnections,
    /// `wlc`: the one with the fewest connections for its weight.
    #[default]
    WeightedLeastConnections,
    /// `lblc`: one for each destination, until it has too many connections.
    Locality,
    /// `lblcr`: a set of them for each destination.
    LocalityWithReplication,
    /// `sh`: by a hash of the client's address.
    SourceHash,
    /// `dh`: by a hash of the destination's address.
    DestinationHash,
    /// `sed`: the one with the shortest expected delay.
    ShortestDelay,
    /// `nq`: an idle one, or the one with the shortest expected delay.
    NeverQueue,
    /// `fo`: the one with the greatest weight that is there.
    Failover,
    /// `ovf`: the one with the greatest weight that has room.
    Overflow,
    /// `mh`: by a Maglev table of hashes of the client's address.
    Maglev,
    /// `twos`: the less loaded of two that chance picks.
    PowerOfTwo,
    /// One that we do not know.
    Other(Name),
}

impl Scheduler {
    /// The schedulers that we know.
    pub const KNOWN: [Self; 14] = [
        Self::RoundRobin,
        Self::WeightedRoundRobin,
        Self::LeastConnections,
        Self::WeightedLeastConnections,
        Self::Locality,
        Self::LocalityWithReplication,
        Self::SourceHash,
        Self::DestinationHash,
        Self::ShortestDelay,
        Self::NeverQueue,
        Self::Failover,
        Self::Overflow,
        Self::Maglev,
        Self::PowerOfTwo,
    ];

    /// Returns the scheduler of this name; none if it cannot be a name.
    ///
    /// ```
    /// use vipline_ipvs::Scheduler;
    ///
    /// assert_eq!(Scheduler::new("mh"), Some(Scheduler::Maglev));
    /// assert_eq!(Scheduler::new("new").expect("a name").as_str(), "new");
    /// assert_eq!(Scheduler::new("a scheduler"), None);
    /// ```
    pub fn new(name: &str) -> Option<Self> {
        let known = Self::KNOWN.into_iter().find(|known| known.as_str() == name);
        known.or_else(|| Name::new(name).map(Self::Other))
    }

    /// Returns the name that the kernel has for it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::RoundRobin => "rr",
            Self::WeightedRoundRobin => "wrr",
            Self::LeastConnections => "lc",
            Self::WeightedLeastConnections => "wlc",
            Self::Locality => "lblc",
            Self::LocalityWithReplication => "lblcr",
            Self::SourceHash => "sh",
            Self::DestinationHash => "dh",
            Self::ShortestDelay => "sed",
            Self::NeverQueue => "nq",
            Self::Failover => "fo",
            Self::Overflow => "ovf",
            Self::Maglev => "mh",
            Self::PowerOfTwo => "twos",
            Self::Other(name) => name.as_str(),
        }
    }

    /// Returns the flags that are the scheduler's own, with their names.
    ///
    /// Those of a scheduler without flags have numbers for names.
    pub fn flags(&self) -> &'static [(Flags, &'static str)] {
        match self {
            Self::SourceHash => &[
                (Flags::SCHEDULER_1, "sh-fallback"),
                (Flags::SCHEDULER_2, "sh-port"),
                (Flags::SCHEDULER_3, "flag-3"),
            ],
            Self::Maglev => &[
                (Flags::SCHEDULER_1, "mh-fallback"),
                (Flags::SCHEDULER_2, "mh-port"),
                (Flags::SCHEDULER_3, "flag-3"),
            ],
            _ => &[
                (Flags::SCHEDULER_1, "flag-1"),
                (Flags::SCHEDULER_2, "flag-2"),
                (Flags::SCHEDULER_3, "flag-3"),
            ],
        }
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_scheduler_is_found_by_its_name() {
        for scheduler in Scheduler::KNOWN {
            assert_eq!(Scheduler::new(scheduler.as_str()), Some(scheduler));
        }
    }
}
