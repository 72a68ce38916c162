//! The Services of the demo, read from its manifests.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde_json::Value;
use testkit::traffic::Protocol;
use vipline_service_model::api;

/// One port of one address of a Service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Frontend {
    /// The name of the Service.
    pub(super) service: String,
    /// The protocol.
    pub(super) protocol: Protocol,
    /// Its cluster IP and port.
    pub(super) address: SocketAddr,
    /// Where its ready endpoints listen.
    pub(super) endpoints: Vec<SocketAddr>,
}

/// A manifest with its text.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    /// The name of the file.
    pub(super) name: String,
    /// What is in it.
    pub(super) text: String,
}

/// Reads the manifests of a folder, in the order of their names.
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

/// Finds every port of every cluster IP, with its endpoints.
pub(super) fn frontends(manifests: &[Manifest]) -> Result<Vec<Frontend>> {
    let (mut services, mut slices) = (Vec::new(), Vec::new());
    for manifest in manifests {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&manifest.text).with_context(|| manifest.name.clone())?;
        for document in documents {
            match document["kind"].as_str() {
                Some(api::Service::KIND) => services.push(typed::<api::Service>(document)?),
                Some(api::EndpointSlice::KIND) => slices.push(typed(document)?),
                _ => (),
            }
        }
    }
    let mut frontends = Vec::new();
    for service in &services {
        for address in &service.spec.cluster_ips {
            let address: IpAddr = address.parse().with_context(|| address.clone())?;
            for port in &service.spec.ports {
                frontends.push(frontend(service, address, port, &slices)?);
            }
        }
    }
    if frontends.is_empty() {
        bail!("no Service with a cluster IP in clusterIPs");
    }
    Ok(frontends)
}

fn frontend(
    service: &api::Service,
    address: IpAddr,
    port: &api::ServicePort,
    slices: &[api::EndpointSlice],
) -> Result<Frontend> {
    let protocol = match port.protocol {
        api::Protocol::Tcp => Protocol::Tcp,
        api::Protocol::Udp => Protocol::Udp,
        _ => bail!("{}: neither TCP nor UDP", service.metadata.name),
    };
    let label = api::EndpointSlice::SERVICE_NAME_LABEL;
    let mut endpoints = Vec::new();
    for slice in slices {
        let owner = slice.metadata.labels.get(label);
        let same = slice.metadata.namespace == service.metadata.namespace;
        if owner != Some(&service.metadata.name) || !same {
            continue;
        }
        let targets = slice.ports.iter().filter(|target| {
            target.name.as_deref() == Some(&port.name) && target.protocol == port.protocol
        });
        for target in targets.filter_map(|target| target.port) {
            for endpoint in &slice.endpoints {
                let ready = endpoint.conditions.ready != Some(false);
                let of: IpAddr = endpoint.addresses.first().context("an endpoint")?.parse()?;
                if ready && of.is_ipv4() == address.is_ipv4() {
                    endpoints.push(SocketAddr::new(of, target));
                }
            }
        }
    }
    Ok(Frontend {
        service: service.metadata.name.clone(),
        protocol,
        address: SocketAddr::new(address, port.port),
        endpoints,
    })
}

fn typed<T: DeserializeOwned>(document: Value) -> Result<T> {
    let name = document["metadata"]["name"].to_string();
    serde_json::from_value(document).context(name)
}

#[cfg(test)]
mod tests {
    use testkit::generate::Plan;

    use super::*;
    use crate::cargo::root;

    #[test]
    fn each_port_of_each_address_gets_the_endpoints_of_its_family() {
        let plan = Plan::new("web")
            .at("10.96.0.10".parse().unwrap())
            .at("fd00:10:96::10".parse().unwrap())
            .port(api::Protocol::Tcp, 80, 8080)
            .port(api::Protocol::Udp, 53, 5353)
            .endpoint("10.244.1.11".parse().unwrap(), "node-1")
            .endpoint("fd00:244:1::11".parse().unwrap(), "node-1");
        let manifest = Manifest {
            name: "web.yaml".to_owned(),
            text: plan.manifest(),
        };
        let frontends = frontends(&[manifest]).unwrap();
        assert_eq!(frontends.len(), 4);
        let expected = Frontend {
            service: "web".to_owned(),
            protocol: Protocol::Udp,
            address: "[fd00:10:96::10]:53".parse().unwrap(),
            endpoints: vec!["[fd00:244:1::11]:5353".parse().unwrap()],
        };
        assert_eq!(frontends[3], expected);
    }

    #[test]
    fn the_manifests_of_the_demo_show_both_protocols_families_and_a_refusal() {
        let folder = root().join("examples/kube-proxy/demo");
        let frontends = frontends(&read(&folder).unwrap()).unwrap();
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            for v6 in [false, true] {
                let shown = frontends
                    .iter()
                    .filter(|each| each.protocol == protocol && each.address.is_ipv6() == v6);
                assert!(shown.clone().any(|each| each.endpoints.len() == 3));
            }
        }
        assert!(frontends.iter().any(|each| each.endpoints.is_empty()));
    }
}
