//! Nodes.

use std::collections::HashSet;

use serde_json::Value;

use super::text::{is_label_value, is_qualified_name, is_v4, network};
use super::{Strictness, Violations};
use crate::json::{list, text, texts};

const PATH: &str = "spec.podCIDRs";

/// Checks a new Node. Its addresses may be any string.
pub(super) fn create(object: &Value, strictness: Strictness, found: &mut Violations) {
    taints(object, found);
    let cidrs = networks(object);
    let networks: Vec<_> = cidrs.iter().map(|text| network(text, strictness)).collect();
    let are_networks = networks.iter().all(Option::is_some);
    found.require(are_networks, PATH, "must be networks");
    if networks.len() > 1 {
        let families = networks.iter().flatten().map(|each| is_v4(each.addr()));
        let families: Vec<_> = families.collect();
        let is_dual = matches!(families[..], [one, other] if one != other);
        found.require(is_dual, PATH, "must have one network of each family");
    }
}

/// Returns the pod networks. Older clients set only `podCIDR`, which takes precedence if
/// both fields differ.
fn networks(node: &Value) -> Vec<&str> {
    let (first, all) = (text(node, "/spec/podCIDR"), texts(node, "/spec/podCIDRs"));
    match all.first() {
        Some(held) if first.is_empty() || *held == first => all,
        None if first.is_empty() => all,
        _ => vec![first],
    }
}

fn taints(node: &Value, found: &mut Violations) {
    let mut seen = HashSet::new();
    for taint in list(node, "/spec/taints") {
        let (key, value) = (text(taint, "/key"), text(taint, "/value"));
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        let is_taint = is_qualified_name(key)
            && is_label_value(value)
            && effects.contains(&text(taint, "/effect"));
        found.require(is_taint, "spec.taints", "must have key, value and effect");
        let is_first = seen.insert((key, text(taint, "/effect")));
        found.require(is_first, "spec.taints", "must be unique by key and effect");
    }
}

/// Checks an update: networks are immutable once set, and addresses are unique.
///
/// Unchanged networks that an older server admitted are validated again.
pub(super) fn update(old: &Value, new: &Value, strictness: Strictness, found: &mut Violations) {
    create(new, strictness, found);
    update_status(old, new, found);
}

/// Checks an update of the status.
pub(super) fn update_status(old: &Value, new: &Value, found: &mut Violations) {
    let (old, cidrs) = (networks(old), networks(new));
    let stay = old.is_empty() || old == cidrs;
    found.require(stay, PATH, "must not change once set");
    let addresses = list(new, "/status/addresses");
    for (index, address) in addresses.iter().enumerate() {
        let is_first = !addresses[..index].contains(address);
        found.require(is_first, "status.addresses", "must be listed once");
    }
}
