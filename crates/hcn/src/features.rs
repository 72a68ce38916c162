//! Features of HNS by version.

use crate::Version;

/// Defines the features.
///
/// A feature exists from the listed minor version on, in the listed major version. After
/// the last listed version it exists in all versions.
macro_rules! features {
    ($($(#[$($doc:tt)*])* $bit:literal $name:ident: [$(($major:literal, $minor:literal)),+];)+) => {
        bitflags::bitflags! {
            /// A set of features of HNS.
            #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
            pub struct Features: u32 {
                $($(#[$($doc)*])* const $name = 1 << $bit;)+
            }
        }

        /// The features with the versions that introduced them.
        const INTRODUCED: &[(Features, &[Version])] = &[
            $((Features::$name, &[$(Version::new($major, $minor)),+]),)+
        ];
    };
}

features! {
    /// ACL policies with lists of addresses, ranges of ports, and rule identifiers.
    0 ACL: [(7, 2)];
    /// Version 2 of the API and of the schema.
    1 API_V2: [(9, 2)];
    /// Remote subnets of overlay networks.
    2 REMOTE_SUBNET: [(9, 2)];
    /// Routes from containers of an overlay network to their host.
    3 HOST_ROUTE: [(9, 2)];
    /// Direct Server Return of load balancers.
    4 DSR: [(9, 3), (10, 2)];
    /// Endpoints with prefixes of 32 bits.
    5 SLASH32_ENDPOINT_PREFIXES: [(9, 3), (10, 4)];
    /// VXLAN ports of overlay networks.
    6 VXLAN_PORT: [(10, 3)];
    /// ACL policies for protocol 252.
    7 ACL_PROTOCOL_252: [(11, 0)];
    /// IPv4 and IPv6 on one network.
    8 IPV6_DUAL_STACK: [(11, 10)];
    /// Session affinity of load balancers.
    9 SESSION_AFFINITY: [(12, 0)];
    /// Sets of addresses.
    10 SET_POLICY: [(13, 0)];
    /// Layer-4 proxies of networks.
    11 L4_PROXY: [(9, 5), (10, 5), (11, 11), (12, 1), (13, 1)];
    /// Layer-4 proxies of endpoints by the Windows Filtering Platform.
    12 L4_WFP_PROXY: [(13, 2)];
    /// ACL policies in tiers.
    13 TIER_ACL: [(14, 0)];
    /// ACL policies of networks.
    14 NETWORK_ACL: [(15, 0)];
    /// Sets of sets of addresses.
    15 NESTED_IP_SET: [(15, 0)];
    /// Networks without ports of the host.
    16 DISABLE_HOST_PORT: [(15, 1)];
    /// Modification of load balancers.
    17 MODIFY_LOAD_BALANCER: [(15, 4)];
    /// Accelerated networking of endpoints.
    18 ACCELNET: [(15, 4)];
}

impl Features {
    /// Returns the features of a version of HNS, as in hcsshim.
    pub fn of(version: Version) -> Self {
        let has = |introduced: &[Version]| {
            let in_major = introduced.iter().find(|it| it.major == version.major);
            match (in_major, introduced.last()) {
                (Some(introduced), _) => version >= *introduced,
                (None, last) => last.is_some_and(|last| version > *last),
            }
        };
        let features = INTRODUCED.iter().filter(|(_, introduced)| has(introduced));
        features.map(|(feature, _)| *feature).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_exist_in_ranges_of_versions() {
        let has =
            |major, minor, feature| Features::of(Version::new(major, minor)).contains(feature);
        for (major, minor, dsr, l4_proxy) in [
            (9, 2, false, false),
            (9, 3, true, false),
            (9, 5, true, true),
            (9, 99, true, true),
            (10, 0, false, false),
            (10, 1, false, false),
            (10, 2, true, false),
            (10, 5, true, true),
            (11, 0, true, false),
            (11, 11, true, true),
            (12, 0, true, false),
            (13, 0, true, false),
            (13, 1, true, true),
            (16, 0, true, true),
        ] {
            assert_eq!(has(major, minor, Features::DSR), dsr, "DSR {major}.{minor}");
            assert_eq!(
                has(major, minor, Features::L4_PROXY),
                l4_proxy,
                "L4 {major}.{minor}"
            );
        }
    }

    #[test]
    fn each_feature_exists_at_its_versions_and_not_before() {
        assert_eq!(INTRODUCED.len(), Features::all().iter().count());
        assert_eq!(Features::of(Version::new(7, 1)), Features::empty());
        for (feature, introduced) in INTRODUCED {
            for version in *introduced {
                assert!(Features::of(*version).contains(*feature));
                if let Some(minor) = version.minor.checked_sub(1) {
                    let before = Version::new(version.major, minor);
                    assert!(
                        !Features::of(before).contains(*feature),
                        "{feature:?} {before}"
                    );
                }
            }
        }
    }

    #[test]
    fn windows_server_2022_lacks_only_the_newest_features() {
        let missing = Features::all() - Features::of(Version::new(15, 3));
        assert_eq!(missing, Features::MODIFY_LOAD_BALANCER | Features::ACCELNET);
    }
}
