//! Conversions between Services of the API and the plans of vipline-service-ip.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use k8s_openapi::api::core::v1::Service;
//! use vipline_service_ip_kube::service_ip::{
//!     AddressRange, Allocator, Family, Memory, Registry, ServiceAddresses,
//! };
//! use vipline_service_ip_kube::spec;
//!
//! let mut service: Service = serde_json::from_str(
//!     r#"{"metadata":{"namespace":"default","name":"web"},"spec":{"ports":[{"port":80}]}}"#,
//! )?;
//! let range: AddressRange = "10.96.0.0/16".parse()?;
//! let registry = Registry::new(Memory::new(Allocator::new(range)));
//! let mut addresses = ServiceAddresses::new(BTreeMap::from([(Family::V4, registry)]));
//!
//! let owner = spec::owner(&service)?;
//! let plan = spec::address_spec(&service)?.plan(&[Family::V4], None)?;
//! let assigned = addresses.assign(&plan, &owner, &mut || 4)?;
//! spec::set_addresses(&mut service, &plan, &assigned.addresses);
//! // The controller stores the Service, and then commits or reverts the addresses.
//! assert!(addresses.commit(assigned, &owner).is_empty());
//! assert_eq!(service.spec.unwrap().ip_families.unwrap(), ["IPv4"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt::Display;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServicePort as Port, ServiceSpec};
use vipline_service_ip::{
    AddressPlan, AddressSpec, Family, FamilyPolicy, NodePorts, OwnerRef, ServiceItems, ServicePort,
    ServiceType, Transport, parse_address,
};

use crate::Error;

/// Returns the error of a field with a value that is not what the field requires.
fn unexpected(field: impl Into<Box<str>>, value: impl Display, expected: &str) -> Error {
    Error::Field {
        field: field.into(),
        problem: format!("{value} is not {expected}").into(),
    }
}

fn missing(field: &str) -> Error {
    Error::Field {
        field: field.into(),
        problem: "missing".into(),
    }
}

/// Returns the reference to a Service.
///
/// # Errors
///
/// An [`Error::Field`] for a missing `metadata.namespace` or `metadata.name`.
pub fn owner(service: &Service) -> Result<OwnerRef, Error> {
    let metadata = &service.metadata;
    let text = |value: &Option<String>, field| value.clone().ok_or_else(|| missing(field));
    let namespace = text(&metadata.namespace, "metadata.namespace")?;
    let name = text(&metadata.name, "metadata.name")?;
    Ok(OwnerRef::service(&namespace, &name))
}

/// Returns the fields of a Service that determine its cluster IPs.
///
/// A Service without `spec` has the defaults of the API.
///
/// # Errors
///
/// An [`Error::Field`] for an unknown type, policy or family, and for an invalid address.
pub fn address_spec(service: &Service) -> Result<AddressSpec, Error> {
    let spec = service.spec.clone().unwrap_or_default();
    let families = spec.ip_families.iter().flatten().enumerate();
    let families = families.map(|(index, text)| {
        let field = || format!("spec.ipFamilies[{index}]");
        family(text).ok_or_else(|| unexpected(field(), text, "IPv4 or IPv6"))
    });
    let addresses = addresses(&spec).map(|(index, text)| {
        let field = || format!("spec.clusterIPs[{index}]");
        parse_address(text).ok_or_else(|| unexpected(field(), text, "an address"))
    });
    Ok(AddressSpec {
        service_type: service_type(&spec)?,
        is_headless: cluster_ips(&spec)
            .first()
            .is_some_and(|text| text == "None"),
        has_selector: spec
            .selector
            .as_ref()
            .is_some_and(|labels| !labels.is_empty()),
        policy: spec.ip_family_policy.as_deref().map(policy).transpose()?,
        families: families.collect::<Result<_, _>>()?,
        addresses: addresses.collect::<Result<_, _>>()?,
    })
}

/// Returns the fields of a Service that determine its node ports.
///
/// # Errors
///
/// An [`Error::Field`] for an unknown type or protocol, and for a number that is not a port.
pub fn node_ports(service: &Service) -> Result<NodePorts, Error> {
    let spec = service.spec.clone().unwrap_or_default();
    let ports = spec.ports.iter().flatten().enumerate();
    let health_check = spec.health_check_node_port;
    Ok(NodePorts {
        kind: service_type(&spec)?,
        allocate_load_balancer_node_ports: spec.allocate_load_balancer_node_ports.unwrap_or(true),
        external_policy_local: spec.external_traffic_policy.as_deref() == Some("Local"),
        health_check_node_port: optional_port(health_check, "spec.healthCheckNodePort")?,
        ports: ports
            .map(|(index, port)| service_port(index, port))
            .collect::<Result<_, _>>()?,
    })
}

