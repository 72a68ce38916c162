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
use crate::{Family, ServiceKey, VirtualServer};

/// `IPVS_GENL_NAME`: name of the generic netlink family.
pub const FAMILY: &str = "IPVS";
/// `IPVS_GENL_VERSION`: message version.
pub(crate) const VERSION: u8 = 1;

/// `IPVS_CMD_ATTR_SERVICE`: a virtual server.
pub(crate) const ATTR_SERVICE: u16 = 1;
/// `IPVS_CMD_ATTR_DEST`: a real server.
pub(crate) const ATTR_DESTINATION: u16 = 2;
/// `IPVS_CMD_ATTR_DAEMON` and the following attributes.
const ATTR_DAEMON: u16 = 3;
const ATTR_TCP: u16 = 4;
const ATTR_TCP_FIN: u16 = 5;
const ATTR_UDP: u16 = 6;

/// `IPVS_INFO_ATTR_VERSION` and the following attribute.
const INFO_VERSION: u16 = 1;
const INFO_TABLE_SIZE: u16 = 2;

/// `IPVS_CMD_NEW_SERVICE` and the other commands in replies.
const NEW_SERVICE: u8 = 1;
const NEW_DEST: u8 = 5;
const NEW_DAEMON: u8 = 9;
const SET_CONFIG: u8 = 12;
const SET_INFO: u8 = 14;

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
        put_header(out, self.command(), VERSION);
        match self {
            Self::Server(service) | Self::Destinations(service) | Self::Zero(Some(service)) => {
                nest(out, ATTR_SERVICE, |out| service.encode(out));
            }
            Self::StartDaemon(daemon) => nest(out, ATTR_DAEMON, |out| daemon.encode(out)),
            Self::StopDaemon(role) => {
                nest(out, ATTR_DAEMON, |out| SyncDaemon::encode_role(*role, out))
            }
            Self::SetTimeouts(timeouts) => {
                put_u32(out, ATTR_TCP, seconds(timeouts.tcp));
                put_u32(out, ATTR_TCP_FIN, seconds(timeouts.tcp_fin));
                put_u32(out, ATTR_UDP, seconds(timeouts.udp));
            }
            _ => {}
        }
    }

    fn command(&self) -> u8 {
        match self {
            Self::Servers | Self::Server(_) => 4,
            Self::Destinations(_) => 8,
            Self::StartDaemon(_) => NEW_DAEMON,
            Self::StopDaemon(_) => 10,
            Self::Daemons => 11,
            Self::SetTimeouts(_) => SET_CONFIG,
            Self::Timeouts => 13,
            Self::Info => 15,
            Self::Zero(_) => 16,
            Self::Flush => 17,
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
            NEW_SERVICE => {
                let (server, stats) = VirtualServer::decode(inside(attrs, ATTR_SERVICE)?)?;
                Ok(Self::Server(server, stats))
            }
            NEW_DEST => {
                RealServer::decode(family, inside(attrs, ATTR_DESTINATION)?).map(Self::Destination)
            }
            NEW_DAEMON => SyncDaemon::decode(inside(attrs, ATTR_DAEMON)?).map(Self::SyncDaemon),
            SET_CONFIG => timeouts(attrs).map(Self::Timeouts),
            SET_INFO => info(attrs).map(Self::Info),
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
            ATTR_TCP => &mut timeouts.tcp,
            ATTR_TCP_FIN => &mut timeouts.tcp_fin,
            ATTR_UDP => &mut timeouts.udp,
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
            INFO_VERSION => {
                let [_, version @ ..] = attr.u32()?.to_be_bytes();
                info.version = version;
            }
            INFO_TABLE_SIZE => info.table_size = attr.u32()?,
            _ => {}
        }
    }
    Ok(info)
}
