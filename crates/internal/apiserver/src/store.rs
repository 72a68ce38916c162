//! Stored objects and the history of their changes.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Map, Value};

use crate::key::Key;
use crate::kind::Kind;
use crate::metadata;

/// Version of the first object.
const FIRST: u64 = 1000;
/// Default limit of the history of each kind.
const KEEP: usize = 20_000;

/// One version of an object, in serialized form.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
    pub(crate) version: u64,
    pub(crate) labels: BTreeMap<String, String>,
    /// Fields for field selectors, except name and namespace.
    fields: BTreeMap<&'static str, String>,
    /// JSON text without the first brace, `apiVersion` and `kind`.
    tail: Box<[u8]>,
}

/// A change of one object.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) before: Option<Arc<Object>>,
    /// [`None`]: the object was deleted.
    pub(crate) after: Option<Arc<Object>>,
}

/// Error: the version is older than the history.
#[derive(Debug)]
pub(crate) struct Gone;

/// Objects of all kinds, with one version counter.
#[derive(Debug)]
pub(crate) struct Store {
    version: u64,
    tables: Vec<Table>,
    keep: usize,
    made: u64,
}

/// Objects of one kind.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) objects: BTreeMap<Key, Arc<Object>>,
    /// All changes after `oldest`, in order.
    log: VecDeque<Arc<Change>>,
    oldest: u64,
}

impl Object {
    fn new(kind: Kind, key: Key, version: u64, mut object: Map<String, Value>) -> Self {
        object.remove("apiVersion");
        object.remove("kind");
        let labels = object
            .get("metadata")
            .and_then(|metadata| metadata["labels"].as_object())
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect();
        let fields = kind.fields().filter_map(|field| {
            let name = field.strip_prefix("spec.")?;
            let value = object.get("spec")?[name].as_str()?;
            Some((field, value.to_owned()))
        });
        let fields = fields.collect();
        let text = serde_json::to_vec(&object).expect("a JSON object is serializable");
        Self {
            kind,
            key,
            version,
            labels,
            fields,
            tail: text[1..].into(),
        }
    }

    /// Returns a field for field selectors, or an empty string if it is absent.
    pub(crate) fn field(&self, name: &str) -> &str {
        match name {
            "metadata.name" => &self.key.name,
            "metadata.namespace" => &self.key.namespace,
            name => self.fields.get(name).map_or("", String::as_str),
        }
    }

    #[cfg(test)]
    pub(crate) fn of_version(kind: Kind, version: u64, object: Map<String, Value>) -> Self {
        let key = Key::of(kind, &object).expect("the object has a name");
        Self::new(kind, key, version, object)
    }

    /// Appends the object as an item of a list, without `apiVersion` and `kind`.
    pub(crate) fn push_item(&self, text: &mut Vec<u8>) {
        text.push(b'{');
        text.extend_from_slice(&self.tail);
    }

    /// Appends the whole object.
    pub(crate) fn push_whole(&self, text: &mut Vec<u8>) {
        let (kind, api_version) = (self.kind.name(), self.kind.api_version());
        text.extend_from_slice(
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",").as_bytes(),
        );
        text.extend_from_slice(&self.tail);
    }

    /// Returns the object as a JSON value.
    pub(crate) fn value(&self) -> Map<String, Value> {
        let mut text = Vec::with_capacity(self.tail.len() + 64);
        self.push_whole(&mut text);
        serde_json::from_slice(&text).expect("the text is a JSON object")
    }

    /// Returns the same object with another version, for events of deletions.
    pub(crate) fn at(&self, version: u64) -> Self {
        let mut object = self.value();
        metadata::set_version(&mut object, version);
        Self::new(self.kind, self.key.clone(), version, object)
    }
}

impl Change {
    /// Returns the key of the object.
    pub(crate) fn key(&self) -> &Key {
        let object = self.after.as_ref().or(self.before.as_ref());
        &object.expect("a change has an old or a new object").key
    }
}

impl Store {
    pub(crate) fn new() -> Self {
        let table = |_| Table {
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            oldest: FIRST,
        };
        Self {
            version: FIRST,
            tables: Kind::all().map(table).collect(),
            keep: KEEP,
            made: 0,
        }
    }

    /// Returns the version of the last change of any kind.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn table(&self, kind: Kind) -> &Table {
        &self.tables[kind.index()]
    }

    pub(crate) fn get(&self, kind: Kind, key: &Key) -> Option<&Arc<Object>> {
        self.table(kind).objects.get(key)
    }

    /// Stores an object, and returns it with the metadata that the server sets.
    ///
    /// An unchanged object is not stored again.
    pub(crate) fn put(
        &mut self,
        kind: Kind,
        key: Key,
        mut object: Map<String, Value>,
        now: SystemTime,
    ) -> Arc<Object> {
        let before = self.get(kind, &key).cloned();
        let old = before.as_ref().map(|before| before.value());
        if old.is_none() {
            self.made += 1;
        }
        object.insert("apiVersion".into(), kind.api_version().into());
        object.insert("kind".into(), kind.name().into());
        metadata::complete(&mut object, &key, old.as_ref(), self.made, now);
        if let Some(before) = before.as_ref().filter(|_| old.as_ref() == Some(&object)) {
            return Arc::clone(before);
        }
        self.version += 1;
        metadata::set_version(&mut object, self.version);
        metadata::set_managers(&mut object, now);
        let after = Arc::new(Object::new(kind, key.clone(), self.version, object));
        let change = Change {
            version: self.version,
            before,
            after: Some(Arc::clone(&after)),
        };
        let keep = self.keep;
        let table = &mut self.tables[kind.index()];
        table.objects.insert(key, Arc::clone(&after));
        table.push(change, keep);
        after
    }

    /// Removes an object, and returns it with the version of the deletion.
    pub(crate) fn remove(&mut self, kind: Kind, key: &Key) -> Option<Arc<Object>> {
        let table = &mut self.tables[kind.index()];
        let before = table.objects.remove(key)?;
        self.version += 1;
        let last = Arc::new(before.at(self.version));
        let change = Change {
            version: self.version,
            before: Some(before),
            after: None,
        };
        table.push(change, self.keep);
        Some(last)
    }

    /// Limits the history of each kind to `changes`.
    pub(crate) fn keep(&mut self, changes: usize) {
        self.keep = changes;
        for table in &mut self.tables {
            table.trim(changes);
        }
    }

    /// Discards the history.
    pub(crate) fn compact(&mut self) {
        for table in &mut self.tables {
            table.log.clear();
            table.oldest = self.version;
        }
    }

    /// Increases the version counter.
    pub(crate) fn skip(&mut self, versions: u64) {
        self.version += versions;
    }
}

