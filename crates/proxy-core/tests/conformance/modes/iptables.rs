//! Mode iptables.

use std::sync::Arc;

use proxy_core::backend::iptables::Planner;
use proxy_core::{Family, Mode, Planner as _};
use vipline_evaluate::iptables::Rules as Tables;
use vipline_evaluate::{Evaluator, ListUpdate};
use vipline_iptables as iptables;

use super::environment::Lists;
use super::{Rules, Seen, fate, installed};
use crate::flow::Flow;
use crate::world::World;

/// The tables of both families.
#[derive(Clone)]
pub(crate) struct Iptables {
    evaluator: Arc<Evaluator>,
    lists: Lists,
}

impl Rules for Iptables {
    const MODE: Mode = Mode::Iptables;

    /// Match `statistic` rounds a probability to a multiple of 2⁻³¹.
    const TOLERANCE: f64 = 1e-8;

    type Update = ListUpdate;

    fn install(world: &World) -> Self {
        let kernels = installed::<Planner>(world);
        let mut tables = Tables::new();
        for family in Family::ALL {
            let kernel = kernels.of(family).get();
            let document = Planner::listing(family, kernel.memory.objects());
            let save = iptables::Tables::parse(&document).expect("a document");
            tables = tables.with_save(&save, family).expect("a valid document");
        }
        Self {
            evaluator: Arc::new(tables.evaluator()),
            lists: Lists::new(world.node.host()),
        }
    }

    fn evaluate(&self, flow: &Flow) -> Result<Vec<Seen<ListUpdate>>, String> {
        let outcomes = self.evaluator.evaluate(&flow.packet(), &self.lists);
        let outcomes = outcomes.map_err(|error| error.to_string())?.into_iter();
        let seen = |outcome| {
            Ok(Seen {
                fate: fate(flow, &outcome)?,
                probability: outcome.probability,
                updates: outcome.lists,
            })
        };
        outcomes.map(seen).collect()
    }

    fn after(&self, _flow: &Flow, seen: &Seen<ListUpdate>) -> Self {
        let mut after = self.clone();
        after.lists.update(&seen.updates);
        after
    }
}
