//! Table test of endpoint selection.

mod objects;

use objects::{endpoint, in_zone, slice, synced, web};
use vipline_service_model::{Endpoint, Route, ServicePort, Store, api};

/// The policies and external addresses of a Service.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Both policies Cluster.
    Cluster,
    /// Policy Local for external traffic, with a node port.
    ExternalLocal,
    /// Policy Local for external traffic, without external addresses.
    ExternalLocalUnreachable,
    /// Policy Local for internal traffic, without external addresses.
    InternalLocal,
    /// Policy Local for internal traffic, with a node port.
    InternalLocalExternal,
    /// Both policies Local, with a node port.
    BothLocal,
}

struct Case {
    name: &'static str,
    kind: Kind,
    /// Endpoints as for [`endpoint`]. The results name addresses by the last octet.
    endpoints: &'static [&'static str],
    zone: &'static str,
    cluster: &'static [u8],
    local: &'static [u8],
    internal: Route,
    external: Route,
}

use Kind::*;

const ALL_READY: &[&str] = &["10.0.0.1 here", "10.0.0.2 there"];
const LOCAL_TERMINATING: &[&str] = &["10.0.0.1 here unready terminating", "10.0.0.2 there"];
const ALL_TERMINATING: &[&str] = &[
    "10.0.0.1 here unready terminating",
    "10.0.0.2 there unready terminating",
];
const REMOTE_TERMINATING: &[&str] = &["10.0.0.2 there unready terminating"];
const REMOTE_ONLY: &[&str] = &["10.0.0.2 there", "10.0.0.3 there unready terminating"];
const NEVER_USABLE: &[&str] = &[
    "10.0.0.1 here unready",
    "10.0.0.2 there unready stopped terminating",
    "10.0.0.3 here unready stopped",
];
const ZONES: &[&str] = &[
    "10.0.0.1 here zone=a",
    "10.0.0.2 there zone=b",
    "10.0.0.3 there zone=a",
];
const NODES: &[&str] = &[
    "10.0.0.1 here zone=a node=here",
    "10.0.0.2 there zone=a node=there",
    "10.0.0.3 there zone=b node=there",
];

