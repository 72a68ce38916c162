//! IPVS schedulers.

use std::fmt;

/// IPVS scheduler, as documented in `ipvsadm(8)`.
///
/// Used in mode ipvs only.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Scheduler {
    /// `rr`: round robin.
    #[default]
    RoundRobin,
    /// `wrr`: weighted round robin.
    WeightedRoundRobin,
    /// `lc`: least connections.
    LeastConnections,
    /// `wlc`: weighted least connections.
    WeightedLeastConnections,
    /// `lblc`: locality-based least connections.
    Locality,
    /// `lblcr`: locality-based least connections with replication.
    LocalityWithReplication,
    /// `sh`: source hashing.
    SourceHash,
    /// `dh`: destination hashing.
    DestinationHash,
    /// `sed`: shortest expected delay.
    ShortestDelay,
    /// `nq`: never queue: an idle server if any, otherwise shortest expected delay.
    NeverQueue,
    /// `fo`: weighted failover: the available server with the highest weight.
    Failover,
    /// `ovf`: weighted overflow: the server with the highest weight that has fewer
    /// connections than its weight.
    Overflow,
    /// `mh`: Maglev hashing of the source.
    Maglev,
    /// `twos`: power of two random choices.
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

    /// Returns the scheduler with the kernel's name, such as `rr` or `mh`.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|scheduler| scheduler.name() == name)
    }

    /// Returns the kernel's name.
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

/// Displays the kernel's name.
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
