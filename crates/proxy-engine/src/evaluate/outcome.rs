//! Results of an evaluation in terms of a proxy.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use vipline_evaluate::{
    self as evaluate, Connection, Discard, Disposition, Event, ListUpdate, Loss, Packet,
    Probability, Route, SetUpdate, Trace,
};

/// One of the possible outcomes for a packet.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// Probability.
    pub probability: Probability,
    /// End of the path of the packet.
    pub verdict: Verdict,
    /// Whether the source was translated.
    pub is_masqueraded: bool,
    /// The packet at the end of its path.
    pub packet: Packet,
    /// Rules and elements that decided.
    pub trace: Trace,
    /// Updates of sets by rules, such as the endpoint of a client with session affinity.
    pub updates: Vec<SetUpdate>,
    /// Updates of IP sets and lists of `recent` by rules of iptables, and persistence
    /// templates of IPVS.
    pub lists: Vec<ListUpdate>,
    /// The entry of connection tracking after the packet. `None`: the packet is not tracked, or
    /// the kernel discards a new entry.
    pub connection: Option<Connection>,
}

/// What ended the path of a packet besides rules.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Obstacle {
    /// The node has no route to this address.
    NoRoute(IpAddr),
    /// The route to the address discards packets.
    Discard {
        /// Address.
        to: IpAddr,
        /// Type of the route.
        kind: Discard,
        /// Destination of the route.
        network: IpNet,
    },
    /// The node loses the packet.
    Loss(Loss),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoute(to) => write!(f, "this node has no route to {to}"),
            Self::Discard { to, kind, network } => {
                write!(f, "the route of this node to {to} is {kind} {network}")
            }
            Self::Loss(loss) => write!(f, "{loss}"),
        }
    }
}

/// The end of the path of a packet.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Verdict {
    /// The destination was translated, and the packet leads to this endpoint.
    Endpoint(SocketAddr),
    /// The destination was not translated, and the packet leaves the node.
    Forwarded,
    /// The destination was not translated, and a process of the node gets the packet if it
    /// listens.
    Delivered,
    /// The packet is rejected: the client gets an error at once.
    Refused,
    /// The packet is dropped.
    Dropped,
    /// The node has no route to this destination.
    Unroutable(SocketAddr),
    /// Another program decides: a rule queues or redirects the packet.
    Undecided,
}

impl Outcome {
    pub(super) fn new(packet: &Packet, outcome: evaluate::Outcome) -> Self {
        let source = |it: &Packet| (it.source(), it.source_port());
        let verdict = verdict(packet, &outcome);
        Self {
            probability: outcome.probability,
            verdict,
            is_masqueraded: source(packet) != source(&outcome.packet),
            packet: outcome.packet,
            trace: outcome.trace,
            updates: outcome.updates,
            lists: outcome.lists,
            connection: outcome.connection,
        }
    }

    /// Returns what ended the path of the packet, if that was no rule.
    pub fn obstacle(&self) -> Option<Obstacle> {
        let to = self.packet.destination();
        match self.trace.events().last()? {
            Event::Lost(loss) => Some(Obstacle::Loss(loss.clone())),
            Event::Routed(Route::None) => Some(Obstacle::NoRoute(to)),
            &Event::Routed(Route::Discard(kind, network)) => {
                Some(Obstacle::Discard { to, kind, network })
            }
            _ => None,
        }
    }
}

fn verdict(packet: &Packet, outcome: &evaluate::Outcome) -> Verdict {
    let destination = |it: &Packet| {
        let port = it.destination_port().unwrap_or_default();
        SocketAddr::new(it.destination(), port)
    };
    let end = destination(&outcome.packet);
    let is_translated = end != destination(packet);
    match outcome.disposition {
        Disposition::Delivered | Disposition::Sent(_) if is_translated => Verdict::Endpoint(end),
        Disposition::Delivered => Verdict::Delivered,
        Disposition::Sent(_) => Verdict::Forwarded,
        Disposition::Rejected(_) => Verdict::Refused,
        Disposition::Dropped => Verdict::Dropped,
        Disposition::Unroutable => Verdict::Unroutable(end),
        _ => Verdict::Undecided,
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint(endpoint) => write!(f, "to endpoint {endpoint}"),
            Self::Forwarded => f.write_str("forwarded without translation"),
            Self::Delivered => f.write_str("delivered to this node without translation"),
            Self::Refused => f.write_str("refused"),
            Self::Dropped => f.write_str("dropped"),
            Self::Unroutable(to) => write!(f, "without a route to {to}"),
            Self::Undecided => f.write_str("decided by another program"),
        }
    }
}

impl fmt::Display for Outcome {
    /// Writes probability, verdict and masquerading, then the trace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            probability,
            verdict,
            trace,
            ..
        } = self;
        let masqueraded = if self.is_masqueraded {
            ", masqueraded"
        } else {
            ""
        };
        writeln!(f, "{probability}: {verdict}{masqueraded}")?;
        let trace = trace.to_string();
        trace.lines().try_for_each(|line| writeln!(f, "  {line}"))
    }
}
