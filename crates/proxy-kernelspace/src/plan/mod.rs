//! Planning of mode kernelspace, without IO: the objects of a context and of service ports.

pub(super) mod names;

pub(super) mod object;

mod base;

mod selection;

mod endpoint;

mod port;

use vipline_reconcile::Edit;
use vipline_service_model::{Family, ServicePort};

use self::object::Object;
use super::Settings;
use proxy_engine::{Context, PortObjects};

/// The planner of mode kernelspace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Planner {
    settings: Settings,
}

impl Planner {
    /// Creates a planner.
    ///
    /// Endpoints that HNS has already keep their provider addresses, as in upstream. So set
    /// the subnets of other nodes before a sync.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl proxy_engine::Planner for Planner {
    type Object = Object;

    /// HNS takes several milliseconds for each load balancer.
    const EDITS_PER_SYNC: usize = 256;

    fn base(&self, cx: &Context) -> Vec<Object> {
        base::objects(cx, &self.settings)
    }

    fn requires_replan(&self, before: &Context, after: &Context) -> bool {
        before.node_address != after.node_address
    }

    fn port(&self, cx: &Context, port: &ServicePort) -> PortObjects<Object> {
        port::objects(cx, &self.settings, port)
    }

    fn text(object: &Object) -> String {
        object.to_string()
    }

    /// Returns one line for each edit: `+` adds or modifies, `-` deletes.
    fn script<'a>(
        _family: Family,
        edits: Vec<Edit<Object>>,
        _desired: impl Iterator<Item = &'a Object>,
    ) -> String {
        let line = |edit: &Edit<Object>| match edit {
            Edit::Remove(object) => format!("- {object}\n"),
            edit => format!("+ {}\n", edit.object()),
        };
        edits.iter().map(line).collect()
    }

    fn listing<'a>(_family: Family, objects: impl Iterator<Item = &'a Object>) -> String {
        let mut lines: Vec<_> = objects.map(|object| format!("{object}\n")).collect();
        lines.sort_unstable();
        lines.concat()
    }
}
