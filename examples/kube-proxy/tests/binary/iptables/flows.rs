//! Clients with a fixed source port.

use super::Node;
use crate::flows::{NETWORKS, follow_endpoints, follow_endpoints_at_all_node_addresses};

#[test]
fn a_client_with_a_fixed_port_reaches_the_new_endpoint() {
    let node = Node::with("nft", &[]);
    follow_endpoints(&node.stage, |difference| {
        // The text before the first document is not part of a document.
        let (_, document) = difference.split_once("# iptables-restore").unwrap();
        let (flags, text) = document.split_once('\n').unwrap();
        node.shell(&format!("iptables-restore {flags} <<'END'\n{text}END"));
    });
}

#[test]
fn flows_to_a_node_port_follow_the_endpoints_at_every_address_of_the_node() {
    let node = Node::with("nft", &[]);
    follow_endpoints_at_all_node_addresses(&node.stage, "");
}

#[test]
fn flows_to_a_node_port_follow_the_endpoints_at_every_address_in_the_networks() {
    let node = Node::with("nft", &[]);
    follow_endpoints_at_all_node_addresses(&node.stage, NETWORKS);
}
