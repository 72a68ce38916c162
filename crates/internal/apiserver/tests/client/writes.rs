//! Requests for single objects.

use apiserver::ApiServer;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Error, ResourceExt};
use serde_json::{Value, json};

use crate::support::{client, service};

fn event(name: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": "default" },
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "kube-proxy",
        "reportingInstance": "kube-proxy-node-1",
        "action": "StartKubeProxy",
        "reason": "Starting",
        "regarding": { "kind": "Node", "name": "node-1" },
        "type": "Normal",
    })
}

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> (u16, String) {
    match result {
        Err(Error::Api(status)) => (status.code, status.reason),
        other => panic!("not a Status error: {other:?}"),
    }
}

#[tokio::test]
async fn objects_are_created_changed_and_deleted() {
    let server = ApiServer::start();
    let services = Api::<Service>::namespaced(client(&server.kubeconfig()).await, "default");
    let (params, patch) = (PostParams::default(), PatchParams::default());
    let web: Service = serde_json::from_value(service("web", 80)).unwrap();
    let created = services.create(&params, &web).await.unwrap();
    assert!(created.uid().is_some() && created.creation_timestamp().is_some());
    assert_eq!(created.managed_fields().len(), 1);
    assert_eq!(
        code(services.create(&params, &web).await),
        (409, "AlreadyExists".into())
    );

    let merge = Patch::Merge(json!({ "metadata": { "labels": { "port": null, "new": "x" } } }));
    let patched = services.patch("web", &patch, &merge).await.unwrap();
    assert_eq!(patched.labels().len(), 1);
    assert_eq!(patched.uid(), created.uid());
    // An object read before the patch has an outdated version.
    let stale = services.replace("web", &params, &created).await;
    assert_eq!(code(stale), (409, "Conflict".into()));
    let replaced = services.replace("web", &params, &patched).await.unwrap();
    assert_eq!(
        replaced.resource_version(),
        patched.resource_version(),
        "no change"
    );

    services
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(code(services.get("web").await), (404, "NotFound".into()));
    assert_eq!(server.object("Service", "default", "web"), None);
}

#[tokio::test]
async fn events_are_validated_as_by_kube_apiserver() {
    let server = ApiServer::start();
    let client = client(&server.kubeconfig()).await;
    let events = Api::<Event>::namespaced(client.clone(), "default");
    let elsewhere = Api::<Event>::namespaced(client, "elsewhere");
    let parse = |value: Value| serde_json::from_value::<Event>(value).unwrap();
    let params = PostParams::default();
    events.create(&params, &parse(event("a"))).await.unwrap();
    let mut nameless = event("");
    nameless["metadata"]["generateName"] = "b-".into();
    let named = events.create(&params, &parse(nameless)).await.unwrap();
    assert!(named.name_any().starts_with("b-"));
    let series = json!({ "count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z" });
    let patch = Patch::Merge(json!({ "series": series }));
    events
        .patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(server.events().len(), 2);
    assert_eq!(server.events()[0]["series"]["count"], 2);
    assert_eq!(
        (
            server.count("create", "events"),
            server.count("patch", "events")
        ),
        (2, 1)
    );

    for (field, value) in [
        ("eventTime", Value::Null),
        ("reportingInstance", Value::Null),
        ("action", "".into()),
        ("reason", "x".repeat(129).into()),
        ("note", "x".repeat(1025).into()),
        ("type", "Odd".into()),
        ("regarding", json!({ "namespace": "elsewhere" })),
        (
            "series",
            json!({ "count": 1, "lastObservedTime": "2026-01-01T00:00:01.000000Z" }),
        ),
    ] {
        let mut bad = event("bad");
        bad[field] = value;
        let result = events.create(&params, &parse(bad)).await;
        assert_eq!(code(result), (422, "Invalid".into()), "{field}");
    }
    // The Event of a Node is in `default`.
    let mut misplaced = event("c");
    misplaced["metadata"]["namespace"] = "elsewhere".into();
    let result = elsewhere.create(&params, &parse(misplaced)).await;
    assert_eq!(code(result), (422, "Invalid".into()));
}

