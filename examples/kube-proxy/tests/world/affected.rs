//! The objects that a change may edit.
//!
//! - A change of a Service or slice edits the objects of its Services, and the objects
//!   of other Services at addresses that its Services claim.
//! - A change of the Node edits objects of Services that contain an added or removed
//!   address or pod network. If the zone of the node changes, it also edits the objects
//!   of service ports whose endpoints change. If the address of the node enters or leaves
//!   the source ranges of a Service, the objects that grant the node access to the load
//!   balancer IPs change.
//! - A change of a ServiceCIDR edits objects of Services that contain an added or removed
//!   network.
//! - Changes of the Node and of a ServiceCIDR edit base objects if they add or remove an
//!   address or network.
//! - A change of another Node edits nothing.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use proxy_core::{Address, Config, Context, Event, Family, Planner};
use vipline_reconcile::{Edit, Keyed};
use vipline_service_model::{NodeView, ObjectName, ServicePort, Store, api};

use crate::cached::Cached;
use crate::memory::ModePlanner;

/// Size of the base objects.
const BASE: usize = 4;

/// The Services that an event affects.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Affected {
    /// These Services.
    Services(BTreeSet<ObjectName>),
    /// No Service: the node or the networks of the cluster changed.
    Cluster,
    /// All Services: the cluster grew or shrank past the size at which comments are
    /// omitted.
    All,
}

/// Determines the Services that events affect.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    /// The Service of each slice.
    owners: std::collections::BTreeMap<ObjectName, ObjectName>,
}

impl Tracker {
    /// Returns the Services that an event affects.
    pub(crate) fn affected(&mut self, event: &Event) -> Affected {
        let services: Vec<ObjectName> = match event {
            Event::ServiceApplied(service) => vec![service.metadata.object_name()],
            Event::ServiceDeleted(name) => vec![name.clone()],
            Event::SliceDeleted(name) => self.owners.remove(name).into_iter().collect(),
            Event::SliceApplied(slice) => {
                let name = slice.metadata.object_name();
                let label = slice
                    .metadata
                    .labels
                    .get(api::EndpointSlice::SERVICE_NAME_LABEL);
                let owner = label.map(|service| ObjectName::new(&*name.namespace, &**service));
                let former = match &owner {
                    Some(owner) => self.owners.insert(name, owner.clone()),
                    None => self.owners.remove(&name),
                };
                owner.into_iter().chain(former).collect()
            }
            _ => return Affected::Cluster,
        };
        Affected::Services(services.into_iter().collect())
    }
}

/// Returns the contexts of a store for both families.
pub(crate) fn contexts(store: &Store, config: &Config) -> [Context; 2] {
    let node = store.node();
    Family::ALL.map(|family| {
        Context::new(&config.engine, &node, store.service_cidrs(family), family)
            .with_addresses(&config.engine, &node, &[])
            .with_endpoints(store.endpoints(family))
    })
}

/// The service ports of a store, as last resolved, and the state on which their objects
/// depend.
pub(crate) struct Plan {
    config: Config,
    contexts: [Context; 2],
    ports: Vec<Arc<ServicePort>>,
    node: Arc<NodeView>,
}

impl Plan {
    pub(crate) fn of(store: &Store, config: &Config) -> Self {
        Self {
            config: config.clone(),
            contexts: contexts(store, config),
            ports: store.ports().cloned().collect(),
            node: store.node(),
        }
    }

