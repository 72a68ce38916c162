//! Whether endpoints near by are preferred, as hints in the slices ask for.

use crate::NodeView;
use crate::slices::Candidate;

/// Which endpoints policy Cluster may choose from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Topology {
    /// All of the cluster.
    Anywhere,
    /// Those meant for this node.
    SameNode,
    /// Those meant for this node's zone.
    SameZone,
}

impl Topology {
    /// Decides by the hints of the ready endpoints; others have no say.
    ///
    /// Hints count only when every ready endpoint has some of the kind and at
    /// least one of them names this node, or else its zone.
    pub(crate) fn of(candidates: &[Candidate<'_>], node: &NodeView) -> Self {
        let (mut all_node, mut any_node) = (true, false);
        let (mut all_zone, mut any_zone) = (true, false);
        for candidate in candidates
            .iter()
            .filter(|candidate| candidate.condition.ready)
        {
            // Without hints of either kind no mode is left to decide on.
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

    /// Tells whether an endpoint may be chosen.
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
