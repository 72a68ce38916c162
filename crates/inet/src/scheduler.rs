//! Schedulers of IPVS.

use std::fmt;
use std::str::FromStr;

use crate::{Inline, InvalidName, kernel_name};

/// The scheduler of a virtual server, which selects the real server of a new
/// connection.
///
/// Each scheduler is a kernel module, such as `ip_vs_rr`. The kernel loads it on first use, so
/// that a machine may have schedulers that this crate does not know.
///
/// There is no default: that of `ipvsadm` is [`WeightedLeastConnections`], and that of
/// kube-proxy [`RoundRobin`].
///
/// [`WeightedLeastConnections`]: Self::WeightedLeastConnections
/// [`RoundRobin`]: Self::RoundRobin
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Scheduler {
    /// `rr`: round robin.
    RoundRobin,
    /// `wrr`: weighted round robin.
    WeightedRoundRobin,
    /// `lc`: least connections.
    LeastConnections,
    /// `wlc`: least connections relative to the weight.
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
    Other(IpvsName),
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

    /// Returns the known scheduler with this name.
    pub fn known(name: &str) -> Option<Self> {
        Self::KNOWN.into_iter().find(|known| known.as_str() == name)
    }

    /// Returns the scheduler with this name. An unknown name becomes [`Self::Other`].
    ///
    /// ```
    /// use vipline_inet::Scheduler;
    ///
    /// assert_eq!(Scheduler::new("mh"), Ok(Scheduler::Maglev));
    /// assert_eq!(Scheduler::new("new")?.as_str(), "new");
    /// assert!(Scheduler::new("a scheduler").is_err());
    /// # Ok::<(), vipline_inet::InvalidName>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidName`] if no scheduler can have the name.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        Self::known(name).map_or_else(|| IpvsName::new(name).map(Self::Other), Ok)
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
}

impl FromStr for Scheduler {
    type Err = InvalidName;

    fn from_str(name: &str) -> Result<Self, InvalidName> {
        Self::new(name)
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

kernel_name! {
    /// The name of a scheduler or a persistence engine.
    ///
    /// A name has 1 to 15 printable ASCII characters without spaces: `IP_VS_SCHEDNAME_MAXLEN`
    /// is 16 with the NUL byte.
    ///
    /// ```
    /// use vipline_inet::IpvsName;
    ///
    /// assert_eq!(IpvsName::new("rr")?.as_str(), "rr");
    /// assert!(IpvsName::new("round robin").is_err());
    /// # Ok::<(), vipline_inet::InvalidName>(())
    /// ```
    #[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub struct IpvsName(Inline<15>);
    kind: "name of a scheduler or persistence engine",
    max: 15,
    without: "spaces and characters that are not ASCII",
    refuses: is_unprintable,
}

fn is_unprintable(text: &str) -> bool {
    !text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_scheduler_is_found_by_name() {
        for scheduler in Scheduler::KNOWN {
            assert_eq!(Scheduler::new(scheduler.as_str()), Ok(scheduler));
            assert_eq!(Scheduler::known(scheduler.as_str()), Some(scheduler));
        }
        assert_eq!(Scheduler::known("RR"), None);
        let other: Scheduler = "RR".parse().unwrap();
        assert_eq!(other.to_string(), "RR");
    }

    #[test]
    fn names_have_1_to_15_printable_characters() {
        assert_eq!(
            IpvsName::new("fifteen-letters").unwrap().as_str(),
            "fifteen-letters"
        );
        for bad in ["", "sixteen--letters", "two words", "nul\0", "\u{e9}"] {
            assert!(IpvsName::new(bad).is_err(), "{bad}");
        }
    }
}