    fn context(&self, family: Family) -> &Context {
        let [v4, v6] = &self.contexts;
        match family {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }

    /// Returns the addresses and networks of the node, and the ServiceCIDRs, of a
    /// family, each with its kind. The primary address and pod network have an
    /// additional kind.
    fn networks(&self, family: Family) -> HashSet<(&'static str, String)> {
        let node = &self.node;
        let hosts = |addresses: &[IpAddr]| addresses.iter().copied().map(IpNet::from).collect();
        let listed: [(_, Vec<IpNet>); 5] = [
            ("address", hosts(&node.addresses)),
            ("first address", hosts(node.address(family).as_slice())),
            ("pods", node.pod_cidrs.clone()),
            ("first pods", node.pod_cidr(family).into_iter().collect()),
            ("ServiceCIDR", self.context(family).service_cidrs.clone()),
        ];
        let listed = listed.into_iter().flat_map(|(what, networks)| {
            let texts = networks
                .into_iter()
                .flat_map(|network| texts(network.trunc()));
            texts.map(move |text| (what, text))
        });
        listed.collect()
    }

    /// Returns the base objects, which belong to no Service.
    fn base<P: ModePlanner>(&self, family: Family) -> Vec<P::Object>
    where
        P::Object: 'static,
    {
        Cached::<P>::from(&self.config).base(self.context(family))
    }

    /// Returns the addresses of some Services.
    fn claimed(&self, family: Family, names: &HashSet<&ObjectName>) -> Vec<IpAddr> {
        let own = self.ports.iter().filter(|port| {
            let name = ObjectName::new(&*port.name.namespace, &*port.name.service);
            port.family == family && names.contains(&name)
        });
        own.flat_map(|port| addresses(port)).collect()
    }

    /// Returns the objects and addresses that the ports of affected Services want.
    fn wanted<P: ModePlanner>(
        &self,
        family: Family,
        is_affected: impl Fn(&ObjectName) -> bool,
    ) -> (Vec<P::Object>, HashSet<Address>) {
        let (mut objects, mut addresses) = (Vec::new(), HashSet::new());
        for port in self.ports.iter().filter(|port| port.family == family) {
            if is_affected(&ObjectName::new(&*port.name.namespace, &*port.name.service)) {
                let wants = P::from(&self.config).port(self.context(family), port);
                addresses.extend(wants.claims.iter().map(|claim| claim.address));
                objects.extend(wants.into_objects());
            }
        }
        (objects, addresses)
    }

    /// Returns the objects that any port wants at one of the addresses.
    fn wanted_at<P: ModePlanner>(&self, family: Family, at: &HashSet<Address>) -> Vec<P::Object> {
        let ports = self.ports.iter().filter(|port| port.family == family);
        let wants = ports.map(|port| P::from(&self.config).port(self.context(family), port));
        let claims = wants.flat_map(|wants| wants.claims);
        let contested = claims.filter(|claim| at.contains(&claim.address));
        contested.flat_map(|claim| claim.objects).collect()
    }
}

/// Returns the keys, as text, of edited objects that no affected Service wants.
///
/// If an address is contested, the object of another Service may be edited: one at an
/// address that an affected Service claims before or after the change.
pub(crate) fn unexpected_edits<P: ModePlanner>(
    family: Family,
    plans: [&Plan; 2],
    affected: &Affected,
    edited: &[P::Object],
) -> Vec<String>
where
    P::Object: 'static,
{
    let mut allowed = Vec::new();
    let mut addresses = HashSet::new();
    let mut related = changed_services(family, plans);
    related.extend(with_changed_node_admission(family, plans));
    let is_affected = |name: &ObjectName| match affected {
        Affected::Services(names) => names.contains(name),
        Affected::Cluster => related.contains(name),
        Affected::All => true,
    };
    for plan in plans {
        let (objects, claimed) = plan.wanted::<P>(family, is_affected);
        allowed.extend(objects);
        addresses.extend(claimed);
        if *affected == Affected::All {
            allowed.extend(plan.base::<P>(family));
        }
    }
    let unknown = unknown(edited, &allowed);
    if unknown.is_empty() {
        return Vec::new();
    }
    let at = |plan: &Plan| plan.wanted_at::<P>(family, &addresses);
    allowed.extend(plans.into_iter().flat_map(at));
    let unknown = self::unknown(edited, &allowed).into_iter();
    let required = unknown.filter(|object| !P::is_removal_delayed(object));
    required
        .map(|object| format!("{:?}", object.key()))
        .collect()
}

/// Returns the Services with a port that differs between the plans.
fn changed_services(family: Family, plans: [&Plan; 2]) -> HashSet<ObjectName> {
    let [before, after] = plans.map(|plan| {
        let own = plan.ports.iter().filter(|port| port.family == family);
        own.map(|port| (Arc::clone(&port.name), port))
            .collect::<HashMap<_, _>>()
    });
    let names = before.keys().chain(after.keys());
    let differ = names.filter(|name| before.get(*name) != after.get(*name));
    differ
        .map(|name| ObjectName::new(&*name.namespace, &*name.service))
        .collect()
}

/// Returns the size of a change: the number of endpoints of each service port, times the
/// addresses and source ranges of the port. A change of the cluster is of all ports.
pub(crate) fn size(family: Family, plans: [&Plan; 2], affected: &Affected) -> usize {
    let mut names = HashSet::new();
    if let Affected::Services(affected) = affected {
        names.extend(affected);
    }
    let related: HashSet<_> = plans
        .iter()
        .flat_map(|plan| plan.claimed(family, &names))
        .collect();
    let ports = plans.into_iter().flat_map(|plan| &plan.ports);
    let own = ports.filter(|port| {
        let name = ObjectName::new(&*port.name.namespace, &*port.name.service);
        let is_of_all = !matches!(affected, Affected::Services(_));
        let is_contested = addresses(port).any(|address| related.contains(&address));
        port.family == family && (is_of_all || names.contains(&name) || is_contested)
    });
    let sizes = own.map(|port| {
        let addresses = addresses(port).count() + usize::from(port.node_port.is_some());
        let endpoints = port.cluster.len() + port.local.len() + port.serving_terminating.len();
        (1 + addresses) * (1 + endpoints + port.source_ranges.len())
    });
    let of_cluster = match affected {
        Affected::Services(_) => 0,
        Affected::Cluster | Affected::All => BASE,
    };
    of_cluster + sizes.sum::<usize>()
}

/// Returns the addresses of a service port.
fn addresses(port: &ServicePort) -> impl Iterator<Item = IpAddr> {
    let external = port.external_ips.iter().chain(&*port.load_balancer_ips);
    external.copied().chain([port.cluster_ip])
}

/// Returns the Services whose source ranges contain the address of the node in only one
/// plan.
fn with_changed_node_admission(
    family: Family,
    plans: [&Plan; 2],
) -> impl Iterator<Item = ObjectName> {
    let [before, after] = plans.map(|plan| plan.node.address(family));
    let ports = plans.into_iter().flat_map(|plan| &plan.ports);
    let differ = ports.filter(move |port| {
        let admits = |address: Option<IpAddr>| {
            let mut ranges = port.source_ranges.iter();
            address.is_some_and(|address| ranges.any(|range| range.contains(&address)))
        };
        port.family == family && admits(before) != admits(after)
    });
    differ.map(|port| ObjectName::new(&*port.name.namespace, &*port.name.service))
}

/// Returns the edits of a Node or ServiceCIDR change that the change does not explain,
/// as text.
pub(crate) fn unexplained_edits<P: ModePlanner>(
    family: Family,
    plans: [&Plan; 2],
    edits: &[Edit<P::Object>],
) -> Vec<String>
where
    P::Object: 'static,
{
    let [before, after] = plans;
    let changed_services = changed_services(family, plans);
    if !changed_services.is_empty() && before.node.zone == after.node.zone {
        return vec![format!("{changed_services:?} in the same zone")];
    }
    let [networks, later] = plans.map(|plan| plan.networks(family));
    let changed = networks.symmetric_difference(&later);
    let changed: HashSet<_> = changed.map(|(_, text)| text.as_str()).collect();
    let is_explained = |edit: &Edit<P::Object>| {
        let (old, new) = edit.clone().into_old_and_new();
        let sides = old.into_iter().chain(new);
        let is_of_network = |text: String| words(&text).any(|word| changed.contains(word));
        let text = |side| P::text(&side) + &P::listing(family, [&side].into_iter());
        sides.map(text).any(is_of_network)
    };
    let mut rest: Vec<_> = edits.iter().collect();
    if !changed.is_empty() {
        // Edits of base objects are explained, and their texts take long to print.
        let base = plans.map(|plan| plan.base::<P>(family)).concat();
        let base: HashSet<_> = base.iter().map(Keyed::key).collect();
        rest.retain(|edit| !base.contains(&edit.key()) && !is_explained(edit));
    }
    let rest: Vec<_> = rest.iter().map(|edit| edit.object().clone()).collect();
    unexpected_edits::<P>(family, plans, &Affected::Cluster, &rest)
}

/// Returns a network with and without the prefix length of a single address, as tools
/// print it.
fn texts(network: IpNet) -> [String; 2] {
    let is_address = network.prefix_len() == network.max_prefix_len();
    let alone = if is_address {
        network.addr().to_string()
    } else {
        network.to_string()
    };
    [network.to_string(), alone]
}

/// Returns the words of a text that may be addresses or networks, without ports.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |byte: char| byte.is_ascii_hexdigit() || ".:/".contains(byte);
    let words = text.split(move |byte| !is_part(byte));
    words.flat_map(|word| {
        let alone = word
            .strip_suffix("/32")
            .or_else(|| word.strip_suffix("/128"));
        let v4 = word.split(':').next().filter(|part| part.contains('.'));
        [Some(word), alone, v4].into_iter().flatten()
    })
}

fn unknown<'a, T: Keyed>(edited: &'a [T], allowed: &'a [T]) -> Vec<&'a T> {
    let keys: HashSet<_> = allowed.iter().map(Keyed::key).collect();
    edited
        .iter()
        .filter(|object| !keys.contains(&object.key()))
        .collect()
}

/// Returns whether comments are added or removed because the cluster grew or shrank.
pub(crate) fn crosses_size_limit(plans: [&Plan; 2], family: Family) -> bool {
    let [before, after] = plans.map(|plan| plan.context(family).is_large);
    before != after
}
