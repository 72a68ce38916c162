//! SDN routes.

use crate::document::document;
use crate::policy::SdnRoutePolicy;
use crate::{Id, Version};

document! {
    /// Routes of software-defined networking that several endpoints share.
    pub struct SdnRoute {
        /// Identifier.
        "ID"? id: Id,
        /// Identifiers of endpoints.
        "HostComputeEndpoints"? endpoints: Vec<Id>,
        /// Routes.
        "Setting"? settings: Vec<SdnRoutePolicy>,
        /// Version of the schema.
        "SchemaVersion"? schema_version: Version,
    }
}

impl SdnRoute {
    /// Creates a document with one route.
    pub fn new(route: SdnRoutePolicy, endpoints: impl IntoIterator<Item = Id>) -> Self {
        Self {
            endpoints: endpoints.into_iter().collect(),
            settings: vec![route],
            schema_version: Version::SCHEMA,
            ..Self::default()
        }
    }
}
