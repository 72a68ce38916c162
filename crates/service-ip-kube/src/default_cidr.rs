//! The default ServiceCIDR `kubernetes`.

use std::fmt;
use std::time::SystemTime;

use vipline_service_ip::{AddressRange, InvalidValue};

use crate::service_cidr::{Edit, ServiceCidr};

/// Name of the default ServiceCIDR.
pub const NAME: &str = "kubernetes";

/// Message of the condition `Ready`.
const IS_READY: &str = "Kubernetes default Service CIDR is ready";

/// Action for the default ServiceCIDR.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Plan {
    /// No change.
    Nothing,
    /// Create the object.
    Create,
    /// Change the object.
    Edit(Edit),
    /// Report a problem that requires an operator.
    Report(Problem),
}

/// A problem of the default ServiceCIDR.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// The object has other ranges.
    Inconsistent {
        /// Existing ranges.
        found: Vec<AddressRange>,
        /// Configured ranges.
        wanted: Vec<AddressRange>,
    },
    /// The object has an invalid range.
    Unreadable {
        /// The error.
        error: InvalidValue,
    },
    /// The condition `Ready` is False.
    NotReady {
        /// Reason of the condition.
        reason: Box<str>,
        /// Message of the condition.
        message: Box<str>,
    },
}

impl Problem {
    /// Returns upstream's reason of an Event about the problem.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Inconsistent { .. } | Self::Unreadable { .. } => {
                "KubernetesDefaultServiceCIDRInconsistent"
            }
            Self::NotReady { reason, .. } => reason,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inconsistent { found, wanted } => {
                let (found, wanted) = (list(found), list(wanted));
                write!(f, "ServiceCIDR {NAME} has {found}, expected {wanted}")
            }
            Self::Unreadable { error } => {
                write!(f, "ServiceCIDR {NAME} has an invalid range: {error}")
            }
            Self::NotReady { message, .. } => {
                write!(f, "ServiceCIDR {NAME} is not ready: {message}")
            }
        }
    }
}

/// Plans the creation or change of the default ServiceCIDR for `ranges`.
///
/// A second family is added if the first range is equal. No range is changed or
/// removed. The condition `Ready` is set only if it is missing or Unknown.
#[must_use]
pub fn plan(existing: Option<&ServiceCidr>, ranges: &[AddressRange], now: SystemTime) -> Plan {
    let Some(cidr) = existing else {
        return Plan::Create;
    };
    if let ([first, _], [only]) = (ranges, &*cidr.ranges)
        && first == only
        && cidr.unreadable.is_empty()
    {
        return Plan::Edit(Edit {
            ranges: Some(ranges.to_vec()),
            ..Edit::of(cidr)
        });
    }
    if cidr.deleted.is_some() {
        return Plan::Nothing;
    }
    if let Some(error) = cidr.unreadable.first() {
        let error = error.clone();
        return Plan::Report(Problem::Unreadable { error });
    }
    if cidr.ranges != ranges {
        return Plan::Report(Problem::Inconsistent {
            found: cidr.ranges.clone(),
            wanted: ranges.to_vec(),
        });
    }
    match cidr.ready() {
        Some(ready) if *ready.status == *"True" => Plan::Nothing,
        Some(ready) if *ready.status == *"False" => Plan::Report(Problem::NotReady {
            reason: ready.reason.clone(),
            message: ready.message.clone(),
        }),
        _ => Plan::Edit(Edit {
            conditions: cidr.with_ready("True", "", IS_READY, now),
            ..Edit::of(cidr)
        }),
    }
}

