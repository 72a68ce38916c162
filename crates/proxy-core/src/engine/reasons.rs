//! Reasons for the results of connection attempts.

use vipline_service_model::Family;

use super::planning::context;
use crate::reason::{Finding, Question, Scene};
use crate::{Context, Engine};

impl Engine {
    /// Plans all changes without a sync. Functions that take a shared reference, such as
    /// [`reason`](Self::reason), then consider them.
    pub fn plan_changes(&mut self) {
        self.plan();
    }

    /// Returns the reason for the result of a connection attempt, as of the last plan.
    ///
    /// The cost is proportional to the number of service ports, and the function reads
    /// nothing from the kernel.
    pub fn reason(&self, question: &Question) -> Finding {
        let family = Family::of(question.destination.ip());
        self.with_scene(family, |scene| scene.find(question))
    }

    /// Calls `then` with the objects of a family, as of the last plan.
    pub fn with_scene<T>(&self, family: Family, then: impl FnOnce(&Scene<'_>) -> T) -> T {
        let context = self.context(family);
        then(&Scene {
            config: &self.config,
            store: &self.store,
            addresses: &self.addresses,
            context: &context,
        })
    }

    /// Returns everything besides Services that the rules of a family depend on.
    pub fn context(&self, family: Family) -> Context {
        context(&self.config, &self.store, &self.addresses, family)
    }
}
