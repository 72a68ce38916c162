//! What is known about each Service, and whose ports are due to be resolved.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use crate::changes::BothFamilies;
use crate::frontend::Frontend;
use crate::slices::Slice;
use crate::{Family, ObjectName, PortName, ServicePort, Timestamp};

/// The entries of all Services, by name and by place.
///
/// A place is found once per event; what follows needs no look at names.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    slots: Vec<Entry>,
    /// Invariant: names exactly the open entries.
    places: HashMap<ObjectName, Place>,
    /// Invariant: the places of all entries that are not open.
    vacant: Vec<Place>,
    /// Invariant: the places of all entries with the mark, each once.
    dirty: Vec<Place>,
}

/// Where an entry is; good until the entry is closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Place(usize);

/// What is known about one Service.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// The Service's name; `None` where the place is vacant.
    name: Option<ObjectName>,
    /// Whether the ports are due to be resolved; outlives the entry.
    is_dirty: bool,
    pub(crate) frontend: Option<Arc<Frontend>>,
    /// What the Service was at the last resolve, if it differs.
    pub(crate) former: Option<Option<Arc<Frontend>>>,
    /// Invariant: sorted by name.
    pub(crate) slices: Vec<Slice>,
    /// The ports last handed out, sorted by family and name.
    pub(crate) ports: Vec<Arc<ServicePort>>,
    pub(crate) trigger_times: Vec<(Family, Timestamp)>,
}

impl Entries {
    /// Returns where a Service's entry is, if there is one.
    pub(crate) fn find(&self, name: &ObjectName) -> Option<Place> {
        self.places.get(name).copied()
    }

    /// Returns where a Service's entry is, a new one if need be.
    ///
    /// A new entry must be filled and marked.
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

    /// Returns all entries, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().filter(|entry| entry.name.is_some())
    }

    /// Marks an entry to be resolved, or closes it if nothing is in it.
    pub(crate) fn mark(&mut self, place: Place) {
        if self.at(place).is_idle() {
            self.close(place);
        } else if !mem::replace(&mut self.at_mut(place).is_dirty, true) {
            self.dirty.push(place);
        }
    }

    /// Marks all entries to be resolved.
    pub(crate) fn mark_all(&mut self) {
        for (place, entry) in self.slots.iter_mut().enumerate() {
            if entry.name.is_some() && !mem::replace(&mut entry.is_dirty, true) {
                self.dirty.push(Place(place));
            }
        }
    }

    /// Tells whether an entry is marked.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
            .iter()
            .any(|&place| self.at(place).name.is_some())
    }

    /// Takes the marks away and returns where they were, oldest first.
    pub(crate) fn take_dirty(&mut self) -> Vec<Place> {
        let mut dirty = mem::take(&mut self.dirty);
        dirty.retain(|&place| {
            let entry = self.at_mut(place);
            entry.is_dirty = false;
            entry.name.is_some()
        });
        dirty
    }

    /// Closes an entry if nothing is in it any more.
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
        self.name.as_ref().expect("nobody looks at a vacant place")
    }

    /// Tells in which families UDP ports have endpoints.
    pub(crate) fn udp(&self) -> BothFamilies<bool> {
        let mut udp = BothFamilies::default();
        for slice in self.slices.iter().filter(|slice| slice.has_udp()) {
            *udp.of_mut(slice.family) = true;
        }
        udp
    }

    /// Puts a slice in and returns the one it replaces; an equal one stays.
    pub(crate) fn put_slice(&mut self, slice: Slice) -> Put {
        match self
            .slices
            .binary_search_by(|held| held.name.cmp(&slice.name))
        {
            Ok(index) if self.slices[index] == slice => Put::Same,
            Ok(index) => Put::Replaced(mem::replace(&mut self.slices[index], slice)),
            Err(index) => {
                // Most Services have one slice for ever: no room for more.
                self.slices.reserve_exact(1);
                self.slices.insert(index, slice);
                Put::New
            }
        }
    }

    /// Takes a slice out.
    pub(crate) fn take_slice(&mut self, name: &str) -> Option<Slice> {
        let index = self
            .slices
            .binary_search_by(|held| (*held.name).cmp(name))
            .ok()?;
        Some(self.slices.remove(index))
    }

    /// Replaces the ports and tells of each that differs, in their order.
    ///
    /// Ports that stay equal stay the same in memory.
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

    /// Tells whether the entry is as if its Service had never been seen.
    fn is_idle(&self) -> bool {
        self.frontend.is_none()
            && self.former.is_none()
            && self.slices.is_empty()
            && self.ports.is_empty()
    }
}

/// What became of a slice that was put in.
#[derive(Debug)]
pub(crate) enum Put {
    /// There was none of its name.
    New,
    /// It took the place of this one.
    Replaced(Slice),
    /// It was there already.
    Same,
}

/// Returns what the ports of a Service are sorted by.
fn order(port: &ServicePort) -> (Family, &PortName) {
    (port.family, &port.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_that_come_and_go_use_one_place_that_waits_once() {
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