#[rustfmt::skip]
const CASES: &[Case] = &[
    // Policy and readiness.
    Case { name: "all ready", kind: Cluster, endpoints: ALL_READY, zone: "a",
           cluster: &[1, 2], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "all ready", kind: ExternalLocal, endpoints: ALL_READY, zone: "a",
           cluster: &[1, 2], local: &[1], internal: Route::Cluster, external: Route::Local },
    Case { name: "all ready", kind: InternalLocal, endpoints: ALL_READY, zone: "a",
           cluster: &[], local: &[1], internal: Route::Local, external: Route::Reject },
    Case { name: "all ready", kind: InternalLocalExternal, endpoints: ALL_READY, zone: "a",
           cluster: &[1, 2], local: &[1], internal: Route::Local, external: Route::Cluster },
    Case { name: "all ready", kind: BothLocal, endpoints: ALL_READY, zone: "a",
           cluster: &[1, 2], local: &[1], internal: Route::Local, external: Route::Local },
    Case { name: "the local list is for external addresses only",
           kind: ExternalLocalUnreachable, endpoints: ALL_READY, zone: "a",
           cluster: &[1, 2], local: &[], internal: Route::Cluster, external: Route::Drop },
    Case { name: "a ready local endpoint excludes terminating ones", kind: BothLocal,
           endpoints: &["10.0.0.1 here", "10.0.0.2 here unready terminating",
                        "10.0.0.3 there", "10.0.0.4 there unready terminating"], zone: "a",
           cluster: &[1, 3], local: &[1], internal: Route::Local, external: Route::Local },
    Case { name: "local endpoints are terminating", kind: ExternalLocal, endpoints: LOCAL_TERMINATING, zone: "a",
           cluster: &[2], local: &[1], internal: Route::Cluster, external: Route::Local },
    Case { name: "local endpoints are terminating", kind: InternalLocal, endpoints: LOCAL_TERMINATING, zone: "a",
           cluster: &[], local: &[1], internal: Route::Local, external: Route::Reject },
    Case { name: "local endpoints are terminating", kind: Cluster, endpoints: LOCAL_TERMINATING, zone: "a",
           cluster: &[2], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "all endpoints are terminating", kind: BothLocal, endpoints: ALL_TERMINATING, zone: "a",
           cluster: &[1, 2], local: &[1], internal: Route::Local, external: Route::Local },
    Case { name: "all endpoints are terminating", kind: Cluster, endpoints: ALL_TERMINATING, zone: "a",
           cluster: &[1, 2], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "only remote terminating endpoints", kind: BothLocal, endpoints: REMOTE_TERMINATING, zone: "a",
           cluster: &[2], local: &[], internal: Route::Drop, external: Route::Drop },
    Case { name: "only remote terminating endpoints", kind: InternalLocal, endpoints: REMOTE_TERMINATING, zone: "a",
           cluster: &[], local: &[], internal: Route::Drop, external: Route::Reject },
    Case { name: "only remote endpoints", kind: ExternalLocal, endpoints: REMOTE_ONLY, zone: "a",
           cluster: &[2], local: &[], internal: Route::Cluster, external: Route::Drop },
    Case { name: "only remote endpoints", kind: InternalLocal, endpoints: REMOTE_ONLY, zone: "a",
           cluster: &[], local: &[], internal: Route::Drop, external: Route::Reject },
    Case { name: "only remote endpoints", kind: InternalLocalExternal, endpoints: REMOTE_ONLY, zone: "a",
           cluster: &[2], local: &[], internal: Route::Drop, external: Route::Cluster },
    Case { name: "no endpoints", kind: Cluster, endpoints: &[], zone: "a",
           cluster: &[], local: &[], internal: Route::Reject, external: Route::Reject },
    Case { name: "no endpoints", kind: BothLocal, endpoints: &[], zone: "a",
           cluster: &[], local: &[], internal: Route::Reject, external: Route::Reject },
    Case { name: "no endpoint is ready or serving terminating", kind: BothLocal, endpoints: NEVER_USABLE, zone: "a",
           cluster: &[], local: &[], internal: Route::Reject, external: Route::Reject },
    Case { name: "no endpoint is ready or serving terminating", kind: Cluster, endpoints: NEVER_USABLE, zone: "a",
           cluster: &[], local: &[], internal: Route::Reject, external: Route::Reject },
    Case { name: "a ready endpoint is used even if terminating and not serving", kind: Cluster,
           endpoints: &["10.0.0.1 here stopped terminating"], zone: "a",
           cluster: &[1], local: &[], internal: Route::Cluster, external: Route::Cluster },
    // Hints for zones.
    Case { name: "the zone has endpoints", kind: Cluster, endpoints: ZONES, zone: "a",
           cluster: &[1, 3], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "another zone has its own endpoints", kind: Cluster, endpoints: ZONES, zone: "b",
           cluster: &[2], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "a zone without endpoints uses all", kind: Cluster, endpoints: ZONES, zone: "c",
           cluster: &[1, 2, 3], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "a node without zone uses all", kind: Cluster, endpoints: ZONES, zone: "",
           cluster: &[1, 2, 3], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "a ready endpoint without hint disables hints", kind: Cluster,
           endpoints: &["10.0.0.1 here zone=a", "10.0.0.2 there zone=b", "10.0.0.3 there"], zone: "a",
           cluster: &[1, 2, 3], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "an unready endpoint without hint does not disable hints", kind: Cluster,
           endpoints: &["10.0.0.1 here zone=a", "10.0.0.2 there zone=b", "10.0.0.3 there unready"], zone: "a",
           cluster: &[1], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "the zone hint of an unready endpoint is ignored", kind: Cluster,
           endpoints: &["10.0.0.1 here zone=a unready", "10.0.0.2 there zone=b"], zone: "a",
           cluster: &[2], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "an endpoint may have hints for several zones", kind: Cluster,
           endpoints: &["10.0.0.1 here zone=b zone=a", "10.0.0.2 there zone=b"], zone: "a",
           cluster: &[1], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "terminating endpoints are used regardless of zone hints", kind: Cluster,
           endpoints: &["10.0.0.1 here zone=a unready terminating", "10.0.0.2 there zone=b unready terminating"], zone: "a",
           cluster: &[1, 2], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "hints do not apply to the local list", kind: ExternalLocal, endpoints: ZONES, zone: "b",
           cluster: &[2], local: &[1], internal: Route::Cluster, external: Route::Local },
    Case { name: "hints do not apply to the local list", kind: InternalLocal, endpoints: ZONES, zone: "b",
           cluster: &[], local: &[1], internal: Route::Local, external: Route::Reject },
    // Hints for nodes.
    Case { name: "the node has endpoints", kind: Cluster, endpoints: NODES, zone: "a",
           cluster: &[1], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "node hints do not depend on the zone", kind: Cluster, endpoints: NODES, zone: "",
           cluster: &[1], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "without a hint for the node, zone hints apply", kind: Cluster,
           endpoints: &["10.0.0.2 there zone=a node=there", "10.0.0.3 there zone=b node=there"], zone: "a",
           cluster: &[2], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "an endpoint without node hint enables zone hints", kind: Cluster,
           endpoints: &["10.0.0.1 here zone=a node=here", "10.0.0.2 there zone=a"], zone: "a",
           cluster: &[1, 2], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "neither node hints nor zone hints are complete", kind: Cluster,
           endpoints: &["10.0.0.1 here node=there", "10.0.0.2 there zone=a node=there"], zone: "a",
           cluster: &[1, 2], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "the node hint of an unready endpoint is ignored", kind: Cluster,
           endpoints: &["10.0.0.1 here zone=a node=here unready", "10.0.0.2 there zone=b node=there"], zone: "b",
           cluster: &[2], local: &[], internal: Route::Cluster, external: Route::Cluster },
    Case { name: "hints for this node do not apply to the local list", kind: BothLocal,
           endpoints: &["10.0.0.1 here node=there", "10.0.0.2 there node=here"], zone: "a",
           cluster: &[2], local: &[1], internal: Route::Local, external: Route::Local },
];

