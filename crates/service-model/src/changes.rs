//! Counters, health checks and trigger times of a store.

use std::sync::Arc;

use crate::{Family, ObjectName, Route, ServicePort, Timestamp};

/// Health check of a Service for load balancers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HealthCheck {
    /// Health check node port.
    pub node_port: u16,
    pub(crate) local_ready: BothFamilies<usize>,
}

impl HealthCheck {
    /// Returns the number of endpoint addresses on this node that are ready.
    pub fn local_ready(&self, family: Family) -> usize {
        *self.local_ready.of(family)
    }
}

/// Number of service ports, or of Services, that drop traffic: their traffic policy is
/// Local, and they have usable endpoints, but none on this node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct NoLocalEndpoints {
    /// Number with `internalTrafficPolicy: Local`.
    pub internal: usize,
    /// Number with `externalTrafficPolicy: Local`.
    pub external: usize,
}

impl NoLocalEndpoints {
    /// Counts a Service with the given ports, at most once per policy and family.
    pub(crate) fn of_service(ports: &[Arc<ServicePort>]) -> BothFamilies<Self> {
        let mut counts: BothFamilies<Self> = BothFamilies::default();
        for port in ports {
            let count = counts.of_mut(port.family);
            count.internal |= usize::from(port.internal == Route::Drop);
            count.external |= usize::from(port.external == Route::Drop);
        }
        counts
    }

    /// Replaces the counts `old` by `new` in the sum.
    pub(crate) fn exchange(&mut self, old: Self, new: Self) {
        self.internal = self.internal + new.internal - old.internal;
        self.external = self.external + new.external - old.external;
    }

    /// Replaces the service port `old` by `new` in the sum.
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

/// Numbers of changes: total and pending.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Counts {
    /// Events about EndpointSlices, including those without effect. Applied slices that
    /// the model does not use are not counted.
    pub slice_changes: u64,
    /// Changes of EndpointSlices since the last resolve.
    pub slice_changes_pending: usize,
    /// Events about Services, including those without effect.
    pub service_changes: u64,
    /// Services that differ from their state at the last resolve.
    pub service_changes_pending: usize,
}

/// Details of the last resolve, in addition to the changed ports.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Changes {
    pub(crate) udp: BothFamilies<bool>,
    /// Trigger times per Service and family, from the annotation
    /// `endpoints.kubernetes.io/last-change-trigger-time`.
    pub trigger_times: Vec<(ObjectName, Vec<(Family, Timestamp)>)>,
}

impl Changes {
    /// Returns whether endpoints changed in a Service with UDP endpoints.
    ///
    /// Conntrack entries of removed endpoints may then be left in the kernel.
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
