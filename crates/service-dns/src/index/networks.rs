//! Networks of ServiceCIDRs.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use vipline_service_model::ipnet::IpNet;
use vipline_service_model::{Family, Field, Kind, Problem, Warning, Warnings, api, parse_network};

/// Networks of all ServiceCIDRs.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    by_name: HashMap<Arc<str>, Box<[IpNet]>>,
    /// Number of ServiceCIDRs with a network, by family, length of the prefix, and network.
    /// There are few lengths, so that a look-up takes few steps.
    by_length: BTreeMap<(Family, u8), BTreeMap<IpNet, usize>>,
}

impl Networks {
    /// Stores a ServiceCIDR. Returns warnings about its fields.
    pub(crate) fn apply(&mut self, object: &api::ServiceCidr) -> Vec<Warning> {
        let name = object.metadata.object_name();
        let mut warnings = Warnings::about(Kind::ServiceCidr, &name);
        let mut networks = Vec::with_capacity(object.spec.cidrs.len());
        for (index, text) in object.spec.cidrs.iter().enumerate() {
            match parse_network(text) {
                Some(network) => networks.push(network),
                None => {
                    let field = Field::member("spec.cidrs[]", index);
                    warnings.push(field, Problem::BadNetwork(text.as_str().into()));
                }
            }
        }
        let warnings = warnings.into_found();
        self.delete(&name.name);
        for &network in &networks {
            let same_length = self.by_length.entry(key(network)).or_default();
            *same_length.entry(network).or_default() += 1;
        }
        self.by_name.insert(name.name, networks.into());
        warnings
    }

    /// Removes a ServiceCIDR.
    pub(crate) fn delete(&mut self, name: &str) {
        let networks = self.by_name.remove(name).unwrap_or_default();
        for network in networks {
            let Some(same_length) = self.by_length.get_mut(&key(network)) else {
                continue;
            };
            if let Some(count) = same_length.get_mut(&network) {
                *count -= 1;
                if *count == 0 {
                    same_length.remove(&network);
                }
            }
            if same_length.is_empty() {
                self.by_length.remove(&key(network));
            }
        }
    }

    /// Returns the length of the prefix of the largest network that contains `network`.
    pub(crate) fn largest_around(&self, network: IpNet) -> Option<u8> {
        let family = Family::of_network(network);
        let lengths = self
            .by_length
            .range((family, 0)..=(family, network.prefix_len()));
        lengths
            .filter(|((_, length), networks)| {
                prefix(network.addr(), *length).is_some_and(|it| networks.contains_key(&it))
            })
            .map(|((_, length), _)| *length)
            .next()
    }
}

fn key(network: IpNet) -> (Family, u8) {
    (Family::of_network(network), network.prefix_len())
}

/// Returns the network of an address with a length of the prefix.
fn prefix(addr: IpAddr, length: u8) -> Option<IpNet> {
    IpNet::new(addr, length).ok().map(|network| network.trunc())
}
