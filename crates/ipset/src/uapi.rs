//! Numbers of the kernel, by the names that they have in its headers.
//!
//! The enums are those of `linux/netfilter/ipset/ip_set.h`, unless a comment names another
//! header. Numbers that this crate neither encodes nor decodes are missing.

// linux/netfilter/nfnetlink.h: the upper byte of a message type, and a header version
pub(crate) const NFNL_SUBSYS_IPSET: u8 = 6;
pub(crate) const NFNETLINK_V0: u8 = 0;

// linux/netfilter.h
pub(crate) const NFPROTO_UNSPEC: u8 = 0;
pub(crate) const NFPROTO_IPV4: u8 = 2;
pub(crate) const NFPROTO_IPV6: u8 = 10;

// Versions and sizes
pub(crate) const IPSET_PROTOCOL: u8 = 7;
pub(crate) const IPSET_PROTOCOL_MIN: u8 = 6;
pub(crate) const IPSET_MAXNAMELEN: usize = 32;
pub(crate) const IPSET_MAX_COMMENT_SIZE: usize = 255;

// enum ipset_cmd
pub(crate) const IPSET_CMD_PROTOCOL: u8 = 1;
pub(crate) const IPSET_CMD_CREATE: u8 = 2;
pub(crate) const IPSET_CMD_DESTROY: u8 = 3;
pub(crate) const IPSET_CMD_FLUSH: u8 = 4;
pub(crate) const IPSET_CMD_RENAME: u8 = 5;
pub(crate) const IPSET_CMD_SWAP: u8 = 6;
pub(crate) const IPSET_CMD_LIST: u8 = 7;
pub(crate) const IPSET_CMD_ADD: u8 = 9;
pub(crate) const IPSET_CMD_DEL: u8 = 10;
pub(crate) const IPSET_CMD_TEST: u8 = 11;
pub(crate) const IPSET_CMD_HEADER: u8 = 12;
pub(crate) const IPSET_CMD_TYPE: u8 = 13;

// Attributes of commands, of which two numbers have two meanings
pub(crate) const IPSET_ATTR_PROTOCOL: u16 = 1;
pub(crate) const IPSET_ATTR_SETNAME: u16 = 2;
pub(crate) const IPSET_ATTR_TYPENAME: u16 = 3;
pub(crate) const IPSET_ATTR_SETNAME2: u16 = 3;
pub(crate) const IPSET_ATTR_REVISION: u16 = 4;
pub(crate) const IPSET_ATTR_FAMILY: u16 = 5;
pub(crate) const IPSET_ATTR_FLAGS: u16 = 6;
pub(crate) const IPSET_ATTR_DATA: u16 = 7;
pub(crate) const IPSET_ATTR_ADT: u16 = 8;
pub(crate) const IPSET_ATTR_LINENO: u16 = 9;
pub(crate) const IPSET_ATTR_PROTOCOL_MIN: u16 = 10;
pub(crate) const IPSET_ATTR_REVISION_MIN: u16 = 10;

// Attributes of sets and entries, inside IPSET_ATTR_DATA
pub(crate) const IPSET_ATTR_IP: u16 = 1;
pub(crate) const IPSET_ATTR_IP_TO: u16 = 2;
pub(crate) const IPSET_ATTR_CIDR: u16 = 3;
pub(crate) const IPSET_ATTR_PORT: u16 = 4;
pub(crate) const IPSET_ATTR_PORT_TO: u16 = 5;
pub(crate) const IPSET_ATTR_TIMEOUT: u16 = 6;
pub(crate) const IPSET_ATTR_PROTO: u16 = 7;
pub(crate) const IPSET_ATTR_CADT_FLAGS: u16 = 8;
pub(crate) const IPSET_ATTR_MARK: u16 = 10;
pub(crate) const IPSET_ATTR_MARKMASK: u16 = 11;
pub(crate) const IPSET_ATTR_BITMASK: u16 = 12;

// Attributes of sets only
pub(crate) const IPSET_ATTR_INITVAL: u16 = 17;
pub(crate) const IPSET_ATTR_HASHSIZE: u16 = 18;
pub(crate) const IPSET_ATTR_MAXELEM: u16 = 19;
pub(crate) const IPSET_ATTR_NETMASK: u16 = 20;
pub(crate) const IPSET_ATTR_BUCKETSIZE: u16 = 21;
pub(crate) const IPSET_ATTR_SIZE: u16 = 23;
pub(crate) const IPSET_ATTR_ELEMENTS: u16 = 24;
pub(crate) const IPSET_ATTR_REFERENCES: u16 = 25;
pub(crate) const IPSET_ATTR_MEMSIZE: u16 = 26;

