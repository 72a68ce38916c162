//! The IPVS table and its entries as keyed objects.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use vipline_reconcile::Keyed;

use crate::{RealServer, ServiceKey, VirtualServer};

/// An entry of the IPVS table.
///
/// Exhaustive: IPVS has virtual and real servers.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Object {
    /// A virtual server without its real servers.
    VirtualServer(VirtualServer),
    /// A real server of a service.
    Destination(ServiceKey, RealServer),
}

/// The key of an object.
///
/// Exhaustive: IPVS has virtual and real servers.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Key {
    /// A virtual server: its service.
    VirtualServer(ServiceKey),
    /// A real server: its service, address and port.
    Destination(ServiceKey, SocketAddr),
}

impl Object {
    /// Returns the service of the virtual or real server.
    pub fn service(&self) -> ServiceKey {
        match self {
            Self::VirtualServer(server) => server.service,
            Self::Destination(service, _) => *service,
        }
    }
}

impl Keyed for Object {
    type Key<'a> = Key;

    fn key(&self) -> Key {
        match self {
            Self::VirtualServer(server) => Key::VirtualServer(server.service),
            Self::Destination(service, server) => Key::Destination(*service, server.endpoint()),
        }
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        self == other
    }
}

impl From<VirtualServer> for Object {
    fn from(server: VirtualServer) -> Self {
        Self::VirtualServer(server)
    }
}

/// The IPVS table: virtual servers by service, with their real servers.
///
/// `Display` prints the output of `ipvsadm -Sn`, and the thresholds of real servers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Table {
    servers: BTreeMap<ServiceKey, Entry>,
}

/// A virtual server and its real servers.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Entry {
    server: VirtualServer,
    destinations: BTreeMap<SocketAddr, RealServer>,
}

impl Table {
    /// Adds or replaces a virtual server. A replaced one keeps its real servers.
    pub fn insert(&mut self, server: VirtualServer) {
        let destinations = BTreeMap::new();
        let entry = self.servers.entry(server.service);
        entry
            .or_insert(Entry {
                server,
                destinations,
            })
            .server = server;
    }

    /// Adds or replaces a real server. Returns `false` if the service does not
    /// exist.
    pub fn insert_destination(&mut self, service: &ServiceKey, server: RealServer) -> bool {
        let Some(entry) = self.servers.get_mut(service) else {
            return false;
        };
        entry.destinations.insert(server.endpoint(), server);
        true
    }

    /// Removes a virtual server with its real servers. Returns `false` if it does
    /// not exist.
    pub fn remove(&mut self, service: &ServiceKey) -> bool {
        self.servers.remove(service).is_some()
    }

    /// Removes a real server. Returns `false` if it does not exist.
    pub fn remove_destination(&mut self, service: &ServiceKey, endpoint: &SocketAddr) -> bool {
        let entry = self.servers.get_mut(service);
        entry.is_some_and(|entry| entry.destinations.remove(endpoint).is_some())
    }

    /// Returns the virtual server of a service.
    pub fn server(&self, service: &ServiceKey) -> Option<&VirtualServer> {
        self.servers.get(service).map(|entry| &entry.server)
    }

    /// Returns all virtual servers, in the order of their services.
    pub fn servers(&self) -> impl Iterator<Item = &VirtualServer> {
        self.servers.values().map(|entry| &entry.server)
    }

    /// Returns the real servers of a service.
    pub fn destinations(&self, service: &ServiceKey) -> impl Iterator<Item = &RealServer> {
        let entry = self.servers.get(service);
        entry
            .into_iter()
            .flat_map(|entry| entry.destinations.values())
    }

    /// Returns all entries, each virtual server before its real servers.
    pub fn objects(&self) -> impl Iterator<Item = Object> {
        self.servers.iter().flat_map(|(service, entry)| {
            let destinations = entry.destinations.values();
            let destinations = destinations.map(|real| Object::Destination(*service, *real));
            std::iter::once(entry.server.into()).chain(destinations)
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for object in self.objects() {
            match object {
                Object::VirtualServer(server) => writeln!(f, "-A {server}")?,
                Object::Destination(service, server) => writeln!(f, "-a {service} {server}")?,
            }
        }
        Ok(())
    }
}
