//! Virtual servers.

use std::fmt;
use std::net::Ipv4Addr;

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs, put, put_str, put_u32};

use crate::service::Parts;
use crate::stats::Stats;
use crate::uapi::*;
use crate::{Family, Flags, InvalidName, IpvsName, Scheduler, ServiceKey};

/// A virtual server without its real servers.
///
/// `Display` prints the `ipvsadm -Sn` line from the service on.
///
/// ```
/// use vipline_ipvs::{Family, Flags, Persistence, Scheduler, ServiceKey, Transport, VirtualServer};
///
/// let service = ServiceKey::new(Transport::Tcp, [10, 96, 0, 10].into(), 80);
/// let server = VirtualServer::new(service, Scheduler::SourceHash)
///     .with_flags(Flags::SH_PORT)
///     .with_persistence(Persistence::per_client(Family::V4, 600));
/// assert_eq!(
///     server.to_string(),
///     "-t 10.96.0.10:80 -s sh -p 600 -b sh-port"
/// );
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct VirtualServer {
    /// The service that identifies the virtual server.
    pub service: ServiceKey,
    /// Scheduler.
    pub scheduler: Scheduler,
    /// Flags, including scheduler flags.
    pub flags: Flags,
    /// Persistence; `None` if the server is not persistent.
    pub persistence: Option<Persistence>,
    /// Persistence engine; `None` to identify clients by address.
    pub persistence_engine: Option<PersistenceEngine>,
}

impl VirtualServer {
    /// Creates a virtual server without flags and persistence.
    pub fn new(service: ServiceKey, scheduler: Scheduler) -> Self {
        Self {
            service,
            scheduler,
            flags: Flags::empty(),
            persistence: None,
            persistence_engine: None,
        }
    }

    /// Adds flags.
    #[must_use]
    pub fn with_flags(mut self, flags: Flags) -> Self {
        self.flags |= flags;
        self
    }

    /// Makes the server persistent.
    #[must_use]
    pub fn with_persistence(mut self, persistence: Persistence) -> Self {
        self.persistence = Some(persistence);
        self
    }

    /// Sets the persistence engine, which identifies clients by other data than their address.
    #[must_use]
    pub fn with_persistence_engine(mut self, engine: PersistenceEngine) -> Self {
        self.persistence_engine = Some(engine);
        self
    }

    /// Appends all attributes in the order of `ipvsadm`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.service.encode(out);
        put_str(out, IPVS_SVC_ATTR_SCHED_NAME, self.scheduler.as_str());
        if let Some(engine) = &self.persistence_engine {
            put_str(out, IPVS_SVC_ATTR_PE_NAME, engine.as_str());
        }
        let persistent = match self.persistence {
            None => 0,
            Some(_) => IP_VS_SVC_F_PERSISTENT,
        };
        let flags = self.flags.bits() | persistent;
        let mut pair = [0xff; 8];
        pair[..4].copy_from_slice(&flags.to_ne_bytes());
        put(out, IPVS_SVC_ATTR_FLAGS, &pair);
        let family = self.service.family();
        let persistence = self
            .persistence
            .unwrap_or_else(|| Persistence::per_client(family, 0));
        put_u32(out, IPVS_SVC_ATTR_TIMEOUT, persistence.timeout);
        put(out, IPVS_SVC_ATTR_NETMASK, &persistence.netmask.bytes());
    }

    /// Decodes the attributes of a virtual server.
    pub(crate) fn decode(attrs: Attrs<'_>) -> Result<(Self, Stats), DecodeError> {
        let mut parts = Parts::default();
        let mut scheduler = None;
        let (mut flags, mut timeout, mut netmask, mut engine) = (0, 0, None, None);
        let (mut stats, mut stats_64) = (Stats::default(), None);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                IPVS_SVC_ATTR_SCHED_NAME => {
                    let name = Scheduler::new(attr.str()?);
                    scheduler = Some(name.map_err(|_| attr.error("name of a scheduler"))?);
                }
                IPVS_SVC_ATTR_FLAGS => flags = first_u32(&attr)?,
                IPVS_SVC_ATTR_TIMEOUT => timeout = attr.u32()?,
                IPVS_SVC_ATTR_NETMASK => netmask = Some(attr),
                IPVS_SVC_ATTR_STATS => stats = Stats::decode(attr.attrs())?,
                IPVS_SVC_ATTR_PE_NAME => engine = PersistenceEngine::decode(&attr)?,
                IPVS_SVC_ATTR_STATS64 => stats_64 = Some(Stats::decode(attr.attrs())?),
                _ => parts.take(attr),
            }
        }
        let service = parts.service()?;
        let persistence = match flags & IP_VS_SVC_F_PERSISTENT {
            0 => None,
            _ => Some(Persistence {
                timeout,
                netmask: match netmask {
                    None => Netmask::host(service.family()),
                    Some(attr) => Netmask::decode(service.family(), &attr)?,
                },
            }),
        };
        let server = Self {
            service,
            scheduler: scheduler
                .ok_or_else(|| DecodeError::new("scheduler", IPVS_SVC_ATTR_SCHED_NAME, 0))?,
            flags: Flags::from_bits_retain(flags & !(IP_VS_SVC_F_PERSISTENT | IP_VS_SVC_F_HASHED)),
            persistence,
            persistence_engine: engine,
        };
        Ok((server, stats_64.unwrap_or(stats)))
    }
}

