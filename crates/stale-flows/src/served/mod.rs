//! The current endpoints of frontends, to decide whether a flow is stale.
//!
//! The kernel selects an endpoint for the first packet of a flow and keeps it while
//! packets arrive. A client that reuses its port would stay with a removed endpoint. So
//! the flows that a change may make stale are compared with the current endpoints.
//!
//! For example, `10.1.0.9:5353 -> 10.96.0.10:53` over UDP, with replies from `10.1.0.1:53`. The
//! destination of the original tuple is a frontend, and the source of the reply tuple is the
//! server that the kernel chose. If the service port that owns the frontend no longer has
//! `10.1.0.1:53` among its serving endpoints, the flow is stale.
//!
//! What must stay true:
//!
//! - Several service ports may claim one frontend, and packets follow the rules of one of them.
//!   The flow is compared with the endpoints of *that* one, so the ledger has the precedence of
//!   the rules, and not the order in which Services arrived.
//! - A frontend that nobody claims any more is remembered until its flows were searched. Without
//!   that memory, flows of a removed Service would look like flows of other programs, which are
//!   never deleted.
//! - The cost of a change is that of its own frontends and endpoints: a change is compared with
//!   what was there before, never all Services with all flows.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use vipline_conntrack::{Flow, Protocol, Status};
use vipline_reconcile::{Edit, Keyed, Ledger, Pending};
use vipline_service_model::{
    Address, AddressKind, Endpoint, Family, PortName, ServicePort, is_of_one_link,
};

use crate::targets::{Server, Targets};

/// The frontends and their service ports.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// The service port that owns each frontend, by the precedence of the rules. Flows of
    /// a frontend to endpoints of other service ports are stale.
    frontends: Ledger<Claimant, Claim>,
    /// Reused buffer for edits while a service port is replaced.
    edits: Pending<Claim>,
    /// Frontends that lost their last service port. All their flows are stale.
    removed: HashSet<Frontend>,
    /// Number of frontends by family and protocol, including removed ones.
    counts: HashMap<(Family, Protocol), usize>,
    /// Node addresses on which node ports are served.
    node: HashMap<Family, HashSet<IpAddr>>,
    /// Flows that changes may have made stale since the last
    /// [`take_changed`](Self::take_changed).
    changed: HashMap<Family, Targets>,
}

/// Owner of claims in the ledger, in order of precedence.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Claimant {
    kind: AddressKind,
    name: Arc<PortName>,
    family: Family,
}

/// Claim of a service port to a frontend.
#[derive(Clone, Debug)]
struct Claim {
    frontend: Frontend,
    port: Arc<ServicePort>,
}

impl Keyed for Claim {
    type Key<'a> = Frontend;

    fn key(&self) -> Frontend {
        self.frontend
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        // Not by content, which may be ten thousand endpoints: what really changed is the
        // question that `left` answers, once for all frontends of the service port.
        Arc::ptr_eq(&self.port, &other.port)
    }
}

/// Destination that clients send to.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Frontend {
    Address(Protocol, IpAddr, u16),
    /// All node addresses on which node ports are served.
    NodePort(Protocol, Family, u16),
}

impl Served {
    /// Adds or replaces a service port.
    pub(crate) fn set(&mut self, port: &Arc<ServicePort>) {
        let mut by_kind: [Vec<Claim>; AddressKind::ALL.len()] = Default::default();
        for (kind, frontend) in frontends(port) {
            let port = Arc::clone(port);
            // `AddressKind::ALL` has the kinds in the order of their numbers, and `replace` reads
            // them in that order.
            by_kind[kind as usize].push(Claim { frontend, port });
        }
        self.replace(&port.name, port.family, by_kind);
    }

    /// Removes a service port.
    pub(crate) fn remove(&mut self, name: &Arc<PortName>, family: Family) {
        self.replace(name, family, Default::default());
    }

