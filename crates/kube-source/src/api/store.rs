//! Names of the listed objects of a kind, to find objects that vanished between
//! two lists.

use std::collections::HashMap;

use vipline_service_model::ObjectName;

/// Names of the objects that the API server has.
///
/// Names are compared, not resource versions: after a restore of etcd the same
/// version may stand for other content.
#[derive(Debug, Default)]
pub(crate) struct NameStore {
    /// The list in which each object appeared last. Keys are names as text,
    /// which take a third of the memory.
    objects: HashMap<Box<str>, u32>,
    generation: u32,
}

impl NameStore {
    /// Begins a list. Objects that it lacks are returned by
    /// [`finish_list`](Self::finish_list).
    pub(crate) fn begin_list(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Inserts an object of the current list, or of a watch.
    pub(crate) fn insert(&mut self, name: &ObjectName) {
        self.objects
            .insert(name.to_string().into(), self.generation);
    }

    /// Removes a deleted object.
    pub(crate) fn remove(&mut self, name: &ObjectName) {
        self.objects.remove(&*name.to_string());
    }

    /// Ends a list. Removes and returns the objects that it lacked.
    pub(crate) fn finish_list(&mut self) -> Vec<ObjectName> {
        let generation = self.generation;
        let removed = self.objects.extract_if(|_, seen| *seen != generation);
        let mut removed: Vec<_> = removed.map(|(name, _)| read(&name)).collect();
        removed.sort_unstable();
        removed
    }
}

fn read(name: &str) -> ObjectName {
    match name.split_once('/') {
        Some((namespace, name)) => ObjectName::new(namespace, name),
        None => ObjectName::new("", name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_missing_from_a_complete_list_are_removed() {
        let [web, dns, node] = [("shop", "web"), ("kube-system", "dns"), ("", "node-1")]
            .map(|(namespace, name)| ObjectName::new(namespace, name));
        let mut names = NameStore::default();
        names.begin_list();
        for name in [&web, &dns, &node] {
            names.insert(name);
        }
        assert!(names.finish_list().is_empty());
        names.begin_list();
        names.insert(&dns);
        // The list failed, and another one begins.
        names.begin_list();
        names.insert(&web);
        names.remove(&node);
        assert_eq!(names.finish_list(), std::slice::from_ref(&dns));
        names.begin_list();
        assert_eq!(
            names.finish_list(),
            [web],
            "what is removed is removed once"
        );
    }

    #[test]
    fn an_object_of_a_watch_exists_until_the_next_list() {
        let mut names = NameStore::default();
        names.begin_list();
        assert!(names.finish_list().is_empty());
        let web = ObjectName::new("shop", "web");
        names.insert(&web);
        names.begin_list();
        assert_eq!(names.finish_list(), [web]);
    }
}
