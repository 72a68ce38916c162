//! Watches: events, bookmarks and versions.

use std::time::Duration;

use apiserver::ApiServer;
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{WatchEvent, WatchParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

use crate::support::{Mirror, Ports, client, eventually, service};

const WAIT: Duration = Duration::from_secs(30);

/// Returns short descriptions of the first `count` events of a watch.
async fn events_of(
    server: &ApiServer,
    params: &WatchParams,
    version: &str,
    count: usize,
) -> Vec<String> {
    let services = Api::<Service>::all(client(&server.kubeconfig()).await);
    let events = services.watch(params, version).await.unwrap();
    let events = events.take(count).map_ok(|event| match event {
        WatchEvent::Added(service) => format!("+{}", service.name_any()),
        WatchEvent::Modified(service) => format!("~{}", service.name_any()),
        WatchEvent::Deleted(service) => {
            format!(
                "-{}@{}",
                service.name_any(),
                service.resource_version().unwrap()
            )
        }
        WatchEvent::Bookmark(bookmark) => {
            let end = bookmark
                .metadata
                .annotations
                .contains_key("k8s.io/initial-events-end");
            format!(
                "{}@{}",
                if end { "end" } else { "bookmark" },
                bookmark.metadata.resource_version
            )
        }
        WatchEvent::Error(status) => format!("{} {}", status.code, status.reason),
    });
    timeout(WAIT, events.try_collect())
        .await
        .expect("an event arrives in time")
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_receives_additions_changes_and_deletions() {
    let server = ApiServer::start();
    server.apply(service("web", 80));
    let mirror = Mirror::new(&server).await;
    mirror.catch_up(&server).await;
    assert!(server.wait_for_watchers(1, WAIT));
    server.apply(service("db", 5432));
    server.apply(service("web", 81));
    mirror.catch_up(&server).await;
    assert!(server.delete("Service", "default", "web"));
    mirror
        .wait_for(&Ports::from([("db".to_owned(), 5432)]))
        .await;
    assert_eq!((mirror.lists(), mirror.errors()), (1, vec![]));
    assert_eq!(
        (
            server.count("list", "services"),
            server.count("watch", "services")
        ),
        (1, 1)
    );
    assert_eq!(server.watchers("services"), 1);
    drop(mirror);
    assert!(server.wait_for_watchers(0, WAIT));
}

#[tokio::test]
async fn a_watch_from_a_version_receives_all_later_changes() {
    let server = ApiServer::start();
    let first = server.apply(service("a", 1));
    server.apply(service("b", 1));
    server.apply(service("a", 2));
    server.delete("Service", "default", "b");
    let last = server.resource_version();
    let params = WatchParams::default();
    let since = events_of(&server, &params, &first.to_string(), 3).await;
    assert_eq!(
        since,
        ["+b".to_owned(), "~a".to_owned(), format!("-b@{last}")]
    );
    // Without a version, or with version 0, the watch begins with the current state.
    assert_eq!(events_of(&server, &params, "0", 1).await, ["+a"]);
    assert_eq!(events_of(&server, &params, "", 1).await, ["+a"]);
}

#[tokio::test]
async fn objects_that_start_or_cease_to_match_a_selector_are_added_or_deleted() {
    let server = ApiServer::start();
    let first = server.apply(service("a", 1));
    server.apply(service("a", 2));
    server.apply(service("a", 1));
    server.apply(service("b", 3));
    server.apply(service("b", 1));
    let params = WatchParams::default().labels("port in (1)");
    let events = events_of(&server, &params, &first.to_string(), 3).await;
    let deleted = format!("-a@{}", first + 1);
    assert_eq!(events, [deleted, "+a".to_owned(), "+b".to_owned()]);
    let params = WatchParams::default().fields("metadata.name=b");
    let events = events_of(&server, &params, &first.to_string(), 2).await;
    assert_eq!(events, ["+b", "~b"]);
}

#[tokio::test]
async fn bookmarks_are_sent_on_demand_on_time_and_at_the_end() {
    let server = ApiServer::start();
    let version = server.apply(service("a", 1));
    let params = WatchParams::default();
    let from = version.to_string();
    let (events, ()) = tokio::join!(events_of(&server, &params, &from, 1), async {
        eventually("a watch", async || server.watchers("services") == 1).await;
        server.apply(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } }));
        server.send_bookmarks();
    });
    assert_eq!(events, [format!("bookmark@{}", version + 1)]);
    let brief = WatchParams::default().timeout(1);
    let events = events_of(&server, &brief, &from, 2).await;
    assert_eq!(
        events,
        [format!("bookmark@{}", version + 1)],
        "then it ends"
    );
    server.bookmark_every(Duration::from_millis(10));
    assert_eq!(events_of(&server, &params, &from, 3).await.len(), 3);
    let without = WatchParams::default().timeout(1).disable_bookmarks();
    assert!(events_of(&server, &without, &from, 1).await.is_empty());
}

#[tokio::test]
async fn a_version_that_is_too_old_is_gone() {
    let server = ApiServer::start();
    let first = server.apply(service("a", 1));
    server.apply(service("a", 2));
    server.compact();
    let params = WatchParams::default();
    let events = events_of(&server, &params, &first.to_string(), 2).await;
    assert_eq!(events, ["410 Expired"], "and nothing after it");
}

#[tokio::test]
async fn a_list_can_be_streamed() {
    let server = ApiServer::start();
    server.apply_all([service("a", 1), service("b", 2)]);
    let version = server.resource_version();
    let params = WatchParams::streaming_lists();
    let events = events_of(&server, &params, "0", 3).await;
    assert_eq!(
        events,
        ["+a".to_owned(), "+b".to_owned(), format!("end@{version}")]
    );
    let mirror = Mirror::with(&server, watcher::Config::default().streaming_lists()).await;
    mirror.catch_up(&server).await;
    server.apply(service("c", 3));
    mirror.catch_up(&server).await;
    assert_eq!(server.count("list", "services"), 0);
}

#[tokio::test]
async fn one_node_is_watched_by_its_name() {
    let server = ApiServer::start();
    for name in ["node-1", "node-2"] {
        server.apply(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } }));
    }
    let nodes = Api::<Node>::all(client(&server.kubeconfig()).await);
    let mut seen = std::pin::pin!(watcher::watch_object(nodes, "node-2"));
    let node = seen.next().await.unwrap().unwrap().unwrap();
    assert_eq!(node.name_any(), "node-2");
    server.delete("Node", "", "node-1");
    server.delete("Node", "", "node-2");
    let gone = timeout(WAIT, seen.next()).await.unwrap();
    assert!(gone.unwrap().unwrap().is_none());
}
