//! Flags of virtual servers.

use bitflags::bitflags;

bitflags! {
    /// Properties of a virtual server: `IP_VS_SVC_F_*` of `linux/ip_vs.h`.
    ///
    /// That it is persistent is told by its
    /// [persistence](crate::VirtualServer::persistence).
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub struct Flags: u32 {
        /// Each packet is scheduled on its own, for UDP only.
        #[doc(alias = "IP_VS_SVC_F_ONEPACKET")]
        const ONE_PACKET = 0x4;
        /// The first flag of the scheduler.
        #[doc(alias = "IP_VS_SVC_F_SCHED1")]
        const SCHEDULER_1 = 0x8;
        /// The second flag of the scheduler.
        #[doc(alias = "IP_VS_SVC_F_SCHED2")]
        const SCHEDULER_2 = 0x10;
        /// The third flag of the scheduler.
        #[doc(alias = "IP_VS_SVC_F_SCHED3")]
        const SCHEDULER_3 = 0x20;
        /// `sh`: another real server is chosen when the chosen one is out.
        const SH_FALLBACK = Self::SCHEDULER_1.bits();
        /// `sh`: the client's port is hashed, too.
        const SH_PORT = Self::SCHEDULER_2.bits();
        /// `mh`: another real server is chosen when the chosen one is out.
        const MH_FALLBACK = Self::SCHEDULER_1.bits();
        /// `mh`: the client's port is hashed, too.
        const MH_PORT = Self::SCHEDULER_2.bits();
        /// Other flags are kept as they are.
        const _ = !(Self::PERSISTENT | Self::HASHED);
    }
}

impl Flags {
    /// `IP_VS_SVC_F_PERSISTENT`: the server is persistent.
    pub(crate) const PERSISTENT: u32 = 0x1;
    /// `IP_VS_SVC_F_HASHED`: the kernel has the server in its table.
    pub(crate) const HASHED: u32 = 0x2;
}