/// Returns the cluster IPs of a Service in a family, for
/// [`Repair`](vipline_service_ip::Repair).
///
/// Texts that are not addresses are invalid items of both families.
///
/// # Errors
///
/// As for [`owner`].
pub fn cluster_ip_items(service: &Service, family: Family) -> Result<ServiceItems<IpAddr>, Error> {
    let spec = service.spec.clone().unwrap_or_default();
    let is_external_name = spec.type_.as_deref() == Some("ExternalName");
    let texts = addresses(&spec).map(|(_, text)| text);
    let texts = texts.filter(|_| !is_external_name);
    let mut items = ServiceItems::parse(owner(service)?, texts);
    items.items.retain(|item| Family::of(*item) == family);
    Ok(items)
}

/// Writes the addresses of a plan, in the order of its families, to a Service.
pub fn set_addresses(service: &mut Service, plan: &AddressPlan, addresses: &[IpAddr]) {
    let spec = service.spec.get_or_insert_default();
    let texts: Vec<String> = match plan.is_headless {
        true => vec!["None".to_owned()],
        false => addresses.iter().map(IpAddr::to_string).collect(),
    };
    spec.cluster_ip = texts.first().cloned();
    spec.cluster_ips = Some(texts).filter(|texts| !texts.is_empty());
    let families = plan
        .families
        .iter()
        .map(|family| family.as_str().to_owned());
    spec.ip_families = Some(families.collect()).filter(|families: &Vec<_>| !families.is_empty());
    spec.ip_family_policy = plan.policy.map(|policy| policy_name(policy).to_owned());
}

/// Writes assigned node ports to the ports of a Service, which are in the same order.
pub fn set_node_ports(service: &mut Service, assigned: &NodePorts) {
    let spec = service.spec.get_or_insert_default();
    let ports = spec.ports.iter_mut().flatten();
    for (port, assigned) in ports.zip(&assigned.ports) {
        port.node_port = assigned.node_port.map(Into::into);
    }
    spec.health_check_node_port = assigned.health_check_node_port.map(Into::into);
}

/// Returns the cluster IPs with their places in `clusterIPs`, without `None`.
pub(crate) fn addresses(spec: &ServiceSpec) -> impl Iterator<Item = (usize, &str)> {
    let texts = cluster_ips(spec).iter().map(String::as_str).enumerate();
    texts.filter(|(_, text)| !matches!(*text, "" | "None"))
}

/// Returns `clusterIPs`, or `clusterIP` of a Service that was stored before dual-stack.
fn cluster_ips(spec: &ServiceSpec) -> &[String] {
    match spec.cluster_ips.as_deref() {
        Some(texts @ [_, ..]) => texts,
        _ => spec.cluster_ip.as_slice(),
    }
}

fn service_port(index: usize, port: &Port) -> Result<ServicePort, Error> {
    let field = |name| format!("spec.ports[{index}].{name}");
    let protocol = match port.protocol.as_deref() {
        None | Some("TCP") => Transport::Tcp,
        Some("UDP") => Transport::Udp,
        Some("SCTP") => Transport::Sctp,
        Some(other) => return Err(unexpected(field("protocol"), other, "a protocol")),
    };
    let number = optional_port(Some(port.port), &field("port"))?;
    Ok(ServicePort {
        name: port.name.as_deref().unwrap_or_default().into(),
        protocol,
        port: number.ok_or_else(|| unexpected(field("port"), 0, "a port"))?,
        node_port: optional_port(port.node_port, &field("nodePort"))?,
    })
}

/// Returns a port. 0 is an unset field.
fn optional_port(number: Option<i32>, field: &str) -> Result<Option<u16>, Error> {
    let Some(number) = number.filter(|number| *number != 0) else {
        return Ok(None);
    };
    let port = u16::try_from(number);
    port.map(Some)
        .map_err(|_| unexpected(field, number, "a port"))
}

fn service_type(spec: &ServiceSpec) -> Result<ServiceType, Error> {
    Ok(match spec.type_.as_deref() {
        None | Some("ClusterIP") => ServiceType::ClusterIp,
        Some("ExternalName") => ServiceType::ExternalName,
        Some("LoadBalancer") => ServiceType::LoadBalancer,
        Some("NodePort") => ServiceType::NodePort,
        Some(other) => return Err(unexpected("spec.type", other, "a type of Service")),
    })
}

fn family(text: &str) -> Option<Family> {
    Family::ALL
        .into_iter()
        .find(|family| family.as_str() == text)
}

fn policy(text: &str) -> Result<FamilyPolicy, Error> {
    use FamilyPolicy::{PreferDualStack, RequireDualStack, SingleStack};
    [SingleStack, PreferDualStack, RequireDualStack]
        .into_iter()
        .find(|policy| policy_name(*policy) == text)
        .ok_or_else(|| unexpected("spec.ipFamilyPolicy", text, "a policy"))
}

