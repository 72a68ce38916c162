//! Numbers of `linux/ip_vs.h`, by the names that they have there.
//!
//! Numbers that this crate neither encodes nor decodes are missing.

/// Version of the generic netlink family.
pub(crate) const IPVS_GENL_VERSION: u8 = 0x1;

// Commands of the family.
pub(crate) const IPVS_CMD_NEW_SERVICE: u8 = 1;
pub(crate) const IPVS_CMD_SET_SERVICE: u8 = 2;
pub(crate) const IPVS_CMD_DEL_SERVICE: u8 = 3;
pub(crate) const IPVS_CMD_GET_SERVICE: u8 = 4;
pub(crate) const IPVS_CMD_NEW_DEST: u8 = 5;
pub(crate) const IPVS_CMD_SET_DEST: u8 = 6;
pub(crate) const IPVS_CMD_DEL_DEST: u8 = 7;
pub(crate) const IPVS_CMD_GET_DEST: u8 = 8;
pub(crate) const IPVS_CMD_NEW_DAEMON: u8 = 9;
pub(crate) const IPVS_CMD_DEL_DAEMON: u8 = 10;
pub(crate) const IPVS_CMD_GET_DAEMON: u8 = 11;
pub(crate) const IPVS_CMD_SET_CONFIG: u8 = 12;
pub(crate) const IPVS_CMD_GET_CONFIG: u8 = 13;
pub(crate) const IPVS_CMD_SET_INFO: u8 = 14;
pub(crate) const IPVS_CMD_GET_INFO: u8 = 15;
pub(crate) const IPVS_CMD_ZERO: u8 = 16;
pub(crate) const IPVS_CMD_FLUSH: u8 = 17;

// Attributes of the first level of commands.
pub(crate) const IPVS_CMD_ATTR_SERVICE: u16 = 1;
pub(crate) const IPVS_CMD_ATTR_DEST: u16 = 2;
pub(crate) const IPVS_CMD_ATTR_DAEMON: u16 = 3;
pub(crate) const IPVS_CMD_ATTR_TIMEOUT_TCP: u16 = 4;
pub(crate) const IPVS_CMD_ATTR_TIMEOUT_TCP_FIN: u16 = 5;
pub(crate) const IPVS_CMD_ATTR_TIMEOUT_UDP: u16 = 6;

// Attributes of a service, inside IPVS_CMD_ATTR_SERVICE.
pub(crate) const IPVS_SVC_ATTR_AF: u16 = 1;
pub(crate) const IPVS_SVC_ATTR_PROTOCOL: u16 = 2;
pub(crate) const IPVS_SVC_ATTR_ADDR: u16 = 3;
pub(crate) const IPVS_SVC_ATTR_PORT: u16 = 4;
pub(crate) const IPVS_SVC_ATTR_FWMARK: u16 = 5;
pub(crate) const IPVS_SVC_ATTR_SCHED_NAME: u16 = 6;
pub(crate) const IPVS_SVC_ATTR_FLAGS: u16 = 7;
pub(crate) const IPVS_SVC_ATTR_TIMEOUT: u16 = 8;
pub(crate) const IPVS_SVC_ATTR_NETMASK: u16 = 9;
pub(crate) const IPVS_SVC_ATTR_STATS: u16 = 10;
pub(crate) const IPVS_SVC_ATTR_PE_NAME: u16 = 11;
pub(crate) const IPVS_SVC_ATTR_STATS64: u16 = 12;

// Attributes of a destination, inside IPVS_CMD_ATTR_DEST.
pub(crate) const IPVS_DEST_ATTR_ADDR: u16 = 1;
pub(crate) const IPVS_DEST_ATTR_PORT: u16 = 2;
pub(crate) const IPVS_DEST_ATTR_FWD_METHOD: u16 = 3;
pub(crate) const IPVS_DEST_ATTR_WEIGHT: u16 = 4;
pub(crate) const IPVS_DEST_ATTR_U_THRESH: u16 = 5;
pub(crate) const IPVS_DEST_ATTR_L_THRESH: u16 = 6;
pub(crate) const IPVS_DEST_ATTR_ACTIVE_CONNS: u16 = 7;
pub(crate) const IPVS_DEST_ATTR_INACT_CONNS: u16 = 8;
pub(crate) const IPVS_DEST_ATTR_PERSIST_CONNS: u16 = 9;
pub(crate) const IPVS_DEST_ATTR_STATS: u16 = 10;
pub(crate) const IPVS_DEST_ATTR_ADDR_FAMILY: u16 = 11;
pub(crate) const IPVS_DEST_ATTR_STATS64: u16 = 12;
pub(crate) const IPVS_DEST_ATTR_TUN_TYPE: u16 = 13;
pub(crate) const IPVS_DEST_ATTR_TUN_PORT: u16 = 14;
pub(crate) const IPVS_DEST_ATTR_TUN_FLAGS: u16 = 15;

