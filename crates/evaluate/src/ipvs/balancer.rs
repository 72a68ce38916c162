//! Lookup of virtual servers, persistence, and the decision about a packet.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use vipline_ipvs::{
    Connections, Destination, Family, RealServer, ServiceKey, Table, Transport, VirtualServer,
};

use super::history::{History, TemplateKey, masked};
use super::scheduling::{self, Available};
use crate::{Cause, Error};

/// Ports of FTP: IPVS knows that control and data connections belong together.
const FTP: u16 = 21;
const FTP_DATA: u16 = 20;
/// First port that needs no capability (`ip_unprivileged_port_start`): data connections of
/// passive FTP use one.
const UNPRIVILEGED: u16 = 1024;

/// The IPVS table, prepared for evaluation.
#[derive(Clone, Debug, Default)]
pub struct Balancer {
    services: BTreeMap<ServiceKey, Service>,
    settings: Settings,
}

/// A virtual server with its real servers.
#[derive(Clone, Debug)]
struct Service {
    server: VirtualServer,
    reals: Vec<Real>,
    /// Whether the real servers are in the order of the kernel.
    is_ordered: bool,
}

/// A real server with its connection counts, if known.
///
/// Exhaustive: a scheduler uses these values.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Real {
    /// Real server.
    pub server: RealServer,
    /// Connection counts. `None`: unknown.
    pub connections: Option<Connections>,
}

/// Parameters in `/proc/sys/net/ipv4/vs`.
///
/// Exhaustive: callers state the parameters of a host.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Settings {
    /// `expire_quiescent_template`: whether a template of a real server of weight 0 is
    /// ignored.
    pub expire_quiescent_template: bool,
    /// `sloppy_tcp`: whether a TCP segment without flag SYN is scheduled.
    pub sloppy_tcp: bool,
}

/// A packet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Packet {
    /// Protocol.
    pub protocol: Transport,
    /// Source.
    pub source: SocketAddr,
    /// Destination.
    pub destination: SocketAddr,
    /// Packet mark, or 0.
    pub mark: u32,
    /// Whether the packet opens a connection: flag SYN of TCP without RST, chunk INIT of
    /// SCTP. Not used for UDP.
    pub opens: bool,
    /// Real server of the connection to which the packet belongs. `None`: no connection.
    pub connection: Option<SocketAddr>,
}

/// The treatment of a packet by IPVS.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Decision<'b> {
    /// IPVS does not handle the packet, which continues on its path.
    Accepted,
    /// No real server is available: the packet is dropped, and the client receives ICMP
    /// "port unreachable".
    Rejected(&'b VirtualServer),
    /// The real server of the connection was removed: the packet is dropped.
    Dropped,
    /// IPVS forwards the packet to a real server.
    Forwarded {
        /// Virtual server.
        service: &'b VirtualServer,
        /// Real servers that can receive the packet.
        servers: Servers<'b>,
        /// Template that exists after the packet, for a persistent virtual server.
        template: Option<TemplateKey>,
    },
}

