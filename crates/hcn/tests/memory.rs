//! The rules of the double.

use std::sync::{Arc, Mutex};

use vipline_hcn::{
    AclPolicy, Action, Call, Direction, Endpoint, EndpointPolicy, Error, HResult, Id, LoadBalancer,
    LoadBalancerFlags, Memory, ModifyRequest, Network, NetworkType, Policy, PortMapping, Protocol,
    Query, RequestType, SdnRoute, SdnRoutePolicy, Service, Version,
};

/// Creates a service with network `cbr0`. Returns the network.
fn service() -> (Memory, Network) {
    let mut hns = Memory::new();
    let network = Network::new("cbr0", NetworkType::L2Bridge);
    let network = network.with_subnet("10.244.1.0/24", "10.244.1.1");
    let network = hns.create_network(&network).expect("the network is valid");
    (hns, network)
}

fn local(address: &str) -> Endpoint {
    Endpoint::local(address.parse().expect("a valid address"))
}

fn remote(address: &str) -> Endpoint {
    Endpoint::remote(
        address.parse().expect("a valid address"),
        "02-11-00-00-00-01",
    )
}

fn load_balancer(frontend: Option<&str>, port: u16, endpoints: &[&Endpoint]) -> LoadBalancer {
    let frontend = frontend.map(|address| address.parse().expect("a valid address"));
    let mapping = PortMapping::new(Protocol::TCP, port, 8080);
    LoadBalancer::new(frontend, mapping, endpoints.iter().map(|it| it.id.clone()))
}

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> HResult {
    let error = result.expect_err("HNS rejects the call");
    error.code().expect("the error has a code")
}

#[test]
fn a_network_has_a_unique_name_and_a_default_route() {
    let (mut hns, network) = service();
    let again = hns.create_network(&Network::new("CBR0", NetworkType::Nat));
    assert_eq!(code(again), HResult::HCN_E_NETWORK_ALREADY_EXISTS);
    let mut routeless = Network::new("x", NetworkType::Nat).with_subnet("10.0.0.0/24", "10.0.0.1");
    routeless.ipams[0].subnets[0].routes.clear();
    assert_eq!(
        code(hns.create_network(&routeless)),
        HResult::HCN_E_INVALID_SUBNET
    );
    let bad = Network::new("x", NetworkType::Nat).with_subnet("10.0.0/24", "10.0.0.1");
    assert_eq!(
        code(hns.create_network(&bad)),
        HResult::HCN_E_INVALID_PREFIX
    );
    assert_eq!(hns.network_by_name("cbr0").unwrap(), network);
    let missing = hns.network_by_name("nat").unwrap_err();
    assert!(missing.is_not_found());
    assert_eq!(missing.to_string(), "network nat: not found");
}

#[test]
fn a_local_endpoint_has_a_free_address_of_a_subnet() {
    let (mut hns, network) = service();
    let first = hns
        .create_endpoint(&network.id, &local("10.244.1.7"))
        .unwrap();
    assert_eq!(first.network, network.id);
    let twice = hns.create_endpoint(&network.id, &local("10.244.1.7"));
    assert_eq!(code(twice), HResult::HCN_E_ADDR_INVALID_OR_RESERVED);
    let outside = hns.create_endpoint(&network.id, &local("10.244.2.7"));
    assert_eq!(code(outside), HResult::HCN_E_INVALID_IP_SUBNET);
    // HNS permits a remote endpoint with the address of a local one.
    hns.create_endpoint(&network.id, &remote("10.244.1.7"))
        .unwrap();
    hns.create_endpoint(&network.id, &remote("10.244.2.7"))
        .unwrap();
    let nowhere = hns.create_endpoint(&Id::new("none"), &remote("10.244.2.8"));
    assert_eq!(code(nowhere), HResult::HCN_E_NETWORK_NOT_FOUND);
    assert_eq!(hns.endpoints_of(&network.id).unwrap().len(), 3);
    assert_eq!(hns.endpoints_of(&Id::new("none")).unwrap(), []);
}

