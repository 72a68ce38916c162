//! The objects of all files, and the events after a change of files.
//!
//! The first file that names an object owns it. The same object in another
//! place is an error without effect. Errors in a file keep the last valid state
//! of its objects.

mod events;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

pub use events::Events;

use events::Change;

use super::fault::{Fault, Key, Place};
use super::object::Object;
use super::parse::{IgnoredObject, InvalidObject, Manifest, ValidObject, document_number, parse};

/// The objects of all files.
///
/// Keeps names and hashes of objects. The objects themselves are in the events.
#[derive(Debug, Default)]
pub struct Source {
    files: BTreeMap<Arc<Path>, File>,
    /// Invariant: a list is not empty, and its first claim owns the key.
    claims: HashMap<Key, Vec<Claim>>,
}

#[derive(Debug, Default)]
struct File {
    /// Invariant: exactly the keys that the file claims.
    keys: Vec<Key>,
    /// Errors of the last read.
    reported: Vec<Fault>,
}

#[derive(Clone, Debug)]
struct Claim {
    file: Arc<Path>,
    place: Place,
    digest: Digest,
    /// The object until its event.
    ///
    /// Invariant: present in all claims except the first one.
    object: Option<Box<Object>>,
}

/// Hash of an object. Equal objects have equal hashes, and a changed object has another
/// hash, except with a probability of 2^-64.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Digest(u64);

impl Digest {
    fn of(object: &Object) -> Self {
        let mut hasher = DefaultHasher::new();
        object.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Content of a file.
///
/// Exhaustive: a file is missing, readable or unreadable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Content {
    /// The file does not exist.
    Gone,
    /// The text of the file.
    Text(String),
    /// The file exists but cannot be read, for this reason.
    Unreadable(String),
}

/// Result of a change of files.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Update {
    /// Events of changed objects.
    pub events: Events,
    /// New errors, not reported before.
    pub errors: Vec<Fault>,
    /// Objects of other kinds, as `FILE:LINE: KIND`.
    pub ignored: Vec<String>,
}

impl Source {
    /// Applies a batch of changed files.
    ///
    /// Moving an object between files of the batch is no change.
    pub fn update(&mut self, batch: Batch) -> Update {
        let mut update = Update {
            ignored: batch.ignored,
            ..Update::default()
        };
        let mut changed = ChangedKeys::default();
        for (file, objects) in &batch.files {
            if let Ok(objects) = objects {
                self.release(file, objects, &mut changed);
            }
        }
        for (file, objects) in batch.files {
            let errors = match objects {
                Ok(objects) => self.claim(&file, objects, &mut changed),
                Err(error) => vec![*error],
            };
            self.report(&file, errors, &mut update);
        }
        update.events = changed.events(&mut self.claims);
        update
    }

    /// Returns whether a file of the batch may be incomplete: it has an error,
    /// or objects would be removed.
    pub fn may_be_incomplete(&self, batch: &Batch) -> bool {
        let objects = || {
            batch
                .files
                .iter()
                .filter_map(|(_, objects)| objects.as_ref().ok())
        };
        let is_named = |key: &Key| objects().any(|objects| objects.keys.contains(key));
        batch.files.iter().any(|(file, objects)| match objects {
            Err(_) => true,
            Ok(objects) if !objects.errors.is_empty() => true,
            Ok(objects) => self.files.get(file).is_some_and(|held| {
                held.keys
                    .iter()
                    .any(|key| !objects.keys.contains(key) && !is_named(key))
            }),
        })
    }

    /// Returns the files that contain objects or errors.
    pub fn files(&self) -> impl Iterator<Item = &Arc<Path>> {
        self.files.keys()
    }

    /// Returns whether a file has errors.
    pub fn has_errors(&self, file: &Path) -> bool {
        self.files
            .get(file)
            .is_some_and(|file| !file.reported.is_empty())
    }

    /// Returns whether a file contains the object.
    pub fn holds(&self, key: &Key) -> bool {
        self.claims.contains_key(key)
    }

    /// Releases the objects that a file no longer contains.
    fn release(&mut self, file: &Arc<Path>, objects: &FileObjects, changed: &mut ChangedKeys) {
        if objects.keep_rest {
            return;
        }
        let Some(held) = self.files.get_mut(file) else {
            return;
        };
        let (kept, gone) = held
            .keys
            .drain(..)
            .partition(|key| objects.keys.contains(key));
        held.keys = kept;
        for key in gone {
            let Some(claims) = self.claims.get_mut(&key) else {
                continue;
            };
            changed.record(&key, claims.first());
            claims.retain(|claim| claim.file != *file);
            if claims.is_empty() {
                self.claims.remove(&key);
            }
        }
        if held.keys.is_empty() && objects.is_empty() {
            self.files.remove(file);
        }
    }

    /// Claims the objects of a file. Returns the errors.
    fn claim(
        &mut self,
        file: &Arc<Path>,
        objects: FileObjects,
        changed: &mut ChangedKeys,
    ) -> Vec<Fault> {
        let mut errors = objects.errors;
        for ValidObject { key, place, object } in objects.objects {
            let claims = self.claims.entry(key.clone()).or_default();
            changed.record(&key, claims.first());
            let digest = Digest::of(&object);
            if let Some(claim) = claims.iter_mut().find(|claim| claim.file == *file) {
                claim.place = place;
                if claim.digest != digest {
                    claim.digest = digest;
                    claim.object = Some(object);
                }
            } else {
                // Most objects have a single claim.
                claims.reserve_exact(1);
                claims.push(Claim {
                    file: Arc::clone(file),
                    place,
                    digest,
                    object: Some(object),
                });
                self.files
                    .entry(Arc::clone(file))
                    .or_default()
                    .keys
                    .push(key.clone());
            }
            if let Some(holder) = claims.first().filter(|holder| holder.file != *file) {
                errors.push(duplicate(file, key, place, &holder.file, holder.place));
            }
        }
        errors
    }

