//! What a store tells about itself, besides the service ports.

use std::sync::Arc;

use crate::{Family, ObjectName, Route, ServicePort, Timestamp};

/// What load balancers want to know about a Service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HealthCheck {
    /// The port on the node's addresses where they ask.
    pub node_port: u16,
    pub(crate) local_ready: BothFamilies<usize>,
}

impl HealthCheck {
    /// Returns the number of addresses on this node that are ready.
    pub fn local_ready(&self, family: Family) -> usize {
        *self.local_ready.of(family)
    }
}

/// Number of service ports, or of Services, that have endpoints, but none that their
/// policy allows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NoLocalEndpoints {
    /// Those whose policy for internal traffic is Local.
    pub internal: usize,
    /// Those whose policy for external traffic is Local.
    pub external: usize,
}

impl NoLocalEndpoints {
    /// Counts the Service with these ports, at most once per policy and family.
    pub(crate) fn of_service(ports: &[Arc<ServicePort>]) -> BothFamilies<Self> {
        let mut counts: BothFamilies<Self> = BothFamilies::default();
        for port in ports {
            let count = counts.of_mut(port.family);
            count.internal |= usize::from(port.internal == Route::Drop);
            count.external |= usize::from(port.external == Route::Drop);
        }
        counts
    }

    /// Replaces one count by another.
    pub(crate) fn exchange(&mut self, old: Self, new: Self) {
        self.internal = self.internal + new.internal - old.internal;
        self.external = self.external + new.external - old.external;
    }

    /// Counts a service port that takes the place of another.
    pub(crate) fn replace(&mut self, old: Option<&ServicePort>, new: Option<&ServicePort>) {
        let drops = |port: Option<&ServicePort>, route: fn(&ServicePort) -> Route| {
            usize::from(port.is_some_and(|port| route(port) == Route::Drop))
        };
        self.internal += drops(new, |port| port.internal);
        self.internal -= drops(old, |port| port.internal);
        self.external += drops(new, |port| port.external);
        self.external -= drops(old, |port| port.external);
    }
}

/// How many changes there were, and how many wait to be resolved.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Events about EndpointSlices, counting those that changed nothing.
    pub slice_changes: u64,
    /// Changes of EndpointSlices since the last resolve.
    pub slice_changes_pending: usize,
    /// Events about Services, counting those that changed nothing.
    pub service_changes: u64,
    /// Services that differ from what they were at the last resolve.
    pub service_changes_pending: usize,
}

/// What the last resolve was about, besides the ports themselves.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Changes {
    pub(crate) udp: BothFamilies<bool>,
    /// When the causes of the changes happened, as the slices of a family say.
    pub trigger_times: Vec<(ObjectName, Vec<(Family, Timestamp)>)>,
}

impl Changes {
    /// Tells whether the endpoints of a Service with UDP endpoints changed.
    ///
    /// Then flows to endpoints that are gone may be left in the kernel.
    pub fn affects_udp(&self, family: Family) -> bool {
        *self.udp.of(family)
    }
}

/// A value for each family.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct BothFamilies<T> {
    pub(crate) v4: T,
    pub(crate) v6: T,
}

impl<T> BothFamilies<T> {
    pub(crate) fn of(&self, family: Family) -> &T {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    pub(crate) fn of_mut(&mut self, family: Family) -> &mut T {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}
