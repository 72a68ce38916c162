//! The node ports of a Service.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    AllocationError, Draft, OwnerRef, Pool, Random, ServiceItems, ServicePort, ServiceType,
    Transport,
};

mod registry;

pub use registry::ServiceNodePorts;

/// The fields of a Service that determine its node ports.
///
/// Exhaustive: callers copy every field of their Service and must not miss a new one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodePorts {
    /// `type`.
    pub kind: ServiceType,
    /// `allocateLoadBalancerNodePorts`: whether ports of a load balancer get node ports
    /// without a request.
    pub allocate_load_balancer_node_ports: bool,
    /// Whether `externalTrafficPolicy` is Local.
    pub external_policy_local: bool,
    /// `ports`.
    pub ports: Vec<ServicePort>,
    /// `healthCheckNodePort`, if requested or assigned.
    pub health_check_node_port: Option<u16>,
}

/// Allocated node ports of a Service that is not stored yet.
///
/// Pass the value to [`ServiceNodePorts::commit`] after the Service was stored, or to
/// [`ServiceNodePorts::revert`] if it was not. If the value is dropped, new or former node
/// ports stay allocated until a repair.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use = "node ports are released by commit or revert only"]
pub struct AssignedPorts {
    /// The fields of the Service with all node ports assigned.
    pub ports: NodePorts,
    /// Newly allocated node ports.
    taken: BTreeSet<u16>,
    /// Node ports that the Service no longer has.
    released: BTreeSet<u16>,
}

impl NodePorts {
    /// Allocates the node ports of a Service in a draft, such as a dry run.
    /// [`ServiceNodePorts`] does it in a change of its own.
    ///
    /// Ports with the same number and different protocols share a node port.
    /// A port without a requested node port keeps the node port of the stored port with
    /// its name, unless another port requests it. Several ports may keep the same one.
    /// The Service keeps its former node ports until [`ServiceNodePorts::commit`].
    ///
    /// # Errors
    ///
    /// After an error the draft contains a part of the allocations. Return the error to
    /// [`Registry::change`](crate::Registry::change), which discards the draft.
    /// In addition to the errors of [`Draft::reserve`] and [`Draft::allocate`]:
    ///
    /// - [`AllocationError::Duplicate`]: a node port is used twice with one protocol, is
    ///   also the health check node port, or is on ports with different numbers of a new
    ///   Service. The last case is allowed in an update.
    /// - [`AllocationError::Immutable`]: `healthCheckNodePort` changes.
    /// - [`AllocationError::NotUsed`]: `nodePort` of a `ClusterIP` or `ExternalName`, or
    ///   `healthCheckNodePort` of a Service without health checks. The stored value is
    ///   dropped instead. kube-apiserver stores a `nodePort` of an `ExternalName`
    ///   unallocated, and releases the port with the Service even if another Service
    ///   owns it.
    pub fn assign<P: Pool<Item = u16>>(
        &self,
        former: Option<&Self>,
        owner: &OwnerRef,
        draft: &mut Draft<'_, P>,
        random: &mut Random<'_>,
    ) -> Result<AssignedPorts, AllocationError> {
        let held = former.map(Self::held).unwrap_or_default();
        let mut assigned = self.cleared(former, owner)?;
        assigned.check_shared(former.is_none(), owner)?;
        let mut used: BTreeSet<(Transport, u16)> = assigned.uses().collect();
        // Requested ports come first: a dynamic allocation must not return a requested port.
        for number in assigned.numbers().difference(&held) {
            draft.reserve(*number, owner)?;
        }
        for place in 0..assigned.ports.len() {
            let ServicePort {
                protocol,
                port,
                node_port,
                ..
            } = assigned.ports[place];
            if node_port.is_some() || !self.is_given_ports() {
                continue;
            }
            let same = assigned.ports.iter().filter(|other| other.port == port);
            let number = same
                .filter_map(|other| other.node_port)
                .find(|number| !used.contains(&(protocol, *number)));
            let number = match number {
                Some(number) => number,
                None => draft.allocate(owner, random)?,
            };
            used.insert((protocol, number));
            assigned.ports[place].node_port = Some(number);
        }
        if self.is_checked() && assigned.health_check_node_port.is_none() {
            assigned.health_check_node_port = Some(draft.allocate(owner, random)?);
        }
        let numbers = assigned.numbers();
        Ok(AssignedPorts {
            ports: assigned,
            taken: numbers.difference(&held).copied().collect(),
            released: held.difference(&numbers).copied().collect(),
        })
    }

    /// Returns the node ports of a Service for repair.
    ///
    /// A node port is listed once, unless two ports of the same protocol use it.
    #[must_use]
    pub fn service_items(&self, owner: OwnerRef) -> ServiceItems<u16> {
        let (mut numbers, mut uses) = (BTreeSet::new(), BTreeSet::new());
        let mut items = Vec::new();
        for (protocol, number) in self.uses() {
            let is_new = numbers.insert(number);
            if !uses.insert((protocol, number)) || is_new {
                items.push(number);
            }
        }
        ServiceItems::new(owner, items)
    }

    /// Returns the fields without unused values, and with stored values that an update
    /// omits.
    fn cleared(&self, former: Option<&Self>, owner: &OwnerRef) -> Result<Self, AllocationError> {
        let mut cleared = self.clone();
        if !self.has_node_ports() {
            let before = former.map(Self::node_ports).unwrap_or_default();
            let mut new = self.node_ports().into_iter();
            if let Some(number) = new.find(|number| !before.contains(number)) {
                let requires = "type NodePort or LoadBalancer";
                return Err(not_used("nodePort", number, requires, owner));
            }
            for port in &mut cleared.ports {
                port.node_port = None;
            }
        }
        if let Some(former) = former.filter(|one| one.is_given_ports() && self.is_given_ports()) {
            cleared.keep(former);
        }
        cleared.health_check_node_port = self.kept_health_check(former, owner)?;
        Ok(cleared)
    }

