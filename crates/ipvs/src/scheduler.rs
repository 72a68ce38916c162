//! Schedulers of virtual servers.

use std::fmt;

use crate::{Flags, InvalidName, Name};

/// The scheduler of a virtual server, which selects the real server of a new
/// connection.
///
/// Each scheduler is a kernel module, such as `ip_vs_rr`. The kernel loads it on
/// first use.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Scheduler {
    /// `rr`: round robin.
    RoundRobin,
    /// `wrr`: weighted round robin.
    WeightedRoundRobin,
    /// `lc`: least connections.
    LeastConnections,
    /// `wlc`: least connections relative to the weight.
    #[default]
    WeightedLeastConnections,
    /// `lblc`: locality-based least connections: one real server per destination
    /// address, until it is overloaded.
    Locality,
    /// `lblcr`: locality-based least connections with replication: a set of real
    /// servers per destination address.
    LocalityWithReplication,
    /// `sh`: hash of the source address.
    SourceHash,
    /// `dh`: hash of the destination address.
    DestinationHash,
    /// `sed`: shortest expected delay.
    ShortestDelay,
    /// `nq`: never queue: an idle real server, or the one with the shortest expected
    /// delay.
    NeverQueue,
    /// `fo`: weighted failover: the available real server with the highest weight.
    Failover,
    /// `ovf`: weighted overflow: the real server with the highest weight that has
    /// fewer connections than its weight.
    Overflow,
    /// `mh`: Maglev hash of the source address.
    Maglev,
    /// `twos`: power of two choices: the less loaded of two random real servers.
    PowerOfTwo,
    /// An unknown scheduler.
    Other(Name),
}

impl Scheduler {
    /// The known schedulers.
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

    /// Returns the scheduler with this name. An unknown name becomes [`Self::Other`].
    ///
    /// ```
    /// use vipline_ipvs::Scheduler;
    ///
    /// assert_eq!(Scheduler::new("mh"), Ok(Scheduler::Maglev));
    /// assert_eq!(Scheduler::new("new")?.as_str(), "new");
    /// assert!(Scheduler::new("a scheduler").is_err());
    /// # Ok::<(), vipline_ipvs::InvalidName>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidName`] if no scheduler can have the name.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        let known = Self::KNOWN.into_iter().find(|known| known.as_str() == name);
        known.map_or_else(|| Name::new(name).map(Self::Other), Ok)
    }

    /// Returns the kernel's name of the scheduler.
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

    /// Returns the scheduler-specific flags with their names.
    ///
    /// For schedulers without named flags, the names are numbered.
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
    fn every_known_scheduler_is_found_by_name() {
        for scheduler in Scheduler::KNOWN {
            assert_eq!(Scheduler::new(scheduler.as_str()), Ok(scheduler));
        }
    }
}
