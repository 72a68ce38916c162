//! Restarts of the proxy, under traffic.

use std::time::{Duration, Instant};

use testkit::commits::CommitMonitor;
use testkit::proxy::{Options, Proxy};

use crate::cluster::{Cluster, Source, go_on, stop, until};
use crate::objects::web_probes;

/// Number of restarts.
const TIMES: usize = 4;

/// Time limit for the proxy to exit, on an idle host.
const EXIT_LIMIT: Duration = Duration::from_millis(100);

/// Time limit for the proxy to exit, on any host.
const MAX_EXIT_LIMIT: Duration = Duration::from_secs(1);

/// Time without a commit after which a sync is complete.
const QUIET: Duration = Duration::from_millis(200);

#[test]
fn a_proxy_with_an_api_server_exits_immediately_and_its_rules_remain() {
    restart_repeatedly(Source::Api);
}

#[test]
fn a_proxy_with_manifests_exits_immediately_and_its_rules_remain() {
    restart_repeatedly(Source::Manifests);
}

fn restart_repeatedly(source: Source) {
    let cluster = Cluster::new();
    let options = cluster.options(source);
    let mut proxy = cluster.start(&options);
    let rules = cluster.rules();
    let loads = cluster.load(web_probes(&cluster.lab));
    let mut connections = cluster.connect();
    let mut exits = Vec::new();
    for time in 0..TIMES {
        // Every second time the API server does not respond.
        let is_hanging = source == Source::Api && time % 2 == 1;
        cluster.server.hang_connections(is_hanging);
        let begin = Instant::now();
        proxy.stop().unwrap();
        exits.push(begin.elapsed());
        cluster.server.hang_connections(false);
        assert!(cluster.rules() == rules, "{}", cluster.rules());
        go_on(&loads, 20);
        proxy = start_without_changes(&cluster, &options);
        assert!(cluster.rules() == rules, "{}", cluster.rules());
        go_on(&loads, 20);
        for connection in &mut connections {
            connection.exchange("still there?").unwrap();
        }
    }
    let asked = stop(loads);
    proxy.stop().unwrap();
    println!("exited {exits:?} after SIGTERM; {asked} requests without a failure");
    assert!(exits.iter().all(|exit| *exit < MAX_EXIT_LIMIT), "{exits:?}");
    assert!(exits.iter().any(|exit| *exit < EXIT_LIMIT), "{exits:?}");
    let hanging: Vec<_> = exits.iter().skip(1).step_by(2).collect();
    assert!(hanging.iter().any(|exit| **exit < EXIT_LIMIT), "{exits:?}");
}

/// Starts the proxy and checks that it commits nothing.
fn start_without_changes(cluster: &Cluster, options: &Options) -> Proxy {
    let commits = CommitMonitor::open(&cluster.lab.node.netns).unwrap();
    let proxy = cluster.start(options);
    let committed = commits.last_commit(Instant::now() + QUIET, QUIET).unwrap();
    assert_eq!(committed, None, "{}", proxy.process().output());
    if matches!(options.source, ("--kubeconfig", _)) {
        until("all kinds are watched", || {
            let kinds = ["services", "endpointslices", "nodes", "servicecidrs"];
            kinds.iter().all(|kind| cluster.server.watchers(kind) == 1)
        });
    }
    proxy
}
