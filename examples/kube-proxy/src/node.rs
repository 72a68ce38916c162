//! This node, for want of a Node object or in correction of it.

use std::net::IpAddr;

use vipline_service_model::{Event, api};

/// What is said of this node besides its Node object.
#[derive(Clone, Debug, Default)]
pub struct ThisNode {
    /// The name.
    pub name: String,
    /// The address that flags give it.
    pub bind_address: Option<IpAddr>,
}

impl ThisNode {
    /// Returns a Node object for when there is none: name and addresses, no zone.
    pub fn without_object(&self, addresses: &[IpAddr]) -> Event {
        let mut node = api::Node::default();
        node.metadata.name.clone_from(&self.name);
        node.status.addresses = addresses.iter().copied().map(internal).collect();
        self.correct(Event::NodeApplied(node))
    }

    /// Returns a Node object for when an API has none, if there is anything to
    /// say; load balancers should not send new traffic to it.
    pub fn unknown(&self) -> Option<Event> {
        let mut node = api::Node::default();
        node.metadata.name.clone_from(&self.name);
        // One that is being deleted gets none, and there is no other way to say it.
        node.metadata.deletion_timestamp = Some(String::new());
        self.bind_address
            .map(|_| self.correct(Event::NodeApplied(node)))
    }

    /// Puts the address that flags give before all others of its family.
    pub fn correct(&self, event: Event) -> Event {
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
    fn without_an_object_the_node_has_the_addresses_of_the_interfaces() {
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
    fn a_node_that_no_api_knows_has_the_address_of_the_flag_and_gets_no_traffic() {
        let mut node = ThisNode {
            name: "n1".into(),
            bind_address: None,
        };
        assert_eq!(node.unknown(), None);
        node.bind_address = "10.0.0.9".parse().ok();
        let event = node.unknown().unwrap();
        assert_eq!(addresses(&event), ["10.0.0.9"]);
        let Event::NodeApplied(object) = event else {
            panic!("{event:?}")
        };
        assert!(!NodeView::read(&object).0.eligible);
    }

    #[test]
    fn other_nodes_are_left_alone() {
        let node = ThisNode {
            name: "n1".into(),
            bind_address: "10.0.0.9".parse().ok(),
        };
        let other = api::Node::default();
        assert_eq!(node.correct(other.clone().into()), Event::from(other));
    }
}