#[test]
fn an_sdn_route_has_existing_endpoints_and_a_prefix() {
    let (mut hns, network) = service();
    let pod = hns
        .create_endpoint(&network.id, &remote("10.244.2.7"))
        .unwrap();
    let policy = |prefix| SdnRoutePolicy::new(prefix, "10.244.1.2");
    let route = SdnRoute::new(policy("10.96.0.0/12"), [pod.id.clone()]);
    let created = hns.create_sdn_route(&route).unwrap();
    let listed = hns.sdn_routes(&Query::all()).unwrap();
    assert_eq!(listed, std::slice::from_ref(&created));
    let twice = hns.create_sdn_route(&created);
    assert_eq!(code(twice), HResult::HCN_E_POLICY_ALREADY_EXISTS);
    assert_eq!(
        code(hns.delete_endpoint(&pod.id)),
        HResult::HCN_E_ENTITY_HAS_REFERENCES
    );

    for (wrong, expected) in [
        (
            SdnRoute::new(policy("10.96.0.0/12"), []),
            HResult::HCN_E_INVALID_POLICY,
        ),
        (
            SdnRoute::new(policy("10.96.0.0/12"), [Id::new("none")]),
            HResult::HCN_E_ENDPOINT_NOT_FOUND,
        ),
        (
            SdnRoute::new(policy("10.96.0.0"), [pod.id.clone()]),
            HResult::HCN_E_INVALID_PREFIX,
        ),
    ] {
        assert_eq!(code(hns.create_sdn_route(&wrong)), expected);
        assert_eq!(code(hns.modify_sdn_route(&created.id, &wrong)), expected);
    }
    let changed = SdnRoute::new(policy("10.97.0.0/16"), [pod.id.clone()]);
    let changed = hns.modify_sdn_route(&created.id, &changed).unwrap();
    assert_eq!(changed.id, created.id);
    assert_eq!(hns.sdn_routes(&Query::all()).unwrap(), [changed]);

    hns.delete_sdn_route(&created.id).unwrap();
    let gone = [
        hns.delete_sdn_route(&created.id).unwrap_err(),
        hns.modify_sdn_route(&created.id, &route).unwrap_err(),
    ];
    assert!(gone.iter().all(Error::is_not_found), "{gone:?}");
    hns.delete_endpoint(&pod.id).unwrap();
}

#[test]
fn a_frontend_is_unique_in_a_network() {
    let (mut hns, network) = service();
    let pod = hns
        .create_endpoint(&network.id, &remote("10.244.2.7"))
        .unwrap();
    let web = load_balancer(Some("10.96.0.10"), 80, &[&pod]);
    hns.create_load_balancer(&web).unwrap();
    let error = hns.create_load_balancer(&web).unwrap_err();
    assert!(error.is_already_exists());
    let expected = "create load balancer 10.96.0.10 port 80: the port already exists \
                    (HCN_E_PORT_ALREADY_EXISTS, 0x803b0013)";
    assert_eq!(error.to_string(), expected);
    hns.create_load_balancer(&load_balancer(Some("10.96.0.10"), 443, &[&pod]))
        .unwrap();
    hns.create_load_balancer(&load_balancer(Some("10.96.0.11"), 80, &[&pod]))
        .unwrap();
    // Node ports of both families of a dual-stack Service differ in the flag only.
    let node_port = load_balancer(None, 30080, &[&pod]);
    hns.create_load_balancer(&node_port).unwrap();
    hns.create_load_balancer(&node_port.clone().with_flags(LoadBalancerFlags::IPV6))
        .unwrap();
    assert_eq!(
        code(hns.create_load_balancer(&node_port)),
        HResult::HCN_E_PORT_ALREADY_EXISTS
    );

    let other = hns
        .create_network(&Network::new("other", NetworkType::Overlay))
        .unwrap();
    let far = hns
        .create_endpoint(&other.id, &remote("10.244.9.9"))
        .unwrap();
    hns.create_load_balancer(&load_balancer(Some("10.96.0.10"), 80, &[&far]))
        .unwrap();
    let mixed = hns.create_load_balancer(&load_balancer(Some("10.96.0.12"), 80, &[&pod, &far]));
    assert_eq!(code(mixed), HResult::HCN_E_INVALID_ENDPOINT);
}

#[test]
fn a_load_balancer_needs_endpoints_that_exist() {
    let (mut hns, network) = service();
    let pod = hns
        .create_endpoint(&network.id, &remote("10.244.2.7"))
        .unwrap();
    let empty = hns.create_load_balancer(&load_balancer(Some("10.96.0.10"), 80, &[]));
    assert_eq!(code(empty), HResult::HCN_E_INVALID_POLICY);
    let web = load_balancer(Some("10.96.0.10"), 80, &[&pod]);
    let web = hns.create_load_balancer(&web).unwrap();
    let deletion = hns.delete_endpoint(&pod.id);
    assert_eq!(code(deletion), HResult::HCN_E_ENTITY_HAS_REFERENCES);
    assert_eq!(
        code(hns.delete_network(&network.id)),
        HResult::HCN_E_ENTITY_HAS_REFERENCES
    );
    hns.delete_load_balancer(&web.id).unwrap();
    assert_eq!(
        code(hns.delete_load_balancer(&web.id)),
        HResult::ERROR_NOT_FOUND
    );
    hns.delete_endpoint(&pod.id).unwrap();
    assert_eq!(
        code(hns.delete_endpoint(&pod.id)),
        HResult::HCN_E_ENDPOINT_NOT_FOUND
    );
    assert_eq!(
        code(hns.create_load_balancer(&web)),
        HResult::HCN_E_ENDPOINT_NOT_FOUND
    );
    hns.delete_network(&network.id).unwrap();
    assert_eq!(
        code(hns.delete_network(&network.id)),
        HResult::HCN_E_NETWORK_NOT_FOUND
    );
}

