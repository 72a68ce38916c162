//! One object over HTTP.

use apiserver::ApiServer;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
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
        other => panic!("no refusal: {other:?}"),
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
    // What was read before the patch is too old to be written back.
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
async fn events_are_taken_as_a_server_takes_them() {
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
