//! Nodes and ServiceCIDRs.

use serde_json::{Value, json};
use vipline_service_model::arbitrary::Dice;

use super::{metadata, pool, some};
use crate::Id;

/// Addresses of a Node. Validation accepts any string.
const ADDRESSES: [&str; 14] = [
    "192.168.55.4",
    "192.168.55.4",
    "192.168.55.5",
    "fd00:55::4",
    "fd00:55::5",
    "203.0.113.1",
    "10.96.0.10",
    "010.0.0.1",
    "::ffff:192.168.55.6",
    "127.0.0.1",
    "0.0.0.0",
    "fe80::1%eth0",
    "node-1.example",
    "",
];

/// Returns a Node with the networks of the old Node, if any.
pub(super) fn object(dice: &mut Dice, id: &Id, old: Option<&Value>) -> Value {
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata(dice, id, old),
        "spec": {},
        "status": status(dice),
    });
    if dice.once_in(2) {
        let zone = dice.pick(&["a", "b", "", pool::LONG]);
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!(zone);
    }
    let networks = match old {
        Some(old) if old["spec"]["podCIDRs"].is_array() => old["spec"]["podCIDRs"].clone(),
        _ => json!(networks(dice)),
    };
    if let Some(first) = networks.get(0) {
        node["spec"]["podCIDR"] = first.clone();
        node["spec"]["podCIDRs"] = networks;
    }
    if dice.once_in(8) {
        let key = dice.pick(&[
            "node.kubernetes.io/unschedulable",
            "ToBeDeletedByClusterAutoscaler",
        ]);
        node["spec"]["taints"] = json!([{"key": key, "effect": "NoSchedule"}]);
    }
    node
}

/// Returns the status of a Node with addresses of any form.
pub(super) fn status(dice: &mut Dice) -> Value {
    let kinds = [
        "InternalIP",
        "InternalIP",
        "ExternalIP",
        "Hostname",
        "InternalDNS",
        "",
    ];
    let addresses = some(dice, 4, &ADDRESSES).into_iter();
    let addresses: Vec<_> = addresses
        .map(|address| json!({"type": dice.pick(&kinds), "address": address}))
        .collect();
    json!({"addresses": addresses})
}

/// Returns a ServiceCIDR with the networks of the old ServiceCIDR.
pub(super) fn service_cidr(dice: &mut Dice, id: &Id, old: Option<&Value>) -> Value {
    let cidrs = match old {
        Some(old) if dice.once_in(2) => old["spec"]["cidrs"].clone(),
        _ => json!(networks(dice)),
    };
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": metadata(dice, id, old),
        "spec": {"cidrs": cidrs},
    })
}

/// Returns networks, mostly one per family.
fn networks(dice: &mut Dice) -> Vec<String> {
    match dice.roll(4) {
        0 => some(dice, 2, &pool::NETWORKS),
        1 => some(dice, 1, &pool::LEGACY_NETWORKS),
        2 => vec!["10.96.0.0/12".to_owned(), "fd00:10:96::/108".to_owned()],
        _ => {
            let (v4, v6) = pool::NETWORKS.split_at(9);
            let mut both = vec![dice.pick(v4).to_owned(), dice.pick(v6).to_owned()];
            if dice.once_in(2) {
                both.reverse();
            }
            both
        }
    }
}
