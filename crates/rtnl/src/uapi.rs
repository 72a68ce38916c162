//! Numbers of the kernel, by the names that they have in its headers.
//!
//! Numbers that this crate neither encodes nor decodes are missing.

// linux/socket.h
pub(crate) const AF_UNSPEC: u8 = 0;

// linux/rtnetlink.h: message types
pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_DELLINK: u16 = 17;
pub(crate) const RTM_GETLINK: u16 = 18;
pub(crate) const RTM_NEWADDR: u16 = 20;
pub(crate) const RTM_DELADDR: u16 = 21;
pub(crate) const RTM_GETADDR: u16 = 22;
// linux/rtnetlink.h: enum rt_scope_t
pub(crate) const RT_SCOPE_UNIVERSE: u8 = 0;
pub(crate) const RT_SCOPE_SITE: u8 = 200;
pub(crate) const RT_SCOPE_LINK: u8 = 253;
pub(crate) const RT_SCOPE_HOST: u8 = 254;
pub(crate) const RT_SCOPE_NOWHERE: u8 = 255;
// linux/rtnetlink.h: what IFLA_EXT_MASK adds to dumps of links, or omits
pub(crate) const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;

// linux/if_link.h: attributes of links
pub(crate) const IFLA_IFNAME: u16 = 3;
pub(crate) const IFLA_LINKINFO: u16 = 18;
pub(crate) const IFLA_EXT_MASK: u16 = 29;
// linux/if_link.h: attributes of the link type, inside IFLA_LINKINFO
pub(crate) const IFLA_INFO_KIND: u16 = 1;

// linux/if.h
pub(crate) const IFNAMSIZ: usize = 16;
// linux/if.h: enum net_device_flags
pub(crate) const IFF_UP: u32 = 1 << 0;
pub(crate) const IFF_LOOPBACK: u32 = 1 << 3;
pub(crate) const IFF_RUNNING: u32 = 1 << 6;
pub(crate) const IFF_NOARP: u32 = 1 << 7;
pub(crate) const IFF_LOWER_UP: u32 = 1 << 16;

// linux/if_addr.h: attributes of addresses
/// The address of the peer, or of the link itself if there is none.
pub(crate) const IFA_ADDRESS: u16 = 1;
pub(crate) const IFA_LOCAL: u16 = 2;
/// All flags; the header contains only eight.
pub(crate) const IFA_FLAGS: u16 = 8;
// linux/if_addr.h: flags of addresses
pub(crate) const IFA_F_SECONDARY: u32 = 0x01;
pub(crate) const IFA_F_NODAD: u32 = 0x02;
pub(crate) const IFA_F_OPTIMISTIC: u32 = 0x04;
pub(crate) const IFA_F_DADFAILED: u32 = 0x08;
pub(crate) const IFA_F_HOMEADDRESS: u32 = 0x10;
pub(crate) const IFA_F_DEPRECATED: u32 = 0x20;
pub(crate) const IFA_F_TENTATIVE: u32 = 0x40;
pub(crate) const IFA_F_PERMANENT: u32 = 0x80;
pub(crate) const IFA_F_MANAGETEMPADDR: u32 = 0x100;
pub(crate) const IFA_F_NOPREFIXROUTE: u32 = 0x200;
pub(crate) const IFA_F_MCAUTOJOIN: u32 = 0x400;
pub(crate) const IFA_F_STABLE_PRIVACY: u32 = 0x800;
