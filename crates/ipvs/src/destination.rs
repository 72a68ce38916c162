//! Real servers, the destinations of a virtual server.

use std::fmt;
use std::iter::Sum;
use std::net::{IpAddr, SocketAddr};
use std::ops::{Add, AddAssign};

use vipline_inet::Family;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attr, Attrs, put_be16, put_u8, put_u16, put_u32};

use crate::service::{decode_address, decode_family, put_address};
use crate::stats::Stats;
use crate::uapi::*;

/// A real server: a destination of a virtual server.
///
/// Address and port identify the real server within its virtual server.
/// `Display` prints the `ipvsadm -Sn` line from `-r` on, with thresholds.
/// `ipvsadm -R` parses thresholds, but `ipvsadm -S` does not print them.
/// Local delivery and unknown methods have no option and are printed as `-g`.
///
/// ```
/// use vipline_ipvs::{Forwarding, RealServer};
///
/// let real = RealServer::new([10, 244, 1, 11].into(), 8080)
///     .with_forwarding(Forwarding::Direct)
///     .with_weight(10);
/// assert_eq!(real.to_string(), "-r 10.244.1.11:8080 -g -w 10");
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct RealServer {
    /// Address. With tunnel forwarding, its family can differ from that of the
    /// service.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
    /// Forwarding method.
    pub forwarding: Forwarding,
    /// Weight, at most 2³¹ - 1; 0 for no new connections.
    pub weight: u32,
    /// Upper connection threshold: number of connections at which the server is
    /// overloaded and receives no new connections; 0 for none.
    pub upper_threshold: u32,
    /// Lower connection threshold, below which an overloaded server receives new
    /// connections again; 0 for 3/4 of the upper threshold. Must not exceed the upper
    /// threshold.
    pub lower_threshold: u32,
}

impl RealServer {
    /// Creates a real server with weight 1 and masquerading.
    pub fn new(address: IpAddr, port: u16) -> Self {
        Self {
            address,
            port,
            forwarding: Forwarding::Masquerade,
            weight: 1,
            upper_threshold: 0,
            lower_threshold: 0,
        }
    }

    /// Sets the forwarding method.
    #[must_use]
    pub fn with_forwarding(mut self, forwarding: Forwarding) -> Self {
        self.forwarding = forwarding;
        self
    }

    /// Sets the weight, at most 2³¹ - 1; 0 for no new connections.
    #[must_use]
    pub fn with_weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Sets the number of connections at which the server is overloaded; 0 for none.
    #[must_use]
    pub fn with_upper_threshold(mut self, connections: u32) -> Self {
        self.upper_threshold = connections;
        self
    }

    /// Sets the number of connections below which an overloaded server receives new
    /// connections again; 0 for 3/4 of the upper threshold, which it must not exceed.
    #[must_use]
    pub fn with_lower_threshold(mut self, connections: u32) -> Self {
        self.lower_threshold = connections;
        self
    }

    /// Returns address and port, the key within the virtual server.
    pub fn endpoint(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }

    /// Appends the attributes that identify a real server.
    pub(crate) fn encode_endpoint(endpoint: SocketAddr, out: &mut Vec<u8>) {
        put_u16(
            out,
            IPVS_DEST_ATTR_ADDR_FAMILY,
            Family::of(endpoint.ip()).number().into(),
        );
        put_address(out, IPVS_DEST_ATTR_ADDR, endpoint.ip());
        put_be16(out, IPVS_DEST_ATTR_PORT, endpoint.port());
    }

