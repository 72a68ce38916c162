//! A cluster's objects, as an API server stores them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use vipline_service_model::Kind;

use crate::allocation::Allocation;
use crate::json::{at, list, remove, text};
use crate::validation::{self, Strictness};
use crate::{Change, Id, Proposal, Verb, defaults};

/// A cluster's objects, as an API server stores them.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    objects: BTreeMap<Id, Value>,
    strictness: Strictness,
}

impl Cluster {
    /// Creates a cluster without objects.
    pub fn new(strictness: Strictness) -> Self {
        Self {
            objects: BTreeMap::new(),
            strictness,
        }
    }

    /// Changes the validation of addresses and networks in requests, as an upgrade of the
    /// server does. Does not change stored objects.
    pub fn set_strictness(&mut self, strictness: Strictness) {
        self.strictness = strictness;
    }

    /// Returns the strictness of validation of addresses and networks.
    pub fn strictness(&self) -> Strictness {
        self.strictness
    }

    /// Returns the objects, sorted by identity.
    pub fn objects(&self) -> impl Iterator<Item = (&Id, &Value)> {
        self.objects.iter()
    }

    /// Returns an object.
    pub fn get(&self, id: &Id) -> Option<&Value> {
        self.objects.get(id)
    }

    /// Stores an object without validation.
    pub fn store(&mut self, kind: Kind, object: Value) {
        self.objects.insert(Id::of(kind, &object), object);
    }

    /// Applies a valid request and returns its watch event, or [`None`] if the request
    /// changes nothing.
    ///
    /// # Errors
    ///
    /// All violations, if the request is invalid.
    pub fn admit(&mut self, proposal: Proposal) -> Result<Option<Change>, Vec<String>> {
        let id = proposal.id();
        let old = self.objects.get(&id);
        let object = match (proposal, old) {
            (Proposal::Create(..), Some(_)) => return Err(vec!["exists".into()]),
            (Proposal::Create(_, object), None) => self.created(&id, object)?,
            (Proposal::Delete(_), Some(old)) => return Ok(Some(self.delete(&id, old.clone()))),
            (Proposal::Update(_, new), Some(old)) => self.updated(&id, old, new)?,
            (Proposal::UpdateStatus(_, new), Some(old)) => {
                let mut merged = old.clone();
                merged["status"] = at(&new, "/status").clone();
                let found = validation::update_status(id.kind, old, &merged, self.strictness);
                accept(found, merged)?
            }
            (_, None) => return Err(vec!["not found".into()]),
        };
        let verb = match old {
            None => Verb::Added,
            Some(old) if *old == object => return Ok(None),
            Some(_) => Verb::Modified,
        };
        self.objects.insert(id.clone(), object.clone());
        let kind = id.kind;
        Ok(Some(Change { kind, verb, object }))
    }

    /// Returns an object as it would be stored.
    fn created(&self, id: &Id, object: Value) -> Result<Value, Vec<String>> {
        let object = completed(id.kind, &self.allocation(id), None, object);
        let mut found = validation::create(id.kind, &object, self.strictness);
        found.extend(self.unallocatable(id, &object));
        accept(found, object)
    }

    /// Returns an update as it would be stored, with the old status.
    fn updated(&self, id: &Id, old: &Value, new: Value) -> Result<Value, Vec<String>> {
        let mut new = completed(id.kind, &self.allocation(id), Some(old), new);
        let deleted = at(old, "/metadata/deletionTimestamp");
        if !deleted.is_null() {
            new["metadata"]["deletionTimestamp"] = deleted.clone();
            new["metadata"]["finalizers"] = at(old, "/metadata/finalizers").clone();
        }
        let mut found = validation::update(id.kind, old, &new, self.strictness);
        found.extend(self.unallocatable(id, &new));
        accept(found, new)
    }

    fn unallocatable(&self, id: &Id, object: &Value) -> Vec<String> {
        match id.kind {
            Kind::Service => self.allocation(id).violations(object),
            _ => Vec::new(),
        }
    }

    /// Returns the allocations of all Services except one.
    fn allocation(&self, id: &Id) -> Allocation {
        match id.kind {
            Kind::Service => Allocation::of_others(id, self.objects()),
            _ => Allocation::default(),
        }
    }

    /// Deletes an object. An object with finalizers only gets a `deletionTimestamp`.
    fn delete(&mut self, id: &Id, mut object: Value) -> Change {
        let is_held = !list(&object, "/metadata/finalizers").is_empty();
        let is_marked = !text(&object, "/metadata/deletionTimestamp").is_empty();
        let verb = if is_held && !is_marked {
            object["metadata"]["deletionTimestamp"] = json!("2026-11-01T00:00:00Z");
            self.objects.insert(id.clone(), object.clone());
            Verb::Modified
        } else {
            self.objects.remove(id);
            Verb::Deleted
        };
        let kind = id.kind;
        Change { kind, verb, object }
    }
}

/// Returns the violations of a request, with `old` as the stored object.
///
/// Ignores addresses, node ports and ranges of other Services. The object may lack
/// defaults.
pub fn violations(proposal: Proposal, old: Option<&Value>) -> Vec<String> {
    let kind = proposal.id().kind;
    let nothing = Allocation::default();
    let mut old = old.cloned();
    match (kind, &mut old) {
        (Kind::Service, Some(old)) => defaults::fill(None, old),
        (Kind::EndpointSlice, Some(old)) => defaults::fill_slice(old),
        _ => {}
    }
    let old = old.as_ref();
    match (proposal, old) {
        (Proposal::Delete(_), _) => Vec::new(),
        (Proposal::UpdateStatus(_, new), Some(old)) => {
            validation::update_status(kind, old, &new, Strictness::Strict)
        }
        (
            Proposal::Create(_, new) | Proposal::Update(_, new) | Proposal::UpdateStatus(_, new),
            old,
        ) => {
            let new = completed(kind, &nothing, old, new);
            match old {
                None => validation::create(kind, &new, Strictness::Strict),
                Some(old) => validation::update(kind, old, &new, Strictness::Strict),
            }
        }
    }
}

/// Completes an object before validation: defaults, node ports, and the old status.
fn completed(kind: Kind, others: &Allocation, old: Option<&Value>, mut new: Value) -> Value {
    let keeps_status = old.is_some() || kind == Kind::Service;
    if keeps_status && matches!(kind, Kind::Service | Kind::Node) {
        remove(&mut new, "", "status");
        if let Some(status) = old.and_then(|old| old.get("status")) {
            new["status"] = status.clone();
        }
    }
    match kind {
        Kind::Service => {
            defaults::fill(old, &mut new);
            if let Some(old) = old {
                validation::drop_fields_of_former_type(old, &mut new);
            }
            others.complete(&mut new);
        }
        Kind::EndpointSlice => defaults::fill_slice(&mut new),
        Kind::Namespace | Kind::Node | Kind::ServiceCidr => {}
    }
    new
}

fn accept(violations: Vec<String>, object: Value) -> Result<Value, Vec<String>> {
    match violations.is_empty() {
        true => Ok(object),
        false => Err(violations),
    }
}
