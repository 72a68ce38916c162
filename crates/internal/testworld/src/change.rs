//! Requests to the API, and the watch events that follow.

use serde_json::Value;
use vipline_service_model::Kind;

use crate::json::text;

/// Kind, namespace and name of an object.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Id {
    /// The kind.
    pub kind: Kind,
    /// The namespace, empty for objects without one.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Id {
    /// Returns the identity of an object of a kind.
    pub fn of(kind: Kind, object: &Value) -> Self {
        Self {
            kind,
            namespace: text(object, "/metadata/namespace").into(),
            name: text(object, "/metadata/name").into(),
        }
    }
}

/// A request to the API.
#[derive(Clone, Debug, PartialEq)]
pub enum Proposal {
    /// Creates an object.
    Create(Kind, Value),
    /// Replaces an object; its status stays.
    Update(Kind, Value),
    /// Replaces the status of an object.
    UpdateStatus(Kind, Value),
    /// Deletes an object.
    Delete(Id),
}

impl Proposal {
    /// Returns the identity of the object that the request is about.
    pub fn id(&self) -> Id {
        match self {
            Self::Create(kind, object)
            | Self::Update(kind, object)
            | Self::UpdateStatus(kind, object) => Id::of(*kind, object),
            Self::Delete(id) => id.clone(),
        }
    }
}

/// Type of a watch event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verb {
    /// It was created.
    Added,
    /// It changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// A watch event.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The kind of the object.
    pub kind: Kind,
    /// The type of the event.
    pub verb: Verb,
    /// The object as stored, or as last stored.
    pub object: Value,
}

impl Change {
    /// Returns the identity of the object.
    pub fn id(&self) -> Id {
        Id::of(self.kind, &self.object)
    }

    /// Returns the event as a line of a watch.
    pub fn line(&self) -> String {
        let verb = match self.verb {
            Verb::Added => "ADDED",
            Verb::Modified => "MODIFIED",
            Verb::Deleted => "DELETED",
        };
        format!(r#"{{"type":"{verb}","object":{}}}"#, self.object)
    }
}