    fn replace(
        &mut self,
        name: &Arc<PortName>,
        family: Family,
        by_kind: [Vec<Claim>; AddressKind::ALL.len()],
    ) {
        // One owner for each kind, because the ledger ranks owners. All kinds, also those without a
        // claim now: they lose the claims that they had. `edits` merges what an address loses by
        // one kind and gets by another.
        for (kind, claims) in AddressKind::ALL.into_iter().zip(by_kind) {
            let name = Arc::clone(name);
            let owner = Claimant { kind, name, family };
            let edits = Some(&mut self.edits);
            self.frontends.replace(owner, claims, edits);
        }
        let changed = self.changed.entry(family).or_default();
        let mut replaced = Vec::new();
        for edit in self.edits.take() {
            match edit {
                Edit::Add(Claim { frontend, .. }) => {
                    // A flow may be older than its Service.
                    changed.frontends.insert(frontend);
                    // A removed frontend that comes back was counted all the time.
                    if !self.removed.remove(&frontend) {
                        *self.counts.entry(frontend.kind()).or_default() += 1;
                    }
                }
                Edit::Remove(Claim { frontend, .. }) => {
                    changed.frontends.insert(frontend);
                    self.removed.insert(frontend);
                }
                Edit::Change { old, new } => replaced.push((old, new)),
            }
        }
        add_replaced(changed, &replaced);
    }

    /// Sets the node addresses on which node ports of a family are served.
    ///
    /// Flows of node ports at a new address may be older than the address.
    pub(crate) fn set_node(&mut self, family: Family, addresses: impl IntoIterator<Item = IpAddr>) {
        let addresses: HashSet<_> = addresses.into_iter().collect();
        let before = self.node.entry(family).or_default();
        let is_new = !addresses.is_subset(before);
        *before = addresses;
        let mut frontends = self.frontends.objects().map(|claim| claim.frontend);
        let is_own = |frontend| matches!(frontend, Frontend::NodePort(_, of, _) if of == family);
        // Not one filter for each address and port: their product may be large, and addresses of
        // a node change rarely. An address that left needs no search: `is_stale` takes its flows
        // for those of another machine.
        if is_new && frontends.any(is_own) {
            self.changed.entry(family).or_default().all = true;
        }
    }

    /// Removes and returns the flows of a family that changes may have made stale.
    pub(crate) fn take_changed(&mut self, family: Family) -> Targets {
        self.changed.remove(&family).unwrap_or_default()
    }

    /// Returns the protocols of current and removed frontends: a search of all flows dumps no
    /// others.
    pub(crate) fn protocols(&self, family: Family) -> HashSet<Protocol> {
        let counts = self.counts.iter().filter(|(_, count)| **count > 0);
        let kinds = counts.map(|(kind, _)| *kind);
        let of_family = kinds.filter(|(of, _)| *of == family);
        of_family.map(|(_, protocol)| protocol).collect()
    }

    /// Drops removed frontends after all their flows were deleted.
    ///
    /// `targets` are the flows of a family that were searched. Frontends in `later` were
    /// removed after the search began, and stay.
    pub(crate) fn forget_removed(&mut self, targets: &Targets, later: &Targets) {
        for frontend in targets.frontends.difference(&later.frontends) {
            let changed = self.changed.get(&frontend.kind().0);
            // Removed again since its change was taken, for example after a Service came back
            // for a moment. The search did not cover flows of that moment.
            if changed.is_some_and(|changed| changed.frontends.contains(frontend)) {
                continue;
            }
            if self.removed.remove(frontend)
                && let Some(count) = self.counts.get_mut(&frontend.kind())
            {
                *count -= 1;
            }
        }
    }

    /// Returns whether a flow leads to an endpoint that no longer serves.
    ///
    /// A flow that is older than its Service leads to the address of the Service itself,
    /// so it is stale.
    ///
    /// Flows of TCP and SCTP are stale only without a reply; established connections may
    /// drain. Flows of other conntrack zones are ignored, because the rules use the
    /// default zone.
    pub(crate) fn is_stale(&self, flow: &Flow) -> bool {
        let protocol = flow.original.protocol;
        let is_answered = flow.status.contains(Status::SEEN_REPLY);
        if flow.zone_id() != 0 || (protocol != Protocol::UDP && is_answered) {
            return false;
        }
        let (Some(port), Some(server_port)) =
            (flow.original.destination_port(), flow.reply.source_port())
        else {
            // ICMP and others without ports: no frontend is one of theirs.
            return false;
        };
        let (address, server) = (flow.original.destination, flow.reply.source);
        let server = SocketAddr::new(server, server_port);
        let own = self.serving(Frontend::Address(protocol, address, port));
        // For an address of one link, another program may use the port number. A
        // translated flow is a flow of the node port, because packets to such addresses
        // are never forwarded.
        let is_node = || {
            if is_of_one_link(address) {
                flow.is_translated()
            } else {
                self.is_node(address)
            }
        };
        let node_port = Frontend::NodePort(protocol, Family::of(address), port);
        let node_port = || self.serving(node_port).filter(|_| is_node());
        // The address itself comes first, as in the rules. A flow with no frontend of ours is not
        // ours to delete.
        let serving = own.or_else(node_port);
        serving.is_some_and(|port| !port.is_some_and(|port| is_served(port, server)))
    }

