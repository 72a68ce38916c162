//! Numbers of the kernel, by the names that they have in its headers.
//!
//! Numbers that this crate neither encodes nor decodes are missing, and so are those of
//! `netlink_packet_core`, which has the same names.

// linux/netlink.h: enum nlmsgerr_attrs
pub(crate) const NLMSGERR_ATTR_MSG: u16 = 1;
pub(crate) const NLMSGERR_ATTR_OFFS: u16 = 2;
pub(crate) const NLMSGERR_ATTR_COOKIE: u16 = 3;
pub(crate) const NLMSGERR_ATTR_POLICY: u16 = 4;
pub(crate) const NLMSGERR_ATTR_MISS_TYPE: u16 = 5;
pub(crate) const NLMSGERR_ATTR_MISS_NEST: u16 = 6;
// linux/netlink.h: enum netlink_policy_type_attr
pub(crate) const NL_POLICY_TYPE_ATTR_TYPE: u16 = 1;
pub(crate) const NL_POLICY_TYPE_ATTR_MIN_VALUE_S: u16 = 2;
pub(crate) const NL_POLICY_TYPE_ATTR_MAX_VALUE_S: u16 = 3;
pub(crate) const NL_POLICY_TYPE_ATTR_MIN_VALUE_U: u16 = 4;
pub(crate) const NL_POLICY_TYPE_ATTR_MAX_VALUE_U: u16 = 5;
pub(crate) const NL_POLICY_TYPE_ATTR_MIN_LENGTH: u16 = 6;
pub(crate) const NL_POLICY_TYPE_ATTR_MAX_LENGTH: u16 = 7;
pub(crate) const NL_POLICY_TYPE_ATTR_POLICY_IDX: u16 = 8;
pub(crate) const NL_POLICY_TYPE_ATTR_POLICY_MAXTYPE: u16 = 9;
pub(crate) const NL_POLICY_TYPE_ATTR_BITFIELD32_MASK: u16 = 10;
pub(crate) const NL_POLICY_TYPE_ATTR_MASK: u16 = 12;

// linux/genetlink.h: the controller, its commands, and the attributes of families
pub(crate) const GENL_ID_CTRL: u16 = 16;
pub(crate) const CTRL_CMD_GETFAMILY: u8 = 3;
pub(crate) const CTRL_ATTR_FAMILY_ID: u16 = 1;
pub(crate) const CTRL_ATTR_FAMILY_NAME: u16 = 2;
pub(crate) const CTRL_ATTR_VERSION: u16 = 3;
pub(crate) const CTRL_ATTR_HDRSIZE: u16 = 4;
pub(crate) const CTRL_ATTR_MAXATTR: u16 = 5;
/// Multicast groups, each in a nest of its own.
pub(crate) const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
pub(crate) const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
pub(crate) const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;

// linux/bpf_common.h: instructions of classic BPF
pub(crate) const BPF_LD: u16 = 0x00;
pub(crate) const BPF_JMP: u16 = 0x05;
pub(crate) const BPF_RET: u16 = 0x06;
pub(crate) const BPF_W: u16 = 0x00;
pub(crate) const BPF_ABS: u16 = 0x20;
pub(crate) const BPF_JEQ: u16 = 0x10;
pub(crate) const BPF_K: u16 = 0x00;
pub(crate) const BPF_MAXINSNS: usize = 4096;
