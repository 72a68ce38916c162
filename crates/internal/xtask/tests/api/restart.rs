//! The proxy ends and begins again, under traffic.

use std::time::{Duration, Instant};

use testkit::commits::Commits;
use testkit::proxy::{Options, Proxy};

use crate::cluster::{Cluster, Source, go_on, stop, until};
use crate::objects::ask_web;

/// How often the proxy ends.
const TIMES: usize = 4;

/// How soon it has ended, on a machine that has time.
const AT_ONCE: Duration = Duration::from_millis(100);

/// How soon it has ended in any case.
const SECOND: Duration = Duration::from_secs(1);

/// How long nothing is committed once all is.
const QUIET: Duration = Duration::from_millis(200);

#[test]
fn a_proxy_with_an_api_ends_at_once_and_its_rules_serve_until_it_is_back() {
    end_and_begin_again(Source::Api);
}

#[test]
fn a_proxy_with_manifests_ends_at_once_and_its_rules_serve_until_it_is_back() {
    end_and_begin_again(Source::Manifests);
}

fn end_and_begin_again(source: Source) {
    let cluster = Cluster::new();
    let options = cluster.options(source);
    let mut proxy = cluster.start(&options);
    let rules = cluster.rules();
    let loads = cluster.load(ask_web(&cluster.lab));
    let mut talks = cluster.talk();
    let mut ends = Vec::new();
    for time in 0..TIMES {
        // Every other time the API does not answer any more.
        let is_hanging = source == Source::Api && time % 2 == 1;
        cluster.server.hang_connections(is_hanging);
        let begin = Instant::now();
        proxy.stop().unwrap();
        ends.push(begin.elapsed());
        cluster.server.hang_connections(false);
        assert!(cluster.rules() == rules, "{}", cluster.rules());
        go_on(&loads, 20);
        proxy = begin_again(&cluster, &options);
        assert!(cluster.rules() == rules, "{}", cluster.rules());
        go_on(&loads, 20);
        for talk in &mut talks {
            talk.say("still there?").unwrap();
        }
    }
    let asked = stop(loads);
    proxy.stop().unwrap();
    println!("ended {ends:?} after SIGTERM; {asked} questions without a failure");
    assert!(ends.iter().all(|end| *end < SECOND), "{ends:?}");
    assert!(ends.iter().any(|end| *end < AT_ONCE), "{ends:?}");
    let hanging: Vec<_> = ends.iter().skip(1).step_by(2).collect();
    assert!(hanging.iter().any(|end| **end < AT_ONCE), "{ends:?}");
}

/// Starts the proxy again, which finds nothing to do.
fn begin_again(cluster: &Cluster, options: &Options) -> Proxy {
    let commits = Commits::listen(&cluster.lab.node.netns).unwrap();
    let proxy = cluster.start(options);
    let committed = commits.last(Instant::now() + QUIET, QUIET).unwrap();
    assert_eq!(committed, None, "{}", proxy.process().output());
    if matches!(options.source, ("--kubeconfig", _)) {
        until("everything is watched", || {
            let kinds = ["services", "endpointslices", "nodes", "servicecidrs"];
            kinds.iter().all(|kind| cluster.server.watchers(kind) == 1)
        });
    }
    proxy
}
