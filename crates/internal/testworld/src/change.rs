//! Requests to the API, and the watch events that follow.

use serde_json::Value;
use vipline_service_model::Kind;

use crate::json::text;

/// Identity of an object.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Id {
    /// Kind.
    pub kind: Kind,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
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
    /// Replaces an object except its status.
    Update(Kind, Value),
    /// Replaces the status of an object.
    UpdateStatus(Kind, Value),
    /// Deletes an object.
    Delete(Id),
}

impl Proposal {
    /// Returns the identity of the object of the request.
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
    /// The object was created.
    Added,
    /// The object was changed.
    Modified,
    /// The object was deleted.
    Deleted,
}

/// A watch event.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Kind of the object.
    pub kind: Kind,
    /// Type of the event.
    pub verb: Verb,
    /// The stored object, or its last stored state.
    pub object: Value,
}

impl Change {
    /// Returns the identity of the object.
    pub fn id(&self) -> Id {
        Id::of(self.kind, &self.object)
    }

    /// Returns the event in the format of a watch.
    ///
    /// # Panics
    ///
    /// Never: the keys of a [`Value`] are strings.
    pub fn line(&self) -> String {
        let verb = match self.verb {
            Verb::Added => "ADDED",
            Verb::Modified => "MODIFIED",
            Verb::Deleted => "DELETED",
        };
        // The compiler optimizes this crate, and not `Display` of the object.
        let object = serde_json::to_string(&self.object).expect("keys are strings");
        format!(r#"{{"type":"{verb}","object":{object}}}"#)
    }
}
