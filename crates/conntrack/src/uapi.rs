//! Numbers of the kernel, by the names that they have in its headers.
//!
//! The enums are those of `linux/netfilter/nfnetlink_conntrack.h`, unless a comment names
//! another header. Numbers that this crate neither encodes nor decodes are missing.

// linux/netfilter/nfnetlink.h: the upper byte of a message type
pub(crate) const NFNL_SUBSYS_CTNETLINK: u8 = 1;
pub(crate) const NFNL_SUBSYS_CTNETLINK_EXP: u8 = 2;

// linux/netfilter.h
pub(crate) const NFPROTO_UNSPEC: u8 = 0;

// enum cntl_msg_types
pub(crate) const IPCTNL_MSG_CT_NEW: u8 = 0;
pub(crate) const IPCTNL_MSG_CT_GET: u8 = 1;
pub(crate) const IPCTNL_MSG_CT_DELETE: u8 = 2;
pub(crate) const IPCTNL_MSG_CT_GET_CTRZERO: u8 = 3;
pub(crate) const IPCTNL_MSG_CT_GET_STATS_CPU: u8 = 4;
pub(crate) const IPCTNL_MSG_CT_GET_STATS: u8 = 5;
pub(crate) const IPCTNL_MSG_CT_GET_DYING: u8 = 6;
pub(crate) const IPCTNL_MSG_CT_GET_UNCONFIRMED: u8 = 7;
// enum ctnl_exp_msg_types
pub(crate) const IPCTNL_MSG_EXP_NEW: u8 = 0;
pub(crate) const IPCTNL_MSG_EXP_GET: u8 = 1;
pub(crate) const IPCTNL_MSG_EXP_DELETE: u8 = 2;

