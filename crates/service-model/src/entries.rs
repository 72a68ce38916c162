//! State of each Service, and the Services that are due to be resolved.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use crate::changes::BothFamilies;
use crate::frontend::Frontend;
use crate::slices::Slice;
use crate::{Family, ObjectName, PortName, ServicePort, Timestamp};

/// The entries of all Services, by name and by position.
///
/// An event looks up the position by name once.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    slots: Vec<Entry>,
    /// Invariant: holds exactly the open entries.
    places: HashMap<ObjectName, Place>,
    /// Invariant: the positions of all entries that are not open.
    vacant: Vec<Place>,
    /// Invariant: the positions of all dirty entries, each once.
    dirty: Vec<Place>,
}

/// Position of an entry. Valid until the entry is closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Place(usize);

/// State of one Service.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// Name of the Service. `None` in a vacant position.
    name: Option<ObjectName>,
    /// Whether the ports are due to be resolved. Stays set when the entry is closed.
    is_dirty: bool,
    pub(crate) frontend: Option<Arc<Frontend>>,
    /// The Service at the last resolve, if it differs.
    pub(crate) former: Option<Option<Arc<Frontend>>>,
    /// Invariant: sorted by name.
    pub(crate) slices: Vec<Slice>,
    /// The ports of the last resolve, sorted by family and name.
    pub(crate) ports: Vec<Arc<ServicePort>>,
    pub(crate) trigger_times: Vec<(Family, Timestamp)>,
}

impl Entries {
    /// Returns the position of a Service's entry.
    pub(crate) fn find(&self, name: &ObjectName) -> Option<Place> {
        self.places.get(name).copied()
    }

    /// Returns the position of a Service's entry, and creates the entry if necessary.
    ///
    /// The caller must fill and mark a new entry.
    pub(crate) fn open(&mut self, name: ObjectName) -> Place {
        if let Some(place) = self.find(&name) {
            return place;
        }
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Entry::default());
            Place(self.slots.len() - 1)
        });
        self.at_mut(place).name = Some(name.clone());
        self.places.insert(name, place);
        place
    }

    pub(crate) fn at(&self, place: Place) -> &Entry {
        &self.slots[place.0]
    }

    pub(crate) fn at_mut(&mut self, place: Place) -> &mut Entry {
        &mut self.slots[place.0]
    }

    /// Returns all open entries, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().filter(|entry| entry.name.is_some())
    }

    /// Marks an entry dirty, or closes it if it is empty.
    pub(crate) fn mark(&mut self, place: Place) {
        if self.at(place).is_idle() {
            self.close(place);
        } else if !mem::replace(&mut self.at_mut(place).is_dirty, true) {
            self.dirty.push(place);
        }
    }

    /// Marks all entries dirty.
    pub(crate) fn mark_all(&mut self) {
        for (place, entry) in self.slots.iter_mut().enumerate() {
            if entry.name.is_some() && !mem::replace(&mut entry.is_dirty, true) {
                self.dirty.push(Place(place));
            }
        }
    }

    /// Returns whether an open entry is dirty.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
            .iter()
            .any(|&place| self.at(place).name.is_some())
    }

    /// Clears all marks and returns the marked open entries, oldest mark first.
    pub(crate) fn take_dirty(&mut self) -> Vec<Place> {
        let mut dirty = mem::take(&mut self.dirty);
        dirty.retain(|&place| {
            let entry = self.at_mut(place);
            entry.is_dirty = false;
            entry.name.is_some()
        });
        dirty
    }

    /// Closes an entry if it is empty.
    pub(crate) fn close_if_idle(&mut self, place: Place) {
        if self.at(place).is_idle() {
            self.close(place);
        }
    }

    fn close(&mut self, place: Place) {
        let entry = self.at_mut(place);
        let is_dirty = entry.is_dirty;
        let closed = mem::replace(
            entry,
            Entry {
                is_dirty,
                ..Entry::default()
            },
        );
        if let Some(name) = closed.name {
            self.places.remove(&name);
            self.vacant.push(place);
        }
    }
}

