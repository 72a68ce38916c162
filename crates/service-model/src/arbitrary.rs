//! Random objects and events for property tests and fuzzing (feature `test-util`).
//!
//! All values are derived from a seed, or from the bytes of a fuzzer.
//! The numbers of names and addresses are small, and many addresses are invalid.
//! Events therefore interact: ports get endpoints, slices overlap, Services are
//! created again under an old name.

use crate::{Event, ObjectName, api};

/// Name of this node in generated endpoints, Nodes and hints.
pub const NODE: &str = "node-1";

/// A deterministic source of random decisions and objects.
#[derive(Clone, Debug)]
pub struct Dice {
    bytes: Vec<u8>,
    seed: Option<u64>,
}

impl Dice {
    /// Returns dice with unlimited decisions, derived from a seed.
    pub fn from_seed(seed: u64) -> Self {
        Self {
            bytes: Vec::new(),
            seed: Some(seed),
        }
    }

    /// Returns dice that consume one byte per decision, starting with the last byte.
    ///
    /// Without bytes left, every decision is the first choice.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.into(),
            seed: None,
        }
    }

    /// Returns whether all bytes are consumed.
    pub fn is_spent(&self) -> bool {
        self.bytes.is_empty() && self.seed.is_none()
    }

    /// Returns a number below `sides`. `sides` must be at least 1.
    pub fn roll(&mut self, sides: u8) -> u8 {
        match &mut self.seed {
            None => self.bytes.pop().unwrap_or(0) % sides.max(1),
            Some(state) => {
                // SplitMix64.
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                let fair = (mixed ^ (mixed >> 31)) % u64::from(sides.max(1));
                u8::try_from(fair).expect("the remainder is less than a byte")
            }
        }
    }

    /// Returns true with a probability of 1 in `sides`.
    pub fn once_in(&mut self, sides: u8) -> bool {
        self.roll(sides) + 1 == sides
    }

    /// Returns one of the choices.
    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        let sides = u8::try_from(choices.len()).expect("choices are few");
        let choice = choices.get(usize::from(self.roll(sides)));
        choice.expect("at least one choice").clone()
    }

    /// Returns a random event.
    pub fn event(&mut self) -> Event {
        match self.roll(12) {
            0..4 => self.slice().into(),
            4..7 => self.service().into(),
            7 => Event::SliceDeleted(self.slice_name()),
            8 => Event::ServiceDeleted(self.service_name()),
            9 => self.node().into(),
            10 => self.service_cidr().into(),
            _ => Event::ServiceCidrDeleted(self.pick(&["main", "more"]).into()),
        }
    }

    /// Returns a random event whose objects also have the fields that only DNS uses.
    pub fn dns_event(&mut self) -> Event {
        let mut event = self.event();
        match &mut event {
            Event::ServiceApplied(service) => {
                let names = [
                    "web.example.com",
                    "web.default.svc.cluster.local.",
                    "10.0.0.1",
                    "o..dd",
                    "",
                ];
                service.spec.external_name = self.pick(&names).into();
                service.spec.publish_not_ready_addresses = self.once_in(3);
            }
            Event::SliceApplied(slice) => {
                let names = [
                    None,
                    Some("web-0"),
                    Some("10-0-0-2"),
                    Some("Odd.name"),
                    Some(""),
                ];
                for endpoint in &mut slice.endpoints {
                    endpoint.hostname = self.pick(&names).map(Into::into);
                }
            }
            _ => {}
        }
        event
    }

    /// Returns a random name of a Service.
    pub fn service_name(&mut self) -> ObjectName {
        ObjectName::new(
            self.pick(&["default", "default", "default", "other"]),
            self.pick(&["web", "dns", "db"]),
        )
    }

    /// Returns a random name of a slice.
    pub fn slice_name(&mut self) -> ObjectName {
        let name = self.pick(&["web-1", "web-2", "dns-1", "db-1", "db-2"]);
        ObjectName::new(self.pick(&["default", "default", "default", "other"]), name)
    }

    /// Returns a random Service, possibly with invalid fields.
    pub fn service(&mut self) -> api::Service {
        let name = self.service_name();
        let mut service = api::Service {
            metadata: api::ObjectMeta::named(&*name.namespace, &*name.name),
            spec: self.service_spec(),
            status: api::ServiceStatus::default(),
        };
        let ages = ["2026-01-01T00:00:00Z", "2025-05-05T05:05:05Z", "yesterday"];
        service.metadata.creation_timestamp = self.once_in(3).then(|| self.pick(&ages).into());
        if self.once_in(12) {
            let label = "service.kubernetes.io/service-proxy-name".into();
            service.metadata.labels.insert(label, String::new());
        }
        for _ in 0..self.roll(3) {
            let ingress = api::Ingress {
                ip: self.address(),
                ip_mode: self.pick(&["", "VIP", "Proxy", "Odd"]).into(),
            };
            service.status.load_balancer.ingress.push(ingress);
        }
        service
    }

    fn service_spec(&mut self) -> api::ServiceSpec {
        let words = [
            "",
            "ClusterIP",
            "NodePort",
            "LoadBalancer",
            "ExternalName",
            "Odd",
        ];
        let policies = ["Cluster", "Local", "", "Odd"];
        let mut spec = api::ServiceSpec {
            kind: self.pick(&words).into(),
            cluster_ip: self
                .pick(&["10.96.0.1", "10.96.0.2", "fd00:96::1", "None", "", "odd"])
                .into(),
            session_affinity: self.pick(&["None", "ClientIP", "", "Odd"]).into(),
            external_traffic_policy: self.pick(&policies).into(),
            internal_traffic_policy: self.pick(&policies).into(),
            health_check_node_port: u16::from(self.roll(3)) * 31_000,
            ..api::ServiceSpec::default()
        };
        if self.once_in(2) {
            spec.cluster_ips = vec![spec.cluster_ip.clone(), "fd00:96::2".into()];
            spec.ip_families = vec!["IPv4".into(), "IPv6".into()];
            spec.ip_families.truncate(usize::from(self.roll(3)));
        }
        if self.once_in(3) {
            let timeout_seconds = self.pick(&[None, Some(0), Some(60)]);
            let client_ip = Some(api::ClientIpConfig { timeout_seconds });
            spec.session_affinity_config = Some(api::SessionAffinityConfig { client_ip });
        }
        for _ in 0..self.roll(4) {
            let port = self.service_port();
            spec.ports.push(port);
        }
        for _ in 0..self.roll(3) {
            spec.external_ips.push(self.address());
        }
        for _ in 0..self.roll(3) {
            let ranges = [
                "10.0.0.0/8",
                " fd00::/8 ",
                "0.0.0.0/0",
                "010.1.0.0/16",
                "odd",
                "",
            ];
            spec.load_balancer_source_ranges
                .push(self.pick(&ranges).into());
        }
        spec
    }

    fn service_port(&mut self) -> api::ServicePortSpec {
        api::ServicePortSpec {
            name: self.port_name(),
            protocol: self.protocol(),
            port: self.pick(&[80, 443, 53, 0]),
            node_port: self.pick(&[0, 30_080, 30_053]),
        }
    }

    /// Returns a random EndpointSlice, possibly with invalid fields.
    pub fn slice(&mut self) -> api::EndpointSlice {
        let name = self.slice_name();
        let mut metadata = api::ObjectMeta::named(&*name.namespace, &*name.name);
        // Usually the Service that the name of the slice starts with.
        let service = match self.roll(8) {
            0 => self.pick(&["", "web", "dns"]),
            _ => name.name.split('-').next().unwrap_or_default(),
        };
        let label = api::EndpointSlice::SERVICE_NAME_LABEL.into();
        metadata.labels.insert(label, service.into());
        if self.once_in(16) {
            let label = "service.kubernetes.io/headless".into();
            metadata.labels.insert(label, String::new());
        }
        if self.once_in(3) {
            let key = "endpoints.kubernetes.io/last-change-trigger-time".into();
            let time = self.pick(&["2026-02-02T02:02:02.5Z", "odd"]).into();
            metadata.annotations.insert(key, time);
        }
        let mut slice = api::EndpointSlice {
            metadata,
            address_type: self
                .pick(&["IPv4", "IPv4", "IPv4", "IPv6", "FQDN", "Odd"])
                .into(),
            ..api::EndpointSlice::default()
        };
        for _ in 0..self.roll(4) {
            slice.ports.push(api::EndpointPort {
                name: (!self.once_in(8)).then(|| self.port_name()),
                protocol: self.protocol(),
                port: self.pick(&[
                    Some(8080),
                    Some(8081),
                    Some(53),
                    Some(0),
                    Some(70_000),
                    Some(-1),
                    None,
                ]),
            });
        }
        // Hints apply only if every ready endpoint has one.
        let hinted = self.pick(&[1, 1, 8, 100]);
        for _ in 0..self.roll(6) {
            let endpoint = self.endpoint(hinted);
            slice.endpoints.push(endpoint);
        }
        slice
    }

    fn endpoint(&mut self, hinted: u8) -> api::SliceEndpoint {
        let chances = [None, Some(true), Some(false)];
        let nodes = [None, Some(NODE), Some("node-2"), Some("")];
        let mut endpoint = api::SliceEndpoint {
            conditions: api::Conditions {
                ready: self.pick(&chances),
                serving: self.pick(&chances),
                terminating: self.pick(&chances),
            },
            node_name: self.pick(&nodes).map(Into::into),
            ..api::SliceEndpoint::default()
        };
        for _ in 0..self.pick(&[1, 1, 1, 2, 0]) {
            endpoint.addresses.push(self.address());
        }
        if self.once_in(hinted) {
            endpoint.hints = Some(api::Hints {
                for_zones: self.hints(&["a", "a", "b", ""]),
                for_nodes: self.hints(&[NODE, NODE, "node-2", ""]),
            });
        }
        endpoint
    }

    fn hints(&mut self, names: &[&str]) -> Vec<api::NamedHint> {
        let count = self.pick(&[1, 0, 1, 2]);
        let hint = |name: &str| api::NamedHint { name: name.into() };
        (0..count).map(|_| hint(self.pick(names))).collect()
    }

    /// Returns a random Node, usually this one.
    pub fn node(&mut self) -> api::Node {
        let mut node = api::Node::default();
        node.metadata.name = self.pick(&[NODE, NODE, "node-2"]).into();
        if let Some(zone) = self.pick(&[Some("a"), Some("b"), None]) {
            node.metadata
                .labels
                .insert(api::Node::ZONE_LABEL.into(), zone.into());
        }
        for kind in ["ExternalIP", "InternalIP", "Hostname"] {
            if self.once_in(2) {
                let (kind, address) = (kind.into(), self.address());
                node.status
                    .addresses
                    .push(api::NodeAddress { kind, address });
            }
        }
        node.spec.pod_cidrs = self.networks();
        node
    }

    /// Returns a random ServiceCIDR.
    pub fn service_cidr(&mut self) -> api::ServiceCidr {
        let mut cidr = api::ServiceCidr::default();
        cidr.metadata.name = self.pick(&["main", "more"]).into();
        cidr.spec.cidrs = self.networks();
        cidr
    }

    fn networks(&mut self) -> Vec<String> {
        let networks = ["10.96.0.0/16", "fd00:96::/112", "010.1.0.0/24", "odd"];
        (0..self.roll(3))
            .map(|_| self.pick(&networks).into())
            .collect()
    }

    fn port_name(&mut self) -> String {
        self.pick(&["", "", "", "http", "dns"]).into()
    }

    fn protocol(&mut self) -> api::TransportProtocol {
        self.pick(&["TCP", "TCP", "TCP", "UDP", "UDP", "SCTP", "", "Odd"])
            .into()
    }

    fn address(&mut self) -> String {
        let odd = ["127.0.0.1", "169.254.169.254", "fe80::1", "odd", ""];
        let v4 = [
            "10.0.0.1",
            "10.0.0.2",
            "10.0.0.10",
            "010.000.0.2",
            "::ffff:10.0.0.2",
        ];
        let v6 = ["fd00::1", "fd00::2", "FD00:0::02"];
        match self.roll(8) {
            0..5 => self.pick(&v4).into(),
            5 | 6 => self.pick(&v6).into(),
            _ => self.pick(&odd).into(),
        }
    }
}