    /// Adds the errors of a file that were not reported at the last read.
    fn report(&mut self, file: &Arc<Path>, errors: Vec<Fault>, update: &mut Update) {
        if errors.is_empty() {
            if let Some(file) = self.files.get_mut(file) {
                file.reported.clear();
            }
            return;
        }
        let reported = &mut self.files.entry(Arc::clone(file)).or_default().reported;
        update.errors.extend(
            errors
                .iter()
                .filter(|error| !reported.contains(error))
                .cloned(),
        );
        *reported = errors;
    }
}

/// Parsed files, not applied yet.
#[derive(Debug, Default)]
pub struct Batch {
    files: Vec<(Arc<Path>, Read)>,
    ignored: Vec<String>,
}

/// The objects of a file, or the reason why it cannot be parsed.
type Read = Result<FileObjects, Box<Fault>>;

impl FromIterator<(Arc<Path>, Content)> for Batch {
    fn from_iter<I: IntoIterator<Item = (Arc<Path>, Content)>>(files: I) -> Self {
        let mut batch = Self::default();
        for (file, content) in files {
            let objects = batch.read(&file, content);
            batch.files.push((file, objects));
        }
        batch
    }
}

impl Batch {
    fn read(&mut self, file: &Arc<Path>, content: Content) -> Read {
        let text = match content {
            Content::Text(text) => text,
            Content::Gone => return Ok(FileObjects::default()),
            Content::Unreadable(reason) => {
                let fault = Fault::unplaced(reason);
                return Err(fault.in_file(Arc::clone(file), None, None).into());
            }
        };
        let manifest = parse(&text).map_err(|fault| {
            let document = document_number(&text, fault.at.line);
            Box::new(fault.in_file(Arc::clone(file), Some(document), None))
        })?;
        drop(text);
        for IgnoredObject { kind, place } in &manifest.ignored {
            self.ignored
                .push(format!("{}:{}: {kind}", file.display(), place.at.line));
        }
        Ok(FileObjects::new(file, manifest))
    }
}

/// The objects of a parsed file.
#[derive(Debug, Default)]
struct FileObjects {
    /// Invariant: keys are unique.
    objects: Vec<ValidObject>,
    /// Keys of all objects, including invalid ones, whose last valid state
    /// stays.
    keys: HashSet<Key>,
    /// Whether an invalid object has no known key, so that no object of the
    /// file may be removed.
    keep_rest: bool,
    errors: Vec<Fault>,
}

impl FileObjects {
    fn new(file: &Arc<Path>, manifest: Manifest) -> Self {
        let mut objects = Self {
            keys: HashSet::with_capacity(manifest.objects.len()),
            objects: manifest.objects,
            ..Self::default()
        };
        objects.remove_duplicates(file);
        for InvalidObject { key, place, faults } in manifest.invalid {
            let document = Some(place.document);
            let named = faults
                .into_iter()
                .map(|fault| fault.in_file(Arc::clone(file), document, key.clone()));
            objects.errors.extend(named);
            objects.keep_rest |= key.is_none();
            objects.keys.extend(key);
        }
        objects.errors.sort_by_key(|error| error.at);
        objects
    }

    /// Collects the keys. Removes all but the first of objects with equal keys, and adds
    /// an error for each.
    fn remove_duplicates(&mut self, file: &Arc<Path>) {
        let mut repeated = Vec::new();
        self.objects.retain(|found| {
            let is_first = self.keys.insert(found.key.clone());
            if !is_first {
                repeated.push((found.key.clone(), found.place));
            }
            is_first
        });
        if repeated.is_empty() {
            return;
        }
        let places = self.objects.iter().map(|found| (&found.key, found.place));
        let places: HashMap<_, _> = places.collect();
        for (key, place) in repeated {
            if let Some(&first) = places.get(&key) {
                self.errors.push(duplicate(file, key, place, file, first));
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.errors.is_empty()
    }
}

fn duplicate(file: &Arc<Path>, key: Key, place: Place, other_file: &Path, other: Place) -> Fault {
    let reason = format!(
        "the same object exists at {}:{}:{} (document {})",
        other_file.display(),
        other.at.line,
        other.at.column,
        other.document
    );
    let fault = Fault::new(place.at, "", reason);
    fault.in_file(Arc::clone(file), Some(place.document), Some(key))
}

/// Keys changed by an update, with their objects before.
#[derive(Default)]
struct ChangedKeys {
    order: Vec<Key>,
    before: HashMap<Key, Option<Digest>>,
}

impl ChangedKeys {
    fn record(&mut self, key: &Key, holder: Option<&Claim>) {
        if !self.before.contains_key(key) {
            let digest = holder.map(|claim| claim.digest);
            self.before.insert(key.clone(), digest);
            self.order.push(key.clone());
        }
    }

    /// Returns the events that lead from the former to the current objects.
    fn events(mut self, claims: &mut HashMap<Key, Vec<Claim>>) -> Events {
        let mut events = Vec::new();
        for key in self.order {
            let before = self.before.remove(&key).flatten();
            let after = claims.get_mut(&key).and_then(|claims| claims.first_mut());
            match after {
                Some(claim) => {
                    let object = claim.object.take();
                    let changed = object.filter(|_| before != Some(claim.digest));
                    events.extend(changed.map(Change::Applied));
                }
                None if before.is_some() => events.push(Change::Deleted(key)),
                None => {}
            }
        }
        events.into()
    }
}

#[cfg(test)]
mod tests;
