//! Documents: written as HNS writes them, and read without loss.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vipline_hcn::{
    AclPolicy, Action, Direction, Distribution, Endpoint, EndpointPolicy, Id, LoadBalancer,
    LoadBalancerFlags, ModifyRequest, Network, NetworkPolicy, NetworkType, OtherPolicy, Policy,
    PortMapping, PortMappingFlags, Protocol, ProviderAddressPolicy, RemoteSubnetRoutePolicy,
    RequestType, RuleType, SdnRoute, SdnRoutePolicy, SubnetPolicy, VsidPolicy,
};

mod laws;

/// The documents of a node.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Node {
    networks: Vec<Network>,
    endpoints: Vec<Endpoint>,
    load_balancers: Vec<LoadBalancer>,
}

const OVERLAY: &str = include_str!("overlay.json");

/// Reads a document, and checks that it is written with the same members.
fn reread<T: DeserializeOwned + Serialize>(document: Value) -> T {
    let read: T = serde_json::from_value(document.clone()).expect("the document is valid");
    let written = serde_json::to_value(&read).expect("a document has JSON");
    assert_eq!(written, document);
    read
}

#[test]
fn the_documents_of_an_overlay_node_are_read_without_loss() {
    let node: Node = reread(serde_json::from_str(OVERLAY).unwrap());
    let [overlay, nat] = &*node.networks else {
        panic!("{:?}", node.networks)
    };
    assert!(overlay.network_type().is_overlay());
    assert_eq!(*nat.network_type(), NetworkType::Nat);
    let subnet = overlay.subnets().next().unwrap();
    let vsid = SubnetPolicy::Vsid(VsidPolicy::new(4096));
    assert_eq!(subnet.policies, [Policy::new(vsid)]);
    assert_eq!(subnet.other["ID"], "0E9D30A2-13FA-4B55-8C9A-9E2E53D3B1F1");
    let route =
        RemoteSubnetRoutePolicy::new("10.244.2.0/24", 4096, "10.0.0.12", "00-15-5D-77-02-10");
    assert_eq!(overlay.policies[3].settings, route.into());
    let host_route = NetworkPolicy::Other(OtherPolicy::new("HostRoute", Value::Null));
    assert_eq!(overlay.policies[0].settings, host_route);

    let [local, remote] = &*node.endpoints else {
        panic!("{:?}", node.endpoints)
    };
    assert!(!local.is_remote() && remote.is_remote());
    let EndpointPolicy::Acl(acl) = &local.policies[2].settings else {
        panic!("{:?}", local.policies)
    };
    assert_eq!(
        (&acl.action, &acl.direction),
        (&Action::Block, &Direction::Out)
    );
    assert_eq!(acl.rule_type, Some(RuleType::Switch));
    assert_eq!(
        (&acl.other["Id"], acl.priority),
        (&json!("block-metadata"), 200)
    );
    assert_eq!(local.policies[2].other["Revision"], 3);

    let [cluster_ip, node_port] = &*node.load_balancers else {
        panic!("{:?}", node.load_balancers)
    };
    assert_eq!(cluster_ip.endpoints[1], remote.id);
    let mapping = &cluster_ip.port_mappings[0];
    assert_eq!(mapping.distribution, Distribution::SOURCE_IP);
    let flags = node_port.port_mappings[0].flags;
    let known = PortMappingFlags::LOCAL_ROUTED_VIP | PortMappingFlags::VIP_EXTERNAL_IP;
    assert_eq!(flags.bits(), known.bits() | 32, "unknown flags are kept");
}

#[test]
fn a_load_balancer_is_written_as_upstream_kube_proxy_writes_it() {
    let mapping = PortMapping::new(Protocol::TCP, 80, 8080)
        .with_distribution(Distribution::SOURCE_IP)
        .with_flags(PortMappingFlags::USE_MUX | PortMappingFlags::PRESERVE_DIP);
    let id = Id::from_u128(1);
    let frontend = "10.96.0.20".parse().unwrap();
    let load_balancer = LoadBalancer::new(Some(frontend), mapping, [id])
        .with_source_vip("10.244.1.2".parse().unwrap())
        .with_flags(LoadBalancerFlags::DSR);
    let expected = json!({
        "HostComputeEndpoints": ["00000000-0000-0000-0000-000000000001"],
        "SourceVIP": "10.244.1.2",
        "FrontendVIPs": ["10.96.0.20"],
        "PortMappings": [{
            "Protocol": 6,
            "InternalPort": 8080,
            "ExternalPort": 80,
            "DistributionType": 2,
            "Flags": 12,
        }],
        "SchemaVersion": {"Major": 2, "Minor": 0},
        "Flags": 1,
    });
    assert_eq!(serde_json::to_value(load_balancer).unwrap(), expected);
}