    /// Appends all attributes in the order of `ipvsadm`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        Self::encode_endpoint(self.endpoint(), out);
        put_u32(out, IPVS_DEST_ATTR_FWD_METHOD, self.forwarding.method());
        put_u32(out, IPVS_DEST_ATTR_WEIGHT, self.weight);
        let tunnel = match self.forwarding {
            Forwarding::Tunnel(tunnel) => tunnel,
            _ => Tunnel::Ipip,
        };
        put_u8(out, IPVS_DEST_ATTR_TUN_TYPE, tunnel.number());
        put_be16(out, IPVS_DEST_ATTR_TUN_PORT, tunnel.port());
        put_u16(out, IPVS_DEST_ATTR_TUN_FLAGS, tunnel.checksum().number());
        put_u32(out, IPVS_DEST_ATTR_U_THRESH, self.upper_threshold);
        put_u32(out, IPVS_DEST_ATTR_L_THRESH, self.lower_threshold);
    }

    /// Decodes the attributes of a real server; `family` is the default address
    /// family.
    pub(crate) fn decode(family: Family, attrs: Attrs<'_>) -> Result<Destination, DecodeError> {
        let (mut family, mut address) = (family, None);
        let mut tunnel = (0, 0, 0);
        let (mut method, mut port, mut weight) = (0, 0, 0);
        let (mut upper_threshold, mut lower_threshold) = (0, 0);
        let (mut connections, mut stats_64) = (Connections::default(), None);
        let mut stats = Stats::default();
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                IPVS_DEST_ATTR_ADDR => address = Some(attr),
                IPVS_DEST_ATTR_PORT => port = attr.be16()?,
                IPVS_DEST_ATTR_FWD_METHOD => method = attr.u32()? & IP_VS_CONN_F_FWD_MASK,
                IPVS_DEST_ATTR_WEIGHT => weight = attr.u32()?,
                IPVS_DEST_ATTR_U_THRESH => upper_threshold = attr.u32()?,
                IPVS_DEST_ATTR_L_THRESH => lower_threshold = attr.u32()?,
                IPVS_DEST_ATTR_ACTIVE_CONNS => connections.active = attr.u32()?,
                IPVS_DEST_ATTR_INACT_CONNS => connections.inactive = attr.u32()?,
                IPVS_DEST_ATTR_PERSIST_CONNS => connections.persistent = attr.u32()?,
                IPVS_DEST_ATTR_STATS => stats = Stats::decode(attr.attrs())?,
                IPVS_DEST_ATTR_ADDR_FAMILY => family = decode_family(&attr)?,
                IPVS_DEST_ATTR_STATS64 => stats_64 = Some(Stats::decode(attr.attrs())?),
                IPVS_DEST_ATTR_TUN_TYPE => tunnel.0 = attr.u8()?,
                IPVS_DEST_ATTR_TUN_PORT => tunnel.1 = attr.be16()?,
                IPVS_DEST_ATTR_TUN_FLAGS => tunnel.2 = attr.u16()?,
                _ => {}
            }
        }
        let address: Attr<'_> =
            address.ok_or_else(|| DecodeError::new("real server", IPVS_DEST_ATTR_ADDR, 0))?;
        let server = Self {
            address: decode_address(family, &address)?,
            port,
            forwarding: Forwarding::of(method, tunnel),
            weight,
            upper_threshold,
            lower_threshold,
        };
        Ok(Destination {
            server,
            connections,
            stats: stats_64.unwrap_or(stats),
        })
    }
}

/// A dumped real server with its connection counts and statistics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Destination {
    /// The real server.
    pub server: RealServer,
    /// Connection counts.
    pub connections: Connections,
    /// Statistics.
    pub stats: Stats,
}

impl Destination {
    /// Creates a real server without connections and statistics, for tests of programs that
    /// read dumps.
    pub fn new(server: RealServer) -> Self {
        Self {
            server,
            connections: Connections::default(),
            stats: Stats::default(),
        }
    }

    /// Sets the connection counts.
    #[must_use]
    pub fn with_connections(mut self, connections: Connections) -> Self {
        self.connections = connections;
        self
    }

    /// Sets the statistics.
    #[must_use]
    pub fn with_stats(mut self, stats: Stats) -> Self {
        self.stats = stats;
        self
    }
}

