//! Topology aware routing by the hints of EndpointSlices.

use crate::NodeView;
use crate::slices::Candidate;

/// Endpoints that are eligible under traffic policy Cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Topology {
    /// All endpoints.
    Anywhere,
    /// Endpoints with a hint for this node.
    SameNode,
    /// Endpoints with a hint for the zone of this node.
    SameZone,
}

impl Topology {
    /// Selects the topology by the hints of the ready endpoints.
    ///
    /// Hints apply only if every ready endpoint has a hint of the kind, and at least
    /// one of the hints names this node or its zone. Node hints take precedence.
    pub(crate) fn of(candidates: &[Candidate<'_>], node: &NodeView) -> Self {
        let (mut all_node, mut any_node) = (true, false);
        let (mut all_zone, mut any_zone) = (true, false);
        for candidate in candidates
            .iter()
            .filter(|candidate| candidate.condition.ready)
        {
            // Both kinds require a hint on every ready endpoint.
            let Some(hints) = candidate.hints else {
                return Self::Anywhere;
            };
            all_node &= !hints.nodes.is_empty();
            all_zone &= !hints.zones.is_empty();
            any_node |= Self::SameNode.admits(candidate, node);
            any_zone |= Self::SameZone.admits(candidate, node);
        }
        if all_node && any_node {
            Self::SameNode
        } else if all_zone && any_zone {
            Self::SameZone
        } else {
            Self::Anywhere
        }
    }

    /// Returns whether an endpoint is eligible.
    pub(crate) fn admits(self, candidate: &Candidate<'_>, node: &NodeView) -> bool {
        let Some(hints) = candidate.hints else {
            return self == Self::Anywhere;
        };
        match self {
            Self::Anywhere => true,
            Self::SameNode => hints.nodes.iter().any(|name| **name == *node.name),
            Self::SameZone => {
                let zone = node.zone.as_deref().unwrap_or_default();
                hints.zones.iter().any(|name| **name == *zone)
            }
        }
    }
}