#[test]
fn a_remote_endpoint_is_written_with_its_provider_address() {
    let endpoint = Endpoint::remote("10.244.2.3".parse().unwrap(), "02-11-0a-f4-02-03")
        .with_policy(ProviderAddressPolicy::new("10.0.0.12"));
    let expected = json!({
        "Policies": [
            {"Type": "ProviderAddress", "Settings": {"ProviderAddress": "10.0.0.12"}},
        ],
        "IpConfigurations": [{"IpAddress": "10.244.2.3"}],
        "MacAddress": "02-11-0a-f4-02-03",
        "Flags": 1,
        "SchemaVersion": {"Major": 2, "Minor": 0},
    });
    assert_eq!(serde_json::to_value(endpoint).unwrap(), expected);
}

#[test]
fn a_network_is_written_with_a_default_route() {
    let network = Network::new("cbr0", NetworkType::L2Bridge).with_subnet("fd00::/64", "fd00::1");
    let expected = json!({
        "Name": "cbr0",
        "Type": "L2Bridge",
        "Ipams": [{
            "Type": "Static",
            "Subnets": [{
                "IpAddressPrefix": "fd00::/64",
                "Routes": [{"NextHop": "fd00::1", "DestinationPrefix": "::/0"}],
            }],
        }],
        "SchemaVersion": {"Major": 2, "Minor": 0},
    });
    assert_eq!(serde_json::to_value(network).unwrap(), expected);
}

#[test]
fn routes_and_changes_of_policies_have_the_names_of_the_schema() {
    let route = SdnRoute::new(
        SdnRoutePolicy::new("10.96.0.0/12", "10.244.1.2"),
        [Id::new("A")],
    );
    let expected = json!({
        "HostComputeEndpoints": ["A"],
        "Setting": [{"DestinationPrefix": "10.96.0.0/12", "NextHop": "10.244.1.2"}],
        "SchemaVersion": {"Major": 2, "Minor": 0},
    });
    assert_eq!(serde_json::to_value(&route).unwrap(), expected);
    assert_eq!(reread::<SdnRoute>(expected), route);

    let acl = AclPolicy::new(Action::Allow, Direction::In);
    let acl: Policy<EndpointPolicy> = Policy::new(acl);
    let request = ModifyRequest::policies(RequestType::Add, &[acl]).unwrap();
    let expected = json!({
        "ResourceType": "Policy",
        "RequestType": "Add",
        "Settings": {
            "Policies": [{"Type": "ACL", "Settings": {"Action": "Allow", "Direction": "In"}}],
        },
    });
    assert_eq!(serde_json::to_value(request).unwrap(), expected);
}

#[test]
fn absent_members_null_and_defaults_are_the_same() {
    let absent: Endpoint = serde_json::from_str("{}").unwrap();
    let null = json!({"ID": null, "Policies": null, "Flags": null, "Dns": null, "Routes": null});
    let explicit = json!({"ID": "", "Policies": [], "Flags": 0, "Dns": {}, "MacAddress": ""});
    for document in [null, explicit] {
        let endpoint: Endpoint = serde_json::from_value(document).unwrap();
        assert_eq!(endpoint, absent);
    }
    assert_eq!(serde_json::to_string(&absent).unwrap(), "{}");
}

#[test]
fn settings_of_another_form_are_kept() {
    let policy = json!({"Type": "ACL", "Settings": {"Priority": "high", "Action": "Allow"}});
    let read: Policy<EndpointPolicy> = reread(policy);
    assert!(
        matches!(read.settings, EndpointPolicy::Other(_)),
        "{read:?}"
    );
    let without_type = serde_json::from_str::<Policy<EndpointPolicy>>("{}");
    assert!(
        without_type
            .unwrap_err()
            .to_string()
            .contains("missing field `Type`")
    );
}

#[test]
fn unknown_names_are_kept() {
    let network: Network = reread(json!({"Type": "overlay"}));
    assert_eq!(network.network_type().as_str(), "overlay");
    assert!(network.network_type().is_overlay());
    let network: Network = reread(json!({"Type": "Quantum"}));
    assert_eq!(
        *network.network_type(),
        NetworkType::Other("Quantum".into())
    );
}