fn address(name: &str, service: &str) -> IPAddress {
    let parent = json!({ "resource": "services", "namespace": "default", "name": service });
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "parentRef": parent },
    }))
    .unwrap()
}

fn cidr(networks: &[&str]) -> Value {
    json!({ "metadata": { "name": "kubernetes" }, "spec": { "cidrs": networks } })
}

#[tokio::test]
async fn an_address_is_deleted_only_if_the_preconditions_match() {
    let server = ApiServer::start();
    let addresses = Api::<IPAddress>::all(client(&server.kubeconfig()).await);
    let params = PostParams::default();
    let created = addresses
        .create(&params, &address("fd00::1", "web"))
        .await
        .unwrap();
    let other = json!({ "spec": { "parentRef": { "name": "other" } } });
    let moved = addresses
        .patch("fd00::1", &PatchParams::default(), &Patch::Merge(other))
        .await;
    assert_eq!(code(moved), (422, "Invalid".into()));
    for (name, service) in [
        ("fd00:0::1", "web"),
        ("FD00::1", "web"),
        ("10.0.0.01", "web"),
        ("::ffff:10.0.0.1", "web"),
        ("web", "web"),
        ("10.0.0.1", "a/b"),
        ("10.0.0.1", ""),
    ] {
        let refused = addresses.create(&params, &address(name, service)).await;
        assert_eq!(code(refused), (422, "Invalid".into()), "{name} {service}");
    }
    let only = |uid: Option<String>, resource_version: Option<String>| {
        DeleteParams::default().preconditions(Preconditions {
            resource_version,
            uid,
        })
    };
    for wrong in [
        only(Some("another".into()), created.resource_version()),
        only(created.uid(), Some("1".into())),
    ] {
        let refused = addresses.delete("fd00::1", &wrong).await;
        assert_eq!(code(refused), (409, "Conflict".into()));
    }
    let right = only(created.uid(), created.resource_version());
    addresses.delete("fd00::1", &right).await.unwrap();
    assert_eq!(server.objects("IPAddress"), [Value::Null; 0]);
}

#[tokio::test]
async fn an_object_with_finalizers_is_removed_with_its_last_finalizer() {
    let server = ApiServer::start();
    let cidrs = Api::<ServiceCIDR>::all(client(&server.kubeconfig()).await);
    let mut object = cidr(&["10.96.0.0/16"]);
    object["metadata"]["finalizers"] = json!(["example.com/wait"]);
    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let object: ServiceCIDR = serde_json::from_value(object).unwrap();
    let created = cidrs.create(&PostParams::default(), &object).await.unwrap();
    assert_eq!(created.metadata.deletion_timestamp, None);

    let params = DeleteParams::default();
    let deleted = cidrs.delete("kubernetes", &params).await.unwrap();
    let since = deleted.left().unwrap().metadata.deletion_timestamp.unwrap();
    let again = cidrs.delete("kubernetes", &params).await.unwrap();
    let time = again.left().unwrap().metadata.deletion_timestamp;
    assert_eq!(time, Some(since), "it was deleted once");

    let patch = |object| {
        let cidrs = cidrs.clone();
        let patch = Patch::Merge(object);
        async move {
            let params = PatchParams::default();
            cidrs.patch("kubernetes", &params, &patch).await.unwrap()
        }
    };
    let stays = patch(json!({ "metadata": { "deletionTimestamp": null } })).await;
    assert!(stays.metadata.deletion_timestamp.is_some());
    patch(json!({ "metadata": { "finalizers": [] } })).await;
    assert_eq!(server.objects("ServiceCIDR"), [Value::Null; 0]);
}