    /// Returns the service port that owns a frontend, `Some(None)` for a removed
    /// frontend, and `None` for a frontend that was never ours.
    fn serving(&self, frontend: Frontend) -> Option<Option<&ServicePort>> {
        let claim = self.frontends.get(&frontend);
        let port = claim.map(|claim| Some(&*claim.port));
        let is_removed = || self.removed.contains(&frontend);
        port.or_else(|| is_removed().then_some(None))
    }

    /// Returns whether node ports are served on an address.
    fn is_node(&self, address: IpAddr) -> bool {
        let addresses = self.node.get(&Family::of(address));
        addresses.is_some_and(|addresses| addresses.contains(&address))
    }
}

impl Frontend {
    /// Returns family and protocol of the frontend.
    pub(crate) fn kind(&self) -> (Family, Protocol) {
        match *self {
            Self::Address(protocol, address, _) => (Family::of(address), protocol),
            Self::NodePort(protocol, family, _) => (family, protocol),
        }
    }
}

/// Adds the flows that other service ports of the same frontends may have made stale.
///
/// Endpoints without a predecessor make flows stale only in UDP, and only if the frontend
/// had none: flows without translation then bypass the new endpoints.
fn add_replaced(changed: &mut Targets, replaced: &[(Claim, Claim)]) {
    let is_same = |one: &(Claim, Claim), next: &(Claim, Claim)| {
        Arc::ptr_eq(&one.0.port, &next.0.port) && Arc::ptr_eq(&one.1.port, &next.1.port)
    };
    for alike in replaced.chunk_by(is_same) {
        // Chunks are never empty.
        let Some((old, new)) = alike.first() else {
            continue;
        };
        let protocol = old.frontend.kind().1;
        let left: Vec<_> = left(&old.port, &new.port)
            .map(|endpoint| Server::new(protocol, endpoint.addr, endpoint.port))
            .collect();
        // `alike` are the frontends of one changed service port. Its stale flows can be found by
        // these or by the endpoints that left; the fewer places, the fewer dumps.
        let is_first = old.port.serving.is_empty() && !new.port.serving.is_empty();
        if (is_first && protocol == Protocol::UDP) || left.len() > alike.len() {
            let frontends = alike.iter().map(|(_, new)| new.frontend);
            changed.frontends.extend(frontends);
        } else {
            changed.servers.extend(left);
        }
    }
}

/// Returns the endpoints that serve in `old` and not in `new`.
fn left<'a>(old: &'a ServicePort, new: &'a ServicePort) -> impl Iterator<Item = &'a Endpoint> {
    // Service ports share the list of endpoints while it does not change, so a new label or
    // address of a Service with ten thousand endpoints costs nothing here.
    let former = if Arc::ptr_eq(&old.serving, &new.serving) {
        &[][..]
    } else {
        &old.serving
    };
    former
        .iter()
        .filter(|former| !is_served(new, SocketAddr::new(former.addr, former.port)))
}

/// Returns whether an endpoint of a service port has this address.
fn is_served(port: &ServicePort, server: SocketAddr) -> bool {
    let place = |endpoint: &Endpoint| (endpoint.addr, endpoint.port);
    let wanted = (server.ip(), server.port());
    // `ServicePort::serving` is sorted by address and port. One flow is one search, also among
    // ten thousand endpoints.
    port.serving.binary_search_by_key(&wanted, place).is_ok()
}

/// Returns the frontends of a service port, with their kinds.
fn frontends(port: &ServicePort) -> impl Iterator<Item = (AddressKind, Frontend)> {
    port.addresses().map(|(address, kind)| {
        let frontend = match address {
            Address::Ip(ip, of, number) => Frontend::Address(of.into(), ip, number),
            Address::NodePort(of, number) => Frontend::NodePort(of.into(), port.family, number),
        };
        (kind, frontend)
    })
}

#[cfg(test)]
mod tests;
