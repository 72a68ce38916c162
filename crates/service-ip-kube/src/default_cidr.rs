//! The ServiceCIDR that a cluster begins with.

use std::fmt;
use std::time::SystemTime;

use vipline_service_ip::{AddressRange, RangeError};

use crate::service_cidr::{Edit, ServiceCidr};

/// Its name.
pub const NAME: &str = "kubernetes";

/// What is said of it when it is ready.
const IS_READY: &str = "Kubernetes default Service CIDR is ready";

/// What is to be done for the default ServiceCIDR.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Plan {
    /// It is as it should be.
    Nothing,
    /// There is none: it is to be made.
    Create,
    /// It is to be changed.
    Edit(Edit),
    /// It is not as it should be, and left so: somebody must decide.
    Report(Problem),
}

/// What is odd about the default ServiceCIDR.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Problem {
    /// It has other ranges.
    Inconsistent {
        /// Those that it has.
        found: Vec<AddressRange>,
        /// Those that it should have.
        wanted: Vec<AddressRange>,
    },
    /// It has a range that cannot be read.
    Unreadable {
        /// Why.
        error: RangeError,
    },
    /// Somebody says that it is not ready.
    NotReady {
        /// Why, in one word.
        reason: Box<str>,
        /// Why.
        message: Box<str>,
    },
}

impl Problem {
    /// Returns the reason of an Event that tells it, as upstream has it.
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
                write!(
                    f,
                    "ServiceCIDR {NAME} has {found}, and should have {wanted}"
                )
            }
            Self::Unreadable { error } => write!(f, "ServiceCIDR {NAME} has a range: {error}"),
            Self::NotReady { message, .. } => {
                write!(f, "ServiceCIDR {NAME} is not ready: {message}")
            }
        }
    }
}

/// Plans what is to be done so that the default ServiceCIDR has some ranges.
///
/// One of one family becomes one of both if the first is the same; no range is
/// changed or taken away. It is said to be ready only if nobody has said
/// anything.
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

    fn said(status: &str, reason: &str) -> ServiceCidr {
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
    fn a_cluster_without_one_gets_one() {
        assert_eq!(plan(None, &ranges(&["10.0.0.0/24"]), NOW), Plan::Create);
    }

    #[test]
    fn a_second_family_is_added() {
        let both = ranges(&["10.0.0.0/24", "fd00::/108"]);
        let edit = edit(plan(Some(&cidr(&["10.0.0.0/24"])), &both, NOW));
        assert_eq!((edit.ranges, edit.conditions), (Some(both), None));
    }

    #[test]
    fn other_ranges_are_told_and_left() {
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
                    "ServiceCIDR kubernetes has {}, and should have {}",
                    found.join(", "),
                    wanted.join(", ")
                )
            );
        }
    }

    #[test]
    fn it_is_said_to_be_ready_only_if_nobody_says_anything() {
        let wanted = ranges(&["10.0.0.0/24"]);
        for cidr in [cidr(&["10.0.0.0/24"]), said("Unknown", "")] {
            let conditions = edit(plan(Some(&cidr), &wanted, NOW)).conditions.unwrap();
            let [ready] = &*conditions else {
                panic!("{conditions:?}")
            };
            assert_eq!((&*ready.status, &*ready.reason), ("True", ""));
            assert_eq!(&*ready.message, IS_READY);
        }
        assert_eq!(plan(Some(&said("True", "")), &wanted, NOW), Plan::Nothing);
        let odd = plan(Some(&said("False", "Terminating")), &wanted, NOW);
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
    fn a_range_that_cannot_be_read_is_told_and_left() {
        let mut odd = cidr(&["10.0.0.0/24"]);
        odd.unreadable = vec!["fd00::/200".parse::<AddressRange>().unwrap_err()];
        for wanted in [&["10.0.0.0/24"][..], &["10.0.0.0/24", "fd00::/108"]] {
            let Plan::Report(odd) = plan(Some(&odd), &ranges(wanted), NOW) else {
                panic!("{odd:?}")
            };
            assert_eq!(odd.reason(), "KubernetesDefaultServiceCIDRInconsistent");
            assert_eq!(
                odd.to_string(),
                r#"ServiceCIDR kubernetes has a range: "fd00::/200" is not a network in CIDR notation"#
            );
        }
    }

    #[test]
    fn one_that_is_to_go_is_left() {
        let mut going = cidr(&["10.0.0.0/16"]);
        going.deleted = Some(NOW);
        let wanted = ranges(&["10.0.0.0/24"]);
        assert_eq!(plan(Some(&going), &wanted, NOW), Plan::Nothing);
    }
}
