//! Planning of mode ipvs, without IO: the objects of a context and of service ports, and
//! the order in which edits are committed.

pub(super) mod names;

pub(super) mod object;

pub(super) mod base;

pub(super) mod port;

mod endpoint;

pub(super) mod layout;

pub(super) mod steps;

pub(super) mod sysctls;

pub(super) mod ownership;

pub(super) mod cleanup;

pub(super) mod evaluate;

pub(super) mod saved;

#[cfg(test)]
mod tests;

use vipline_reconcile::Edit;
use vipline_service_model::{Family, Scheduler, ServicePort};

use self::evaluate::State;
use self::object::Object;
use self::steps::Steps;
use crate::backend::iptables::plan::base::is_optional;
use crate::evaluate::Rules;
use crate::interfaces::SERVICE_LINK;
use crate::{Config, Context, Iptables, Ipvs, PortObjects, backend};

/// The planner of mode ipvs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Planner {
    scheduler: Scheduler,
    random_fully: bool,
}

impl Planner {
    /// Creates a planner with the settings of the mode, and those of mode iptables that rules
    /// of this mode have as well.
    pub fn new(settings: &Ipvs, iptables: &Iptables) -> Self {
        Self {
            scheduler: settings.scheduler,
            random_fully: iptables.random_fully,
        }
    }
}

impl From<&Config> for Planner {
    fn from(config: &Config) -> Self {
        Self::new(&config.ipvs, &config.iptables)
    }
}

impl backend::Planner for Planner {
    type Object = Object;

    /// Each virtual server, real server and address is a message of its own, and the kernel
    /// walks the addresses of `kube-ipvs0` for each one.
    const EDITS_PER_SYNC: usize = 1_024;

    fn service_link() -> Option<&'static str> {
        Some(SERVICE_LINK)
    }

    fn base(&self, cx: &Context) -> Vec<Object> {
        base::objects(cx, self.random_fully)
    }

    fn requires_replan(&self, before: &Context, after: &Context) -> bool {
        let inputs = |cx: &Context| (cx.node_address, cx.addresses.clone(), cx.node_port_ips());
        inputs(before) != inputs(after)
    }

    fn port(&self, cx: &Context, port: &ServicePort) -> PortObjects<Object> {
        port::objects(cx, self.scheduler, port)
    }

    fn text(object: &Object) -> String {
        object.to_string()
    }

    fn is_optional(object: &Object) -> bool {
        object.rule().is_some_and(is_optional)
    }

    fn rules<'a>(family: Family, objects: impl Iterator<Item = &'a Object>) -> Option<Rules> {
        let mut state = State::default();
        let objects: Vec<_> = objects.inspect(|object| state.add(object)).collect();
        let mut rules: Vec<_> = objects.into_iter().filter_map(Object::rule).collect();
        rules.sort_by_cached_key(|rule| steps::place(rule));
        let rules = vipline_evaluate::iptables::Rules::new().with_objects(rules, family);
        Some(evaluate::rules(rules.evaluator(), state, true))
    }

    fn script<'a>(
        family: Family,
        edits: Vec<Edit<Object>>,
        _desired: impl Iterator<Item = &'a Object>,
    ) -> String {
        Steps::of(&edits).script(family)
    }

    fn listing<'a>(family: Family, objects: impl Iterator<Item = &'a Object>) -> String {
        let mut edits: Vec<_> = objects.cloned().map(Edit::Add).collect();
        edits.sort_by_cached_key(|edit| edit.object().to_string());
        Steps::of(&edits).script(family)
    }
}
