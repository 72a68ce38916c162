//! Flows that a change may have made stale, and the dumps that find them.
//!
//! A dump of a million flows takes more than a second, most of it to return flows that the change
//! does not concern. The kernel can compare parts of a flow by itself and return only those
//! that match. So a change records its targets, which are frontends and servers, and this file
//! turns them into the fewest and narrowest dumps.
//!
//! For example, a flow of a client to the DNS Service:
//!
//! ```text
//! original   10.244.2.9:40000 -> 10.96.0.10:53       its destination is the frontend   Place::To
//! reply      10.244.1.11:5353 -> 10.244.2.9:40000    its source is the server          Place::From
//! ```
//!
//! If 10.244.1.11:5353 leaves the Service, one dump returns the UDP flows whose reply comes from
//! there, and no flow to another endpoint. If the Service is removed, it is the UDP flows to
//! 10.96.0.10:53, whatever endpoint they have. Of ten servers at once the dump is that of all UDP
//! flows: ten walks through the table would take longer.
//!
//! What must stay true: the dumps return *every* flow that may be stale, and may return others,
//! because [`Served::is_stale`](crate::served::Served::is_stale) looks at each. A filter that is
//! too narrow leaves a client without answers; one that is too wide costs time. A flow that two
//! dumps return is deleted twice, which is harmless: the second time it has ended already.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use vipline_conntrack::{Filter, Flow, Protocol, Status, TupleFilter};
use vipline_service_model::Family;

use crate::served::Frontend;

/// Maximum number of filtered dumps in place of one dump of a protocol. More would take longer than
/// that dump if there are a million flows, see the last row at [`FLOWS_PER_FILTERED`].
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
    /// Whether all flows may be stale. Then the other two say nothing more.
    pub(crate) all: bool,
    /// Frontends with flows that may be stale, to whatever server.
    pub(crate) frontends: HashSet<Frontend>,
    /// Servers that left a frontend. Their flows to other frontends are found as well, and stay if
    /// they serve there.
    pub(crate) servers: HashSet<Server>,
}

/// An endpoint as conntrack sees it: the source of the replies.
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

/// A part of the tuples that the kernel compares in a dump: where the original packets go `To`, or
/// where the replies come `From`. See the top of the file.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Place {
    To(Part),
    From(Part),
}

/// An address, or a port of any address.
///
/// The second is for node ports, and for IPv6: the kernel compares IPv6 addresses the wrong way
/// round (README of vipline-conntrack), so the client leaves them out of a filter. With the port
/// alone, a hundred pods of one port are one dump.
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
    /// A dump of all flows without a reply, which is that of TCP and SCTP together, also returns
    /// UDP flows. They have dumps of their own, and would be compared twice.
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
                // One dump in any case, so the kernel need not be asked for the number.
                0 | 1 => 1,
                _ => (count()? / FLOWS_PER_FILTERED).clamp(1, MAX_FILTERED),
            };
            let filter = of_family.with_protocol(Protocol::UDP);
            push(&mut dumps, filter, &places, max);
        }
        // Of TCP and SCTP only flows without a reply are stale: `is_stale` lets connections drain.
        // They are few, so one dump returns little more than several.
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
            // Without their places: a dump for each protocol would walk the table twice.
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
            // A protocol that no Service has costs no dump.
            return served.contains(&protocol).then(BTreeMap::new);
        }
        let frontends = self.frontends.iter().copied().map(Place::of_frontend);
        let servers = self.servers.iter().copied().map(Place::of_server);
        let mut places = BTreeMap::new();
        for (place, of, port) in frontends.chain(servers) {
            if of != protocol {
                continue;
            }
            // Ports of one address share a dump, which returns its flows of all ports. Ports of any
            // address do not: without them the dump would be that of all flows.
            let number = match place {
                Place::To(Part::Address(_)) | Place::From(Part::Address(_)) => 0,
                Place::To(Part::Port) | Place::From(Part::Port) => port,
            };
            // As long as an address has one port, the filter has it. A second one makes it `None`,
            // and a third one leaves it so.
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
