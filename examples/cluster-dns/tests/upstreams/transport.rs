//! Queries over UDP and TCP.

use std::collections::HashSet;
use std::time::Duration;

use cluster_dns::forward::{ForwardOptions, Forwarder};
use hickory_proto::op::ResponseCode;

use crate::scripted::{
    Action, FIRST, Seen, Upstream, address, addresses, ask, code, empty, error, forwarder, options,
    record, run, send,
};

#[test]
fn queries_have_random_ports_and_ids() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| send(&address(seen, 1, 0))).await;
        let forwarder = forwarder(&[FIRST]);
        for _ in 0..200 {
            assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [1]);
        }
        let seen = upstream.seen();
        assert_eq!(seen.len(), 200);
        let ports = seen
            .iter()
            .map(|seen| seen.source.port())
            .collect::<HashSet<_>>();
        let ids = seen
            .iter()
            .map(|seen| seen.message.metadata.id)
            .collect::<HashSet<_>>();
        assert!(
            ports.len() > 150 && ids.len() > 190,
            "{} {}",
            ports.len(),
            ids.len()
        );
        let mut steps = seen
            .windows(2)
            .map(|pair| pair[1].source.port().abs_diff(pair[0].source.port()));
        assert!(steps.any(|step| step > 100), "ports follow each other");
        let edns = seen[0].message.edns.as_ref().unwrap();
        assert_eq!(edns.max_payload(), 1_232);
    });
}

#[test]
fn a_truncated_reply_is_repeated_over_one_tcp_connection() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| {
            let mut message = address(seen, 1, 60);
            message.metadata.truncation = !seen.is_tcp;
            send(&message)
        })
        .await;
        let forwarder = forwarder(&[FIRST]);
        for owner in ["a.example.", "b.example.", "c.example."] {
            let response = ask(&forwarder, owner).await;
            assert_eq!(addresses(&response), [1]);
            assert!(!response.metadata.truncation);
        }
        let seen = upstream.seen();
        assert_eq!(
            seen.iter().map(|seen| seen.is_tcp).collect::<Vec<_>>(),
            [false, true].repeat(3)
        );
        assert_eq!(
            (seen[1].source, seen[3].source),
            (seen[3].source, seen[5].source)
        );
        let upstreams = forwarder.upstreams();
        let counters = upstreams[0].counters();
        assert_eq!(
            (
                counters.connection_hits.tcp.get(),
                counters.connection_misses.tcp.get()
            ),
            (2, 1)
        );
    });
}

#[test]
fn a_closed_connection_is_replaced() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| {
            let mut actions = send(&address(seen, 1, 60));
            actions.push(Action::Close);
            actions
        })
        .await;
        let forwarder = Forwarder::new(ForwardOptions {
            force_tcp: true,
            ..options(&[FIRST])
        })
        .unwrap();
        for at in 0..20 {
            assert_eq!(
                addresses(&ask(&forwarder, &format!("n{at}.example.")).await),
                [1]
            );
        }
        assert_eq!(upstream.count(), 20);
        assert!(upstream.seen().iter().all(|seen| seen.is_tcp));
        assert_eq!(forwarder.upstreams()[0].counters().failures.get(), 0);
    });
}

#[test]
fn an_answer_of_60_kilobytes_arrives_over_tcp() {
    run(|| async {
        let _upstream = Upstream::start(FIRST, |seen| {
            let mut message = empty(seen);
            if seen.is_tcp {
                message.answers = vec![record(&seen.name(), 1, 60); 2_400];
            } else {
                message.metadata.truncation = true;
            }
            send(&message)
        })
        .await;
        let forwarder = forwarder(&[FIRST]);
        for _ in 0..2 {
            assert_eq!(ask(&forwarder, "a.example.").await.answers.len(), 2_400);
        }
        assert_eq!(
            forwarder.upstreams()[0].counters().durations[0].count(),
            1,
            "cached"
        );
    });
}

#[test]
fn a_datagram_over_the_announced_size_is_repeated_over_tcp() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| {
            let mut message = empty(seen);
            message.answers = vec![record(&seen.name(), 1, 60); 100];
            send(&message)
        })
        .await;
        let forwarder = forwarder(&[FIRST]);
        assert_eq!(ask(&forwarder, "a.example.").await.answers.len(), 100);
        assert_eq!(upstream.count(), 2);
    });
}

#[test]
fn a_reply_that_is_truncated_also_over_tcp_reaches_the_client_and_is_not_cached() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| {
            let mut message = address(seen, 1, 60);
            message.metadata.truncation = true;
            send(&message)
        })
        .await;
        let mut options = options(&[FIRST]);
        options.cache.servfail_ttl = Duration::ZERO;
        let forwarder = Forwarder::new(options).unwrap();
        for queries in [2, 4] {
            let response = ask(&forwarder, "a.example.").await;
            assert_eq!(code(&response), ResponseCode::NoError);
            assert_eq!(addresses(&response), [1]);
            assert!(response.metadata.truncation);
            assert_eq!(upstream.count(), queries);
        }
    });
}

#[test]
fn a_server_without_edns_is_asked_without() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| {
            if seen.message.edns.is_none() {
                return send(&address(seen, 1, 60));
            }
            let mut message = error(seen, ResponseCode::FormErr);
            message.edns = None;
            message.queries.clear();
            send(&message)
        })
        .await;
        let forwarder = forwarder(&[FIRST]);
        assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [1]);
        assert_eq!(upstream.count(), 2);
    });
}

#[test]
fn a_server_that_drops_queries_with_edns_is_asked_without_from_then_on() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| match seen.message.edns {
            Some(_) => Vec::new(),
            None => send(&address(seen, 1, 60)),
        })
        .await;
        let forwarder = forwarder(&[FIRST]);
        for at in 0..10 {
            let owner = format!("n{at}.example.");
            assert_eq!(addresses(&ask(&forwarder, &owner).await), [1], "{owner}");
        }
        let with_edns = |seen: &&Seen| seen.message.edns.is_some();
        assert_eq!(upstream.seen().iter().filter(with_edns).count(), 1);
        assert_eq!(upstream.count(), 11);
        assert!(!forwarder.upstreams()[0].is_down());
    });
}

#[test]
fn a_lost_or_slow_reply_does_not_end_the_use_of_edns() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| match &*seen.name() {
            // Slower than half of the time to wait, 2 s.
            "slow.example." => {
                let reply = address(seen, 1, 60).to_vec().unwrap();
                vec![Action::Send(Duration::from_millis(1_300), reply)]
            }
            "lost.example." => Vec::new(),
            _ => send(&address(seen, 1, 60)),
        })
        .await;
        let forwarder = forwarder(&[FIRST]);
        assert_eq!(addresses(&ask(&forwarder, "slow.example.").await), [1]);
        let lost = ask(&forwarder, "lost.example.").await;
        assert_eq!(code(&lost), ResponseCode::ServFail);
        assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [1]);
        let seen = upstream.seen();
        let last = seen.last().unwrap();
        assert!(last.message.edns.is_some());
        // The slow one with and without, and the others with EDNS only.
        assert_eq!(seen.len(), 4);
    });
}
