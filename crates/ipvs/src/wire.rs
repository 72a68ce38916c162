//! Messages of IPVS: what is asked, and what the kernel says.
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

/// `IPVS_GENL_NAME`: by which the family is found.
pub const FAMILY: &str = "IPVS";
/// `IPVS_GENL_VERSION`: the version of the messages.
pub(crate) const VERSION: u8 = 1;

/// `IPVS_CMD_ATTR_SERVICE`: a virtual server.
pub(crate) const ATTR_SERVICE: u16 = 1;
/// `IPVS_CMD_ATTR_DEST`: a real server.
pub(crate) const ATTR_DESTINATION: u16 = 2;
/// `IPVS_CMD_ATTR_DAEMON` and those that follow it.
const ATTR_DAEMON: u16 = 3;
const ATTR_TCP: u16 = 4;
const ATTR_TCP_FIN: u16 = 5;
const ATTR_UDP: u16 = 6;

/// `IPVS_INFO_ATTR_VERSION` and the one that follows it.
const INFO_VERSION: u16 = 1;
const INFO_TABLE_SIZE: u16 = 2;

/// `IPVS_CMD_NEW_SERVICE` and others: what the kernel answers with.
const NEW_SERVICE: u8 = 1;
const NEW_DEST: u8 = 5;
const NEW_DAEMON: u8 = 9;
const SET_CONFIG: u8 = 12;
const SET_INFO: u8 = 14;

/// How long connections are kept without packets, in whole seconds.
///
/// To set zero is to leave a timeout as it is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Timeouts {
    /// Established connections of TCP.
    pub tcp: Duration,
    /// Connections of TCP that one end has closed.
    pub tcp_fin: Duration,
    /// Connections of UDP.
    pub udp: Duration,
}

/// What the kernel says of its IPVS.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Info {
    /// The version: three numbers.
    pub version: [u8; 3],
    /// How many buckets the table of connections has.
    pub table_size: u32,
}

/// A question to the kernel, or a request that is about no single server.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Request<'a> {
    /// All virtual servers.
    Servers,
    /// The virtual server of a service.
    Server(&'a ServiceKey),
    /// The real servers of a service.
    Destinations(&'a ServiceKey),
    /// The sync daemons.
    Daemons,
    /// A sync daemon is to start.
    StartDaemon(&'a SyncDaemon),
    /// A sync daemon is to stop.
    StopDaemon(Role),
    /// The timeouts.
    Timeouts,
    /// The timeouts are to be others.
    SetTimeouts(&'a Timeouts),
    /// What the kernel says of its IPVS.
    Info,
    /// All statistics are to begin at zero, or those of a service.
    Zero(Option<&'a ServiceKey>),
    /// All servers are to go.
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

/// Returns the seconds of a duration, as many as the kernel has room for.
fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

/// What the kernel says in one message.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Answer {
    /// A virtual server, and what passed through it.
    Server(VirtualServer, Stats),
    /// A real server, and what it is doing.
    Destination(Destination),
    /// A sync daemon.
    SyncDaemon(SyncDaemon),
    /// The timeouts.
    Timeouts(Timeouts),
    /// What the kernel says of its IPVS.
    Info(Info),
    /// Something that we do not know.
    Other,
}

impl Answer {
    /// Reads the payload of a message of the kernel.
    ///
    /// Old kernels do not tell the `family` of real servers, which is then that
    /// of their service.
    ///
    /// # Errors
    ///
    /// Attributes that are missing or make no sense; others are skipped.
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

/// Finds what is nested in the attribute of this type.
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
