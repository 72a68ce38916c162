//! Mode nftables.

use proxy_core::backend::nftables::Planner;
use proxy_core::{Family, Mode};
use vipline_evaluate::{Evaluator, Host, SetUpdate};
use vipline_nftables::expr::DynsetOp;
use vipline_nftables::{Object, Ruleset};
use vipline_reconcile::Keyed;

use super::{Rules, Seen, fate, installed};
use crate::flow::Flow;
use crate::world::World;

/// The tables of both families.
pub(crate) struct Nftables {
    objects: [Vec<Object>; 2],
    evaluators: [Evaluator; 2],
    host: Host,
}

impl Nftables {
    fn new(objects: [Vec<Object>; 2], host: Host) -> Self {
        let evaluator = |objects: &Vec<Object>| {
            let ruleset: Ruleset = objects.iter().cloned().collect();
            Evaluator::new(&ruleset)
        };
        Self {
            evaluators: [evaluator(&objects[0]), evaluator(&objects[1])],
            objects,
            host,
        }
    }
}

impl Rules for Nftables {
    const MODE: Mode = Mode::Nftables;

    const TOLERANCE: f64 = 0.0;

    type Update = SetUpdate;

    fn install(world: &World) -> Self {
        let kernels = installed::<Planner>(world);
        let objects = Family::ALL.map(|family| {
            let kernel = kernels.of(family).get();
            kernel.memory.objects().cloned().collect()
        });
        Self::new(objects, world.node.host())
    }

    fn evaluate(&self, flow: &Flow) -> Result<Vec<Seen<SetUpdate>>, String> {
        let evaluator = &self.evaluators[usize::from(flow.destination.is_ipv6())];
        let outcomes = evaluator.evaluate(&flow.packet(), &self.host);
        let outcomes = outcomes.map_err(|error| error.to_string())?.into_iter();
        let seen = |outcome| {
            Ok(Seen {
                fate: fate(flow, &outcome)?,
                probability: outcome.probability,
                updates: outcome.updates,
            })
        };
        outcomes.map(seen).collect()
    }

    fn after(&self, flow: &Flow, seen: &Seen<SetUpdate>) -> Self {
        let mut objects = self.objects.clone();
        let changed = &mut objects[usize::from(flow.destination.is_ipv6())];
        for update in &seen.updates {
            let element = Object::from(update.element.clone());
            let place = changed.iter().position(|it| it.key() == element.key());
            match (update.op, place) {
                (DynsetOp::Delete, Some(place)) => drop(changed.swap_remove(place)),
                // The data of an element stays.
                (_, Some(_)) | (DynsetOp::Delete, None) => {}
                (_, None) => changed.push(element),
            }
        }
        Self::new(objects, self.host.clone())
    }
}