// enum ctattr_type
pub(crate) const CTA_TUPLE_ORIG: u16 = 1;
pub(crate) const CTA_TUPLE_REPLY: u16 = 2;
pub(crate) const CTA_STATUS: u16 = 3;
pub(crate) const CTA_PROTOINFO: u16 = 4;
pub(crate) const CTA_HELP: u16 = 5;
pub(crate) const CTA_NAT_SRC: u16 = 6;
pub(crate) const CTA_TIMEOUT: u16 = 7;
pub(crate) const CTA_MARK: u16 = 8;
pub(crate) const CTA_COUNTERS_ORIG: u16 = 9;
pub(crate) const CTA_COUNTERS_REPLY: u16 = 10;
pub(crate) const CTA_USE: u16 = 11;
pub(crate) const CTA_ID: u16 = 12;
pub(crate) const CTA_NAT_DST: u16 = 13;
pub(crate) const CTA_TUPLE_MASTER: u16 = 14;
pub(crate) const CTA_SEQ_ADJ_ORIG: u16 = 15;
pub(crate) const CTA_SEQ_ADJ_REPLY: u16 = 16;
pub(crate) const CTA_ZONE: u16 = 18;
pub(crate) const CTA_SECCTX: u16 = 19;
pub(crate) const CTA_TIMESTAMP: u16 = 20;
pub(crate) const CTA_MARK_MASK: u16 = 21;
pub(crate) const CTA_LABELS: u16 = 22;
pub(crate) const CTA_LABELS_MASK: u16 = 23;
pub(crate) const CTA_SYNPROXY: u16 = 24;
pub(crate) const CTA_FILTER: u16 = 25;
pub(crate) const CTA_STATUS_MASK: u16 = 26;
// enum ctattr_tuple
pub(crate) const CTA_TUPLE_IP: u16 = 1;
pub(crate) const CTA_TUPLE_PROTO: u16 = 2;
pub(crate) const CTA_TUPLE_ZONE: u16 = 3;
// enum ctattr_ip
pub(crate) const CTA_IP_V4_SRC: u16 = 1;
pub(crate) const CTA_IP_V4_DST: u16 = 2;
pub(crate) const CTA_IP_V6_SRC: u16 = 3;
pub(crate) const CTA_IP_V6_DST: u16 = 4;
// enum ctattr_l4proto
pub(crate) const CTA_PROTO_NUM: u16 = 1;
pub(crate) const CTA_PROTO_SRC_PORT: u16 = 2;
pub(crate) const CTA_PROTO_DST_PORT: u16 = 3;
pub(crate) const CTA_PROTO_ICMP_ID: u16 = 4;
pub(crate) const CTA_PROTO_ICMP_TYPE: u16 = 5;
pub(crate) const CTA_PROTO_ICMP_CODE: u16 = 6;
pub(crate) const CTA_PROTO_ICMPV6_ID: u16 = 7;
pub(crate) const CTA_PROTO_ICMPV6_TYPE: u16 = 8;
pub(crate) const CTA_PROTO_ICMPV6_CODE: u16 = 9;
// enum ctattr_protoinfo
pub(crate) const CTA_PROTOINFO_TCP: u16 = 1;
pub(crate) const CTA_PROTOINFO_DCCP: u16 = 2;
pub(crate) const CTA_PROTOINFO_SCTP: u16 = 3;
// enum ctattr_protoinfo_tcp
pub(crate) const CTA_PROTOINFO_TCP_STATE: u16 = 1;
pub(crate) const CTA_PROTOINFO_TCP_WSCALE_ORIGINAL: u16 = 2;
pub(crate) const CTA_PROTOINFO_TCP_WSCALE_REPLY: u16 = 3;
pub(crate) const CTA_PROTOINFO_TCP_FLAGS_ORIGINAL: u16 = 4;
pub(crate) const CTA_PROTOINFO_TCP_FLAGS_REPLY: u16 = 5;
// enum ctattr_protoinfo_dccp
pub(crate) const CTA_PROTOINFO_DCCP_STATE: u16 = 1;
pub(crate) const CTA_PROTOINFO_DCCP_ROLE: u16 = 2;
pub(crate) const CTA_PROTOINFO_DCCP_HANDSHAKE_SEQ: u16 = 3;
// enum ctattr_protoinfo_sctp
pub(crate) const CTA_PROTOINFO_SCTP_STATE: u16 = 1;
pub(crate) const CTA_PROTOINFO_SCTP_VTAG_ORIGINAL: u16 = 2;
pub(crate) const CTA_PROTOINFO_SCTP_VTAG_REPLY: u16 = 3;
// enum ctattr_counters
pub(crate) const CTA_COUNTERS_PACKETS: u16 = 1;
pub(crate) const CTA_COUNTERS_BYTES: u16 = 2;
// enum ctattr_tstamp
pub(crate) const CTA_TIMESTAMP_START: u16 = 1;
pub(crate) const CTA_TIMESTAMP_STOP: u16 = 2;
// enum ctattr_nat
pub(crate) const CTA_NAT_V4_MINIP: u16 = 1;
pub(crate) const CTA_NAT_V4_MAXIP: u16 = 2;
pub(crate) const CTA_NAT_PROTO: u16 = 3;
pub(crate) const CTA_NAT_V6_MINIP: u16 = 4;
pub(crate) const CTA_NAT_V6_MAXIP: u16 = 5;
// enum ctattr_protonat
pub(crate) const CTA_PROTONAT_PORT_MIN: u16 = 1;
pub(crate) const CTA_PROTONAT_PORT_MAX: u16 = 2;
// enum ctattr_seqadj
pub(crate) const CTA_SEQADJ_CORRECTION_POS: u16 = 1;
pub(crate) const CTA_SEQADJ_OFFSET_BEFORE: u16 = 2;
pub(crate) const CTA_SEQADJ_OFFSET_AFTER: u16 = 3;
// enum ctattr_synproxy
pub(crate) const CTA_SYNPROXY_ISN: u16 = 1;
pub(crate) const CTA_SYNPROXY_ITS: u16 = 2;
pub(crate) const CTA_SYNPROXY_TSOFF: u16 = 3;
// enum ctattr_expect
pub(crate) const CTA_EXPECT_MASTER: u16 = 1;
pub(crate) const CTA_EXPECT_TUPLE: u16 = 2;
pub(crate) const CTA_EXPECT_MASK: u16 = 3;
pub(crate) const CTA_EXPECT_TIMEOUT: u16 = 4;
pub(crate) const CTA_EXPECT_ID: u16 = 5;
pub(crate) const CTA_EXPECT_HELP_NAME: u16 = 6;
pub(crate) const CTA_EXPECT_ZONE: u16 = 7;
pub(crate) const CTA_EXPECT_FLAGS: u16 = 8;
pub(crate) const CTA_EXPECT_CLASS: u16 = 9;
pub(crate) const CTA_EXPECT_FN: u16 = 11;
// enum ctattr_help
pub(crate) const CTA_HELP_NAME: u16 = 1;
pub(crate) const CTA_HELP_INFO: u16 = 2;
// enum ctattr_secctx
pub(crate) const CTA_SECCTX_NAME: u16 = 1;
// enum ctattr_stats_cpu
pub(crate) const CTA_STATS_FOUND: u16 = 2;
pub(crate) const CTA_STATS_INVALID: u16 = 4;
pub(crate) const CTA_STATS_INSERT: u16 = 8;
pub(crate) const CTA_STATS_INSERT_FAILED: u16 = 9;
pub(crate) const CTA_STATS_DROP: u16 = 10;
pub(crate) const CTA_STATS_EARLY_DROP: u16 = 11;
pub(crate) const CTA_STATS_ERROR: u16 = 12;
pub(crate) const CTA_STATS_SEARCH_RESTART: u16 = 13;
pub(crate) const CTA_STATS_CLASH_RESOLVE: u16 = 14;
pub(crate) const CTA_STATS_CHAIN_TOOLONG: u16 = 15;
// enum ctattr_stats_global
pub(crate) const CTA_STATS_GLOBAL_ENTRIES: u16 = 1;
pub(crate) const CTA_STATS_GLOBAL_MAX_ENTRIES: u16 = 2;
// enum ctattr_filter
pub(crate) const CTA_FILTER_ORIG_FLAGS: u16 = 1;
pub(crate) const CTA_FILTER_REPLY_FLAGS: u16 = 2;

