//! External addresses that mode ipvs binds although another machine has them.
//!
//! Mode ipvs binds every external IP and load balancer IP to `kube-ipvs0` on every node, as
//! upstream does. If the address is that of another node, this node takes it for its own, and
//! reaches nothing at the other one any more: not its kubelet, not its API server.
//!
//! The proxy watches only its own Node object, so it does not know the addresses of all
//! nodes. It knows those with an endpoint of a Service with a cluster IP: pods of the host
//! network, such as ingress controllers, and the API servers, which are the endpoints of
//! `default/kubernetes`. An address without such an endpoint is not noticed.
//!
//! What would notice all of them costs too much. With a watch of all Nodes, each of 5,000
//! proxies would get every change of 5,000 Nodes, whose status changes every five minutes at
//! least: 80,000 messages per second from the API servers. A list of Nodes when an external IP
//! appears is no better, because all proxies see the Service at once: 5,000 lists of 5,000 Nodes
//! with 10 KB each are 250 GB. No field selector finds a Node by its address, and lists of
//! metadata have no addresses.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use proxy_core::{Engine, Event};
use vipline_kube_source::api::events::{EventType, NewEvent, Regarding};
use vipline_service_model::{ObjectName, PortName, api};

/// The external addresses of all Services.
#[derive(Debug, Default)]
pub struct BoundAddresses {
    services: HashMap<IpAddr, BTreeSet<ObjectName>>,
    addresses: HashMap<ObjectName, Vec<IpAddr>>,
    /// Addresses to compare with endpoints after the next sync.
    unchecked: HashSet<IpAddr>,
    reported: HashSet<(ObjectName, IpAddr)>,
}

impl BoundAddresses {
    /// Notes the external addresses and the endpoints of an event.
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::ServiceApplied(service) => {
                self.set(service.metadata.object_name(), external(service));
            }
            Event::ServiceDeleted(name) => self.set(name.clone(), Vec::new()),
            Event::SliceApplied(slice) if !self.services.is_empty() => {
                let texts = slice.endpoints.iter().flat_map(|it| &it.addresses);
                let addresses = texts.filter_map(|text| text.parse().ok());
                let bound = addresses.filter(|it| self.services.contains_key(it));
                self.unchecked.extend(bound);
            }
            _ => {}
        }
    }

    fn set(&mut self, name: ObjectName, addresses: Vec<IpAddr>) {
        let former = match addresses.is_empty() {
            true => self.addresses.remove(&name),
            false => self.addresses.insert(name.clone(), addresses.clone()),
        };
        let former = former.unwrap_or_default();
        for address in former.iter().filter(|it| !addresses.contains(it)) {
            if let Some(services) = self.services.get_mut(address) {
                services.remove(&name);
                if services.is_empty() {
                    self.services.remove(address);
                }
            }
            self.reported.remove(&(name.clone(), *address));
        }
        for address in addresses.iter().filter(|it| !former.contains(it)) {
            self.services
                .entry(*address)
                .or_default()
                .insert(name.clone());
            self.unchecked.insert(*address);
        }
    }

    /// Returns an Event for each Service with a new address of another machine. Call it after
    /// a sync, when all events are resolved.
    ///
    /// Reads all endpoints if an external address is new, or an endpoint has one.
    pub fn events(&mut self, engine: &Engine) -> Vec<NewEvent> {
        let mut unchecked = std::mem::take(&mut self.unchecked);
        unchecked.retain(|it| self.services.contains_key(it) && !engine.addresses().contains(it));
        if unchecked.is_empty() {
            return Vec::new();
        }
        let mut found: BTreeMap<IpAddr, &Arc<PortName>> = BTreeMap::new();
        for port in engine.store().ports() {
            let endpoints = port.serving.iter().chain(&*port.not_serving);
            for endpoint in endpoints.filter(|it| !it.is_local) {
                if unchecked.contains(&endpoint.addr) {
                    found.entry(endpoint.addr).or_insert(&port.name);
                }
            }
        }
        let mut events = Vec::new();
        for (address, port) in found {
            for service in self.services.get(&address).into_iter().flatten() {
                if self.reported.insert((service.clone(), address)) {
                    events.push(event(service, address, port));
                }
            }
        }
        events
    }
}

/// Returns the external addresses of a Service that mode ipvs binds.
fn external(service: &api::Service) -> Vec<IpAddr> {
    let ingress = service.status.load_balancer.ingress.iter();
    let ingress = ingress.filter(|it| it.ip_mode == api::IpMode::Vip);
    let texts = service.spec.external_ips.iter();
    let texts = texts.chain(ingress.map(|it| &it.ip));
    texts.filter_map(|text| text.trim().parse().ok()).collect()
}

