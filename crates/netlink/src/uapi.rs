//! Numbers of the kernel, by the names that they have in its headers.
//!
//! Numbers that this crate neither encodes nor decodes are missing, and so are those of
//! `netlink_packet_core` and `netlink_packet_generic`, which have the same names.

// linux/netlink.h: enum nlmsgerr_attrs
pub(crate) const NLMSGERR_ATTR_MSG: u16 = 1;
pub(crate) const NLMSGERR_ATTR_OFFS: u16 = 2;
pub(crate) const NLMSGERR_ATTR_COOKIE: u16 = 3;
pub(crate) const NLMSGERR_ATTR_POLICY: u16 = 4;
pub(crate) const NLMSGERR_ATTR_MISS_TYPE: u16 = 5;
pub(crate) const NLMSGERR_ATTR_MISS_NEST: u16 = 6;

// linux/bpf_common.h: instructions of classic BPF
pub(crate) const BPF_LD: u16 = 0x00;
pub(crate) const BPF_JMP: u16 = 0x05;
pub(crate) const BPF_RET: u16 = 0x06;
pub(crate) const BPF_W: u16 = 0x00;
pub(crate) const BPF_ABS: u16 = 0x20;
pub(crate) const BPF_JEQ: u16 = 0x10;
pub(crate) const BPF_K: u16 = 0x00;
pub(crate) const BPF_MAXINSNS: usize = 4096;
