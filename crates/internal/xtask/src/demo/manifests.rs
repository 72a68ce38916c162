//! Reads the Services of the demo from its manifests.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde_json::Value;
use testkit::proxy::Proxy;
use testkit::traffic::Protocol;
use vipline_service_model::api;

/// One port of one address of a Service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Frontend {
    /// Name of the Service.
    pub(super) service: String,
    /// Namespace of the Service.
    pub(super) namespace: String,
    /// Kind of the address.
    pub(super) kind: Kind,
    /// Protocol.
    pub(super) protocol: Protocol,
    /// Address and port.
    pub(super) address: SocketAddr,
    /// Ready endpoints.
    pub(super) endpoints: Vec<Endpoint>,
    /// Whether the traffic policy for this kind of address is `Local`.
    pub(super) local_policy: bool,
    /// Whether session affinity is `ClientIP`.
    pub(super) sticky: bool,
    /// Source ranges in the family of the address. Empty: all clients are allowed.
    pub(super) ranges: Vec<String>,
}

/// Kind of a Service address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    ClusterIp,
    NodePort,
    ExternalIp,
    LoadBalancer,
}

impl Frontend {
    /// Returns whether two frontends are equal except for their address.
    pub(super) fn differs_by_address(&self, other: &Self) -> bool {
        let key = |it: &Self| (it.kind, it.protocol, it.address.port());
        self.service == other.service && key(self) == key(other)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ClusterIp => "cluster IP",
            Self::NodePort => "node port",
            Self::ExternalIp => "external IP",
            Self::LoadBalancer => "load balancer",
        })
    }
}

/// A ready endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Endpoint {
    /// Address and port.
    pub(super) at: SocketAddr,
    /// Whether the endpoint is on the proxy's node.
    pub(super) local: bool,
}

/// A manifest file.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    /// Name of the file.
    pub(super) name: String,
    /// Content.
    pub(super) text: String,
}

/// Reads the manifests of a folder, sorted by name.
pub(super) fn read(folder: &Path) -> Result<Vec<Manifest>> {
    let context = || folder.display().to_string();
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .with_context(context)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    paths.retain(|path| {
        let extension = path.extension().unwrap_or_default();
        ["yaml", "yml", "json"]
            .iter()
            .any(|each| extension == *each)
    });
    paths.sort();
    let read = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(Manifest {
            name: name.into_owned(),
            text: fs::read_to_string(path)?,
        })
    };
    paths.iter().map(read).collect()
}

/// Returns every port of every address of the Services in the manifests.
pub(super) fn frontends(manifests: &[Manifest]) -> Result<Vec<Frontend>> {
    let mut objects = Objects::default();
    for manifest in manifests {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&manifest.text).with_context(|| manifest.name.clone())?;
        for document in documents {
            match document["kind"].as_str() {
                Some(api::Service::KIND) => objects.services.push(typed(document)?),
                Some(api::EndpointSlice::KIND) => objects.slices.push(typed(document)?),
                Some(api::Node::KIND) => objects.nodes.push(typed(document)?),
                _ => (),
            }
        }
    }
    let mut frontends = Vec::new();
    for service in &objects.services {
        for port in &service.spec.ports {
            for (kind, address) in objects.addresses(service, port)? {
                frontends.push(objects.frontend(service, port, kind, address)?);
            }
        }
    }
    if frontends.is_empty() {
        bail!("no Service has clusterIPs");
    }
    Ok(frontends)
}

/// Objects in the manifests.
#[derive(Default)]
struct Objects {
    services: Vec<api::Service>,
    slices: Vec<api::EndpointSlice>,
    nodes: Vec<api::Node>,
}

impl Objects {
    /// Returns the addresses of a Service port in the families of the Service.
    fn addresses(
        &self,
        service: &api::Service,
        port: &api::ServicePortSpec,
    ) -> Result<Vec<(Kind, SocketAddr)>> {
        let spec = &service.spec;
        let ingress = &service.status.load_balancer.ingress;
        let mut addresses = Vec::new();
        let mut add = |kind, address: &str, port| {
            let address: IpAddr = address.parse().with_context(|| address.to_owned())?;
            let of_family = |ip: &String| ip.contains(':') == address.is_ipv6();
            if spec.cluster_ips.iter().any(of_family) {
                addresses.push((kind, SocketAddr::new(address, port)));
            }
            anyhow::Ok(())
        };
        for address in &spec.cluster_ips {
            add(Kind::ClusterIp, address, port.port)?;
        }
        for address in self.node_addresses() {
            if port.node_port != 0 {
                add(Kind::NodePort, address, port.node_port)?;
            }
        }
        for address in &spec.external_ips {
            add(Kind::ExternalIp, address, port.port)?;
        }
        for address in ingress {
            add(Kind::LoadBalancer, &address.ip, port.port)?;
        }
        Ok(addresses)
    }

    /// Returns the addresses of the proxy's node.
    fn node_addresses(&self) -> impl Iterator<Item = &str> {
        self.nodes
            .iter()
            .filter(|node| node.metadata.name == Proxy::NODE)
            .flat_map(|node| &node.status.addresses)
            .filter(|address| address.kind == "InternalIP")
            .map(|address| &*address.address)
    }