/// Decodes the flags of `struct ip_vs_flags`; a mask follows them.
fn first_u32(attr: &Attr<'_>) -> Result<u32, DecodeError> {
    let flags = attr.value.first_chunk();
    flags
        .map(|flags| u32::from_ne_bytes(*flags))
        .ok_or_else(|| attr.error("pair of flags and mask"))
}

/// Persistence of a virtual server: connections of a client go to the same real
/// server.
///
/// Exhaustive: these are the attributes of the kernel.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Persistence {
    /// Timeout after the last connection, in seconds.
    pub timeout: u32,
    /// Netmask: clients with the same masked address count as one client.
    pub netmask: Netmask,
}

impl Persistence {
    /// Default timeout of `ipvsadm`, in seconds.
    pub const TIMEOUT: u32 = 360;

    /// Creates a persistence with a full-length netmask and a timeout in seconds.
    pub fn per_client(family: Family, timeout: u32) -> Self {
        Self {
            timeout,
            netmask: Netmask::host(family),
        }
    }
}

/// Mask that is applied to client addresses.
///
/// Exhaustive: there are two IP families.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Netmask {
    /// IPv4 netmask.
    V4(Ipv4Addr),
    /// IPv6 prefix length, 1 to 128.
    V6(u8),
}

impl Netmask {
    /// Returns the mask of full length.
    pub fn host(family: Family) -> Self {
        match family {
            Family::V4 => Self::V4(Ipv4Addr::BROADCAST),
            Family::V6 => Self::V6(128),
        }
    }

    fn bytes(self) -> [u8; 4] {
        match self {
            Self::V4(mask) => mask.octets(),
            Self::V6(bits) => u32::from(bits).to_ne_bytes(),
        }
    }

    fn decode(family: Family, attr: &Attr<'_>) -> Result<Self, DecodeError> {
        match family {
            Family::V4 => Ok(Self::V4(Ipv4Addr::from_bits(attr.be32()?))),
            Family::V6 => {
                let bits = u8::try_from(attr.u32()?);
                bits.map(Self::V6)
                    .map_err(|_| attr.error("netmask of IPv6"))
            }
        }
    }
}

/// A persistence engine, which identifies the connections of one client.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum PersistenceEngine {
    /// `sip`: the Call-ID of SIP over UDP.
    Sip,
    /// An unknown engine.
    Other(IpvsName),
}

impl PersistenceEngine {
    /// Returns the engine with this name. An unknown name becomes [`Self::Other`].
    ///
    /// # Errors
    ///
    /// [`InvalidName`] if no engine can have the name.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        match name {
            "sip" => Ok(Self::Sip),
            name => IpvsName::new(name).map(Self::Other),
        }
    }

    /// Returns the kernel's name of the engine.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Sip => "sip",
            Self::Other(name) => name.as_str(),
        }
    }

    /// Decodes the name; an empty name is no engine.
    fn decode(attr: &Attr<'_>) -> Result<Option<Self>, DecodeError> {
        match attr.str()? {
            "" => Ok(None),
            name => Self::new(name)
                .map(Some)
                .map_err(|_| attr.error("name of a persistence engine")),
        }
    }
}

impl fmt::Display for VirtualServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -s {}", self.service, self.scheduler)?;
        if let Some(Persistence { timeout, netmask }) = self.persistence {
            write!(f, " -p {timeout}")?;
            if netmask != Netmask::host(self.service.family()) {
                write!(f, " -M {netmask}")?;
            }
        }
        if let Some(engine) = &self.persistence_engine {
            write!(f, " --pe {}", engine.as_str())?;
        }
        if self.flags.contains(Flags::ONE_PACKET) {
            f.write_str(" -o")?;
        }
        let flags = Flags::of_scheduler(&self.scheduler).iter();
        let mut separator = " -b ";
        for (_, name) in flags.filter(|(flag, _)| self.flags.contains(*flag)) {
            write!(f, "{separator}{name}")?;
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Display for Netmask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(mask) => write!(f, "{mask}"),
            Self::V6(bits) => write!(f, "{bits}"),
        }
    }
}
