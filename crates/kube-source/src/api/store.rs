//! Names of the listed objects of a kind, to find objects that vanished between
//! two lists.

use std::collections::HashSet;
use std::mem;

use vipline_service_model::ObjectName;

/// Names of the objects that the API server has.
///
/// Names are compared, not resource versions: after a restore of etcd the same
/// version may stand for other content. Names are kept as text, which takes a third of
/// the memory.
#[derive(Debug, Default)]
pub(crate) struct NameStore {
    /// Names of the current list, if one began, and of later notifications.
    current: HashSet<Box<str>>,
    /// Names that the current list has not contained yet. Empty after a complete list.
    former: HashSet<Box<str>>,
}

impl NameStore {
    /// Begins a list. Objects that it lacks are returned by
    /// [`finish_list`](Self::finish_list).
    pub(crate) fn begin_list(&mut self) {
        // The last list may have failed.
        let unseen = mem::take(&mut self.former);
        self.former = mem::take(&mut self.current);
        self.former.extend(unseen);
    }

    /// Inserts an object of the current list, or of a watch.
    pub(crate) fn insert(&mut self, name: &ObjectName) {
        let text: Box<str> = name.to_string().into();
        // Moves the text: most objects are in both lists.
        let text = self.former.take(&text).unwrap_or(text);
        self.current.insert(text);
    }

    /// Removes a deleted object.
    pub(crate) fn remove(&mut self, name: &ObjectName) {
        let text = name.to_string();
        self.current.remove(&*text);
        self.former.remove(&*text);
    }

    /// Ends a list. Removes and returns the objects that it lacked.
    pub(crate) fn finish_list(&mut self) -> Vec<ObjectName> {
        let removed = mem::take(&mut self.former);
        let mut removed: Vec<_> = removed.iter().map(|name| read(name)).collect();
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