fn list(ranges: &[AddressRange]) -> String {
    let texts: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn ranges(texts: &[&str]) -> Vec<AddressRange> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn cidr(texts: &[&str]) -> ServiceCidr {
        ServiceCidr {
            name: NAME.into(),
            version: "7".into(),
            ranges: ranges(texts),
            unreadable: Vec::new(),
            finalizers: Vec::new(),
            conditions: Vec::new(),
            deleted: None,
        }
    }

    fn with_ready(status: &str, reason: &str) -> ServiceCidr {
        let mut cidr = cidr(&["10.0.0.0/24"]);
        cidr.conditions = cidr.with_ready(status, reason, "words", NOW).unwrap();
        cidr
    }

    fn edit(plan: Plan) -> Edit {
        match plan {
            Plan::Edit(edit) => edit,
            plan => panic!("{plan:?}"),
        }
    }

    #[test]
    fn a_missing_default_cidr_is_created() {
        assert_eq!(plan(None, &ranges(&["10.0.0.0/24"]), NOW), Plan::Create);
    }

    #[test]
    fn a_second_family_is_added() {
        let both = ranges(&["10.0.0.0/24", "fd00::/108"]);
        let edit = edit(plan(Some(&cidr(&["10.0.0.0/24"])), &both, NOW));
        assert_eq!((edit.ranges, edit.conditions), (Some(both), None));
    }

    #[test]
    fn other_ranges_are_reported_and_not_changed() {
        for (found, wanted) in [
            (&["10.0.0.0/24"][..], &["10.0.0.0/16"][..]),
            (&["10.0.0.0/24"], &["fd00::/108", "10.0.0.0/24"]),
            (&["10.0.0.0/24", "fd00::/108"], &["10.0.0.0/24"]),
            (
                &["10.0.0.0/24", "fd00::/108"],
                &["fd00::/108", "10.0.0.0/24"],
            ),
        ] {
            let plan = plan(Some(&cidr(found)), &ranges(wanted), NOW);
            let Plan::Report(odd) = plan else {
                panic!("{plan:?}")
            };
            assert_eq!(odd.reason(), "KubernetesDefaultServiceCIDRInconsistent");
            assert_eq!(
                odd.to_string(),
                format!(
                    "ServiceCIDR kubernetes has {}, expected {}",
                    found.join(", "),
                    wanted.join(", ")
                )
            );
        }
    }

    #[test]
    fn ready_is_set_only_if_missing_or_unknown() {
        let wanted = ranges(&["10.0.0.0/24"]);
        for cidr in [cidr(&["10.0.0.0/24"]), with_ready("Unknown", "")] {
            let conditions = edit(plan(Some(&cidr), &wanted, NOW)).conditions.unwrap();
            let [ready] = &*conditions else {
                panic!("{conditions:?}")
            };
            assert_eq!((&*ready.status, &*ready.reason), ("True", ""));
            assert_eq!(&*ready.message, IS_READY);
        }
        assert_eq!(
            plan(Some(&with_ready("True", "")), &wanted, NOW),
            Plan::Nothing
        );
        let odd = plan(Some(&with_ready("False", "Terminating")), &wanted, NOW);
        let Plan::Report(odd) = odd else {
            panic!("{odd:?}")
        };
        assert_eq!(odd.reason(), "Terminating");
        assert_eq!(
            odd.to_string(),
            "ServiceCIDR kubernetes is not ready: words"
        );
    }

    #[test]
    fn an_invalid_range_is_reported_and_not_changed() {
        let mut odd = cidr(&["10.0.0.0/24"]);
        odd.unreadable = vec!["fd00::/200".parse::<AddressRange>().unwrap_err()];
        for wanted in [&["10.0.0.0/24"][..], &["10.0.0.0/24", "fd00::/108"]] {
            let Plan::Report(odd) = plan(Some(&odd), &ranges(wanted), NOW) else {
                panic!("{odd:?}")
            };
            assert_eq!(odd.reason(), "KubernetesDefaultServiceCIDRInconsistent");
            assert_eq!(
                odd.to_string(),
                r#"ServiceCIDR kubernetes has an invalid range: "fd00::/200" is not a network in CIDR notation"#
            );
        }
    }

    #[test]
    fn a_default_cidr_in_deletion_is_not_changed() {
        let mut going = cidr(&["10.0.0.0/16"]);
        going.deleted = Some(NOW);
        let wanted = ranges(&["10.0.0.0/24"]);
        assert_eq!(plan(Some(&going), &wanted, NOW), Plan::Nothing);
    }
}