    fn frontend(
        &self,
        service: &api::Service,
        port: &api::ServicePortSpec,
        kind: Kind,
        address: SocketAddr,
    ) -> Result<Frontend> {
        let spec = &service.spec;
        let name = &service.metadata.name;
        let policy = match kind {
            Kind::ClusterIp => &spec.internal_traffic_policy,
            _ => &spec.external_traffic_policy,
        };
        let ranges = match kind {
            Kind::LoadBalancer => &*spec.load_balancer_source_ranges,
            _ => &[],
        };
        let of_family = |range: &&String| range.contains(':') == address.is_ipv6();
        Ok(Frontend {
            service: name.clone(),
            namespace: service.metadata.namespace.clone(),
            kind,
            protocol: match port.protocol {
                api::TransportProtocol::Tcp => Protocol::Tcp,
                api::TransportProtocol::Udp => Protocol::Udp,
                _ => bail!("Service {name}: the protocol is neither TCP nor UDP"),
            },
            address,
            endpoints: self.endpoints(service, port, address.is_ipv6())?,
            local_policy: *policy == api::TrafficPolicy::Local,
            sticky: spec.session_affinity == api::Affinity::ClientIp,
            ranges: ranges.iter().filter(of_family).cloned().collect(),
        })
    }

    /// Returns the ready endpoints of a family.
    fn endpoints(
        &self,
        service: &api::Service,
        port: &api::ServicePortSpec,
        v6: bool,
    ) -> Result<Vec<Endpoint>> {
        let label = api::EndpointSlice::SERVICE_NAME_LABEL;
        let mut endpoints = Vec::new();
        for slice in &self.slices {
            let owner = slice.metadata.labels.get(label);
            let same = slice.metadata.namespace == service.metadata.namespace;
            if owner != Some(&service.metadata.name) || !same {
                continue;
            }
            let targets = slice.ports.iter().filter(|target| {
                target.name.as_deref() == Some(&port.name) && target.protocol == port.protocol
            });
            for target in targets.filter_map(|target| target.port) {
                let target = u16::try_from(target).context("port out of range")?;
                for endpoint in &slice.endpoints {
                    let ready = endpoint.conditions.ready != Some(false);
                    let address = endpoint
                        .addresses
                        .first()
                        .context("endpoint without address")?;
                    let address: IpAddr = address.parse()?;
                    if ready && address.is_ipv6() == v6 {
                        endpoints.push(Endpoint {
                            at: SocketAddr::new(address, target),
                            local: endpoint.node_name.as_deref() == Some(Proxy::NODE),
                        });
                    }
                }
            }
        }
        Ok(endpoints)
    }
}

fn typed<T: DeserializeOwned>(document: Value) -> Result<T> {
    let name = document["metadata"]["name"].to_string();
    serde_json::from_value(document).context(name)
}

#[cfg(test)]
mod tests {
    use testkit::generate::ServiceBuilder;

    use super::*;
    use crate::cargo::root;

    const DUAL: [&str; 2] = ["10.96.0.10", "fd00:10:96::10"];

    fn web() -> ServiceBuilder {
        DUAL.iter()
            .fold(ServiceBuilder::new("web"), |builder, vip| {
                builder.cluster_ip(vip.parse().unwrap())
            })
            .port(api::TransportProtocol::Tcp, 80, 8080)
            .port(api::TransportProtocol::Udp, 53, 5353)
            .endpoint("10.244.1.11".parse().unwrap(), Proxy::NODE)
            .endpoint("fd00:244:1::11".parse().unwrap(), "node-2")
    }

    fn manifest(text: String) -> Manifest {
        let name = "web.yaml".to_owned();
        Manifest { name, text }
    }

    #[test]
    fn each_frontend_has_the_endpoints_of_its_family() {
        let frontends = frontends(&[manifest(web().manifest())]).unwrap();
        assert_eq!(frontends.len(), 4);
        let expected = Frontend {
            service: "web".to_owned(),
            namespace: "default".to_owned(),
            kind: Kind::ClusterIp,
            protocol: Protocol::Udp,
            address: "[fd00:10:96::10]:53".parse().unwrap(),
            endpoints: vec![Endpoint {
                at: "[fd00:244:1::11]:5353".parse().unwrap(),
                local: false,
            }],
            local_policy: false,
            sticky: false,
            ranges: Vec::new(),
        };
        assert_eq!(frontends[3], expected);
        assert!(frontends[0].endpoints[0].local);
    }

    /// Returns the frontends of the demo.
    fn demo() -> Vec<Frontend> {
        let folder = root().join("examples/kube-proxy/demo");
        frontends(&read(&folder).unwrap()).unwrap()
    }

    #[test]
    fn the_demo_covers_protocols_and_families_of_cluster_ips_and_node_ports() {
        let demo = demo();
        for kind in [Kind::ClusterIp, Kind::NodePort] {
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                for v6 in [false, true] {
                    let shown = demo.iter().filter(|each| {
                        (each.kind, each.protocol) == (kind, protocol)
                            && each.address.is_ipv6() == v6
                    });
                    assert!(shown.clone().any(|each| each.endpoints.len() == 3));
                }
            }
        }
    }

    #[test]
    fn the_demo_covers_each_kind_of_service() {
        let demo = demo();
        let shown = |what: &dyn Fn(&Frontend) -> bool| assert!(demo.iter().any(what));
        shown(&|it| it.kind == Kind::ExternalIp);
        shown(&|it| it.kind == Kind::LoadBalancer && !it.local_policy && it.ranges.is_empty());
        shown(&|it| !it.ranges.is_empty());
        shown(&|it| it.endpoints.is_empty());
        for kind in [Kind::ClusterIp, Kind::NodePort] {
            shown(&|it| it.kind == kind && it.sticky);
        }
        for kind in [Kind::ClusterIp, Kind::NodePort, Kind::LoadBalancer] {
            for any in [false, true] {
                shown(&|it| {
                    let local = it.endpoints.iter().any(|endpoint| endpoint.local);
                    it.kind == kind && it.local_policy && local == any
                });
            }
        }
    }
}