impl Entry {
    /// Returns the name of the Service.
    pub(crate) fn name(&self) -> &ObjectName {
        self.name.as_ref().expect("only open entries are accessed")
    }

    /// Returns the families in which a UDP port has endpoints.
    pub(crate) fn udp(&self) -> BothFamilies<bool> {
        let mut udp = BothFamilies::default();
        for slice in self.slices.iter().filter(|slice| slice.has_udp()) {
            *udp.of_mut(slice.family) = true;
        }
        udp
    }

    /// Inserts or replaces a slice.
    pub(crate) fn put_slice(&mut self, slice: Slice) -> Put {
        match self
            .slices
            .binary_search_by(|held| held.name.cmp(&slice.name))
        {
            Ok(index) if self.slices[index] == slice => Put::Same,
            Ok(index) => Put::Replaced(mem::replace(&mut self.slices[index], slice)),
            Err(index) => {
                // Most Services never have a second slice.
                self.slices.reserve_exact(1);
                self.slices.insert(index, slice);
                Put::New
            }
        }
    }

    /// Removes a slice.
    pub(crate) fn take_slice(&mut self, name: &str) -> Option<Slice> {
        let index = self
            .slices
            .binary_search_by(|held| (*held.name).cmp(name))
            .ok()?;
        Some(self.slices.remove(index))
    }

    /// Replaces the ports and calls `differs` with the old and new value of each changed
    /// port, in order.
    ///
    /// Unchanged ports keep their allocation.
    pub(crate) fn replace_ports(
        &mut self,
        wanted: Vec<ServicePort>,
        mut differs: impl FnMut(Option<&Arc<ServicePort>>, Option<&Arc<ServicePort>>),
    ) {
        let mut former = mem::take(&mut self.ports).into_iter().peekable();
        self.ports.reserve_exact(wanted.len());
        for port in wanted {
            while let Some(gone) = former.next_if(|held| order(held) < order(&port)) {
                differs(Some(&gone), None);
            }
            match former.next_if(|held| order(held) == order(&port)) {
                Some(held) if *held == port => self.ports.push(held),
                held => {
                    let port = Arc::new(port);
                    differs(held.as_ref(), Some(&port));
                    self.ports.push(port);
                }
            }
        }
        for gone in former {
            differs(Some(&gone), None);
        }
    }

    /// Returns whether the entry is empty.
    fn is_idle(&self) -> bool {
        self.frontend.is_none()
            && self.former.is_none()
            && self.slices.is_empty()
            && self.ports.is_empty()
    }
}

/// Result of [`Entry::put_slice`].
#[derive(Debug)]
pub(crate) enum Put {
    /// The name is new.
    New,
    /// The slice replaced another one of its name.
    Replaced(Slice),
    /// An equal slice was already present.
    Same,
}

/// Returns the sort key of a port within its Service.
fn order(port: &ServicePort) -> (Family, &PortName) {
    (port.family, &port.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_created_and_deleted_in_turn_reuse_one_entry_with_one_mark() {
        let mut entries = Entries::default();
        for number in 0..100 {
            let place = entries.open(ObjectName::new("default", format!("web-{number}")));
            entries.at_mut(place).former = Some(None);
            entries.mark(place);
            entries.at_mut(place).former = None;
            entries.mark(place);
        }
        assert_eq!((entries.slots.len(), entries.dirty.len()), (1, 1));
        assert_eq!(entries.vacant, [Place(0)]);
        assert!(!entries.is_dirty());
        let place = entries.open(ObjectName::new("default", "web"));
        entries.mark_all();
        assert!(entries.is_dirty());
        assert_eq!(entries.take_dirty(), [place]);
        assert_eq!(entries.take_dirty(), []);
    }
}