impl Table {
    /// Returns the objects at a version.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the history does not reach back to `version`.
    pub(crate) fn at(&self, version: u64) -> Result<Cow<'_, BTreeMap<Key, Arc<Object>>>, Gone> {
        let mut objects = Cow::Borrowed(&self.objects);
        for change in self.since(version)?.rev() {
            match &change.before {
                Some(before) => objects
                    .to_mut()
                    .insert(before.key.clone(), Arc::clone(before)),
                None => objects.to_mut().remove(change.key()),
            };
        }
        Ok(objects)
    }

    /// Returns the changes after a version, in order.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the history does not reach back to the version.
    pub(crate) fn since(
        &self,
        version: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &Arc<Change>>, Gone> {
        if version < self.oldest {
            return Err(Gone);
        }
        let first = self.log.partition_point(|change| change.version <= version);
        Ok(self.log.range(first..))
    }

    fn push(&mut self, change: Change, keep: usize) {
        self.log.push_back(Arc::new(change));
        self.trim(keep);
    }

    fn trim(&mut self, keep: usize) {
        while self.log.len() > keep {
            if let Some(change) = self.log.pop_front() {
                self.oldest = change.version;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn services() -> Kind {
        Kind::by_plural("v1", "services").unwrap()
    }

    fn put(store: &mut Store, name: &str, ports: u16) -> u64 {
        let Value::Object(object) = json!({
            "metadata": { "name": name, "namespace": "default", "labels": { "ports": ports.to_string() } },
            "spec": { "ports": [{ "port": ports }] },
        }) else {
            unreachable!("it is an object");
        };
        let key = Key::of(services(), &object).unwrap();
        store
            .put(services(), key, object, SystemTime::UNIX_EPOCH)
            .version
    }

    fn names(store: &Store, version: u64) -> Option<Vec<(String, u64)>> {
        let objects = store.table(services()).at(version).ok()?;
        let name = |object: &Arc<Object>| (object.key.name.clone(), object.version);
        Some(objects.values().map(name).collect())
    }

    #[test]
    fn every_change_has_a_version_and_an_equal_object_is_no_change() {
        let mut store = Store::new();
        let first = put(&mut store, "a", 80);
        assert_eq!(put(&mut store, "a", 80), first);
        let second = put(&mut store, "a", 81);
        assert_eq!(second, first + 1);
        let object = store.get(services(), &Key::new("default", "a")).unwrap();
        let value = Value::Object(object.value());
        assert_eq!(value["apiVersion"], "v1");
        assert_eq!(value["kind"], "Service");
        assert_eq!(value["metadata"]["resourceVersion"], second.to_string());
        assert_eq!(value["metadata"]["generation"], 2);
        assert_eq!(
            value["metadata"]["creationTimestamp"],
            "1970-01-01T00:00:00Z"
        );
        assert_eq!(
            value["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:ports"],
            json!({})
        );
        assert_eq!(object.labels["ports"], "81");
    }

    #[test]
    fn past_versions_are_reconstructed_from_the_history() {
        let mut store = Store::new();
        let one = put(&mut store, "a", 1);
        let two = put(&mut store, "b", 1);
        let three = put(&mut store, "a", 2);
        let gone = store.remove(services(), &Key::new("default", "b")).unwrap();
        assert_eq!(gone.version, three + 1);
        let a = |version| ("a".to_owned(), version);
        let b = ("b".to_owned(), two);
        assert_eq!(names(&store, one - 1).unwrap(), []);
        assert_eq!(names(&store, one).unwrap(), [a(one)]);
        assert_eq!(names(&store, two).unwrap(), [a(one), b.clone()]);
        assert_eq!(names(&store, three).unwrap(), [a(three), b]);
        assert_eq!(names(&store, gone.version).unwrap(), [a(three)]);
    }

    #[test]
    fn versions_before_the_history_are_gone() {
        let mut store = Store::new();
        let one = put(&mut store, "a", 1);
        let two = put(&mut store, "b", 1);
        store.keep(1);
        assert!(names(&store, one - 1).is_none());
        assert!(names(&store, one).is_some());
        store.compact();
        assert!(names(&store, one).is_none());
        assert_eq!(names(&store, two).unwrap().len(), 2);
        store.skip(50);
        assert_eq!(put(&mut store, "c", 1), two + 51);
        assert_eq!(store.table(services()).since(two).unwrap().count(), 1);
    }
}
