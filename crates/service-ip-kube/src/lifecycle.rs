//! Lifecycle of ServiceCIDRs: finalizer, condition `Ready` and deletion.

use std::time::{Duration, SystemTime};

use vipline_service_ip::{AddressRange, Range};

use crate::service_cidr::{Edit, FINALIZER, ServiceCidr};
use vipline_service_ip::Family;

use crate::IpAddress;

/// Minimum time between the deletion request and the removal of the finalizer.
///
/// Allocators must detect the deletion within this time.
pub const DELETION_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// Reason of the condition of a ServiceCIDR in deletion.
const TERMINATING: &str = "Terminating";

/// Message of the condition of a ready ServiceCIDR.
const IS_READY: &str = "Kubernetes Service CIDR is ready";

/// Message of the condition of a ServiceCIDR in deletion with addresses.
const IS_NEEDED: &str = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";

/// Changes of all ServiceCIDRs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// Changes.
    pub edits: Vec<Edit>,
    /// Latest time of the next call.
    pub requeue_at: Option<SystemTime>,
}

/// Plans the changes of all ServiceCIDRs.
///
/// A ServiceCIDR in deletion keeps its finalizer for at least
/// [`DELETION_GRACE_PERIOD`], and until every IPAddress of a Service within it is also
/// in a ServiceCIDR that is not in deletion.
#[must_use]
pub fn plan(cidrs: &[ServiceCidr], addresses: &[IpAddress], now: SystemTime) -> Plan {
    let mut plan = Plan::default();
    for cidr in cidrs {
        let mut edit = Edit::of(cidr);
        match cidr.deleted {
            None => {
                edit.finalizers = with_finalizer(cidr);
                edit.conditions = cidr.with_ready("True", "", IS_READY, now);
            }
            Some(_) if is_needed(cidr, cidrs, addresses) => {
                edit.conditions = cidr.with_ready("False", TERMINATING, IS_NEEDED, now);
            }
            Some(deleted) if deleted + DELETION_GRACE_PERIOD <= now => {
                edit.finalizers = without_finalizer(cidr);
            }
            Some(deleted) => {
                let end = deleted + DELETION_GRACE_PERIOD;
                plan.requeue_at = Some(plan.requeue_at.map_or(end, |again| again.min(end)));
            }
        }
        if !edit.is_empty() {
            plan.edits.push(edit);
        }
    }
    plan
}

fn is_ours(finalizer: &str) -> bool {
    finalizer == FINALIZER
}

fn with_finalizer(cidr: &ServiceCidr) -> Option<Vec<Box<str>>> {
    let mut finalizers = cidr.finalizers.clone();
    if finalizers.iter().any(|finalizer| is_ours(finalizer)) {
        return None;
    }
    finalizers.push(FINALIZER.into());
    Some(finalizers)
}

fn without_finalizer(cidr: &ServiceCidr) -> Option<Vec<Box<str>>> {
    let mut finalizers = cidr.finalizers.clone();
    finalizers.retain(|finalizer| !is_ours(finalizer));
    (finalizers.len() < cidr.finalizers.len()).then_some(finalizers)
}

