//! What all files together hold, and what follows when some of them change.
//!
//! An object is held by the file that named it first; as long as it does, the
//! same object in another place is an error and changes nothing.
//! What is broken in a file leaves the last good state of its objects alone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use vipline_service_model::Event;

use super::fault::{Fault, Key, ManifestError, Place};
use super::object::Object;
use super::parse::{Broken, Found, Ignored, Manifest, document_number, parse};

/// The objects of all files.
#[derive(Debug, Default)]
pub struct Source {
    files: BTreeMap<Arc<Path>, File>,
    /// Invariant: each list has at least one claim; the first holds the key.
    claims: HashMap<Key, Vec<Claim>>,
}

#[derive(Debug, Default)]
struct File {
    /// Invariant: exactly the keys for which the file has a claim.
    keys: Vec<Key>,
    /// The errors told when the file was read last.
    told: Vec<ManifestError>,
}

#[derive(Clone, Debug)]
struct Claim {
    file: Arc<Path>,
    place: Place,
    object: Arc<Object>,
}

/// What a file holds now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Content {
    /// It is gone.
    Gone,
    /// This text.
    Text(String),
    /// It is there, but could not be read, for this reason.
    Unreadable(String),
}

/// What follows from a change of files.
#[derive(Debug, Default)]
pub struct Update {
    /// What changed about objects.
    pub events: Vec<Event>,
    /// What is wrong and has not been told before.
    pub errors: Vec<ManifestError>,
    /// Objects that are not read, as `FILE:LINE: KIND`.
    pub ignored: Vec<String>,
}

impl Source {
    /// Takes note of files that changed, all at once.
    ///
    /// An object that moves from one of the files to another is no change.
    pub fn update(&mut self, batch: Batch) -> Update {
        let mut update = Update {
            ignored: batch.ignored,
            ..Update::default()
        };
        let mut touched = Touched::default();
        for (file, wanted) in &batch.files {
            if let Ok(wanted) = wanted {
                self.release(file, wanted, &mut touched);
            }
        }
        for (file, wanted) in batch.files {
            let errors = match wanted {
                Ok(wanted) => self.claim(&file, wanted, &mut touched),
                Err(error) => vec![*error],
            };
            self.tell(&file, errors, &mut update);
        }
        update.events = touched.events(&self.claims);
        update
    }

    /// Tells whether the files may be read in the middle of being written:
    /// something in them is broken, or objects would go.
    pub fn doubts(&self, batch: &Batch) -> bool {
        let wanted = || {
            batch
                .files
                .iter()
                .filter_map(|(_, wanted)| wanted.as_ref().ok())
        };
        let is_named = |key: &Key| wanted().any(|wanted| wanted.keys.contains(key));
        batch.files.iter().any(|(file, wanted)| match wanted {
            Err(_) => true,
            Ok(wanted) if !wanted.errors.is_empty() => true,
            Ok(wanted) => self.files.get(file).is_some_and(|held| {
                held.keys
                    .iter()
                    .any(|key| !wanted.keys.contains(key) && !is_named(key))
            }),
        })
    }

    /// Returns the files that hold objects or errors.
    pub fn files(&self) -> impl Iterator<Item = &Arc<Path>> {
        self.files.keys()
    }

    /// Tells whether a file is wrong in some way.
    pub fn is_broken(&self, file: &Path) -> bool {
        self.files
            .get(file)
            .is_some_and(|file| !file.told.is_empty())
    }

    /// Tells whether an object is in some file.
    pub fn holds(&self, key: &Key) -> bool {
        self.claims.contains_key(key)
    }

    /// Gives up what a file does not want any more.
    fn release(&mut self, file: &Arc<Path>, wanted: &Wanted, touched: &mut Touched) {
        if wanted.keep_rest {
            return;
        }
        let Some(held) = self.files.get_mut(file) else {
            return;
        };
        let (kept, gone) = held
            .keys
            .drain(..)
            .partition(|key| wanted.keys.contains(key));
        held.keys = kept;
        for key in gone {
            let Some(claims) = self.claims.get_mut(&key) else {
                continue;
            };
            touched.note(&key, claims.first());
            claims.retain(|claim| claim.file != *file);
            if claims.is_empty() {
                self.claims.remove(&key);
            }
        }
        if held.keys.is_empty() && wanted.is_nothing() {
            self.files.remove(file);
        }
    }