// Attributes of a sync daemon, inside IPVS_CMD_ATTR_DAEMON.
pub(crate) const IPVS_DAEMON_ATTR_STATE: u16 = 1;
pub(crate) const IPVS_DAEMON_ATTR_MCAST_IFN: u16 = 2;
pub(crate) const IPVS_DAEMON_ATTR_SYNC_ID: u16 = 3;
pub(crate) const IPVS_DAEMON_ATTR_SYNC_MAXLEN: u16 = 4;
pub(crate) const IPVS_DAEMON_ATTR_MCAST_GROUP: u16 = 5;
pub(crate) const IPVS_DAEMON_ATTR_MCAST_GROUP6: u16 = 6;
pub(crate) const IPVS_DAEMON_ATTR_MCAST_PORT: u16 = 7;
pub(crate) const IPVS_DAEMON_ATTR_MCAST_TTL: u16 = 8;

// Attributes of statistics, inside IPVS_{SVC,DEST}_ATTR_{STATS,STATS64}.
pub(crate) const IPVS_STATS_ATTR_CONNS: u16 = 1;
pub(crate) const IPVS_STATS_ATTR_INPKTS: u16 = 2;
pub(crate) const IPVS_STATS_ATTR_OUTPKTS: u16 = 3;
pub(crate) const IPVS_STATS_ATTR_INBYTES: u16 = 4;
pub(crate) const IPVS_STATS_ATTR_OUTBYTES: u16 = 5;
pub(crate) const IPVS_STATS_ATTR_CPS: u16 = 6;
pub(crate) const IPVS_STATS_ATTR_INPPS: u16 = 7;
pub(crate) const IPVS_STATS_ATTR_OUTPPS: u16 = 8;
pub(crate) const IPVS_STATS_ATTR_INBPS: u16 = 9;
pub(crate) const IPVS_STATS_ATTR_OUTBPS: u16 = 10;

// Attributes of the reply to IPVS_CMD_GET_INFO.
pub(crate) const IPVS_INFO_ATTR_VERSION: u16 = 1;
pub(crate) const IPVS_INFO_ATTR_CONN_TAB_SIZE: u16 = 2;

// Flags of a service.
pub(crate) const IP_VS_SVC_F_PERSISTENT: u32 = 0x1;
pub(crate) const IP_VS_SVC_F_HASHED: u32 = 0x2;
pub(crate) const IP_VS_SVC_F_ONEPACKET: u32 = 0x4;
pub(crate) const IP_VS_SVC_F_SCHED1: u32 = 0x8;
pub(crate) const IP_VS_SVC_F_SCHED2: u32 = 0x10;
pub(crate) const IP_VS_SVC_F_SCHED3: u32 = 0x20;

// States of a sync daemon.
pub(crate) const IP_VS_STATE_MASTER: u32 = 0x1;
pub(crate) const IP_VS_STATE_BACKUP: u32 = 0x2;

// Flags of a connection: the forwarding methods, which are numbers, and their mask.
pub(crate) const IP_VS_CONN_F_FWD_MASK: u32 = 0x7;
pub(crate) const IP_VS_CONN_F_MASQ: u32 = 0;
pub(crate) const IP_VS_CONN_F_LOCALNODE: u32 = 1;
pub(crate) const IP_VS_CONN_F_TUNNEL: u32 = 2;
pub(crate) const IP_VS_CONN_F_DROUTE: u32 = 3;

// Types of tunnels.
pub(crate) const IP_VS_CONN_F_TUNNEL_TYPE_IPIP: u8 = 0;
pub(crate) const IP_VS_CONN_F_TUNNEL_TYPE_GUE: u8 = 1;
pub(crate) const IP_VS_CONN_F_TUNNEL_TYPE_GRE: u8 = 2;

// Flags of tunnels.
pub(crate) const IP_VS_TUNNEL_ENCAP_FLAG_NOCSUM: u16 = 0;
pub(crate) const IP_VS_TUNNEL_ENCAP_FLAG_CSUM: u16 = 1 << 0;
pub(crate) const IP_VS_TUNNEL_ENCAP_FLAG_REMCSUM: u16 = 1 << 1;
