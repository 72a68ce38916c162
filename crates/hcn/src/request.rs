//! Changes of networks and endpoints.

use serde_json::Value;

use crate::document::{document, names};
use crate::policy::{Policy, Settings};

names! {
    /// The operation of a change.
    pub enum RequestType {
        /// Adds the settings.
        Add = "Add",
        /// Removes the settings.
        Remove = "Remove",
        /// Replaces all settings of the resource.
        Update = "Update",
        /// Applies the settings again.
        Refresh = "Refresh",
    }
}

names! {
    /// The part of an object that a change affects.
    pub enum ResourceType {
        /// Policies of a network or endpoint.
        Policy = "Policy",
        /// DNS settings of a network.
        Dns = "DNS",
        /// Extensions of the switch of a network.
        Extension = "Extension",
        /// The port of an endpoint.
        Port = "Port",
    }
}

document! {
    /// A change of a network or endpoint.
    pub struct ModifyRequest {
        /// The part that changes.
        "ResourceType"? resource_type: ResourceType,
        /// The operation.
        "RequestType"? request_type: RequestType,
        /// Settings of the part.
        "Settings"? settings: Value,
    }
}

impl ModifyRequest {
    /// Creates a change of policies.
    ///
    /// # Errors
    ///
    /// As [`Settings::to_json`].
    pub fn policies<S: Settings>(
        request_type: RequestType,
        policies: &[Policy<S>],
    ) -> serde_json::Result<Self> {
        let policies = serde_json::to_value(policies)?;
        Ok(Self {
            resource_type: ResourceType::Policy,
            request_type,
            settings: Value::Object([("Policies".into(), policies)].into_iter().collect()),
            ..Self::default()
        })
    }
}