    /// Takes what a file wants; returns what is wrong with it.
    fn claim(
        &mut self,
        file: &Arc<Path>,
        wanted: Wanted,
        touched: &mut Touched,
    ) -> Vec<ManifestError> {
        let mut errors = wanted.errors;
        for Found { key, place, object } in wanted.objects {
            let claims = self.claims.entry(key.clone()).or_default();
            touched.note(&key, claims.first());
            if let Some(claim) = claims.iter_mut().find(|claim| claim.file == *file) {
                claim.place = place;
                if *claim.object != object {
                    claim.object = Arc::new(object);
                }
            } else {
                let object = Arc::new(object);
                claims.push(Claim {
                    file: Arc::clone(file),
                    place,
                    object,
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

    /// Hands on the errors of a file that were not told when it was read last.
    fn tell(&mut self, file: &Arc<Path>, errors: Vec<ManifestError>, update: &mut Update) {
        if errors.is_empty() {
            if let Some(file) = self.files.get_mut(file) {
                file.told.clear();
            }
            return;
        }
        let told = &mut self.files.entry(Arc::clone(file)).or_default().told;
        update
            .errors
            .extend(errors.iter().filter(|error| !told.contains(error)).cloned());
        *told = errors;
    }
}

/// Files that were read, and changed nothing yet.
#[derive(Debug, Default)]
pub struct Batch {
    files: Vec<(Arc<Path>, Read)>,
    ignored: Vec<String>,
}

/// What a file asks for, or why it cannot be told.
type Read = Result<Wanted, Box<ManifestError>>;

impl FromIterator<(Arc<Path>, Content)> for Batch {
    fn from_iter<I: IntoIterator<Item = (Arc<Path>, Content)>>(files: I) -> Self {
        let mut batch = Self::default();
        for (file, content) in files {
            let wanted = batch.read(&file, content);
            batch.files.push((file, wanted));
        }
        batch
    }
}

impl Batch {
    fn read(&mut self, file: &Arc<Path>, content: Content) -> Read {
        let text = match content {
            Content::Text(text) => text,
            Content::Gone => return Ok(Wanted::default()),
            Content::Unreadable(reason) => {
                let fault = Fault::unplaced(reason);
                return Err(error(file, None, None, fault).into());
            }
        };
        let manifest = parse(&text).map_err(|fault| {
            let document = document_number(&text, fault.at.line);
            Box::new(error(file, Some(document), None, fault))
        })?;
        for Ignored { kind, place } in &manifest.ignored {
            self.ignored
                .push(format!("{}:{}: {kind}", file.display(), place.at.line));
        }
        Ok(Wanted::new(file, manifest))
    }
}

/// What a file that could be read asks for.
#[derive(Debug, Default)]
struct Wanted {
    /// Invariant: each key once.
    objects: Vec<Found>,
    /// The keys of the objects, and of those that are broken: their last good
    /// state stays.
    keys: HashSet<Key>,
    /// Whether something is broken that cannot be named: it may be any object.
    keep_rest: bool,
    errors: Vec<ManifestError>,
}

impl Wanted {
    fn new(file: &Arc<Path>, manifest: Manifest) -> Self {
        let mut wanted = Self::default();
        let mut places: HashMap<Key, Place> = HashMap::with_capacity(manifest.objects.len());
        for found in manifest.objects {
            if let Some(&place) = places.get(&found.key) {
                wanted
                    .errors
                    .push(duplicate(file, found.key, found.place, file, place));
            } else {
                places.insert(found.key.clone(), found.place);
                wanted.objects.push(found);
            }
        }
        for Broken { key, place, faults } in manifest.broken {
            let document = Some(place.document);
            let named = faults
                .into_iter()
                .map(|fault| error(file, document, key.clone(), fault));
            wanted.errors.extend(named);
            wanted.keep_rest |= key.is_none();
            wanted.keys.extend(key);
        }
        wanted.keys.extend(places.into_keys());
        wanted.errors.sort_by_key(|error| error.fault.at);
        wanted
    }

    fn is_nothing(&self) -> bool {
        self.objects.is_empty() && self.errors.is_empty()
    }
}

fn error(
    file: &Arc<Path>,
    document: Option<usize>,
    object: Option<Key>,
    fault: Fault,
) -> ManifestError {
    ManifestError {
        file: Arc::clone(file),
        document,
        object,
        fault,
    }
}

fn duplicate(
    file: &Arc<Path>,
    key: Key,
    place: Place,
    other_file: &Path,
    other: Place,
) -> ManifestError {
    let reason = format!(
        "the same object is at {}:{}:{} (document {})",
        other_file.display(),
        other.at.line,
        other.at.column,
        other.document
    );
    error(
        file,
        Some(place.document),
        Some(key),
        Fault::new(place.at, "", reason),
    )
}

/// The keys that an update touched, with the objects they stood for before.
#[derive(Default)]
struct Touched {
    order: Vec<Key>,
    before: HashMap<Key, Option<Arc<Object>>>,
}

impl Touched {
    fn note(&mut self, key: &Key, holder: Option<&Claim>) {
        if !self.before.contains_key(key) {
            let object = holder.map(|claim| Arc::clone(&claim.object));
            self.before.insert(key.clone(), object);
            self.order.push(key.clone());
        }
    }

    /// Returns the events between what was before and what is now.
    fn events(mut self, claims: &HashMap<Key, Vec<Claim>>) -> Vec<Event> {
        let mut events = Vec::new();
        for key in self.order {
            let before = self.before.remove(&key).flatten();
            let after = claims.get(&key).and_then(|claims| claims.first());
            match (before, after.map(|claim| &claim.object)) {
                (Some(before), Some(after)) if before == *after => {}
                (_, Some(after)) => events.push(Object::clone(after).applied()),
                (Some(_), None) => events.push(key.deleted()),
                (None, None) => {}
            }
        }
        events
    }
}

#[cfg(test)]
mod tests;