// Attributes of entries only
pub(crate) const IPSET_ATTR_ETHER: u16 = 17;
pub(crate) const IPSET_ATTR_NAME: u16 = 18;
pub(crate) const IPSET_ATTR_NAMEREF: u16 = 19;
pub(crate) const IPSET_ATTR_IP2: u16 = 20;
pub(crate) const IPSET_ATTR_CIDR2: u16 = 21;
pub(crate) const IPSET_ATTR_IP2_TO: u16 = 22;
pub(crate) const IPSET_ATTR_IFACE: u16 = 23;
pub(crate) const IPSET_ATTR_BYTES: u16 = 24;
pub(crate) const IPSET_ATTR_PACKETS: u16 = 25;
pub(crate) const IPSET_ATTR_COMMENT: u16 = 26;
pub(crate) const IPSET_ATTR_SKBMARK: u16 = 27;
pub(crate) const IPSET_ATTR_SKBPRIO: u16 = 28;
pub(crate) const IPSET_ATTR_SKBQUEUE: u16 = 29;

// Attributes of addresses
pub(crate) const IPSET_ATTR_IPADDR_IPV4: u16 = 1;
pub(crate) const IPSET_ATTR_IPADDR_IPV6: u16 = 2;

// enum ipset_cmd_flags
pub(crate) const IPSET_FLAG_LIST_HEADER: u32 = 1 << 2;

// enum ipset_cadt_flags
pub(crate) const IPSET_FLAG_BEFORE: u32 = 1 << 0;
pub(crate) const IPSET_FLAG_PHYSDEV: u32 = 1 << 1;
pub(crate) const IPSET_FLAG_NOMATCH: u32 = 1 << 2;
pub(crate) const IPSET_FLAG_WITH_COUNTERS: u32 = 1 << 3;
pub(crate) const IPSET_FLAG_WITH_COMMENT: u32 = 1 << 4;
pub(crate) const IPSET_FLAG_WITH_FORCEADD: u32 = 1 << 5;
pub(crate) const IPSET_FLAG_WITH_SKBINFO: u32 = 1 << 6;
pub(crate) const IPSET_FLAG_IFACE_WILDCARD: u32 = 1 << 7;

// enum ipset_errno
pub(crate) const IPSET_ERR_PROTOCOL: i32 = 4097;
pub(crate) const IPSET_ERR_FIND_TYPE: i32 = 4098;
pub(crate) const IPSET_ERR_MAX_SETS: i32 = 4099;
pub(crate) const IPSET_ERR_BUSY: i32 = 4100;
pub(crate) const IPSET_ERR_EXIST_SETNAME2: i32 = 4101;
pub(crate) const IPSET_ERR_TYPE_MISMATCH: i32 = 4102;
pub(crate) const IPSET_ERR_EXIST: i32 = 4103;
pub(crate) const IPSET_ERR_INVALID_CIDR: i32 = 4104;
pub(crate) const IPSET_ERR_INVALID_NETMASK: i32 = 4105;
pub(crate) const IPSET_ERR_INVALID_FAMILY: i32 = 4106;
pub(crate) const IPSET_ERR_TIMEOUT: i32 = 4107;
pub(crate) const IPSET_ERR_REFERENCED: i32 = 4108;
pub(crate) const IPSET_ERR_IPADDR_IPV4: i32 = 4109;
pub(crate) const IPSET_ERR_IPADDR_IPV6: i32 = 4110;
pub(crate) const IPSET_ERR_COUNTER: i32 = 4111;
pub(crate) const IPSET_ERR_COMMENT: i32 = 4112;
pub(crate) const IPSET_ERR_INVALID_MARKMASK: i32 = 4113;
pub(crate) const IPSET_ERR_SKBINFO: i32 = 4114;
pub(crate) const IPSET_ERR_BITMASK_NETMASK_EXCL: i32 = 4115;
/// The first number whose meaning depends on the type of the set.
pub(crate) const IPSET_ERR_TYPE_SPECIFIC: i32 = 4352;
// linux/netfilter/ipset/ip_set_hash.h
pub(crate) const IPSET_ERR_HASH_FULL: i32 = 4352;
pub(crate) const IPSET_ERR_HASH_ELEM: i32 = 4353;
pub(crate) const IPSET_ERR_INVALID_PROTO: i32 = 4354;
pub(crate) const IPSET_ERR_MISSING_PROTO: i32 = 4355;
pub(crate) const IPSET_ERR_HASH_RANGE_UNSUPPORTED: i32 = 4356;
pub(crate) const IPSET_ERR_HASH_RANGE: i32 = 4357;
// linux/netfilter/ipset/ip_set_bitmap.h
pub(crate) const IPSET_ERR_BITMAP_RANGE: i32 = 4352;
pub(crate) const IPSET_ERR_BITMAP_RANGE_SIZE: i32 = 4353;
// linux/netfilter/ipset/ip_set_list.h
pub(crate) const IPSET_ERR_NAME: i32 = 4352;
pub(crate) const IPSET_ERR_LOOP: i32 = 4353;
pub(crate) const IPSET_ERR_BEFORE: i32 = 4354;
pub(crate) const IPSET_ERR_NAMEREF: i32 = 4355;
pub(crate) const IPSET_ERR_LIST_FULL: i32 = 4356;
pub(crate) const IPSET_ERR_REF_EXIST: i32 = 4357;