/// Connection counts of a real server.
///
/// Exhaustive: a real server counts three kinds of connections.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Connections {
    /// Established connections.
    pub active: u32,
    /// Connections in all other states, and UDP connections.
    pub inactive: u32,
    /// Persistent connection templates.
    pub persistent: u32,
}

/// Saturates: a sum is at most `u32::MAX`.
impl Add for Connections {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for Connections {
    fn add_assign(&mut self, other: Self) {
        self.active = self.active.saturating_add(other.active);
        self.inactive = self.inactive.saturating_add(other.inactive);
        self.persistent = self.persistent.saturating_add(other.persistent);
    }
}

/// Counts the connections of several real servers, such as those of a virtual server.
///
/// ```
/// use vipline_ipvs::{Connections, Destination, RealServer};
///
/// let one = Connections { active: 3, inactive: 1, persistent: 0 };
/// let dumped = [1, 2].map(|last| {
///     Destination::new(RealServer::new([10, 244, 1, last].into(), 8080)).with_connections(one)
/// });
/// let total: Connections = dumped.iter().map(|it| it.connections).sum();
/// assert_eq!((total.active, total.inactive), (6, 2));
/// ```
impl Sum for Connections {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Add::add)
    }
}

/// Forwarding method: `IP_VS_CONN_F_*` of `linux/ip_vs.h`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Forwarding {
    /// Masquerading (`IP_VS_CONN_F_MASQ`): NAT of the destination, and of the source of replies.
    Masquerade,
    /// Local delivery to this host (`IP_VS_CONN_F_LOCALNODE`).
    Local,
    /// Tunneling (`IP_VS_CONN_F_TUNNEL`): packets are encapsulated.
    Tunnel(Tunnel),
    /// Direct routing (`IP_VS_CONN_F_DROUTE`): packets are sent unchanged to the
    /// link-layer address of the real server.
    Direct,
    /// An unknown method, by its number: 4 to 7.
    Other(u8),
}

impl Forwarding {
    /// Returns the number of the method: `IP_VS_CONN_F_*` of `linux/ip_vs.h`.
    pub fn method(self) -> u32 {
        match self {
            Self::Masquerade => IP_VS_CONN_F_MASQ,
            Self::Local => IP_VS_CONN_F_LOCALNODE,
            Self::Tunnel(_) => IP_VS_CONN_F_TUNNEL,
            Self::Direct => IP_VS_CONN_F_DROUTE,
            Self::Other(number) => u32::from(number) & IP_VS_CONN_F_FWD_MASK,
        }
    }

    /// Converts a method number, and type, port and flags of a tunnel.
    fn of(method: u32, tunnel: (u8, u16, u16)) -> Self {
        match method {
            IP_VS_CONN_F_MASQ => Self::Masquerade,
            IP_VS_CONN_F_LOCALNODE => Self::Local,
            IP_VS_CONN_F_TUNNEL => Self::Tunnel(Tunnel::of(tunnel)),
            IP_VS_CONN_F_DROUTE => Self::Direct,
            other => Self::Other(other.to_le_bytes()[0]),
        }
    }
}

/// Tunnel encapsulation: `IP_VS_CONN_F_TUNNEL_TYPE_*`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Tunnel {
    /// IP in IP (`IP_VS_CONN_F_TUNNEL_TYPE_IPIP`).
    Ipip,
    /// Generic UDP encapsulation (`IP_VS_CONN_F_TUNNEL_TYPE_GUE`).
    Gue {
        /// UDP destination port.
        port: u16,
        /// Checksum of the encapsulation.
        checksum: Checksum,
    },
    /// Generic routing encapsulation (`IP_VS_CONN_F_TUNNEL_TYPE_GRE`).
    Gre {
        /// Checksum of the encapsulation.
        checksum: Checksum,
    },
    /// An unknown encapsulation.
    Other {
        /// Type number.
        number: u8,
        /// Port.
        port: u16,
        /// Flags.
        flags: u16,
    },
}

