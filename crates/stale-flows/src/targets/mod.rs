//! Flows that a change may have made stale, and the dumps that find them.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use vipline_conntrack::{Filter, Flow, Protocol, Status, TupleFilter};
use vipline_service_model::Family;

use crate::served::Frontend;

/// Maximum number of filtered dumps in place of one dump of a protocol.
const MAX_FILTERED: usize = 4;

/// Number of tracked flows from which another filtered dump is cheaper than one dump of
/// all flows.
///
/// The kernel walks its whole table in each dump, which takes 19 ns per bucket and 0.16
/// to 0.3 µs per flow. Each returned flow takes another 1 µs, nearly all of it in the
/// kernel. On Linux 6.18 with 262,144 buckets and UDP flows only, one dump of all flows
/// costs as much processor time as this number of filtered dumps:
///
/// | Flows | Filtered dump | Dump of all | Filtered dumps |
/// |---|---|---|---|
/// | 3,000 | 4.7 ms | 7.3 ms | 1.6 |
/// | 10,000 | 5.6 ms | 14 ms | 2.5 |
/// | 30,000 | 9.1 ms | 39 ms | 4.3 |
/// | 100,000 | 21 ms | 120 ms | 5.7 |
/// | 250,000 | 47 ms | 298 ms | 6.3 |
/// | 1,000,000 | 317 ms | 1,250 ms | 3.9 |
///
/// The limits are lower in most rows, because not all flows are UDP flows.
const FLOWS_PER_FILTERED: usize = 5_000;

/// Flows of one family that may be stale.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Targets {
    /// Whether all flows may be stale.
    pub(crate) all: bool,
    /// Frontends with flows that may be stale.
    pub(crate) frontends: HashSet<Frontend>,
    /// Servers that left a frontend.
    pub(crate) servers: HashSet<Server>,
}

/// Address of an endpoint.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Server {
    protocol: Protocol,
    address: IpAddr,
    port: u16,
}

impl Server {
    pub(crate) fn new(protocol: Protocol, address: IpAddr, port: u16) -> Self {
        Self {
            protocol,
            address,
            port,
        }
    }
}

/// A part of the tuples that the kernel compares in a dump.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Place {
    To(Part),
    From(Part),
}

/// An address, or a port of any address.
///
/// The kernel does not compare IPv6 addresses.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Part {
    Address(IpAddr),
    Port,
}

impl Place {
    fn of_frontend(frontend: Frontend) -> (Self, Protocol, u16) {
        match frontend {
            Frontend::Address(protocol, address, port) => {
                (Self::To(Part::of(address)), protocol, port)
            }
            Frontend::NodePort(protocol, _, port) => (Self::To(Part::Port), protocol, port),
        }
    }

    fn of_server(server: Server) -> (Self, Protocol, u16) {
        let part = Part::of(server.address);
        (Self::From(part), server.protocol, server.port)
    }

    /// Adds the place to a filter.
    fn select(self, filter: Filter, port: Option<u16>) -> Filter {
        let mut tuple = TupleFilter::new();
        match self {
            Self::To(part) => {
                tuple.destination = part.address().map(Into::into);
                tuple.destination_port = port.map(Into::into);
                filter.with_original(tuple)
            }
            Self::From(part) => {
                tuple.source = part.address().map(Into::into);
                tuple.source_port = port.map(Into::into);
                filter.with_reply(tuple)
            }
        }
    }
}

impl Part {
    fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Address(address),
            IpAddr::V6(_) => Self::Port,
        }
    }

    fn address(self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(address),
            Self::Port => None,
        }
    }
}

/// A dump that returns flows which may be stale.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Dump {
    pub(crate) filter: Filter,
}

impl Dump {
    /// Returns whether this dump is the one that checks a flow.
    ///
    /// A dump of all flows without a reply also returns UDP flows, which have dumps of
    /// their own.
    pub(crate) fn checks(&self, flow: &Flow) -> bool {
        self.filter.protocol.is_some() || flow.original.protocol != Protocol::UDP
    }
}

impl Targets {
    /// Returns all flows.
    pub(crate) fn all() -> Self {
        Self {
            all: true,
            ..Self::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.all && self.frontends.is_empty() && self.servers.is_empty()
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.all |= other.all;
        self.frontends.extend(other.frontends);
        self.servers.extend(other.servers);
    }

    /// Returns the dumps that return all flows which may be stale.
    ///
    /// `served` are the protocols of all frontends. `count` returns the number of tracked
    /// flows. It is called only if the number matters.
    ///
    /// # Errors
    ///
    /// The error of `count`.
    pub(crate) fn dumps<E>(
        &self,
        family: Family,
        served: &HashSet<Protocol>,
        count: impl FnOnce() -> Result<usize, E>,
    ) -> Result<Vec<Dump>, E> {
        let of_family = Filter::new().with_family(family);
        let places = |protocol| self.places(protocol, served);
        let mut dumps = Vec::new();
        if let Some(places) = places(Protocol::UDP) {
            let max = match places.len() {
                0 | 1 => 1,
                _ => (count()? / FLOWS_PER_FILTERED).clamp(1, MAX_FILTERED),
            };
            let filter = of_family.with_protocol(Protocol::UDP);
            push(&mut dumps, filter, &places, max);
        }
        // Few flows have no reply, so one dump returns little more than several.
        let unanswered = of_family.with_status(Status::empty(), Status::SEEN_REPLY);
        match (places(Protocol::TCP), places(Protocol::SCTP)) {
            (None, None) => {}
            (Some(places), None) => {
                push(
                    &mut dumps,
                    unanswered.with_protocol(Protocol::TCP),
                    &places,
                    1,
                );
            }
            (None, Some(places)) => {
                push(
                    &mut dumps,
                    unanswered.with_protocol(Protocol::SCTP),
                    &places,
                    1,
                );
            }
            (Some(_), Some(_)) => dumps.push(Dump { filter: unanswered }),
        }
        Ok(dumps)
    }

    /// Returns the places of the flows of a protocol, with their port if they have only
    /// one. An empty map means all flows. Returns `None` if no flow of the protocol may be
    /// stale.
    fn places(
        &self,
        protocol: Protocol,
        served: &HashSet<Protocol>,
    ) -> Option<BTreeMap<(Place, u16), Option<u16>>> {
        if self.all {
            return served.contains(&protocol).then(BTreeMap::new);
        }
        let frontends = self.frontends.iter().copied().map(Place::of_frontend);
        let servers = self.servers.iter().copied().map(Place::of_server);
        let mut places = BTreeMap::new();
        for (place, of, port) in frontends.chain(servers) {
            if of != protocol {
                continue;
            }
            // Ports of one address share a dump, ports of any address do not.
            let number = match place {
                Place::To(Part::Address(_)) | Place::From(Part::Address(_)) => 0,
                Place::To(Part::Port) | Place::From(Part::Port) => port,
            };
            let known = places.entry((place, number)).or_insert(Some(port));
            *known = known.filter(|known| *known == port);
        }
        (!places.is_empty()).then_some(places)
    }
}

/// Adds a dump for each place, or one dump for all places if there are more than `max`.
fn push(
    dumps: &mut Vec<Dump>,
    filter: Filter,
    places: &BTreeMap<(Place, u16), Option<u16>>,
    max: usize,
) {
    if places.is_empty() || places.len() > max {
        dumps.push(Dump { filter });
        return;
    }
    for ((place, _), port) in places {
        let filter = place.select(filter, *port);
        dumps.push(Dump { filter });
    }
}

#[cfg(test)]
mod tests;
