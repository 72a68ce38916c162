//! Topology hints.
//!
//! If every ready endpoint has a node hint and one names this node, only endpoints with
//! a hint for this node are used. Otherwise the same holds for zone hints and the zone of
//! this node. Otherwise hints do not count.

use vipline_service_model::api;
use vipline_service_model::arbitrary::NODE;

use super::candidate::Candidate;
use crate::world::World;

/// A kind of hints and the name that selects endpoints.
struct Hinted<'a> {
    hints: fn(&api::Hints) -> &[api::NamedHint],
    name: &'a str,
}

impl Hinted<'_> {
    fn of<'c>(&self, candidate: &Candidate<'c>) -> &'c [api::NamedHint] {
        candidate.entry.hints.as_ref().map_or(&[], self.hints)
    }

    fn admits(&self, candidate: &Candidate<'_>) -> bool {
        self.of(candidate).iter().any(|hint| hint.name == self.name)
    }
}

/// Returns the function that decides whether hints allow a ready endpoint.
pub(crate) fn filter<'a>(
    world: &'a World,
    all: &[Candidate<'_>],
) -> impl Fn(&Candidate<'_>) -> bool + 'a {
    let labels = world.node_object.as_ref().map(|node| &node.metadata.labels);
    let zone = labels.and_then(|labels| labels.get("topology.kubernetes.io/zone"));
    let kinds = [
        Hinted {
            hints: |hints| &hints.for_nodes,
            name: NODE,
        },
        Hinted {
            hints: |hints| &hints.for_zones,
            name: zone.map_or("", |zone| zone),
        },
    ];
    let ready: Vec<_> = all.iter().filter(|each| each.is_ready).collect();
    let applies = |kind: &Hinted<'_>| {
        ready.iter().all(|each| !kind.of(each).is_empty())
            && ready.iter().any(|each| kind.admits(each))
    };
    let chosen = kinds.into_iter().find(applies);
    move |candidate| chosen.as_ref().is_none_or(|kind| kind.admits(candidate))
}