    /// Returns the requested or the stored health check node port.
    fn kept_health_check(
        &self,
        former: Option<&Self>,
        owner: &OwnerRef,
    ) -> Result<Option<u16>, AllocationError> {
        const FIELD: &str = "healthCheckNodePort";
        let before = former.and_then(|former| former.health_check_node_port);
        let was_checked = former.is_some_and(Self::is_checked);
        match (self.health_check_node_port, before) {
            (Some(number), Some(before))
                if self.is_checked() && was_checked && number != before =>
            {
                let (field, owner) = (FIELD, owner.clone().into());
                Err(AllocationError::Immutable { field, owner })
            }
            (number, before) if self.is_checked() => Ok(number.or(before)),
            (Some(number), before) if before != Some(number) => {
                let requires = "type LoadBalancer with externalTrafficPolicy Local";
                Err(not_used(FIELD, number, requires, owner))
            }
            _ => Ok(None),
        }
    }

    /// Copies node ports of stored ports to ports of the same name without a request.
    ///
    /// Ports that shared a node port share it again:
    ///
    /// ```text
    /// stored:  dns UDP 53 → 31803, dns-tcp TCP 53 → 31803
    /// update:  dns UDP 53,         dns-tcp TCP 53
    /// ```
    fn keep(&mut self, former: &Self) {
        let asked = self.node_ports();
        for port in &mut self.ports {
            let same = former.ports.iter().find(|same| same.name == port.name);
            let before = same.and_then(|same| same.node_port);
            if port.node_port.is_none() {
                port.node_port = before.filter(|number| !asked.contains(number));
            }
        }
    }

    /// Checks that no node port is used twice in conflicting ways.
    fn check_shared(&self, is_new: bool, owner: &OwnerRef) -> Result<(), AllocationError> {
        let duplicate = |item: String| AllocationError::Duplicate {
            item: item.into(),
            owner: owner.clone().into(),
        };
        let mut used = BTreeSet::new();
        for (protocol, number) in self.port_uses() {
            if !used.insert((protocol, number)) {
                return Err(duplicate(format!("{number}/{protocol}")));
            }
        }
        if let Some(number) = self.spread().filter(|_| is_new) {
            return Err(duplicate(number.to_string()));
        }
        match self.health_check_node_port {
            Some(number) if self.node_ports().contains(&number) => {
                Err(duplicate(number.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Returns a node port that ports with different numbers request.
    ///
    /// Ports with the same number share the first requested node port. Any other node
    /// port belongs to one port.
    fn spread(&self) -> Option<u16> {
        let mut first = BTreeMap::new();
        let mut asked = BTreeSet::new();
        for port in &self.ports {
            let Some(number) = port.node_port else {
                continue;
            };
            let is_shared = first.get(&port.port) == Some(&number);
            first.entry(port.port).or_insert(number);
            if !is_shared && !asked.insert(number) {
                return Some(number);
            }
        }
        None
    }

    /// Returns whether the type has node ports.
    const fn has_node_ports(&self) -> bool {
        matches!(self.kind, ServiceType::LoadBalancer | ServiceType::NodePort)
    }

    /// Returns whether ports get node ports without a request.
    const fn is_given_ports(&self) -> bool {
        match self.kind {
            ServiceType::ClusterIp | ServiceType::ExternalName => false,
            ServiceType::LoadBalancer => self.allocate_load_balancer_node_ports,
            ServiceType::NodePort => true,
        }
    }

    /// Returns whether the Service has a health check node port.
    const fn is_checked(&self) -> bool {
        self.external_policy_local && matches!(self.kind, ServiceType::LoadBalancer)
    }

    /// Returns all node ports with their protocols. Health checks use TCP.
    fn uses(&self) -> impl Iterator<Item = (Transport, u16)> + '_ {
        let health_check = self
            .health_check_node_port
            .map(|number| (Transport::Tcp, number));
        self.port_uses().chain(health_check)
    }

    /// Returns the node ports of `ports` with their protocols.
    fn port_uses(&self) -> impl Iterator<Item = (Transport, u16)> + '_ {
        let ports = self.ports.iter();
        ports.filter_map(|port| Some((port.protocol, port.node_port?)))
    }

    /// Returns the node ports of `ports`.
    fn node_ports(&self) -> BTreeSet<u16> {
        self.port_uses().map(|(_, number)| number).collect()
    }

    /// Returns the allocated node ports of a stored Service.
    ///
    /// kube-apiserver stores node ports of an `ExternalName` unallocated.
    fn held(&self) -> BTreeSet<u16> {
        match self.has_node_ports() {
            true => self.numbers(),
            false => BTreeSet::new(),
        }
    }

    /// Returns all node ports, including the health check node port.
    fn numbers(&self) -> BTreeSet<u16> {
        self.uses().map(|(_, number)| number).collect()
    }
}

fn not_used(
    field: &'static str,
    number: u16,
    requires: &'static str,
    owner: &OwnerRef,
) -> AllocationError {
    AllocationError::NotUsed {
        field,
        item: number.to_string().into(),
        requires,
        owner: owner.clone().into(),
    }
}

/// Releases node ports, except those recorded for another Service.
fn free<'a, P: Pool<Item = u16>>(
    numbers: impl IntoIterator<Item = &'a u16>,
    owner: &OwnerRef,
    draft: &mut Draft<'_, P>,
) {
    for number in numbers {
        if draft
            .owner(*number)
            .is_none_or(|recorded| recorded == owner)
        {
            draft.free(*number);
        }
    }
}

#[cfg(test)]
mod tests;
