//! Which objects of a kind there are, so that those that vanish unseen are missed.

use std::collections::HashMap;

use vipline_service_model::ObjectName;

/// The names of the objects that the API was found to have.
///
/// Only names are compared when everything is listed again, not versions: after
/// an API server was set back to a former state, the same version may stand for
/// another content.
#[derive(Debug, Default)]
pub struct Known {
    /// In which round each object was seen last; the key is the name as text,
    /// which takes a third of the memory.
    objects: HashMap<Box<str>, u32>,
    round: u32,
}

impl Known {
    /// Begins a new list; what it does not show is missing at its end.
    pub fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Takes note that an object is there.
    pub fn see(&mut self, name: &ObjectName) {
        self.objects.insert(name.to_string().into(), self.round);
    }

    /// Takes note that an object is gone.
    pub fn miss(&mut self, name: &ObjectName) {
        self.objects.remove(&*name.to_string());
    }

    /// Ends a list: returns and forgets what it did not show.
    pub fn end(&mut self) -> Vec<ObjectName> {
        let round = self.round;
        let gone = self.objects.extract_if(|_, seen| *seen != round);
        let mut gone: Vec<_> = gone.map(|(name, _)| read(&name)).collect();
        gone.sort_unstable();
        gone
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
    fn what_a_complete_list_does_not_show_is_gone() {
        let [web, dns, node] = [("shop", "web"), ("kube-system", "dns"), ("", "node-1")]
            .map(|(namespace, name)| ObjectName::new(namespace, name));
        let mut known = Known::default();
        known.begin();
        for name in [&web, &dns, &node] {
            known.see(name);
        }
        assert!(known.end().is_empty());
        known.begin();
        known.see(&dns);
        // The list broke off, and another one is begun.
        known.begin();
        known.see(&web);
        known.miss(&node);
        assert_eq!(known.end(), std::slice::from_ref(&dns));
        known.begin();
        assert_eq!(known.end(), [web], "what is gone is gone once");
    }

    #[test]
    fn what_a_watch_told_counts_until_the_next_list() {
        let mut known = Known::default();
        known.begin();
        assert!(known.end().is_empty());
        let web = ObjectName::new("shop", "web");
        known.see(&web);
        known.begin();
        assert_eq!(known.end(), [web]);
    }
}
