//! The difference between two states of HNS.

use std::collections::HashMap;

use serde::Serialize;
use vipline_hcn::{Endpoint, Id, LoadBalancer};

use super::state::Objects;

/// The changes from one state to another.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Changes {
    /// New objects. HNS assigns other identifiers.
    #[serde(skip_serializing_if = "Objects::is_empty")]
    create: Objects,
    /// Objects with their new properties.
    #[serde(skip_serializing_if = "Objects::is_empty")]
    modify: Objects,
    #[serde(skip_serializing_if = "Objects::is_empty")]
    delete: Objects,
}

impl Changes {
    /// Compares two states by the identifiers of objects.
    pub(super) fn between(before: Objects, after: Objects) -> Self {
        let mut changes = Self::default();
        let Self {
            create,
            modify,
            delete,
        } = &mut changes;
        let lists = Lists {
            create: &mut create.endpoints,
            modify: &mut modify.endpoints,
            delete: &mut delete.endpoints,
        };
        let id = |endpoint: &Endpoint| endpoint.id.clone();
        lists.fill(before.endpoints, after.endpoints, id);
        let lists = Lists {
            create: &mut create.load_balancers,
            modify: &mut modify.load_balancers,
            delete: &mut delete.load_balancers,
        };
        let id = |load_balancer: &LoadBalancer| load_balancer.id.clone();
        lists.fill(before.load_balancers, after.load_balancers, id);
        changes
    }
}

/// The changes of objects of one kind.
struct Lists<'a, T> {
    create: &'a mut Vec<T>,
    modify: &'a mut Vec<T>,
    delete: &'a mut Vec<T>,
}

impl<T: PartialEq> Lists<'_, T> {
    fn fill(self, before: Vec<T>, after: Vec<T>, id: impl Fn(&T) -> Id) {
        let mut before: HashMap<Id, T> = before.into_iter().map(|it| (id(&it), it)).collect();
        for new in after {
            match before.remove(&id(&new)) {
                None => self.create.push(new),
                Some(old) if old != new => self.modify.push(new),
                Some(_) => {}
            }
        }
        self.delete.extend(before.into_values());
        self.delete.sort_by_key(|it| id(it).as_str().to_owned());
    }
}
