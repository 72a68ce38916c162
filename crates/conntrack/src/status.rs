//! Status bits of flows.

use bitflags::bitflags;

bitflags! {
    /// Status bits of a flow (`IPS_*` of `linux/netfilter/nf_conntrack_common.h`).
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub struct Status: u32 {
        /// The flow was expected by a helper.
        #[doc(alias = "IPS_EXPECTED")]
        const EXPECTED = 1;
        /// Packets were seen in both directions.
        #[doc(alias = "IPS_SEEN_REPLY")]
        const SEEN_REPLY = 1 << 1;
        /// The flow is exempt from early drop in a full table.
        #[doc(alias = "IPS_ASSURED")]
        const ASSURED = 1 << 2;
        /// The flow is in the table: its first packet left the host or was delivered, or
        /// a request created the flow.
        #[doc(alias = "IPS_CONFIRMED")]
        const CONFIRMED = 1 << 3;
        /// The source of original packets is translated.
        #[doc(alias = "IPS_SRC_NAT")]
        const SRC_NAT = 1 << 4;
        /// The destination of original packets is translated.
        #[doc(alias = "IPS_DST_NAT")]
        const DST_NAT = 1 << 5;
        /// TCP sequence numbers are adjusted.
        #[doc(alias = "IPS_SEQ_ADJUST")]
        const SEQ_ADJUST = 1 << 6;
        /// The decision about source translation is made.
        #[doc(alias = "IPS_SRC_NAT_DONE")]
        const SRC_NAT_DONE = 1 << 7;
        /// The decision about destination translation is made.
        #[doc(alias = "IPS_DST_NAT_DONE")]
        const DST_NAT_DONE = 1 << 8;
        /// The flow is being removed.
        #[doc(alias = "IPS_DYING")]
        const DYING = 1 << 9;
        /// Packets do not refresh the timeout.
        #[doc(alias = "IPS_FIXED_TIMEOUT")]
        const FIXED_TIMEOUT = 1 << 10;
        /// The entry is a template for flows.
        #[doc(alias = "IPS_TEMPLATE")]
        const TEMPLATE = 1 << 11;
        /// The flow clashed with an existing flow at its insertion.
        #[doc(alias = "IPS_NAT_CLASH")]
        const NAT_CLASH = 1 << 12;
        /// A rule or a request attached the helper explicitly.
        #[doc(alias = "IPS_HELPER")]
        const HELPER = 1 << 13;
        /// The flow is offloaded to a flowtable.
        #[doc(alias = "IPS_OFFLOAD")]
        const OFFLOAD = 1 << 14;
        /// The flow is offloaded to hardware.
        #[doc(alias = "IPS_HW_OFFLOAD")]
        const HW_OFFLOAD = 1 << 15;
        /// Unknown bits are preserved.
        const _ = !0;
    }
}
