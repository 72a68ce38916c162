//! Policies of networks, subnets and endpoints.

use serde::de::{DeserializeOwned, Error as _};
use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::Other;

pub use acl::{
    AclPolicy, Action, Direction, NetworkAclPolicy, RuleType, TierAclPolicy, TierAclRule,
};
pub use endpoint::{
    EncapOverheadPolicy, EndpointPolicy, InterfaceConstraintPolicy, IovPolicy, NatFlags,
    OutboundNatPolicy, PortMappingPolicy, PortNamePolicy, ProviderAddressPolicy, QosPolicy,
    SdnRoutePolicy,
};
pub use network::{
    AutomaticDnsPolicy, DrMacAddressPolicy, LayerConstraintPolicy, NetAdapterNamePolicy,
    NetworkPolicy, RemoteSubnetRoutePolicy, SetPolicy, SetType, SourceMacAddressPolicy,
    VSwitchExtensionPolicy, VxlanPortPolicy,
};
pub use proxy::{FiveTuple, L4ProxyPolicy, L4WfpProxyPolicy, ProxyExceptions};
pub use subnet::{SubnetPolicy, VlanPolicy, VsidPolicy};

mod acl;

mod proxy;

mod endpoint;

mod network;

mod subnet;

/// A policy: `{"Type": …, "Settings": …}`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Policy<S> {
    /// Type and settings.
    pub settings: S,
    /// Unknown members beside `Type` and `Settings`.
    pub other: Other,
}

impl<S> Policy<S> {
    /// Creates a policy.
    pub fn new(settings: impl Into<S>) -> Self {
        Self {
            settings: settings.into(),
            other: Other::new(),
        }
    }
}

/// The type and the settings of a policy: [`NetworkPolicy`], [`SubnetPolicy`] or
/// [`EndpointPolicy`].
pub trait Settings: Sized {
    /// Creates settings from their type and JSON.
    ///
    /// Settings that do not have the form of their type are kept as [`OtherPolicy`].
    fn from_json(policy_type: &str, settings: Value) -> Self;

    /// Returns the name of the type.
    fn policy_type(&self) -> &str;

    /// Returns the settings as JSON. `Null` if the policy has none.
    ///
    /// # Errors
    ///
    /// Settings of this crate always have JSON; a key of `other` may be a duplicate.
    fn to_json(&self) -> serde_json::Result<Value>;
}

/// A policy of an unknown type, or with settings of an unknown form.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct OtherPolicy {
    /// Name of the type.
    pub policy_type: String,
    /// Settings. `Null` if the policy has none.
    pub settings: Value,
}

impl OtherPolicy {
    /// Creates a policy of a type that this crate does not know.
    pub fn new(policy_type: &str, settings: Value) -> Self {
        Self {
            policy_type: policy_type.into(),
            settings,
        }
    }

    /// Parses the settings as those of a type.
    ///
    /// # Errors
    ///
    /// The reason why the settings do not have the form of the type.
    pub fn parse<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        T::deserialize(&self.settings)
    }
}

impl<S: Settings> Serialize for Policy<S> {
    fn serialize<R: Serializer>(&self, serializer: R) -> Result<R::Ok, R::Error> {
        let settings = self.settings.to_json().map_err(R::Error::custom)?;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("Type", self.settings.policy_type())?;
        if !settings.is_null() {
            map.serialize_entry("Settings", &settings)?;
        }
        for (key, value) in &self.other {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de, S: Settings> Deserialize<'de> for Policy<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut other = Other::deserialize(deserializer)?;
        let policy_type = match other.remove("Type") {
            Some(Value::String(name)) => name,
            Some(_) => return Err(D::Error::custom("the type of a policy is no string")),
            None => return Err(D::Error::missing_field("Type")),
        };
        let settings = other.remove("Settings").unwrap_or_default();
        Ok(Self {
            settings: S::from_json(&policy_type, settings),
            other,
        })
    }
}

/// Defines an enum of policies with the names of their types.
macro_rules! policies {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident($settings:ty) = $type:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant($settings),)+
            /// A policy of an unknown type, or with settings of an unknown form.
            Other(crate::policy::OtherPolicy),
        }

        impl crate::policy::Settings for $name {
            fn from_json(policy_type: &str, settings: serde_json::Value) -> Self {
                use serde::Deserialize;
                let known = match policy_type {
                    $($type => <$settings>::deserialize(&settings).map(Self::$variant).ok(),)+
                    _ => None,
                };
                known.unwrap_or_else(|| {
                    Self::Other(crate::policy::OtherPolicy::new(policy_type, settings))
                })
            }

            fn policy_type(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $type,)+
                    Self::Other(policy) => &policy.policy_type,
                }
            }

            fn to_json(&self) -> serde_json::Result<serde_json::Value> {
                match self {
                    $(Self::$variant(settings) => serde_json::to_value(settings),)+
                    Self::Other(policy) => Ok(policy.settings.clone()),
                }
            }
        }

        $(impl From<$settings> for $name {
            fn from(settings: $settings) -> Self {
                Self::$variant(settings)
            }
        })+

        impl From<crate::policy::OtherPolicy> for $name {
            fn from(policy: crate::policy::OtherPolicy) -> Self {
                Self::Other(policy)
            }
        }
    };
}

use policies;