#[tokio::test]
async fn the_status_of_a_service_cidr_is_a_subresource() {
    let server = ApiServer::start();
    let cidrs = Api::<ServiceCIDR>::all(client(&server.kubeconfig()).await);
    let parse = |value: Value| serde_json::from_value::<ServiceCIDR>(value).unwrap();
    let (params, merge) = (PostParams::default(), PatchParams::default());
    for odd in [&[][..], &["10.0.0.0/8", "11.0.0.0/8"]] {
        let refused = cidrs.create(&params, &parse(cidr(odd))).await;
        assert_eq!(code(refused), (422, "Invalid".into()), "{odd:?}");
    }
    let first = parse(cidr(&["10.96.0.0/16"]));
    cidrs.create(&params, &first).await.unwrap();
    let both = json!({
        "spec": { "cidrs": ["10.96.0.0/16", "fd00::/108"] },
        "status": { "conditions": [] },
    });
    let patch = Patch::Merge(both);
    let status = cidrs
        .patch_status("kubernetes", &merge, &patch)
        .await
        .unwrap();
    assert_eq!(status.spec.unwrap().cidrs.unwrap().len(), 1);
    assert!(status.status.is_some());
    let patch = Patch::Merge(json!({
        "spec": { "cidrs": ["10.96.0.0/16", "fd00::/108"] },
        "status": null,
    }));
    let spec = cidrs.patch("kubernetes", &merge, &patch).await.unwrap();
    assert_eq!(spec.spec.unwrap().cidrs.unwrap().len(), 2);
    assert!(spec.status.is_some());
    let patch = Patch::Merge(json!({ "spec": { "cidrs": ["10.96.0.0/16"] } }));
    let narrowed = cidrs.patch("kubernetes", &merge, &patch).await;
    assert_eq!(code(narrowed), (422, "Invalid".into()));
}

#[tokio::test]
async fn writes_are_rejected_with_409_or_applied_without_a_response() {
    let server = ApiServer::start();
    let addresses = Api::<IPAddress>::all(client(&server.kubeconfig()).await);
    let params = PostParams::default();
    let create = |name: &str| {
        let (addresses, params) = (addresses.clone(), params.clone());
        let object = address(name, "web");
        async move { addresses.create(&params, &object).await }
    };
    server.faults(|faults| {
        faults.only = Some("ipaddresses".into());
        faults.conflicts = 1;
        faults.lost_responses = 1;
    });
    assert_eq!(code(create("10.0.0.1").await), (409, "Conflict".into()));
    assert_eq!(server.objects("IPAddress").len(), 0);
    let lost = create("10.0.0.2").await.unwrap_err();
    assert!(!matches!(lost, Error::Api(_)), "{lost}");
    assert_eq!(server.objects("IPAddress").len(), 1);
    create("10.0.0.3").await.unwrap();
}

#[tokio::test]
async fn networks_of_service_cidrs_are_in_canonical_form() {
    let server = ApiServer::start();
    let cidrs = Api::<ServiceCIDR>::all(client(&server.kubeconfig()).await);
    let parse = |networks: &[&str]| serde_json::from_value::<ServiceCIDR>(cidr(networks)).unwrap();
    let params = PostParams::default();
    // kube-apiserver 1.36.2 rejects the first objects and accepts the others.
    for network in [
        "a",
        "10.0.0.0",
        "10.0.0.1/24",
        "10.0.0.0/33",
        "10.0.0.0/024",
        "010.0.0.0/24",
        "::ffff:10.0.0.0/120",
        "fd00:0::/64",
        "FD00::/64",
        "fd00::1/64",
    ] {
        let refused = cidrs.create(&params, &parse(&[network])).await;
        assert_eq!(code(refused), (422, "Invalid".into()), "{network}");
    }
    for network in [
        "10.0.0.0/31",
        "10.0.0.1/32",
        "0.0.0.0/0",
        "fd00::/32",
        "::/0",
    ] {
        cidrs.create(&params, &parse(&[network])).await.unwrap();
        server.delete("ServiceCIDR", "", "kubernetes");
    }
}

