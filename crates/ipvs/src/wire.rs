//! Requests and replies of the IPVS generic netlink family.
//!
//! The numbers are those of `linux/ip_vs.h`.

use std::time::Duration;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, nest, put_u32};
use vipline_netlink::generic::{put_header, split};

use crate::destination::{Destination, RealServer};
use crate::stats::Stats;
use crate::sync_daemon::{Role, SyncDaemon};
use crate::uapi::*;
use crate::{Family, ServiceKey, VirtualServer};

/// Name of the generic netlink family.
pub const IPVS_GENL_NAME: &str = "IPVS";

/// Connection timeouts after the last packet. Fractions of a second are dropped.
///
/// [`Client::set_timeouts`](crate::Client::set_timeouts) leaves a timeout of zero
/// unchanged.
///
/// Exhaustive: the kernel has three timeouts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Timeouts {
    /// Established TCP connections.
    pub tcp: Duration,
    /// TCP connections in state FIN_WAIT.
    pub tcp_fin: Duration,
    /// UDP connections.
    pub udp: Duration,
}

/// Version and connection table size of IPVS.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Info {
    /// Version: major, minor, patch.
    pub version: [u8; 3],
    /// Number of buckets in the connection table.
    pub table_size: u32,
}

/// A request other than a [`Command`](crate::Command).
///
/// [`Servers`](Self::Servers), [`Destinations`](Self::Destinations) and
/// [`Daemons`](Self::Daemons) must be sent with `NLM_F_DUMP`.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Request<'a> {
    /// Dumps all virtual servers.
    Servers,
    /// Gets the virtual server of a service.
    Server(&'a ServiceKey),
    /// Dumps the real servers of a service.
    Destinations(&'a ServiceKey),
    /// Dumps the sync daemons.
    Daemons,
    /// Starts a sync daemon.
    StartDaemon(&'a SyncDaemon),
    /// Stops a sync daemon.
    StopDaemon(Role),
    /// Gets the timeouts.
    Timeouts,
    /// Sets the timeouts.
    SetTimeouts(&'a Timeouts),
    /// Gets the version and the connection table size.
    Info,
    /// Resets the statistics of a service, or of all services.
    Zero(Option<&'a ServiceKey>),
    /// Removes all virtual servers.
    Flush,
}

impl Request<'_> {
    /// Appends the payload of the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, self.command(), IPVS_GENL_VERSION);
        match self {
            Self::Server(service) | Self::Destinations(service) | Self::Zero(Some(service)) => {
                nest(out, IPVS_CMD_ATTR_SERVICE, |out| service.encode(out));
            }
            Self::StartDaemon(daemon) => nest(out, IPVS_CMD_ATTR_DAEMON, |out| daemon.encode(out)),
            Self::StopDaemon(role) => nest(out, IPVS_CMD_ATTR_DAEMON, |out| {
                SyncDaemon::encode_role(*role, out)
            }),
            Self::SetTimeouts(timeouts) => {
                put_u32(out, IPVS_CMD_ATTR_TIMEOUT_TCP, seconds(timeouts.tcp));
                put_u32(
                    out,
                    IPVS_CMD_ATTR_TIMEOUT_TCP_FIN,
                    seconds(timeouts.tcp_fin),
                );
                put_u32(out, IPVS_CMD_ATTR_TIMEOUT_UDP, seconds(timeouts.udp));
            }
            _ => {}
        }
    }

    fn command(&self) -> u8 {
        match self {
            Self::Servers | Self::Server(_) => IPVS_CMD_GET_SERVICE,
            Self::Destinations(_) => IPVS_CMD_GET_DEST,
            Self::StartDaemon(_) => IPVS_CMD_NEW_DAEMON,
            Self::StopDaemon(_) => IPVS_CMD_DEL_DAEMON,
            Self::Daemons => IPVS_CMD_GET_DAEMON,
            Self::SetTimeouts(_) => IPVS_CMD_SET_CONFIG,
            Self::Timeouts => IPVS_CMD_GET_CONFIG,
            Self::Info => IPVS_CMD_GET_INFO,
            Self::Zero(_) => IPVS_CMD_ZERO,
            Self::Flush => IPVS_CMD_FLUSH,
        }
    }
}

/// Returns the whole seconds of a duration, at most `u32::MAX`.
fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

/// A reply.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// A virtual server with its statistics.
    Server(VirtualServer, Stats),
    /// A real server with its connection counts and statistics.
    Destination(Destination),
    /// A sync daemon.
    SyncDaemon(SyncDaemon),
    /// The timeouts.
    Timeouts(Timeouts),
    /// Version and connection table size of IPVS.
    Info(Info),
    /// An unknown reply.
    Other,
}

impl Reply {
    /// Decodes the payload of a reply.
    ///
    /// `family` is the family of the service. Old kernels do not report the family of
    /// real servers, which is the same.
    /// Unknown attributes are skipped.
    ///
    /// # Errors
    ///
    /// An attribute is missing or malformed.
    pub fn decode(family: Family, payload: &[u8]) -> Result<Self, DecodeError> {
        let (command, attrs) = split(payload)?;
        match command {
            IPVS_CMD_NEW_SERVICE => {
                let (server, stats) = VirtualServer::decode(inside(attrs, IPVS_CMD_ATTR_SERVICE)?)?;
                Ok(Self::Server(server, stats))
            }
            IPVS_CMD_NEW_DEST => RealServer::decode(family, inside(attrs, IPVS_CMD_ATTR_DEST)?)
                .map(Self::Destination),
            IPVS_CMD_NEW_DAEMON => {
                SyncDaemon::decode(inside(attrs, IPVS_CMD_ATTR_DAEMON)?).map(Self::SyncDaemon)
            }
            IPVS_CMD_SET_CONFIG => timeouts(attrs).map(Self::Timeouts),
            IPVS_CMD_SET_INFO => info(attrs).map(Self::Info),
            _ => Ok(Self::Other),
        }
    }
}

/// Returns the attributes nested in the attribute of this type.
fn inside(attrs: Attrs<'_>, kind: u16) -> Result<Attrs<'_>, DecodeError> {
    for attr in attrs {
        let attr = attr?;
        if attr.kind == kind {
            return Ok(attr.attrs());
        }
    }
    Err(DecodeError::new("nested attribute", kind, 0))
}

fn timeouts(attrs: Attrs<'_>) -> Result<Timeouts, DecodeError> {
    let mut timeouts = Timeouts::default();
    for attr in attrs {
        let attr = attr?;
        let timeout = match attr.kind {
            IPVS_CMD_ATTR_TIMEOUT_TCP => &mut timeouts.tcp,
            IPVS_CMD_ATTR_TIMEOUT_TCP_FIN => &mut timeouts.tcp_fin,
            IPVS_CMD_ATTR_TIMEOUT_UDP => &mut timeouts.udp,
            _ => continue,
        };
        *timeout = Duration::from_secs(attr.u32()?.into());
    }
    Ok(timeouts)
}

fn info(attrs: Attrs<'_>) -> Result<Info, DecodeError> {
    let mut info = Info::default();
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            IPVS_INFO_ATTR_VERSION => {
                let [_, version @ ..] = attr.u32()?.to_be_bytes();
                info.version = version;
            }
            IPVS_INFO_ATTR_CONN_TAB_SIZE => info.table_size = attr.u32()?,
            _ => {}
        }
    }
    Ok(info)
}
