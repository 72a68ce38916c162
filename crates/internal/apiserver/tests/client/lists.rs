//! Lists.

use std::time::Instant;

use apiserver::ApiServer;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, VersionMatch};
use kube::{Api, Error, ResourceExt};
use serde_json::json;

use crate::support::{Mirror, client, service};

#[tokio::test]
async fn lists_apply_selectors_namespaces_and_limits() {
    let server = ApiServer::start();
    for (index, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        server.apply(service(name, u16::try_from(index % 2).unwrap()));
    }
    let mut elsewhere = service("other", 1);
    elsewhere["metadata"]["namespace"] = "elsewhere".into();
    server.apply(elsewhere);
    let client = client(&server.kubeconfig()).await;
    let all = Api::<Service>::all(client.clone());
    let default = Api::<Service>::namespaced(client, "default");
    let count =
        async |api: &Api<Service>, params: &ListParams| api.list(params).await.unwrap().items.len();
    let params = ListParams::default();
    assert_eq!(count(&all, &params).await, 6);
    assert_eq!(count(&default, &params).await, 5);
    assert_eq!(count(&all, &params.clone().labels("port=1")).await, 3);
    assert_eq!(
        count(&default, &params.clone().labels("port notin (1)")).await,
        3
    );
    let fields = "metadata.namespace!=default";
    assert_eq!(count(&all, &params.clone().fields(fields)).await, 1);

    let first = all.list(&params.clone().limit(4)).await.unwrap();
    assert_eq!(
        (first.items.len(), first.metadata.remaining_item_count),
        (4, Some(2))
    );
    let token = first.metadata.continue_.unwrap();
    server.delete("Service", "default", "e");
    let rest = params.clone().limit(4).continue_token(&token);
    let names = |services: Vec<Service>| services.iter().map(Service::name_any).collect::<Vec<_>>();
    assert_eq!(names(all.list(&rest).await.unwrap().items), ["e", "other"]);
    server.compact();
    let Err(Error::Api(status)) = all.list(&rest).await else {
        panic!("an old token is no good");
    };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    let past = params.clone().at("1001").matching(VersionMatch::Exact);
    assert!(all.list(&past).await.is_err());
    let last = server.requests().pop().unwrap();
    assert_eq!((last.verb, last.version.as_str()), ("list", "1001"));
}

#[tokio::test]
async fn ten_thousand_objects_are_listed() {
    const NUMBER: u16 = 10_000;
    let server = ApiServer::start();
    server.apply_all((0..NUMBER).map(|index| service(&format!("s{index:05}"), index)));
    server.apply_all((0..NUMBER).map(|index| {
        let name = format!("s{index:05}");
        let endpoints = (1..=5).map(|host| {
            json!({ "addresses": [format!("10.244.{}.{host}", index % 250)], "conditions": { "ready": true }, "nodeName": "node-1" })
        });
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": { "name": name, "namespace": "default", "labels": { "kubernetes.io/service-name": name } },
            "addressType": "IPv4",
            "endpoints": endpoints.collect::<Vec<_>>(),
            "ports": [{ "port": 80, "protocol": "TCP" }],
        })
    }));
    let began = Instant::now();
    let slices = Api::<EndpointSlice>::all(client(&server.kubeconfig()).await);
    let all = slices.list(&ListParams::default()).await.unwrap();
    assert_eq!(all.items.len(), usize::from(NUMBER));
    assert!(
        all.items
            .iter()
            .all(|slice| slice.endpoints.iter().flatten().count() == 5)
    );
    let mirror = Mirror::new(&server).await;
    mirror.catch_up(&server).await;
    assert_eq!(server.count("list", "services"), 20, "chunks of 500");
    println!(
        "{NUMBER} slices and Services listed in {:?}",
        began.elapsed()
    );
}
