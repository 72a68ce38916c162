//! Upstreams that fail, and their health.

use std::time::Duration;

use cluster_dns::forward::{ForwardOptions, Forwarder, Upstreams};
use hickory_proto::op::ResponseCode;
use testkit::scoped::Directory;

use crate::scripted::{
    Action, FIRST, SECOND, Seen, Upstream, address, addresses, ask, code, error, eventually,
    forwarder, options, run, send,
};

#[test]
fn the_next_upstream_answers_after_a_timeout_or_a_closed_port() {
    run(|| async {
        let silent = Upstream::start(FIRST, |_| Vec::new()).await;
        let healthy = Upstream::start(SECOND, |seen| send(&address(seen, 2, 60))).await;
        let forwarder = forwarder(&["127.0.0.13:53", FIRST, SECOND]);
        assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [2]);
        // With and without EDNS.
        assert_eq!((silent.count(), healthy.count()), (2, 1));
        let failures = |at: usize| forwarder.upstreams()[at].counters().failures.get();
        assert_eq!((failures(0), failures(1), failures(2)), (1, 0, 1));
    });
}

#[test]
fn an_upstream_that_is_down_is_tried_last_until_it_recovers() {
    run(|| async {
        let healthy = Upstream::start(SECOND, |seen| send(&address(seen, 2, 60))).await;
        let forwarder = forwarder(&[FIRST, SECOND]);
        assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [2]);
        let first = forwarder.upstreams().swap_remove(0);
        eventually("health checks fail", || async { first.is_down() }).await;
        let failures = first.counters().failures.get();
        for at in 0..20 {
            assert_eq!(
                addresses(&ask(&forwarder, &format!("n{at}.example.")).await),
                [2]
            );
        }
        assert_eq!(
            first.counters().failures.get(),
            failures,
            "no query waited for it"
        );
        assert!(first.counters().healthcheck_failures.get() > 0);
        let back = Upstream::start(FIRST, |seen| send(&address(seen, 1, 60))).await;
        eventually("a health check succeeds", || async { !first.is_down() }).await;
        assert_eq!((back.checks(), back.count()), (1, 0));
        assert_eq!(addresses(&ask(&forwarder, "b.example.").await), [1]);
        assert_eq!(
            (back.count(), healthy.count(), healthy.checks()),
            (1, 21, 0)
        );
        // Health checks end.
        let checks = back.checks();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(back.checks(), checks);
    });
}

/// Returns a truncated response with one address.
fn truncated(seen: &Seen, last: u8) -> Vec<Action> {
    let mut message = address(seen, last, 60);
    message.metadata.truncation = true;
    send(&message)
}

#[test]
fn an_upstream_without_tcp_stays_up_and_its_truncated_replies_reach_clients() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| match seen.name().starts_with('n') {
            _ if seen.is_tcp => vec![Action::Close],
            true => truncated(seen, 1),
            false => send(&address(seen, 2, 60)),
        })
        .await;
        let forwarder = forwarder(&[FIRST]);
        for at in 0..5 {
            let response = ask(&forwarder, &format!("n{at}.example.")).await;
            assert_eq!(code(&response), ResponseCode::NoError);
            assert_eq!(addresses(&response), [1]);
            assert!(response.metadata.truncation);
            assert!(!forwarder.upstreams()[0].is_down());
        }
        let queries = upstream.count();
        let again = ask(&forwarder, "n0.example.").await;
        assert!(again.metadata.truncation, "cached for a short time");
        assert_eq!(upstream.count(), queries);
        assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [2]);
        assert_eq!(forwarder.upstreams()[0].counters().failures.get(), 5);
        assert_eq!(upstream.checks(), 0, "the upstream is healthy");
    });
}

#[test]
fn a_whole_reply_of_the_next_upstream_replaces_a_truncated_one() {
    run(|| async {
        let _first = Upstream::start(FIRST, |seen| match seen.is_tcp {
            true => vec![Action::Close],
            false => truncated(seen, 1),
        })
        .await;
        let _second = Upstream::start(SECOND, |seen| send(&address(seen, 2, 60))).await;
        let response = ask(&forwarder(&[FIRST, SECOND]), "a.example.").await;
        assert_eq!(addresses(&response), [2]);
        assert!(!response.metadata.truncation);
    });
}