fn event(service: &ObjectName, address: IpAddr, port: &PortName) -> NewEvent {
    NewEvent {
        regarding: Regarding::Service(service.clone()),
        kind: EventType::Warning,
        reason: "AddressOfMachine",
        action: "BindAddress",
        text: format!(
            "{service} has external address {address}, which is also the address of an endpoint \
             of {port} on another machine: mode ipvs binds it to kube-ipvs0, so that this node \
             no longer reaches that machine"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proxy_core::Config;

    use super::*;

    struct Stage {
        engine: Engine,
        bound: BoundAddresses,
        now: Duration,
    }

    impl Stage {
        /// Applies an event and returns the texts of the Events after the next sync.
        fn apply(&mut self, event: Event) -> Vec<String> {
            self.bound.note(&event);
            self.engine.apply(event);
            self.now += Duration::from_secs(60);
            self.engine.poll(self.now);
            self.now += Duration::from_secs(60);
            self.engine.poll(self.now);
            let events = self.bound.events(&self.engine).into_iter();
            events.map(|event| event.text).collect()
        }
    }

    fn service(name: &str, external_ips: &[&str]) -> Event {
        let mut service = api::Service {
            metadata: api::ObjectMeta::named("shop", name),
            ..api::Service::default()
        };
        service.spec.cluster_ip = "10.96.0.10".into();
        service.spec.external_ips = external_ips.iter().map(|&ip| ip.into()).collect();
        service.spec.ports = vec![api::ServicePortSpec {
            port: 80,
            ..api::ServicePortSpec::default()
        }];
        service.into()
    }

    /// Returns a slice of a Service with one endpoint on a node.
    fn slice(service: &str, address: &str, node: &str) -> Event {
        let endpoint = api::SliceEndpoint {
            addresses: vec![address.into()],
            node_name: Some(node.into()),
            ..api::SliceEndpoint::default()
        };
        let mut slice = api::EndpointSlice {
            metadata: api::ObjectMeta::named("shop", service),
            address_type: api::AddressType::V4,
            endpoints: vec![endpoint],
            ports: vec![api::EndpointPort {
                port: Some(8080),
                ..api::EndpointPort::default()
            }],
        };
        let label = api::EndpointSlice::SERVICE_NAME_LABEL.to_owned();
        slice.metadata.labels.insert(label, service.into());
        slice.into()
    }

    #[test]
    fn pods_of_the_host_network_and_api_servers_show_the_addresses_of_their_machines() {
        let mut stage = Stage {
            engine: Config::new("node-1").plan_only().unwrap(),
            bound: BoundAddresses::default(),
            now: Duration::ZERO,
        };
        stage.apply(Event::Synced);
        stage.apply(service("ingress", &[]));
        stage.apply(service("kubernetes", &[]));
        // An ingress controller in the host network that is not ready, and an API server, whose
        // endpoints name no node.
        let change = |event, change: &dyn Fn(&mut api::SliceEndpoint)| {
            let Event::SliceApplied(mut slice) = event else {
                panic!("a slice");
            };
            change(&mut slice.endpoints[0]);
            Event::SliceApplied(slice)
        };
        let not_ready = |it: &mut api::SliceEndpoint| {
            it.conditions.ready = Some(false);
            it.conditions.serving = Some(false);
        };
        let ingress = slice("ingress", "192.0.2.7", "node-2");
        stage.apply(change(ingress, &not_ready));
        let server = slice("kubernetes", "192.0.2.9", "node-3");
        stage.apply(change(server, &|it| it.node_name = None));
        let texts = stage.apply(service("web", &["192.0.2.7", "192.0.2.8", "192.0.2.9"]));
        let of = [
            ("192.0.2.7", "shop/ingress"),
            ("192.0.2.9", "shop/kubernetes"),
        ];
        assert_eq!(texts.len(), of.len(), "{texts:?}");
        for (text, (address, endpoint)) in texts.iter().zip(of) {
            let begin = format!(
                "shop/web has external address {address}, which is also the address of an \
                 endpoint of {endpoint}"
            );
            assert!(text.starts_with(&begin), "{text}");
        }
    }

    #[test]
    fn an_external_ip_that_another_machine_has_is_reported_once() {
        let mut stage = Stage {
            engine: Config::new("node-1").plan_only().unwrap(),
            bound: BoundAddresses::default(),
            now: Duration::ZERO,
        };
        stage.apply(Event::Synced);
        stage.apply(service("agent", &[]));
        stage.apply(slice("agent", "192.0.2.7", "node-2"));
        assert!(stage.apply(service("web", &["192.0.2.8"])).is_empty());
        let texts = stage.apply(service("web", &["192.0.2.8", "192.0.2.7"]));
        let [text] = &*texts else {
            panic!("one Event: {texts:?}");
        };
        let begin = "shop/web has external address 192.0.2.7, which is also the address of an \
                     endpoint of shop/agent";
        assert!(text.starts_with(begin), "{text}");
        let again = service("web", &["192.0.2.7", "192.0.2.8"]);
        assert!(stage.apply(again).is_empty());
        // The endpoint comes after the address.
        assert_eq!(stage.apply(slice("agent", "192.0.2.8", "node-3")).len(), 1);
        // An endpoint of this node has an address of this node.
        assert!(stage.apply(service("web", &[])).is_empty());
        stage.apply(slice("agent", "192.0.2.7", "node-1"));
        assert!(stage.apply(service("web", &["192.0.2.7"])).is_empty());
    }
}
