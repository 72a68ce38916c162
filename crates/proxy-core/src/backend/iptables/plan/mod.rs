//! Planning of mode iptables, without IO: the objects of a context and of service ports,
//! and the document of edits.

pub(in crate::backend) mod names;

pub(in crate::backend) mod rules;

pub(in crate::backend) mod jump;

pub(in crate::backend) mod base;

pub(in crate::backend) mod layout;

pub(in crate::backend) mod extensions;

mod service_port;

mod port;

mod endpoint;

mod script;

pub(in crate::backend) mod cleanup;

pub(in crate::backend::iptables) mod saved;

#[cfg(test)]
mod tests;

use vipline_iptables::{Contents, Object};
use vipline_nftables::Ruleset;
use vipline_reconcile::Edit;
use vipline_service_model::{Family, ServicePort};

use crate::backend::evaluate::{self, NoClients};
use crate::evaluate::Rules;
use crate::{Config, Context, Iptables, PortObjects, backend};

/// The planner of mode iptables.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Planner {
    settings: Iptables,
}

impl Planner {
    /// Creates a planner.
    pub const fn new(settings: Iptables) -> Self {
        Self { settings }
    }
}

impl From<&Config> for Planner {
    fn from(config: &Config) -> Self {
        Self::new(config.iptables)
    }
}

impl backend::Planner for Planner {
    type Object = Object;

    /// To add 512 chains takes 0.03 s of processor time with the nft variant. The legacy one needs
    /// 0.1 s if there are 17,000 rules, because it reads and writes the whole table.
    const EDITS_PER_SYNC: usize = 512;

    /// A rule is less than a chain with its rules.
    fn additions_per_edit(object: &Object) -> usize {
        match object {
            Object::Chain(_) => 1,
            Object::SharedRule(_) => 4,
        }
    }

    /// Many rules of a shared chain are removed by a rewrite of the chain. It costs something for
    /// each rule that stays, so one rewrite is much cheaper than one in each of many syncs: 16,384
    /// rules are gone after one sync.
    fn removals_per_edit(object: &Object) -> usize {
        match object {
            Object::Chain(_) => 1,
            Object::SharedRule(_) => 64,
        }
    }

    fn base(&self, cx: &Context) -> Vec<Object> {
        base::objects(cx, &self.settings)
    }

    fn requires_replan(&self, before: &Context, after: &Context) -> bool {
        let inputs = |cx: &Context| {
            let flags = (cx.masquerade_all, cx.is_large, cx.nodeport_on_loopback);
            (cx.local.clone(), cx.node_address, flags)
        };
        inputs(before) != inputs(after)
    }

    fn port(&self, cx: &Context, port: &ServicePort) -> PortObjects<Object> {
        port::objects(cx, &self.settings, port)
    }

    fn rule_count(object: &Object) -> Option<(&'static str, usize)> {
        let (table, count) = match object {
            Object::Chain(chain) => match &chain.contents {
                Contents::Rules(rules) => (chain.table, rules.len()),
                _ => (chain.table, 0),
            },
            Object::SharedRule(entry) => {
                let (table, chain) = (entry.table.as_str(), entry.chain.as_str());
                let is_ours = names::kind(table, chain) != names::Kind::System;
                (entry.table, usize::from(is_ours))
            }
        };
        let counted = [names::FILTER, names::NAT].into_iter();
        let name = counted.into_iter().find(|name| *name == table.as_str());
        name.map(|name| (name, count))
    }

    fn text(object: &Object) -> String {
        match object {
            Object::Chain(chain) => format!("-t {} -N {}", chain.table, chain.name),
            Object::SharedRule(entry) => {
                format!("-t {} -A {} {}", entry.table, entry.chain, entry.rule)
            }
        }
    }

    fn is_optional(object: &Object) -> bool {
        base::is_optional(object)
    }

    fn rules<'a>(family: Family, objects: impl Iterator<Item = &'a Object>) -> Option<Rules> {
        let mut objects: Vec<_> = objects.collect();
        objects.sort_by_cached_key(|object| script::place(object));
        let rules = vipline_evaluate::iptables::Rules::new();
        let rules = rules.with_objects(objects, family);
        let evaluator = rules.evaluator();
        Some(evaluate::rules(evaluator, &Ruleset::new(), NoClients, true))
    }

    fn script<'a>(
        family: Family,
        edits: Vec<Edit<Object>>,
        _desired: impl Iterator<Item = &'a Object>,
    ) -> String {
        script::document(family, edits)
    }

    fn listing<'a>(family: Family, objects: impl Iterator<Item = &'a Object>) -> String {
        script::document(family, objects.cloned().map(Edit::Add).collect())
    }
}
