//! How a connection chooses among endpoints, where a Service may say it.

use std::fmt;

/// How a connection chooses among endpoints, in modes that can do so in more than
/// one way: the schedulers of IPVS.
///
/// Documented in `ipvsadm(8)`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Scheduler {
    /// `rr`: one after the other.
    #[default]
    RoundRobin,
    /// `wrr`: one after the other, by weight.
    WeightedRoundRobin,
    /// `lc`: who has the fewest connections.
    LeastConnections,
    /// `wlc`: who has the fewest connections, by weight.
    WeightedLeastConnections,
    /// `lblc`: the same for a destination, as long as it is not overloaded.
    Locality,
    /// `lblcr`: one of the same few for a destination.
    LocalityWithReplication,
    /// `sh`: by the hash of the source.
    SourceHash,
    /// `dh`: by the hash of the destination.
    DestinationHash,
    /// `sed`: who is expected to answer first.
    ShortestDelay,
    /// `nq`: who is idle, or else is expected to answer first.
    NeverQueue,
    /// `fo`: the one with the highest weight.
    Failover,
    /// `ovf`: the one with the highest weight that is not full.
    Overflow,
    /// `mh`: by Maglev's hash of the source.
    Maglev,
    /// `twos`: the better of two chosen by chance.
    PowerOfTwo,
}

impl Scheduler {
    /// All schedulers.
    pub const ALL: [Self; 14] = [
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

    /// Returns the one of this name, as the kernel calls them: `rr`, `mh`.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|scheduler| scheduler.name() == name)
    }

    /// Returns the name, as the kernel calls it.
    pub const fn name(self) -> &'static str {
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
        }
    }
}

/// Displays as the kernel calls it.
impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduler_is_found_by_its_name() {
        for scheduler in Scheduler::ALL {
            assert_eq!(Scheduler::from_name(scheduler.name()), Some(scheduler));
        }
        assert_eq!(Scheduler::from_name("RR"), None);
        assert_eq!(Scheduler::default().to_string(), "rr");
    }
}
