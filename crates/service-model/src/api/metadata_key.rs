//! The labels and annotations that the model reads.

/// Declares the keys and their list.
macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident = $key:literal),+ $(,)?) => {
        /// A label or annotation that the model reads.
        ///
        /// A source of objects may drop all other keys.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum MetadataKey {
            $($(#[$doc])* $name,)+
        }

        impl MetadataKey {
            /// All keys.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns the key as text.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $key,)+
                }
            }

            /// Returns the key with this text.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($key => Some(Self::$name),)+
                    _ => None,
                }
            }
        }
    };
}

keys! {
    /// Label of an EndpointSlice: the name of its Service.
    ServiceName = "kubernetes.io/service-name",
    /// Label of an EndpointSlice of a headless Service, with any value.
    Headless = "service.kubernetes.io/headless",
    /// Annotation of an EndpointSlice: time of the change that triggered this version.
    LastChangeTriggerTime = "endpoints.kubernetes.io/last-change-trigger-time",
    /// Label of a Service that another proxy implements.
    ServiceProxyName = "service.kubernetes.io/service-proxy-name",
    /// Annotation of a Service: the IPVS scheduler of its virtual servers.
    IpvsScheduler = "service.kubernetes.io/ipvs-scheduler",
    /// Annotation of a Service on Windows: packets keep their destination address.
    PreserveDestination = "preserve-destination",
    /// Label of a Node: its zone.
    Zone = "topology.kubernetes.io/zone",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_by_its_name() {
        for &key in MetadataKey::ALL {
            assert_eq!(MetadataKey::from_name(key.as_str()), Some(key));
        }
        assert_eq!(MetadataKey::from_name("app"), None);
    }
}