/// Checksum of tunnel packets: `IP_VS_TUNNEL_ENCAP_FLAG_*`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Checksum {
    /// No checksum (`IP_VS_TUNNEL_ENCAP_FLAG_NOCSUM`).
    #[default]
    None,
    /// Full checksum (`IP_VS_TUNNEL_ENCAP_FLAG_CSUM`).
    Full,
    /// Remote checksum offload, GUE only (`IP_VS_TUNNEL_ENCAP_FLAG_REMCSUM`).
    Remote,
    /// Unknown flags.
    Other(u16),
}

impl Checksum {
    fn number(self) -> u16 {
        match self {
            Self::None => IP_VS_TUNNEL_ENCAP_FLAG_NOCSUM,
            Self::Full => IP_VS_TUNNEL_ENCAP_FLAG_CSUM,
            Self::Remote => IP_VS_TUNNEL_ENCAP_FLAG_REMCSUM,
            Self::Other(flags) => flags,
        }
    }

    fn of(flags: u16) -> Self {
        match flags {
            IP_VS_TUNNEL_ENCAP_FLAG_NOCSUM => Self::None,
            IP_VS_TUNNEL_ENCAP_FLAG_CSUM => Self::Full,
            IP_VS_TUNNEL_ENCAP_FLAG_REMCSUM => Self::Remote,
            flags => Self::Other(flags),
        }
    }
}

impl Tunnel {
    fn of((number, port, flags): (u8, u16, u16)) -> Self {
        let checksum = Checksum::of(flags);
        match number {
            IP_VS_CONN_F_TUNNEL_TYPE_IPIP => Self::Ipip,
            IP_VS_CONN_F_TUNNEL_TYPE_GUE => Self::Gue { port, checksum },
            IP_VS_CONN_F_TUNNEL_TYPE_GRE => Self::Gre { checksum },
            _ => Self::Other {
                number,
                port,
                flags,
            },
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Ipip => IP_VS_CONN_F_TUNNEL_TYPE_IPIP,
            Self::Gue { .. } => IP_VS_CONN_F_TUNNEL_TYPE_GUE,
            Self::Gre { .. } => IP_VS_CONN_F_TUNNEL_TYPE_GRE,
            Self::Other { number, .. } => number,
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Gue { port, .. } | Self::Other { port, .. } => port,
            Self::Ipip | Self::Gre { .. } => 0,
        }
    }

    fn checksum(self) -> Checksum {
        match self {
            Self::Ipip => Checksum::None,
            Self::Gue { checksum, .. } | Self::Gre { checksum } => checksum,
            Self::Other { flags, .. } => Checksum::Other(flags),
        }
    }
}

impl fmt::Display for RealServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = match self.forwarding {
            Forwarding::Masquerade => "-m",
            Forwarding::Tunnel(_) => "-i",
            Forwarding::Local | Forwarding::Direct | Forwarding::Other(_) => "-g",
        };
        write!(f, "-r {} {option} -w {}", self.endpoint(), self.weight)?;
        if let Forwarding::Tunnel(tunnel) = self.forwarding {
            write!(f, "{tunnel}")?;
        }
        if self.upper_threshold != 0 {
            write!(f, " -x {}", self.upper_threshold)?;
        }
        if self.lower_threshold != 0 {
            write!(f, " -y {}", self.lower_threshold)?;
        }
        Ok(())
    }
}

/// The `ipvsadm` options, each with a leading space.
impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipip => f.write_str(" --tun-type ipip"),
            Self::Gue { port, checksum } => {
                write!(f, " --tun-type gue --tun-port {port}{checksum}")
            }
            Self::Gre { checksum } => write!(f, " --tun-type gre{checksum}"),
            Self::Other { number, .. } => write!(f, " --tun-type {number}"),
        }
    }
}

/// The `ipvsadm` option with a leading space.
impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str(" --tun-nocsum"),
            Self::Full => f.write_str(" --tun-csum"),
            Self::Remote => f.write_str(" --tun-remcsum"),
            Self::Other(_) => Ok(()),
        }
    }
}