// net/netfilter/nf_internals.h, which no uapi header repeats: flags of the parts of a tuple
// that the kernel compares
pub(crate) const CTA_FILTER_F_CTA_IP_SRC: u32 = 1 << 0;
pub(crate) const CTA_FILTER_F_CTA_IP_DST: u32 = 1 << 1;
pub(crate) const CTA_FILTER_F_CTA_PROTO_NUM: u32 = 1 << 3;
pub(crate) const CTA_FILTER_F_CTA_PROTO_SRC_PORT: u32 = 1 << 4;
pub(crate) const CTA_FILTER_F_CTA_PROTO_DST_PORT: u32 = 1 << 5;

// linux/icmp.h
pub(crate) const ICMP_ECHOREPLY: u8 = 0;
pub(crate) const ICMP_ECHO: u8 = 8;
pub(crate) const ICMP_TIMESTAMP: u8 = 13;
pub(crate) const ICMP_TIMESTAMPREPLY: u8 = 14;
pub(crate) const ICMP_INFO_REQUEST: u8 = 15;
pub(crate) const ICMP_INFO_REPLY: u8 = 16;
pub(crate) const ICMP_ADDRESS: u8 = 17;
pub(crate) const ICMP_ADDRESSREPLY: u8 = 18;
// linux/icmpv6.h
pub(crate) const ICMPV6_ECHO_REQUEST: u8 = 128;
pub(crate) const ICMPV6_ECHO_REPLY: u8 = 129;
pub(crate) const ICMPV6_NI_QUERY: u8 = 139;
pub(crate) const ICMPV6_NI_REPLY: u8 = 140;
