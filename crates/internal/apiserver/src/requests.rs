//! Log of client requests.

use std::time::Instant;

use crate::query::{Query, Target};

/// A received request.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// `list`, `watch`, `get`, `create`, `update`, `patch` or `delete`.
    pub verb: &'static str,
    /// Resource in plural, such as `services`.
    pub resource: &'static str,
    /// Namespace; empty for all namespaces and for cluster-scoped objects.
    pub namespace: String,
    /// Name; empty for collections.
    pub name: String,
    /// Decoded label selector.
    pub labels: String,
    /// Decoded field selector.
    pub fields: String,
    /// `resourceVersion`; empty if not set.
    pub version: String,
    /// Whether the client allows bookmarks (`allowWatchBookmarks`).
    pub bookmarks: bool,
    /// Whether the watch begins with a list (`sendInitialEvents`).
    pub send_initial_events: bool,
    /// Time of receipt.
    pub at: Instant,
    /// `User-Agent` header.
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
