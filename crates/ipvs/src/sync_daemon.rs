//! Sync daemons, which replicate the state of connections between hosts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put, put_str, put_u8, put_u16, put_u32};

use crate::uapi::*;

/// Role of a sync daemon: `IP_VS_STATE_*` of `linux/ip_vs.h`.
///
/// Exhaustive: the kernel has two roles.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Role {
    /// Sends connection state (`IP_VS_STATE_MASTER`).
    Master,
    /// Receives connection state (`IP_VS_STATE_BACKUP`).
    Backup,
}

impl Role {
    fn number(self) -> u32 {
        match self {
            Self::Master => IP_VS_STATE_MASTER,
            Self::Backup => IP_VS_STATE_BACKUP,
        }
    }
}

/// A sync daemon. At most one runs per role.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SyncDaemon {
    /// Role.
    pub role: Role,
    /// Network interface for sync messages.
    pub interface: String,
    /// Sync ID, 0 to 255. A backup accepts only messages with its own ID, unless it is 0.
    pub sync_id: u32,
    /// Maximum length of a sync message, in bytes; 0 for the kernel's default.
    pub max_len: u16,
    /// Multicast group; `None` for the kernel's default.
    pub multicast_group: Option<IpAddr>,
    /// UDP port; 0 for the kernel's default.
    pub port: u16,
    /// Multicast TTL; 0 for the kernel's default.
    pub ttl: u8,
}

impl SyncDaemon {
    /// Creates a daemon with the kernel's defaults.
    pub fn new(role: Role, interface: &str, sync_id: u32) -> Self {
        Self {
            role,
            interface: interface.to_owned(),
            sync_id,
            max_len: 0,
            multicast_group: None,
            port: 0,
            ttl: 0,
        }
    }

    /// Sets the maximum length of a sync message, in bytes.
    #[must_use]
    pub fn with_max_len(mut self, bytes: u16) -> Self {
        self.max_len = bytes;
        self
    }

    /// Sets the multicast group.
    #[must_use]
    pub fn with_multicast_group(mut self, group: IpAddr) -> Self {
        self.multicast_group = Some(group);
        self
    }

    /// Sets the UDP port.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Sets the multicast TTL.
    #[must_use]
    pub fn with_ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    /// Appends the attributes in the order of `ipvsadm`, without defaults.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        Self::encode_role(self.role, out);
        put_str(out, IPVS_DAEMON_ATTR_MCAST_IFN, &self.interface);
        put_u32(out, IPVS_DAEMON_ATTR_SYNC_ID, self.sync_id);
        if self.max_len != 0 {
            put_u16(out, IPVS_DAEMON_ATTR_SYNC_MAXLEN, self.max_len);
        }
        if self.port != 0 {
            put_u16(out, IPVS_DAEMON_ATTR_MCAST_PORT, self.port);
        }
        if self.ttl != 0 {
            put_u8(out, IPVS_DAEMON_ATTR_MCAST_TTL, self.ttl);
        }
        match self.multicast_group {
            None => {}
            Some(IpAddr::V4(group)) => put(out, IPVS_DAEMON_ATTR_MCAST_GROUP, &group.octets()),
            Some(IpAddr::V6(group)) => put(out, IPVS_DAEMON_ATTR_MCAST_GROUP6, &group.octets()),
        }
    }

    /// Appends the attribute that identifies the daemon to stop.
    pub(crate) fn encode_role(role: Role, out: &mut Vec<u8>) {
        put_u32(out, IPVS_DAEMON_ATTR_STATE, role.number());
    }

    /// Decodes the attributes of a daemon.
    pub(crate) fn decode(attrs: Attrs<'_>) -> Result<Self, DecodeError> {
        let mut role = None;
        let mut daemon = Self::new(Role::Master, "", 0);
        for attr in attrs {
            let attr = attr?;
            let group = || attr.error("multicast group");
            match attr.kind {
                IPVS_DAEMON_ATTR_STATE => {
                    let roles = [Role::Master, Role::Backup];
                    let number = attr.u32()?;
                    role = roles.into_iter().find(|role| role.number() == number);
                }
                IPVS_DAEMON_ATTR_MCAST_IFN => daemon.interface = attr.str()?.to_owned(),
                IPVS_DAEMON_ATTR_SYNC_ID => daemon.sync_id = attr.u32()?,
                IPVS_DAEMON_ATTR_SYNC_MAXLEN => daemon.max_len = attr.u16()?,
                IPVS_DAEMON_ATTR_MCAST_GROUP => {
                    let octets: [u8; 4] = attr.value.try_into().map_err(|_| group())?;
                    daemon.multicast_group = Some(Ipv4Addr::from(octets).into());
                }
                IPVS_DAEMON_ATTR_MCAST_GROUP6 => {
                    let octets: [u8; 16] = attr.value.try_into().map_err(|_| group())?;
                    daemon.multicast_group = Some(Ipv6Addr::from(octets).into());
                }
                IPVS_DAEMON_ATTR_MCAST_PORT => daemon.port = attr.u16()?,
                IPVS_DAEMON_ATTR_MCAST_TTL => daemon.ttl = attr.u8()?,
                _ => {}
            }
        }
        daemon.role =
            role.ok_or_else(|| DecodeError::new("sync daemon", IPVS_DAEMON_ATTR_STATE, 0))?;
        Ok(daemon)
    }
}