#[test]
fn upstreams_that_are_down_are_still_tried() {
    run(|| async {
        let forwarder = forwarder(&[FIRST]);
        assert_eq!(
            code(&ask(&forwarder, "a.example.").await),
            ResponseCode::ServFail
        );
        let first = forwarder.upstreams().swap_remove(0);
        eventually("health checks fail", || async { first.is_down() }).await;
        // Before the next health check, a query may be the first success.
        let _back = Upstream::start(FIRST, |seen| send(&address(seen, 1, 60))).await;
        assert_eq!(addresses(&ask(&forwarder, "b.example.").await), [1]);
        assert!(!first.is_down());
    });
}

#[test]
fn an_error_of_an_upstream_moves_a_query_to_the_next() {
    run(|| async {
        for failure in [
            ResponseCode::ServFail,
            ResponseCode::Refused,
            ResponseCode::NotImp,
        ] {
            let failing = Upstream::start(FIRST, move |seen| send(&error(seen, failure))).await;
            let healthy = Upstream::start(SECOND, |seen| send(&address(seen, 2, 60))).await;
            let forwarder = forwarder(&[FIRST, SECOND]);
            assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [2]);
            assert!(
                !forwarder.upstreams()[0].is_down(),
                "an upstream that responds is up"
            );
            failing.stop().await;
            healthy.stop().await;
        }
    });
}

#[test]
fn the_error_of_the_last_upstream_is_the_answer_and_is_cached() {
    run(|| async {
        let first = Upstream::start(FIRST, |seen| send(&error(seen, ResponseCode::ServFail))).await;
        let second =
            Upstream::start(SECOND, |seen| send(&error(seen, ResponseCode::Refused))).await;
        let options = ForwardOptions {
            attempts: Some(3),
            ..options(&[FIRST, SECOND])
        };
        let forwarder = Forwarder::new(options).unwrap();
        for _ in 0..3 {
            assert_eq!(
                code(&ask(&forwarder, "a.example.").await),
                ResponseCode::Refused
            );
        }
        assert_eq!(
            (first.count(), second.count()),
            (1, 1),
            "one round, then the cache"
        );
        assert_eq!(forwarder.counters().failures.get(), 1);
    });
}

#[test]
fn a_query_ends_at_its_deadline() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |_| Vec::new()).await;
        let options = ForwardOptions {
            attempts: Some(1_000),
            try_timeout: Some(Duration::from_millis(100)),
            deadline: Duration::from_millis(450),
            max_fails: 0,
            ..options(&[FIRST])
        };
        let forwarder = Forwarder::new(options).unwrap();
        assert_eq!(
            code(&ask(&forwarder, "a.example.").await),
            ResponseCode::ServFail
        );
        let count = upstream.count();
        // Each with and without EDNS.
        assert!(
            (1..=10).contains(&count),
            "{count} queries in tries of 100 ms in 450 ms"
        );
        assert_eq!(upstream.checks(), 0, "health checks are disabled");
    });
}

#[test]
fn changes_of_resolv_conf_are_followed() {
    run(|| async {
        let _first = Upstream::start(FIRST, |seen| send(&address(seen, 1, 0))).await;
        let _second = Upstream::start(SECOND, |seen| send(&address(seen, 2, 0))).await;
        let directory = Directory::new().unwrap();
        let write = |text: &str| directory.write("resolv.conf", text).unwrap();
        write("nameserver 127.0.0.11\n");
        let forwarder = Forwarder::new(ForwardOptions {
            upstreams: Upstreams::ResolvConf(directory.path().join("resolv.conf")),
            reload: Duration::from_millis(50),
            ..options(&[])
        })
        .unwrap();
        assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [1]);
        write("nameserver 127.0.0.12\n");
        let is = |last| {
            let forwarder = &forwarder;
            move || async move { addresses(&ask(forwarder, "a.example.").await) == [last] }
        };
        eventually("the second upstream answers", is(2)).await;
        // Without a usable upstream, the previous ones stay.
        write("search example\n");
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(is(2)().await);
        write("nameserver 127.0.0.11\n");
        eventually("the first upstream answers", is(1)).await;
    });
}