#[test]
fn a_load_balancer_keeps_its_identifier_when_it_is_modified() {
    let (mut hns, network) = service();
    let first = hns
        .create_endpoint(&network.id, &remote("10.244.2.7"))
        .unwrap();
    let second = hns
        .create_endpoint(&network.id, &remote("10.244.2.8"))
        .unwrap();
    let web = load_balancer(Some("10.96.0.10"), 80, &[&first]);
    let web = hns.create_load_balancer(&web).unwrap();
    let both = load_balancer(Some("10.96.0.10"), 80, &[&first, &second]);
    let modified = hns.modify_load_balancer(&web.id, &both).unwrap();
    assert_eq!(modified.id, web.id);
    assert_eq!(modified.endpoints, [first.id.clone(), second.id]);
    assert_eq!(hns.load_balancers(&Query::all()).unwrap(), [modified]);

    let mut old = hns.with_version(Version::new(15, 3));
    let error = old.modify_load_balancer(&web.id, &web).unwrap_err();
    assert!(error.is_not_implemented());
}

#[test]
fn policies_are_added_and_removed() {
    let (mut hns, network) = service();
    let pod = hns
        .create_endpoint(&network.id, &local("10.244.1.7"))
        .unwrap();
    let acl: [Policy<EndpointPolicy>; 1] =
        [Policy::new(AclPolicy::new(Action::Block, Direction::In))];
    let add = ModifyRequest::policies(RequestType::Add, &acl).unwrap();
    assert_eq!(hns.modify_endpoint(&pod.id, &add).unwrap().policies, acl);
    assert_eq!(
        code(hns.modify_endpoint(&pod.id, &add)),
        HResult::HCN_E_POLICY_ALREADY_EXISTS
    );
    let remove = ModifyRequest::policies(RequestType::Remove, &acl).unwrap();
    assert_eq!(hns.modify_endpoint(&pod.id, &remove).unwrap().policies, []);
    assert_eq!(
        code(hns.modify_endpoint(&pod.id, &remove)),
        HResult::HCN_E_POLICY_NOT_FOUND
    );
    let request = ModifyRequest::default();
    assert_eq!(
        code(hns.modify_network(&network.id, &request)),
        HResult::HCN_E_REQUEST_UNSUPPORTED
    );
}

#[test]
fn a_requested_rejection_applies_once_and_calls_are_recorded() {
    let (mut hns, network) = service();
    hns.take_calls();
    hns.reject(Call::CreateEndpoint, HResult::HCN_E_MANAGER_STOPPED);
    let rejected = hns.create_endpoint(&network.id, &remote("10.244.2.7"));
    assert_eq!(code(rejected), HResult::HCN_E_MANAGER_STOPPED);
    let pod = hns
        .create_endpoint(&network.id, &remote("10.244.2.7"))
        .unwrap();
    hns.delete_endpoint(&pod.id).unwrap();
    let calls = [
        Call::CreateEndpoint,
        Call::CreateEndpoint,
        Call::DeleteEndpoint,
    ];
    assert_eq!(hns.take_calls(), calls);
    assert_eq!(hns.take_calls(), []);
}

#[test]
fn objects_of_an_enumeration_keep_their_identifiers() {
    let (id, taken) = (Id::from_u128(7), Id::from_u128(1));
    let mut network = Network::new("cbr0", NetworkType::L2Bridge);
    network.id = id.clone();
    let mut endpoint = local("10.244.1.7");
    (endpoint.id, endpoint.network) = (taken.clone(), id.clone());
    endpoint.namespace = Id::from_u128(9);
    let hns = Memory::new().with_objects([network], [endpoint.clone()], []);
    let hns = Arc::new(Mutex::new(hns));
    let (mut first, mut second) = (Arc::clone(&hns), hns);
    let found = first.endpoints_of(&id).expect("HNS accepts the query");
    assert_eq!(found, [endpoint]);
    let new = first.create_endpoint(&id, &remote("10.244.2.7"));
    let new = new.expect("the endpoint is valid");
    assert_ne!(new.id, taken, "the identifier of another object");
    let found = second.endpoints_of(&id).expect("HNS accepts the query");
    assert_eq!(found.len(), 2, "owners share one state");
}

#[test]
fn an_identifier_of_a_deleted_object_is_not_used_again() {
    let (mut hns, network) = service();
    let endpoint = hns.create_endpoint(&network.id, &remote("10.244.2.1"));
    let endpoint = endpoint.expect("the endpoint is valid");
    let mut old = load_balancer(Some("10.96.0.10"), 80, &[&endpoint]);
    old.id = Id::from_u128(3);
    let mut hns = hns.with_objects([], [], [old.clone()]);
    hns.delete_load_balancer(&old.id).expect("it exists");
    old.id = Id::default();
    let created = hns.create_load_balancer(&old);
    assert_eq!(created.expect("the frontend is free").id, Id::from_u128(4));
}
