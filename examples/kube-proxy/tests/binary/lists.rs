//! Lists of objects. A stale list does not revert changes.

use std::time::Duration;

use apiserver::{Disconnect, ErrorResponse, Request, WatchListFailure};
use serde_json::json;

use crate::cluster::{Cluster, service_with_endpoints, slice};
use crate::stage::wait_until;

const KINDS: [&str; 4] = ["services", "endpointslices", "nodes", "servicecidrs"];

fn requests(cluster: &Cluster, kind: &str, verb: &str) -> Vec<Request> {
    let requests = cluster.server.requests().into_iter();
    requests
        .filter(|request| request.resource == kind && request.verb == verb)
        .collect()
}

#[test]
fn objects_are_listed_by_a_watch_that_continues_with_changes() {
    let cluster = Cluster::with(service_with_endpoints("web", "10.96.0.10", 1));
    let proxy = cluster.start();
    cluster.server.apply(slice("web", 1, 3));
    wait_until("the new endpoint", || {
        cluster.ruleset().contains("10.244.1.3 ")
    });
    for kind in KINDS {
        assert!(requests(&cluster, kind, "list").is_empty(), "{kind}");
        let watches = requests(&cluster, kind, "watch");
        let [watch] = &watches[..] else {
            panic!("{kind}: {watches:?}");
        };
        assert!(watch.send_initial_events, "{kind}");
        assert_eq!(watch.version, "", "{kind}");
    }
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_server_without_watch_lists_is_listed_from_its_cache() {
    for fault in [WatchListFailure::Forbidden, WatchListFailure::Error] {
        let cluster = Cluster::with(service_with_endpoints("web", "10.96.0.10", 1));
        cluster
            .server
            .faults(|faults| faults.watch_list_failure = Some(fault));
        let proxy = cluster.start();
        assert!(cluster.ruleset().contains("10.244.1.2"));
        for kind in KINDS {
            let versions: Vec<_> = requests(&cluster, kind, "list")
                .into_iter()
                .map(|list| list.version)
                .collect();
            assert_eq!(versions, ["0"], "{kind}: {fault:?}");
        }
        assert!(proxy.terminate().unwrap().success());
    }
}

#[test]
fn a_stale_list_does_not_revert_changes() {
    for fault in [None, Some(WatchListFailure::Forbidden)] {
        let cluster = Cluster::with(service_with_endpoints("web", "10.96.0.10", 1));
        cluster
            .server
            .faults(|faults| faults.watch_list_failure = fault);
        let proxy = cluster.start();
        cluster.server.apply(slice("web", 1, 3));
        wait_until("the new endpoint", || {
            cluster.ruleset().contains("10.244.1.3 ")
        });
        cluster.server.faults(|faults| {
            faults.stale = 1;
            faults.only = Some("endpointslices".into());
            faults.error_response = Some(ErrorResponse {
                code: 410,
                retry_after: None,
                times: 1,
            });
        });
        cluster.server.cut_connections(Disconnect::Close);
        wait_until("an expired resource version", || {
            proxy.output().contains("(code 410)")
        });
        wait_until("four watches", || cluster.watches() == 4);
        // The proxy programs changes in order: a stale list would be visible by now.
        cluster.server.apply(slice("web", 2, 1));
        wait_until("another endpoint", || {
            let rules = cluster.ruleset();
            assert!(rules.contains("10.244.1.3 "), "the endpoint was removed");
            rules.contains("10.244.2.1 ")
        });
        assert!(proxy.terminate().unwrap().success());
    }
}

#[test]
fn the_first_sync_does_not_wait_for_service_cidrs() {
    let cidr = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": ["10.96.0.0/16"]},
    });
    let cluster = Cluster::with(
        service_with_endpoints("web", "10.96.0.10", 1)
            .into_iter()
            .chain([cidr]),
    );
    cluster.server.faults(|faults| {
        faults.only = Some("servicecidrs".into());
        faults.delay = Duration::from_secs(3600);
    });
    let proxy = cluster.start_unsynced("");
    wait_until("the first sync", || proxy.output().contains("synced"));
    let rules = cluster.ruleset();
    assert!(rules.contains("10.244.1.2"), "{rules}");
    assert!(!rules.contains("10.96.0.0/16"), "{rules}");
    cluster.server.clear_faults();
    wait_until("the ServiceCIDR", || {
        cluster.ruleset().contains("10.96.0.0/16")
    });
    assert!(proxy.terminate().unwrap().success());
}