/// The real servers that can receive a packet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Servers<'b> {
    /// Real servers with the weight of their share. The sum of all weights is the whole.
    Shares(Vec<(Target<'b>, u64)>),
    /// Real servers of which one receives the packet. The state that decides is unknown.
    Possible(Vec<Target<'b>>),
}

/// A real server, and the destination of the packet there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Target<'b> {
    /// Real server.
    pub server: &'b RealServer,
    /// Address of the real server, and the port of the packet there. Masquerading sets it as
    /// the destination.
    pub address: SocketAddr,
}

impl From<RealServer> for Real {
    fn from(server: RealServer) -> Self {
        let connections = None;
        Self {
            server,
            connections,
        }
    }
}

impl From<Destination> for Real {
    fn from(dumped: Destination) -> Self {
        Self {
            server: dumped.server,
            connections: Some(dumped.connections),
        }
    }
}

impl Packet {
    /// Creates a packet without a mark that opens a connection.
    pub fn new(protocol: Transport, source: SocketAddr, destination: SocketAddr) -> Self {
        Self {
            protocol,
            source,
            destination,
            mark: 0,
            opens: true,
            connection: None,
        }
    }

    /// Sets the packet mark.
    #[must_use]
    pub fn with_mark(mut self, mark: u32) -> Self {
        self.mark = mark;
        self
    }

    /// Sets whether the packet opens a connection.
    #[must_use]
    pub fn opening(mut self, opens: bool) -> Self {
        self.opens = opens;
        self
    }

    /// Sets the real server of the connection to which the packet belongs.
    #[must_use]
    pub fn with_connection(mut self, server: SocketAddr) -> Self {
        self.connection = Some(server);
        self
    }
}

impl From<&Table> for Balancer {
    /// Prepares a planned table. Connection counts and the order of real servers are
    /// unknown.
    fn from(table: &Table) -> Self {
        let mut balancer = Self::new();
        for server in table.servers() {
            let reals = table.destinations(&server.service).copied();
            balancer.add(*server, reals.map(Real::from));
        }
        for service in balancer.services.values_mut() {
            service.is_ordered = false;
        }
        balancer
    }
}

impl Balancer {
    /// Creates an empty table with the default settings of the kernel.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the parameters of the host.
    #[must_use]
    pub fn with_settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Adds or replaces a virtual server with its real servers in the order of the kernel,
    /// which [`Client::destinations`](vipline_ipvs::Client::destinations) returns. The real server
    /// that was added last is the first.
    pub fn add(&mut self, server: VirtualServer, reals: impl IntoIterator<Item = Real>) {
        let service = Service {
            server,
            reals: reals.into_iter().collect(),
            is_ordered: true,
        };
        self.services.insert(server.service, service);
    }

    /// Returns the virtual server of a packet: that of its mark, that of its destination,
    /// that of FTP for a data connection, or that of port 0.
    pub fn server(&self, packet: &Packet) -> Option<&VirtualServer> {
        self.find(packet).map(|service| &service.server)
    }

    fn find(&self, packet: &Packet) -> Option<&Service> {
        let (address, port) = (packet.destination.ip(), packet.destination.port());
        let family = Family::of(address);
        let marked = packet.mark.try_into().ok();
        let marked = marked.map(|mark| ServiceKey::Mark { mark, family });
        let at = |port| {
            self.services
                .get(&ServiceKey::new(packet.protocol, address, port))
        };
        let is_data = packet.protocol == Transport::Tcp && (port == FTP || port >= UNPRIVILEGED);
        marked
            .and_then(|key| self.services.get(&key))
            .or_else(|| at(port))
            .or_else(|| at(FTP).filter(|_| is_data))
            .or_else(|| at(0))
    }

    /// Returns what IPVS does with a packet.
    ///
    /// # Errors
    ///
    /// [`Cause::RealServers`] if a real server has thresholds and its connection counts do not
    /// determine whether it is overloaded.
    pub fn decide(&self, packet: &Packet, history: &dyn History) -> Result<Decision<'_>, Error> {
        if let Some(server) = packet.connection {
            return Ok(self.connected(packet, server));
        }
        let needs_opening = packet.protocol != Transport::Udp && !self.settings.sloppy_tcp;
        if packet.source.port() == FTP_DATA || needs_opening && !packet.opens {
            return Ok(Decision::Accepted);
        }
        let Some(service) = self.find(packet) else {
            return Ok(Decision::Accepted);
        };
        let (server, port) = (&service.server, packet.destination.port());
        let own_port = server.service.port();
        let is_marked = matches!(server.service, ServiceKey::Mark { .. });
        if server.persistence.is_none() && !is_marked && port != own_port {
            // Only FTP and port 0 find a service of another port.
            return Ok(match own_port {
                FTP => Decision::Accepted,
                _ => Decision::Rejected(server),
            });
        }
        let template = service.template(packet);
        if let Some(key) = &template {
            match history.template(key) {
                // A template can also refer to a real server that receives no new clients.
                None => return Ok(service.possible(packet, 0..service.reals.len(), template)),
                Some(Some(address)) => {
                    let kept = service
                        .reals
                        .iter()
                        .find(|it| it.server.endpoint() == address);
                    let is_kept = |it: &&Real| {
                        it.server.weight > 0 || !self.settings.expire_quiescent_template
                    };
                    if let Some(kept) = kept.filter(is_kept) {
                        let target = service.target(packet, &kept.server);
                        return Ok(service.forwarded(Servers::Shares(vec![(target, 1)]), template));
                    }
                }
                Some(None) => {}
            }
        }
        let available = service.available()?;
        let shares = scheduling::schedule(server, &available, packet, service.is_ordered);
        Ok(match shares {
            scheduling::Selection::None => Decision::Rejected(server),
            scheduling::Selection::Shares(shares) => {
                let shares = shares.into_iter().filter_map(|(index, weight)| {
                    let real = service.reals.get(index)?;
                    Some((service.target(packet, &real.server), weight))
                });
                service.forwarded(Servers::Shares(shares.collect()), template)
            }
            scheduling::Selection::Possible => {
                let usable = available.iter().filter(|it| it.is_available);
                let indices = usable.map(|it| it.index);
                service.possible(packet, indices, template)
            }
        })
    }

    /// Returns what IPVS does with a packet of a connection.
    fn connected(&self, packet: &Packet, address: SocketAddr) -> Decision<'_> {
        let Some(service) = self.find(packet) else {
            return Decision::Dropped;
        };
        let target = |real: &Real| service.target(packet, &real.server).address == address;
        match service.reals.iter().find(|real| target(real)) {
            Some(real) => {
                let target = service.target(packet, &real.server);
                let template = service.template(packet);
                service.forwarded(Servers::Shares(vec![(target, 1)]), template)
            }
            None => Decision::Dropped,
        }
    }
}