fn service(kind: Kind) -> api::Service {
    let mut service = web();
    let spec = &mut service.spec;
    let (internal, external, node_port) = match kind {
        Cluster => ("Cluster", "Cluster", 30_080),
        ExternalLocal => ("Cluster", "Local", 30_080),
        ExternalLocalUnreachable => ("Cluster", "Local", 0),
        InternalLocal => ("Local", "Cluster", 0),
        InternalLocalExternal => ("Local", "Cluster", 30_080),
        BothLocal => ("Local", "Local", 30_080),
    };
    spec.kind = if node_port == 0 {
        "LoadBalancer"
    } else {
        "NodePort"
    }
    .into();
    spec.internal_traffic_policy = internal.into();
    spec.external_traffic_policy = external.into();
    for port in &mut spec.ports {
        port.node_port = node_port;
    }
    service
}

fn store(case: &Case) -> Store {
    let endpoints = case.endpoints.iter().map(|words| endpoint(words)).collect();
    let mut store = synced([service(case.kind).into(), slice("web-1", endpoints).into()]);
    store.resolve(&in_zone(case.zone));
    store
}

fn last_numbers(endpoints: &[Endpoint]) -> Vec<u8> {
    let octets = |e: &Endpoint| match e.addr {
        std::net::IpAddr::V4(addr) => addr.octets()[3],
        std::net::IpAddr::V6(_) => panic!("an IPv6 endpoint"),
    };
    endpoints.iter().map(octets).collect()
}

fn port(store: &Store) -> &ServicePort {
    store.ports().next().expect("the Service has a port")
}

#[test]
fn endpoints_are_selected_by_policy_conditions_and_hints() {
    for case in CASES {
        let store = store(case);
        let port = port(&store);
        let name = format!("{} ({:?})", case.name, case.kind);
        assert_eq!(
            last_numbers(&port.cluster),
            case.cluster,
            "cluster list: {name}"
        );
        assert_eq!(last_numbers(&port.local), case.local, "local list: {name}");
        assert_eq!(port.internal, case.internal, "internal: {name}");
        assert_eq!(port.external, case.external, "external: {name}");
        assert!(
            port.local.iter().all(|endpoint| endpoint.is_local),
            "{name}"
        );
    }
}

#[test]
fn ports_without_local_endpoints_are_counted_by_policy() {
    let count = |kind, endpoints| {
        let case = Case {
            kind,
            endpoints,
            ..CASES[0]
        };
        let counts = store(&case).ports_without_local_endpoints(vipline_service_model::Family::V4);
        (counts.internal, counts.external)
    };
    assert_eq!(count(BothLocal, REMOTE_ONLY), (1, 1));
    assert_eq!(count(InternalLocal, REMOTE_ONLY), (1, 0));
    assert_eq!(count(InternalLocalExternal, REMOTE_ONLY), (1, 0));
    assert_eq!(count(ExternalLocal, REMOTE_ONLY), (0, 1));
    // Ports without external addresses count as well.
    assert_eq!(count(ExternalLocalUnreachable, REMOTE_ONLY), (0, 1));
    assert_eq!(count(Cluster, REMOTE_ONLY), (0, 0));
    assert_eq!(count(BothLocal, ALL_READY), (0, 0));
    assert_eq!(count(BothLocal, LOCAL_TERMINATING), (0, 0));
    assert_eq!(count(BothLocal, &[]), (0, 0));
    assert_eq!(count(BothLocal, NEVER_USABLE), (0, 0));
}

#[test]
fn reachable_endpoints_are_the_union_of_both_lists() {
    let endpoints = &[
        "10.0.0.3 here zone=a",
        "10.0.0.1 here zone=b",
        "10.0.0.2 there zone=b",
    ];
    let case = Case {
        kind: ExternalLocal,
        endpoints,
        zone: "b",
        ..CASES[0]
    };
    let store = store(&case);
    let port = port(&store);
    assert_eq!(last_numbers(&port.cluster), [1, 2]);
    assert_eq!(last_numbers(&port.local), [1, 3]);
    assert_eq!(last_numbers(&port.reachable()), [1, 2, 3]);
}

#[test]
fn serving_endpoints_are_listed_regardless_of_policy() {
    let endpoints = &[
        "10.0.0.1 here",
        "10.0.0.2 there unready terminating",
        "10.0.0.3 there unready",
        "10.0.0.4 there stopped",
        "10.0.0.5 there unready stopped terminating",
    ];
    for kind in [Cluster, InternalLocal, BothLocal] {
        let store = store(&Case {
            kind,
            endpoints,
            ..CASES[0]
        });
        assert_eq!(last_numbers(&port(&store).serving), [1, 2, 3], "{kind:?}");
    }
}