/// Returns whether an address would be in no ServiceCIDR without this one.
///
/// Other ServiceCIDRs in deletion do not count: otherwise two equal ones would both be
/// deleted.
fn is_needed(cidr: &ServiceCidr, cidrs: &[ServiceCidr], addresses: &[IpAddress]) -> bool {
    let others = cidrs
        .iter()
        .filter(|other| other.name != cidr.name && other.deleted.is_none());
    let others: Vec<AddressRange> = others.flat_map(|other| other.ranges.clone()).collect();
    let is_contained = |range: &AddressRange| {
        let network = range.network();
        let mut others = others.iter();
        others.any(|other| other.network().contains(&network))
    };
    if cidr.ranges.iter().all(is_contained) {
        return false;
    }
    addresses.iter().filter(|one| one.is_managed()).any(|one| {
        let has = |range: &AddressRange| {
            range.network().addr().is_ipv4() == (Family::of(one.ip) == Family::V4)
                && range.number(one.ip).is_ok()
        };
        cidr.ranges.iter().any(has) && !others.iter().any(has)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Condition;
    use crate::ip_address::MANAGER;

    const SOON: Duration = Duration::from_secs(3);

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn cidr(name: &str, ranges: &[&str]) -> ServiceCidr {
        ServiceCidr {
            name: name.into(),
            version: "7".into(),
            ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
            unreadable: Vec::new(),
            finalizers: vec![FINALIZER.into()],
            conditions: Vec::new(),
            deleted: None,
        }
    }

    fn going(name: &str, ranges: &[&str]) -> ServiceCidr {
        ServiceCidr {
            deleted: Some(now() - DELETION_GRACE_PERIOD),
            ..cidr(name, ranges)
        }
    }

    /// A ServiceCIDR with finalizer and condition `Ready`.
    fn settled(name: &str, ranges: &[&str]) -> ServiceCidr {
        let mut cidr = cidr(name, ranges);
        cidr.conditions = cidr.with_ready("True", "", IS_READY, now()).unwrap();
        cidr
    }

    fn address(ip: &str, manager: &str) -> IpAddress {
        let ip = ip.parse().unwrap();
        IpAddress {
            ip,
            uid: "u".into(),
            version: "7".into(),
            family: Some(Family::of(ip).as_str().into()),
            manager: Some(manager.into()),
            owner: vipline_service_ip::OwnerRef::default(),
            created: now(),
        }
    }

    /// Returns name, removal of the finalizer, and reason of the condition of each changed
    /// ServiceCIDR.
    fn changes(cidrs: &[ServiceCidr], addresses: &[&str]) -> Vec<(String, bool, String)> {
        let addresses: Vec<_> = addresses.iter().map(|ip| address(ip, MANAGER)).collect();
        let plan = plan(cidrs, &addresses, now());
        let changes = plan.edits.into_iter().map(|edit| {
            let is_freed = edit.finalizers.is_some_and(|left| left.is_empty());
            let ready = edit
                .conditions
                .and_then(|conditions| conditions.into_iter().last());
            let reason = ready.map_or_else(String::new, |ready| ready.reason.to_string());
            (edit.name.to_string(), is_freed, reason)
        });
        changes.collect()
    }

    fn freed(name: &str) -> (String, bool, String) {
        (name.to_owned(), true, String::new())
    }

    fn kept(name: &str) -> (String, bool, String) {
        (name.to_owned(), false, TERMINATING.to_owned())
    }

    #[test]
    fn a_new_service_cidr_gets_the_finalizer_and_the_condition_ready() {
        let mut new = cidr("a", &["10.0.0.0/24"]);
        new.finalizers = vec!["example.com/wait".into()];
        let other = Condition {
            kind: "Odd".into(),
            status: "True".into(),
            reason: "Because".into(),
            message: "words".into(),
            since: now(),
            generation: Some(1),
        };
        new.conditions = vec![other.clone()];
        let plan = plan(&[new.clone()], &[], now());
        let [edit] = &*plan.edits else {
            panic!("{plan:?}")
        };
        assert_eq!((&*edit.name, &*edit.version), ("a", "7"));
        let finalizers = edit.finalizers.clone().unwrap();
        assert_eq!(finalizers, ["example.com/wait".into(), FINALIZER.into()]);
        let conditions = edit.conditions.clone().unwrap();
        assert_eq!(conditions[0], other, "other conditions are kept");
        assert_eq!(
            (&*conditions[1].kind, &*conditions[1].status),
            ("Ready", "True")
        );
        assert_eq!(&*conditions[1].reason, "");
        assert_eq!(&*conditions[1].message, "Kubernetes Service CIDR is ready");
        assert_eq!(conditions[1].since, now());
        assert_eq!(plan.requeue_at, None);
    }

    #[test]
    fn a_reconciled_service_cidr_is_not_changed() {
        let settled = settled("a", &["10.0.0.0/24"]);
        assert_eq!(plan(&[settled], &[], now()), Plan::default());
    }

    #[test]
    fn a_service_cidr_that_was_not_ready_becomes_ready() {
        let mut cidr = settled("a", &["10.0.0.0/24"]);
        cidr.conditions[0].status = "False".into();
        cidr.conditions[0].since = now() - DELETION_GRACE_PERIOD;
        assert!(!cidr.is_ready());
        let plan = plan(&[cidr], &[], now());
        let ready = &plan.edits[0].conditions.as_ref().unwrap()[0];
        assert_eq!((&*ready.status, ready.since), ("True", now()));
    }

    #[test]
    fn a_changed_message_keeps_the_transition_time() {
        let mut cidr = cidr("a", &["10.0.0.0/24"]);
        let said = cidr.with_ready("True", "", "other words", now() - DELETION_GRACE_PERIOD);
        cidr.conditions = said.unwrap();
        let plan = plan(&[cidr], &[], now());
        let ready = &plan.edits[0].conditions.as_ref().unwrap()[0];
        assert_eq!(
            (&*ready.message, ready.since),
            (IS_READY, now() - DELETION_GRACE_PERIOD)
        );
    }

    #[test]
    fn a_service_cidr_without_addresses_is_deleted_after_the_grace_period() {
        let mut going = going("a", &["10.0.0.0/24"]);
        going.deleted = Some(now() - SOON);
        let outside = [address("10.1.0.1", MANAGER)];
        let waiting = plan(&[going.clone()], &outside, now());
        assert_eq!(waiting.edits, []);
        assert_eq!(
            waiting.requeue_at,
            Some(now() - SOON + DELETION_GRACE_PERIOD)
        );
        let done = plan(
            &[going.clone()],
            &outside,
            now() - SOON + DELETION_GRACE_PERIOD,
        );
        assert_eq!(done.edits[0].finalizers, Some(Vec::new()));
        assert_eq!((&done.edits[0].conditions, done.requeue_at), (&None, None));
        going.finalizers.clear();
        let gone = plan(&[going], &outside, now() + DELETION_GRACE_PERIOD);
        assert_eq!(
            gone,
            Plan::default(),
            "finalizers of other controllers are kept"
        );
    }

    #[test]
    fn the_next_call_is_at_the_earliest_end_of_a_grace_period() {
        let mut first = going("a", &["10.0.0.0/24"]);
        first.deleted = Some(now() - SOON);
        let mut second = going("b", &["10.1.0.0/24"]);
        second.deleted = Some(now());
        let plan = plan(&[second, first], &[], now());
        assert_eq!(plan.requeue_at, Some(now() - SOON + DELETION_GRACE_PERIOD));
    }

    #[test]
    fn a_service_cidr_with_addresses_keeps_its_finalizer_and_is_not_ready() {
        let mut cidr = going("a", &["10.0.0.0/24", "fd00::/64"]);
        for ip in ["10.0.0.9", "fd00::9"] {
            assert_eq!(changes(&[cidr.clone()], &[ip]), [kept("a")], "{ip}");
        }
        let told = plan(&[cidr.clone()], &[address("10.0.0.9", MANAGER)], now());
        let conditions = told.edits[0].conditions.clone().unwrap();
        assert_eq!(&*conditions[0].status, "False");
        assert!(conditions[0].message.contains("still IPAddresses"));
        assert_eq!(told.requeue_at, None, "no later call is required");
        cidr.conditions = conditions;
        assert_eq!(
            changes(&[cidr.clone()], &["10.0.0.9"]),
            [],
            "the condition is set once"
        );
        assert_eq!(changes(&[cidr], &[]), [freed("a")]);
    }

    #[test]
    fn addresses_of_other_managers_do_not_prevent_deletion() {
        let cidrs = [going("a", &["10.0.0.0/24"])];
        for address in [
            address("10.0.0.9", "somebody-else"),
            // The network address is not a cluster IP.
            address("10.0.0.0", MANAGER),
        ] {
            let plan = plan(&cidrs, &[address], now());
            assert_eq!(plan.edits[0].finalizers, Some(Vec::new()));
        }
    }

    #[test]
    fn addresses_within_another_service_cidr_do_not_prevent_deletion() {
        let ranges = &["10.0.0.0/24"][..];
        for other in ["10.0.0.0/24", "10.0.0.0/16", "10.0.0.0/28"] {
            let cidrs = [going("a", ranges), settled("b", &[other])];
            assert_eq!(changes(&cidrs, &["10.0.0.9"]), [freed("a")], "{other}");
        }
        let cidrs = [going("a", ranges), settled("b", &["10.0.0.0/28"])];
        assert_eq!(changes(&cidrs, &["10.0.0.99"]), [kept("a")]);
        // Each family is contained in another ServiceCIDR.
        let both = going("a", &["10.0.0.0/24", "fd00::/64"]);
        let four = settled("b", &["10.0.0.0/8"]);
        let six = settled("c", &["fd00::/56"]);
        let addresses = &["10.0.0.9", "fd00::9"];
        let cidrs = [both.clone(), four.clone(), six];
        assert_eq!(changes(&cidrs, addresses), [freed("a")]);
        assert_eq!(changes(&[both, four], addresses), [kept("a")]);
    }

    #[test]
    fn service_cidrs_in_deletion_do_not_contain_the_addresses_of_each_other() {
        let cidrs = [going("a", &["10.0.0.0/24"]), going("b", &["10.0.0.0/24"])];
        assert_eq!(changes(&cidrs, &["10.0.0.9"]), [kept("a"), kept("b")]);
        assert_eq!(changes(&cidrs, &[]), [freed("a"), freed("b")]);
    }

    #[test]
    fn patches_contain_the_resource_version() {
        let mut edit = Edit::of(&cidr("a", &["10.0.0.0/24"]));
        assert_eq!((edit.patch(), edit.status("8")), (None, None));
        edit.finalizers = Some(vec!["x".into()]);
        edit.conditions = cidr("a", &[]).with_ready("True", "", "words", now());
        assert_eq!(
            edit.patch().unwrap().to_string(),
            r#"{"metadata":{"finalizers":["x"],"resourceVersion":"7"}}"#
        );
        let status = edit.status("8").unwrap();
        assert_eq!(status["metadata"]["resourceVersion"], "8");
        assert_eq!(
            status["status"]["conditions"][0].to_string(),
            r#"{"lastTransitionTime":"2027-01-15T08:00:00Z","message":"words","reason":"","status":"True","type":"Ready"}"#
        );
    }
}
