//! Flags of virtual servers.

use bitflags::bitflags;

bitflags! {
    /// Flags of a virtual server: `IP_VS_SVC_F_*` of `linux/ip_vs.h`.
    ///
    /// [`VirtualServer::persistence`](crate::VirtualServer::persistence) replaces
    /// the flag `IP_VS_SVC_F_PERSISTENT`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub struct Flags: u32 {
        /// One-packet scheduling: each packet is scheduled separately. UDP only.
        #[doc(alias = "IP_VS_SVC_F_ONEPACKET")]
        const ONE_PACKET = 0x4;
        /// First scheduler flag.
        #[doc(alias = "IP_VS_SVC_F_SCHED1")]
        const SCHEDULER_1 = 0x8;
        /// Second scheduler flag.
        #[doc(alias = "IP_VS_SVC_F_SCHED2")]
        const SCHEDULER_2 = 0x10;
        /// Third scheduler flag.
        #[doc(alias = "IP_VS_SVC_F_SCHED3")]
        const SCHEDULER_3 = 0x20;
        /// `sh`: choose another real server if the chosen one is unavailable.
        const SH_FALLBACK = Self::SCHEDULER_1.bits();
        /// `sh`: include the source port in the hash.
        const SH_PORT = Self::SCHEDULER_2.bits();
        /// `mh`: choose another real server if the chosen one is unavailable.
        const MH_FALLBACK = Self::SCHEDULER_1.bits();
        /// `mh`: include the source port in the hash.
        const MH_PORT = Self::SCHEDULER_2.bits();
        /// Unknown flags are preserved.
        const _ = !(Self::PERSISTENT | Self::HASHED);
    }
}

impl Flags {
    /// `IP_VS_SVC_F_PERSISTENT`: the server is persistent.
    pub(crate) const PERSISTENT: u32 = 0x1;
    /// `IP_VS_SVC_F_HASHED`: the server is in the kernel's hash table.
    pub(crate) const HASHED: u32 = 0x2;
}
