//! This node: host name, addresses, and the Node object with a substitute if it is missing,
//! and the address set by flags.

#[cfg(target_os = "linux")]
mod linux;

#[cfg(windows)]
mod windows;

use std::net::IpAddr;

use vipline_service_model::{Event, api};

#[cfg(target_os = "linux")]
pub use linux::{global_addresses, host_addresses, release};
#[cfg(windows)]
pub use windows::{global_addresses, host_addresses, mac_of};

/// Returns the host name.
pub fn hostname() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}

/// Name and flags of this node.
#[derive(Clone, Debug, Default)]
pub struct ThisNode {
    /// The name.
    pub name: String,
    /// Value of `--bind-address`, the first node address of its family.
    pub bind_address: Option<IpAddr>,
}

impl ThisNode {
    /// Returns a Node object with these addresses and without a zone, for use
    /// without an API server.
    pub fn without_object(&self, addresses: &[IpAddr]) -> Event {
        let mut node = api::Node::default();
        node.metadata.name.clone_from(&self.name);
        node.status.addresses = addresses.iter().copied().map(internal).collect();
        self.with_bind_address(Event::NodeApplied(node))
    }

    /// Returns a substitute for a missing Node object in the API, if
    /// `--bind-address` is set. Load balancers send it no new traffic.
    pub fn substitute(&self) -> Option<Event> {
        let mut node = api::Node::default();
        node.metadata.name.clone_from(&self.name);
        // A Node that is being deleted gets no load balancer traffic.
        node.metadata.deletion_timestamp = Some(String::new());
        self.bind_address
            .map(|_| self.with_bind_address(Event::NodeApplied(node)))
    }

    /// Puts the address of `--bind-address` before the other node addresses.
    pub fn with_bind_address(&self, event: Event) -> Event {
        match (event, self.bind_address) {
            (Event::NodeApplied(mut node), Some(address)) if node.metadata.name == self.name => {
                node.status.addresses.insert(0, internal(address));
                Event::NodeApplied(node)
            }
            (event, _) => event,
        }
    }
}

fn internal(address: IpAddr) -> api::NodeAddress {
    api::NodeAddress {
        kind: "InternalIP".to_owned(),
        address: address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use vipline_service_model::NodeView;

    use super::*;

    fn addresses(event: &Event) -> Vec<String> {
        let Event::NodeApplied(node) = event else {
            panic!("{event:?}")
        };
        NodeView::read(node)
            .0
            .addresses
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn the_machine_has_a_host_name() {
        assert!(!hostname().is_empty());
    }

    #[test]
    fn a_node_without_an_object_has_the_interface_addresses() {
        let mut node = ThisNode {
            name: "n1".into(),
            bind_address: None,
        };
        let found = ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        assert_eq!(
            addresses(&node.without_object(&found)),
            ["10.0.0.1", "fd00::1"]
        );
        node.bind_address = Some("fd00::7".parse().unwrap());
        let corrected = addresses(&node.without_object(&found));
        assert_eq!(corrected, ["fd00::7", "10.0.0.1", "fd00::1"]);
    }

    #[test]
    fn a_node_missing_in_the_api_has_the_bind_address_and_gets_no_traffic() {
        let mut node = ThisNode {
            name: "n1".into(),
            bind_address: None,
        };
        assert_eq!(node.substitute(), None);
        node.bind_address = "10.0.0.9".parse().ok();
        let event = node.substitute().unwrap();
        assert_eq!(addresses(&event), ["10.0.0.9"]);
        let Event::NodeApplied(object) = event else {
            panic!("{event:?}")
        };
        assert!(!NodeView::read(&object).0.eligible);
    }

    #[test]
    fn other_nodes_are_not_changed() {
        let node = ThisNode {
            name: "n1".into(),
            bind_address: "10.0.0.9".parse().ok(),
        };
        let other = api::Node::default();
        assert_eq!(
            node.with_bind_address(other.clone().into()),
            Event::from(other)
        );
    }
}
