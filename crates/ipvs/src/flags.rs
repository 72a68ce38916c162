//! Flags of virtual servers.

use bitflags::bitflags;

use crate::uapi::*;

bitflags! {
    /// Flags of a virtual server: `IP_VS_SVC_F_*` of `linux/ip_vs.h`.
    ///
    /// [`VirtualServer::persistence`](crate::VirtualServer::persistence) replaces
    /// the flag `IP_VS_SVC_F_PERSISTENT`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub struct Flags: u32 {
        /// One-packet scheduling: each packet is scheduled separately. UDP only.
        #[doc(alias = "IP_VS_SVC_F_ONEPACKET")]
        const ONE_PACKET = IP_VS_SVC_F_ONEPACKET;
        /// First scheduler flag.
        #[doc(alias = "IP_VS_SVC_F_SCHED1")]
        const SCHEDULER_1 = IP_VS_SVC_F_SCHED1;
        /// Second scheduler flag.
        #[doc(alias = "IP_VS_SVC_F_SCHED2")]
        const SCHEDULER_2 = IP_VS_SVC_F_SCHED2;
        /// Third scheduler flag.
        #[doc(alias = "IP_VS_SVC_F_SCHED3")]
        const SCHEDULER_3 = IP_VS_SVC_F_SCHED3;
        /// `sh`: choose another real server if the chosen one is unavailable.
        const SH_FALLBACK = Self::SCHEDULER_1.bits();
        /// `sh`: include the source port in the hash.
        const SH_PORT = Self::SCHEDULER_2.bits();
        /// `mh`: choose another real server if the chosen one is unavailable.
        const MH_FALLBACK = Self::SCHEDULER_1.bits();
        /// `mh`: include the source port in the hash.
        const MH_PORT = Self::SCHEDULER_2.bits();
        /// Unknown flags are preserved.
        const _ = !(IP_VS_SVC_F_PERSISTENT | IP_VS_SVC_F_HASHED);
    }
}