impl Service {
    fn forwarded<'b>(
        &'b self,
        servers: Servers<'b>,
        template: Option<TemplateKey>,
    ) -> Decision<'b> {
        Decision::Forwarded {
            service: &self.server,
            servers,
            template,
        }
    }

    /// Returns the decision of an unknown state: each of some real servers is possible.
    fn possible(
        &self,
        packet: &Packet,
        indices: impl Iterator<Item = usize>,
        template: Option<TemplateKey>,
    ) -> Decision<'_> {
        let reals = indices.filter_map(|index| self.reals.get(index));
        let targets: Vec<Target<'_>> = reals
            .map(|real| self.target(packet, &real.server))
            .collect();
        match targets.is_empty() {
            true => Decision::Rejected(&self.server),
            false => self.forwarded(Servers::Possible(targets), template),
        }
    }

    /// Returns the key of the template of a packet, for a persistent virtual server.
    fn template(&self, packet: &Packet) -> Option<TemplateKey> {
        let persistence = self.server.persistence?;
        let client = masked(packet.source.ip(), persistence.netmask);
        let (own_port, port) = (self.server.service.port(), packet.destination.port());
        let protocol = match packet.protocol {
            Transport::Tcp => 6,
            Transport::Udp => 17,
            Transport::Sctp => 132,
        };
        Some(match self.server.service {
            ServiceKey::Mark { mark, .. } if port != own_port => TemplateKey {
                client,
                protocol: 0,
                address: None,
                mark: mark.get(),
                port: 0,
            },
            _ => TemplateKey {
                client,
                protocol,
                address: Some(packet.destination.ip()),
                mark: 0,
                port: if port == own_port && own_port != FTP {
                    port
                } else {
                    0
                },
            },
        })
    }

    /// Returns the destination of a packet at a real server.
    fn target<'b>(&self, packet: &Packet, server: &'b RealServer) -> Target<'b> {
        let port = packet.destination.port();
        let is_own = self.server.persistence.is_none() || port == self.server.service.port();
        let port = match server.port {
            0 => port,
            own if is_own => own,
            _ => port,
        };
        let address = SocketAddr::new(server.address, port);
        Target { server, address }
    }

    /// Returns the real servers that receive new connections, in order.
    ///
    /// The kernel marks a real server as overloaded at the upper threshold, and removes the
    /// mark below the lower threshold, or below three quarters of the upper one.
    fn available(&self) -> Result<Vec<Available<'_>>, Error> {
        let mut available = Vec::new();
        for (index, real) in self.reals.iter().enumerate() {
            let RealServer {
                weight,
                upper_threshold: upper,
                lower_threshold: lower,
                ..
            } = real.server;
            let unknown = |state| {
                let service = self.server.service;
                Error::from(Cause::RealServers { service, state })
            };
            let is_overloaded = match (upper, real.connections) {
                (0, _) => false,
                (_, None) => return Err(unknown("connections of a real server with thresholds")),
                (_, Some(connections)) => {
                    let count = u64::from(connections.active) + u64::from(connections.inactive);
                    let is_below = match lower {
                        0 => count * 4 < u64::from(upper) * 3,
                        lower => count < u64::from(lower),
                    };
                    match (count >= u64::from(upper), is_below) {
                        (true, _) => true,
                        (false, true) => false,
                        (false, false) => {
                            return Err(unknown("whether a real server is still overloaded"));
                        }
                    }
                }
            };
            available.push(Available {
                index,
                real,
                is_available: weight > 0 && !is_overloaded,
            });
        }
        available.retain(|it| it.is_available || self.needs_all());
        Ok(available)
    }

    /// Returns whether the scheduler's table also has real servers that are not available.
    fn needs_all(&self) -> bool {
        scheduling::is_hash(&self.server.scheduler)
    }
}
