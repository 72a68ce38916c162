//! The node ports of a Service.

use std::collections::BTreeSet;

use crate::{Claims, Draft, Owner, Pool, Protocol, Random, Refusal, ServicePort, ServiceType};

/// What a Service says of its node ports.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodePorts {
    /// Its type.
    pub kind: ServiceType,
    /// Whether the ports of a load balancer get node ports that are not asked
    /// for.
    pub allocate: bool,
    /// Whether traffic from outside stays on the node.
    pub is_local: bool,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// Where load balancers ask whether a node has endpoints, if it is said or
    /// given.
    pub health_check: Option<u16>,
}

/// What a Service got, until it is known whether it is stored.
///
/// It is handed to [`Self::commit`] or to [`Self::revert`]; otherwise what is
/// new in it, or what it had before, stays taken until a repair.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use = "node ports are released by commit or revert only"]
pub struct AssignedPorts {
    /// What the Service says then.
    pub ports: NodePorts,
    /// What of that it did not have before.
    taken: BTreeSet<u16>,
    /// What it had and no longer has.
    released: BTreeSet<u16>,
}

impl AssignedPorts {
    /// Frees what the Service no longer has, once it is stored.
    pub fn commit<P: Pool<Item = u16>>(&self, owner: &Owner, draft: &mut Draft<'_, P>) {
        free(&self.released, owner, draft);
    }

    /// Frees what is new, because the Service was not stored.
    pub fn revert<P: Pool<Item = u16>>(&self, owner: &Owner, draft: &mut Draft<'_, P>) {
        free(&self.taken, owner, draft);
    }
}

impl NodePorts {
    /// Gives a Service its node ports.
    ///
    /// Ports of the same number share a node port, for each has a protocol of
    /// its own. A port that asks for none has that of the port of its name
    /// before, unless another one asks for it. What the Service had before stays
    /// its own until it is stored.
    ///
    /// # Errors
    ///
    /// A [`Refusal`]; the draft is good for nothing then.
    pub fn assign<P: Pool<Item = u16>>(
        &self,
        former: Option<&Self>,
        owner: &Owner,
        draft: &mut Draft<'_, P>,
        random: &mut Random<'_>,
    ) -> Result<AssignedPorts, Refusal> {
        let held = former.map(Self::numbers).unwrap_or_default();
        let mut assigned = self.cleared(former);
        let mut used = BTreeSet::new();
        for (protocol, number) in assigned.uses() {
            if !used.insert((protocol, number)) {
                return Err(Refusal::Duplicate {
                    item: format!("{number}/{protocol}").into(),
                    owner: owner.clone(),
                });
            }
        }
        // What is asked for comes first, lest it is given to another port.
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
        if self.is_checked() && assigned.health_check.is_none() {
            assigned.health_check = Some(draft.allocate(owner, random)?);
        }
        let numbers = assigned.numbers();
        Ok(AssignedPorts {
            ports: assigned,
            taken: numbers.difference(&held).copied().collect(),
            released: held.difference(&numbers).copied().collect(),
        })
    }

    /// Frees the node ports of a Service that is deleted.
    pub fn release<P: Pool<Item = u16>>(&self, owner: &Owner, draft: &mut Draft<'_, P>) {
        free(&self.numbers(), owner, draft);
    }

    /// Returns what a Service has, for repair.
    ///
    /// A number is there once, unless two ports of the same protocol have it.
    #[must_use]
    pub fn claims(&self, owner: Owner) -> Claims<u16> {
        let (mut numbers, mut uses) = (BTreeSet::new(), BTreeSet::new());
        let mut items = Vec::new();
        for (protocol, number) in self.uses() {
            let is_new = numbers.insert(number);
            if !uses.insert((protocol, number)) || is_new {
                items.push(number);
            }
        }
        Claims {
            owner,
            items,
            invalid: Vec::new(),
        }
    }

    /// Returns it without what its type has not, and with what it had before
    /// and does not say.
    fn cleared(&self, former: Option<&Self>) -> Self {
        let mut cleared = self.clone();
        if !matches!(self.kind, ServiceType::LoadBalancer | ServiceType::NodePort) {
            for port in &mut cleared.ports {
                port.node_port = None;
            }
        }
        if let Some(former) = former.filter(|one| one.is_given_ports() && self.is_given_ports()) {
            cleared.keep(former);
        }
        let before = former.and_then(|former| former.health_check);
        cleared.health_check = match self.is_checked() {
            true => self.health_check.or(before),
            false => None,
        };
        cleared
    }

    /// Has ports that ask for no node port keep that of the port of their name.
    fn keep(&mut self, former: &Self) {
        let mut used = self.numbers();
        for port in &mut self.ports {
            let same = former.ports.iter().find(|same| same.name == port.name);
            let before = same.and_then(|same| same.node_port);
            if port.node_port.is_none()
                && let Some(number) = before
                && used.insert(number)
            {
                port.node_port = Some(number);
            }
        }
    }

    /// Tells whether ports get node ports that they do not ask for.
    const fn is_given_ports(&self) -> bool {
        match self.kind {
            ServiceType::ClusterIp | ServiceType::ExternalName => false,
            ServiceType::LoadBalancer => self.allocate,
            ServiceType::NodePort => true,
        }
    }

    /// Tells whether load balancers ask for its health on each node.
    const fn is_checked(&self) -> bool {
        self.is_local && matches!(self.kind, ServiceType::LoadBalancer)
    }

    /// Returns what its node ports are used for; health is asked for by TCP.
    fn uses(&self) -> impl Iterator<Item = (Protocol, u16)> + '_ {
        let ports = self.ports.iter();
        let ports = ports.filter_map(|port| Some((port.protocol, port.node_port?)));
        let health_check = self.health_check.map(|number| (Protocol::Tcp, number));
        ports.chain(health_check)
    }

    /// Returns its node ports.
    fn numbers(&self) -> BTreeSet<u16> {
        self.uses().map(|(_, number)| number).collect()
    }
}

/// Frees what is a Service's; what is recorded as another one's stays.
fn free<'a, P: Pool<Item = u16>>(
    numbers: impl IntoIterator<Item = &'a u16>,
    owner: &Owner,
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
