//! A planner that remembers the base objects of recent contexts.

use std::any::Any;
use std::cell::RefCell;

use proxy_core::{Config, Context, Family, Planner, PortObjects};
use vipline_reconcile::Edit;
use vipline_service_model::ServicePort;

/// Number of remembered contexts of a thread. Histories of a mode start with the same two,
/// and a change of the node has up to four.
const CONTEXTS: usize = 16;

/// A planner and a context with its base objects.
type Base = (Box<dyn Any>, Context, Box<dyn Any>);

thread_local! {
    /// Base objects of contexts, the last used one first.
    static BASES: RefCell<Vec<Base>> = const { RefCell::new(Vec::new()) };
}

/// A planner that plans the base objects of equal contexts once, because each history
/// starts several engines.
#[derive(Clone, PartialEq)]
pub(crate) struct Cached<P>(P);

impl<P: for<'a> From<&'a Config>> From<&Config> for Cached<P> {
    fn from(config: &Config) -> Self {
        Self(P::from(config))
    }
}

impl<P: Planner> Planner for Cached<P>
where
    P::Object: 'static,
{
    type Object = P::Object;

    const EDITS_PER_SYNC: usize = P::EDITS_PER_SYNC;

    fn base(&self, cx: &Context) -> Vec<P::Object> {
        BASES.with_borrow_mut(|bases| {
            let is_known = |(planner, context, _): &Base| {
                planner.downcast_ref() == Some(&self.0) && context == cx
            };
            let base = match bases.iter().position(is_known) {
                Some(place) => bases.remove(place),
                None => (
                    Box::new(self.0.clone()) as Box<dyn Any>,
                    cx.clone(),
                    Box::new(self.0.base(cx)) as Box<dyn Any>,
                ),
            };
            let objects = base.2.downcast_ref::<Vec<P::Object>>().cloned();
            bases.insert(0, base);
            bases.truncate(CONTEXTS);
            objects.unwrap()
        })
    }

    fn requires_replan(&self, before: &Context, after: &Context) -> bool {
        self.0.requires_replan(before, after)
    }

    fn port(&self, cx: &Context, port: &ServicePort) -> PortObjects<P::Object> {
        self.0.port(cx, port)
    }

    fn is_removal_delayed(object: &P::Object) -> bool {
        P::is_removal_delayed(object)
    }

    fn tolerates_unused(object: &P::Object) -> bool {
        P::tolerates_unused(object)
    }

    fn is_optional(object: &P::Object) -> bool {
        P::is_optional(object)
    }

    fn rule_count(object: &P::Object) -> Option<(&'static str, usize)> {
        P::rule_count(object)
    }

    fn text(object: &P::Object) -> String {
        P::text(object)
    }

    fn script<'a>(
        family: Family,
        edits: Vec<Edit<P::Object>>,
        desired: impl Iterator<Item = &'a P::Object>,
    ) -> String
    where
        P::Object: 'a,
    {
        P::script(family, edits, desired)
    }

    fn listing<'a>(family: Family, objects: impl Iterator<Item = &'a P::Object>) -> String
    where
        P::Object: 'a,
    {
        P::listing(family, objects)
    }
}
