//! Planning of mode nftables, without IO: the objects of a context and of service ports,
//! and the order in which edits are committed.

pub(super) mod names;

pub(super) mod table;

mod base;

mod port;

mod endpoint;

pub(super) mod affinity;

mod subject;

pub(super) mod batches;

pub(super) mod takeover;

mod script;

#[cfg(test)]
pub(super) mod tests;

use vipline_evaluate::Evaluator;
use vipline_nftables::{Action, Object, Operation, Ruleset, Subject};
use vipline_reconcile::{Edit, Keyed};
use vipline_service_model::{Family, ServicePort};

use proxy_engine::evaluate::Rules;
use proxy_engine::{Context, PortObjects};

/// The planner of mode nftables.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Planner;

impl proxy_engine::Planner for Planner {
    type Object = Object;

    fn base(&self, cx: &Context) -> Vec<Object> {
        base::objects(cx)
    }

    /// Only source ranges depend on the context, namely on the node's address.
    fn requires_replan(&self, before: &Context, after: &Context) -> bool {
        before.node_address != after.node_address
    }

    fn port(&self, cx: &Context, port: &ServicePort) -> PortObjects<Object> {
        port::objects(cx, port)
    }

    fn is_removal_delayed(object: &Object) -> bool {
        match object {
            Object::Chain(chain) => {
                names::is_chain_on_demand(&chain.name) || names::is_chain_before_dnat(&chain.name)
            }
            Object::Set(set) => names::is_set_on_demand(&set.name),
            _ => false,
        }
    }

    fn text(object: &Object) -> String {
        let operation = Operation::new(Action::Add, Subject::Object(Box::new(object.clone())));
        let text = operation.to_string();
        text.trim_start_matches("add ").to_owned()
    }

    /// The name determines the contents of an on-demand chain or set; other contents are
    /// not ours.
    fn tolerates_unused(object: &Object) -> bool {
        let table = object.table();
        let is_made = |made: Option<Object>| made.is_some_and(|made| made.is_equivalent(object));
        match object {
            Object::Chain(chain) if names::is_chain_before_dnat(&chain.name) => {
                let made = table::Table::of_id(table).map(base::chains_before_dnat);
                let made = made.into_iter().flatten();
                is_made(
                    made.map(Object::from)
                        .find(|made| made.key() == object.key()),
                )
            }
            Object::Chain(chain) => {
                is_made(port::chain_on_demand(table, &chain.name).map(Object::from))
            }
            Object::Set(set) => {
                is_made(affinity::set_on_demand(table, &set.name).map(Object::from))
            }
            _ => false,
        }
    }

    fn rules<'a>(_family: Family, objects: impl Iterator<Item = &'a Object>) -> Option<Rules> {
        let ruleset: Ruleset = objects.cloned().collect();
        let evaluator = Evaluator::new(&ruleset);
        let evaluator = evaluator.with_empty_dynamic_sets(&ruleset);
        Some(Rules::new(evaluator, true))
    }

    fn script<'a>(
        _family: Family,
        edits: Vec<Edit<Object>>,
        desired: impl Iterator<Item = &'a Object>,
    ) -> String {
        script::script(edits, desired)
    }

    fn listing<'a>(_family: Family, objects: impl Iterator<Item = &'a Object>) -> String {
        script::listing(objects)
    }
}
