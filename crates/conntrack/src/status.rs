//! What the kernel knows of a flow as a whole.

use bitflags::bitflags;

bitflags! {
    /// What the kernel knows of a flow: `IPS_*` of `linux/netfilter/nf_conntrack_common.h`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub struct Status: u32 {
        /// Another flow announced it.
        #[doc(alias = "IPS_EXPECTED")]
        const EXPECTED = 1;
        /// Packets went in both directions.
        #[doc(alias = "IPS_SEEN_REPLY")]
        const SEEN_REPLY = 1 << 1;
        /// It is not dropped early when the table is full.
        #[doc(alias = "IPS_ASSURED")]
        const ASSURED = 1 << 2;
        /// Its first packet passed: it is in the table.
        #[doc(alias = "IPS_CONFIRMED")]
        const CONFIRMED = 1 << 3;
        /// The source of packets is translated.
        #[doc(alias = "IPS_SRC_NAT")]
        const SRC_NAT = 1 << 4;
        /// The destination of packets is translated.
        #[doc(alias = "IPS_DST_NAT")]
        const DST_NAT = 1 << 5;
        /// Sequence numbers of TCP are changed.
        #[doc(alias = "IPS_SEQ_ADJUST")]
        const SEQ_ADJUST = 1 << 6;
        /// It is settled whether the source is translated.
        #[doc(alias = "IPS_SRC_NAT_DONE")]
        const SRC_NAT_DONE = 1 << 7;
        /// It is settled whether the destination is translated.
        #[doc(alias = "IPS_DST_NAT_DONE")]
        const DST_NAT_DONE = 1 << 8;
        /// It is being removed.
        #[doc(alias = "IPS_DYING")]
        const DYING = 1 << 9;
        /// Packets do not renew its timeout.
        #[doc(alias = "IPS_FIXED_TIMEOUT")]
        const FIXED_TIMEOUT = 1 << 10;
        /// It is a template for others.
        #[doc(alias = "IPS_TEMPLATE")]
        const TEMPLATE = 1 << 11;
        /// It lost a race with another flow, as translated.
        #[doc(alias = "IPS_NAT_CLASH")]
        const NAT_CLASH = 1 << 12;
        /// A rule gave it a helper.
        #[doc(alias = "IPS_HELPER")]
        const HELPER = 1 << 13;
        /// A flow table carries its packets.
        #[doc(alias = "IPS_OFFLOAD")]
        const OFFLOAD = 1 << 14;
        /// Hardware carries its packets.
        #[doc(alias = "IPS_HW_OFFLOAD")]
        const HW_OFFLOAD = 1 << 15;
        /// Other bits are kept as they are.
        const _ = !0;
    }
}
