//! ServiceCIDRs.

use serde_json::Value;

use super::Violations;
use super::text::canonical_network;
use crate::json::texts;

const PATH: &str = "spec.cidrs";

/// Checks a new ServiceCIDR.
pub(super) fn create(object: &Value, found: &mut Violations) {
    let cidrs = texts(object, "/spec/cidrs");
    let count = (1..=2).contains(&cidrs.len());
    found.require(count, PATH, "must have one or two networks");
    let networks: Vec<_> = cidrs.iter().map(|text| canonical_network(text)).collect();
    let are_networks = networks.iter().all(Option::is_some);
    found.require(are_networks, PATH, "must be canonical networks");
    if let [Some(one), Some(other)] = networks[..] {
        let differ = one.addr().is_ipv4() != other.addr().is_ipv4();
        found.require(differ, PATH, "must have one network of each family");
    }
}

/// Checks an update, which may only add a second network.
pub(super) fn update(old: &Value, new: &Value, found: &mut Violations) {
    let (old, cidrs) = (texts(old, "/spec/cidrs"), texts(new, "/spec/cidrs"));
    match (&old[..], &cidrs[..]) {
        ([one], [first, _]) => {
            found.require(one == first, PATH, "must keep the first network");
            create(new, found);
        }
        (old, new) => found.require(old == new, PATH, "must not change"),
    }
}