#[tokio::test]
async fn services_slices_and_nodes_are_validated_as_by_kube_apiserver() {
    let server = ApiServer::start();
    let client = client(&server.kubeconfig()).await;
    let params = PostParams::default();
    let service = |spec: Value| {
        let value = json!({ "metadata": { "name": "odd" }, "spec": spec });
        serde_json::from_value::<Service>(value).unwrap()
    };
    let services = Api::<Service>::namespaced(client.clone(), "default");
    let port = json!([{ "port": 80 }]);
    // kube-apiserver 1.36.2 rejects the first objects and accepts the others.
    for spec in [
        json!({ "ports": [] }),
        json!({ "ports": [{ "port": 0 }] }),
        json!({ "ports": [{ "port": 80 }, { "port": 81 }] }),
        json!({ "ports": [{ "port": 80, "nodePort": 30_080 }] }),
        json!({ "ports": port, "type": "LoadBalancer", "clusterIP": "None" }),
        json!({ "ports": port, "loadBalancerClass": "lb" }),
        json!({ "ports": port, "internalTrafficPolicy": "" }),
        json!({ "ports": port, "externalTrafficPolicy": "Local" }),
        json!({ "ports": port, "externalIPs": ["010.0.0.10"] }),
        json!({ "ports": port, "loadBalancerSourceRanges": ["10.0.0.0/8"] }),
        json!({ "ports": port, "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 86_401 } } }),
    ] {
        let refused = services.create(&params, &service(spec.clone())).await;
        assert_eq!(code(refused), (422, "Invalid".into()), "{spec}");
    }
    for spec in [
        json!({ "ports": port, "type": "LoadBalancer", "externalTrafficPolicy": "Local",
                "loadBalancerSourceRanges": [" 10.0.0.0/8\t"] }),
        json!({ "ports": port, "externalIPs": ["255.255.255.255", "FD00::1"] }),
        json!({ "clusterIP": "None" }),
        json!({ "type": "ExternalName", "externalName": "a.example." }),
    ] {
        services.create(&params, &service(spec)).await.unwrap();
        server.delete("Service", "default", "odd");
    }
    let nodes = Api::<Node>::all(client.clone());
    let taint = json!({ "key": "a", "effect": "NoSchedule" });
    let node = json!({ "metadata": { "name": "odd" }, "spec": { "taints": [taint, taint] } });
    let refused = nodes
        .create(&params, &serde_json::from_value(node).unwrap())
        .await;
    assert_eq!(code(refused), (422, "Invalid".into()));

    let slices = Api::<EndpointSlice>::namespaced(client, "default");
    let slice = |address: &str, port: i32| {
        serde_json::from_value::<EndpointSlice>(json!({
            "metadata": { "name": "odd" }, "addressType": "IPv4",
            "endpoints": [{ "addresses": [address] }], "ports": [{ "port": port }],
        }))
        .unwrap()
    };
    for address in ["127.0.0.1", "224.0.0.1", "fd00::1", "010.0.0.1"] {
        let refused = slices.create(&params, &slice(address, 80)).await;
        assert_eq!(code(refused), (422, "Invalid".into()), "{address}");
    }
    slices
        .create(&params, &slice("255.255.255.255", 70_000))
        .await
        .unwrap();
}

#[tokio::test]
async fn the_status_of_a_service_is_a_subresource() {
    let server = ApiServer::start();
    let services = Api::<Service>::namespaced(client(&server.kubeconfig()).await, "default");
    let params = PostParams::default();
    let status =
        json!({ "loadBalancer": { "ingress": [{ "ip": "203.0.113.1", "ipMode": "VIP" }] } });
    let mut web: Service = serde_json::from_value(json!({
        "metadata": { "name": "web" },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] },
        "status": status,
    }))
    .unwrap();
    let ingress = |service: &Service| {
        let balancer = service.status.as_ref()?.load_balancer.as_ref()?;
        balancer.ingress.clone()
    };
    let created = services.create(&params, &web).await.unwrap();
    assert_eq!(ingress(&created), None);
    let replaced = services.replace("web", &params, &web).await.unwrap();
    assert_eq!(ingress(&replaced), None);
    let patch = Patch::Merge(json!({ "status": status }));
    let merge = PatchParams::default();
    let patched = services.patch_status("web", &merge, &patch).await.unwrap();
    assert!(ingress(&patched).is_some());
    web.status = None;
    let replaced = services.replace("web", &params, &web).await.unwrap();
    assert!(ingress(&replaced).is_some());
    let odd = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "010.0.0.1", "ipMode": "VIP" }] } } });
    let refused = services
        .patch_status("web", &merge, &Patch::Merge(odd))
        .await;
    assert_eq!(code(refused), (422, "Invalid".into()));
}