/// Returns the name of a policy in the API.
const fn policy_name(policy: FamilyPolicy) -> &'static str {
    match policy {
        FamilyPolicy::SingleStack => "SingleStack",
        FamilyPolicy::PreferDualStack => "PreferDualStack",
        FamilyPolicy::RequireDualStack => "RequireDualStack",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: Value) -> Service {
        let metadata = json!({ "namespace": "default", "name": "web" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    #[test]
    fn fields_of_a_service_are_converted() {
        let stored = service(json!({
            "type": "LoadBalancer",
            "clusterIP": "10.0.0.1",
            "clusterIPs": ["10.0.0.1", "fd00::1"],
            "ipFamilies": ["IPv4", "IPv6"],
            "ipFamilyPolicy": "RequireDualStack",
            "selector": { "app": "web" },
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 30_002,
            "ports": [
                { "name": "dns", "protocol": "UDP", "port": 53, "nodePort": 30_001 },
                { "name": "http", "port": 80 },
            ],
        }));
        let spec = address_spec(&stored).unwrap();
        assert_eq!(spec.service_type, ServiceType::LoadBalancer);
        assert!(spec.has_selector && !spec.is_headless);
        assert_eq!(spec.policy, Some(FamilyPolicy::RequireDualStack));
        assert_eq!(spec.families, [Family::V4, Family::V6]);
        let ips: [IpAddr; 2] = ["10.0.0.1", "fd00::1"].map(|text| text.parse().unwrap());
        assert_eq!(spec.addresses, ips);
        for (family, ip) in [(Family::V4, ips[0]), (Family::V6, ips[1])] {
            assert_eq!(cluster_ip_items(&stored, family).unwrap().items, [ip]);
        }
        let ports = node_ports(&stored).unwrap();
        assert!(ports.external_policy_local && ports.allocate_load_balancer_node_ports);
        assert_eq!(ports.health_check_node_port, Some(30_002));
        let numbers = ports.ports.iter();
        let numbers = numbers.map(|port| (port.protocol, port.port, port.node_port));
        let expected = [
            (Transport::Udp, 53, Some(30_001)),
            (Transport::Tcp, 80, None),
        ];
        assert!(numbers.eq(expected));
    }

    #[test]
    fn a_plan_that_is_written_to_a_service_is_read_back() {
        for (spec, families, addresses, written) in [
            (
                json!({}),
                &["IPv4"][..],
                &["10.0.0.9"][..],
                &["10.0.0.9"][..],
            ),
            (
                json!({ "clusterIP": "None", "selector": { "a": "b" } }),
                &["IPv4"],
                &[],
                &["None"],
            ),
            (json!({ "type": "ExternalName" }), &[], &[], &[]),
        ] {
            let mut service = service(spec);
            let plan = address_spec(&service).unwrap();
            let plan = plan.plan(&[Family::V4], None).unwrap();
            let ips: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
            set_addresses(&mut service, &plan, &ips);
            let spec = service.spec.clone().unwrap();
            assert_eq!(spec.cluster_ips.unwrap_or_default(), written);
            assert_eq!(spec.cluster_ip.as_deref(), written.first().copied());
            assert_eq!(spec.ip_families.unwrap_or_default(), families);
            let stored = address_spec(&service).unwrap();
            assert_eq!((stored.policy, &stored.addresses), (plan.policy, &ips));
        }
    }

    #[test]
    fn node_ports_are_written_in_order() {
        let mut service = service(json!({
            "type": "NodePort",
            "ports": [{ "port": 80, "nodePort": 30_007 }, { "name": "b", "port": 81 }],
        }));
        let mut assigned = node_ports(&service).unwrap();
        assigned.ports[1].node_port = Some(30_009);
        set_node_ports(&mut service, &assigned);
        assert_eq!(node_ports(&service).unwrap(), assigned);
    }

    #[test]
    fn errors_name_the_field_and_its_value() {
        for (spec, error) in [
            (
                json!({ "type": "Odd" }),
                "spec.type: Odd is not a type of Service",
            ),
            (
                json!({ "clusterIPs": ["10.0.0.1", "web"] }),
                "spec.clusterIPs[1]: web is not an address",
            ),
            (
                json!({ "ipFamilies": ["IPv5"] }),
                "spec.ipFamilies[0]: IPv5 is not IPv4 or IPv6",
            ),
            (
                json!({ "ipFamilyPolicy": "Both" }),
                "spec.ipFamilyPolicy: Both is not a policy",
            ),
        ] {
            assert_eq!(address_spec(&service(spec)).unwrap_err().to_string(), error);
        }
        for (port, error) in [
            (
                json!({ "port": 70_000 }),
                "spec.ports[0].port: 70000 is not a port",
            ),
            (json!({ "port": 0 }), "spec.ports[0].port: 0 is not a port"),
            (
                json!({ "port": 1, "nodePort": -1 }),
                "spec.ports[0].nodePort: -1 is not a port",
            ),
            (
                json!({ "port": 1, "protocol": "ICMP" }),
                "spec.ports[0].protocol: ICMP is not a protocol",
            ),
        ] {
            let service = service(json!({ "ports": [port] }));
            assert_eq!(node_ports(&service).unwrap_err().to_string(), error);
        }
        let unnamed: Service = serde_json::from_value(json!({})).unwrap();
        let error = owner(&unnamed).unwrap_err().to_string();
        assert_eq!(error, "metadata.namespace: missing");
        let odd = service(json!({ "clusterIPs": ["web"] }));
        let items = cluster_ip_items(&odd, Family::V6).unwrap();
        assert_eq!((items.items.len(), &*items.invalid[0]), (0, "web"));
    }
}
