//! What clients asked for.

use std::time::Instant;

use crate::query::{Query, Target};

/// A request that was received, whatever its answer was.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// `list`, `watch`, `get`, `create`, `update`, `patch` or `delete`.
    pub verb: &'static str,
    /// The resource, plural: `services`.
    pub resource: &'static str,
    /// The namespace, empty for all or none.
    pub namespace: String,
    /// The name, empty for collections.
    pub name: String,
    /// The label selector, decoded.
    pub labels: String,
    /// The field selector, decoded.
    pub fields: String,
    /// The version that was asked for, empty if none was.
    pub version: String,
    /// Whether bookmarks are welcome.
    pub bookmarks: bool,
    /// Whether a watch is to begin with all objects that exist.
    pub send_initial_events: bool,
    /// When it was received.
    pub at: Instant,
    /// What the client calls itself.
    pub user_agent: String,
}

impl Request {
    pub(crate) fn new(
        verb: &'static str,
        target: &Target,
        query: &Query,
        user_agent: String,
    ) -> Self {
        let (namespace, name) = match target {
            Target::Collection(_, namespace) => (namespace.clone().unwrap_or_default(), ""),
            Target::Object(_, key) | Target::Status(_, key) => {
                (key.namespace.clone(), key.name.as_str())
            }
        };
        Self {
            verb,
            resource: target.kind().plural(),
            namespace,
            name: name.to_owned(),
            labels: query.text("labelSelector").to_owned(),
            fields: query.text("fieldSelector").to_owned(),
            version: query.text("resourceVersion").to_owned(),
            bookmarks: query.is_true("allowWatchBookmarks"),
            send_initial_events: query.is_true("sendInitialEvents"),
            at: Instant::now(),
            user_agent,
        }
    }
}
