//! Shared queries, limits of concurrent queries, and loops.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cluster_dns::forward::{ForwardOptions, Forwarder, StubDomain};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use tokio::task::JoinSet;

use crate::scripted::{
    Action, FIRST, SECOND, Upstream, address, addresses, ask, code, eventually, forwarder, name,
    options, request, request_of, run, send,
};

fn slow(milliseconds: u64, message: &Message) -> Vec<Action> {
    vec![Action::Send(
        Duration::from_millis(milliseconds),
        message.to_vec().unwrap(),
    )]
}

async fn ask_all(forwarder: &Forwarder, owners: impl IntoIterator<Item = String>) -> Vec<Message> {
    let mut tasks = JoinSet::new();
    for owner in owners {
        let forwarder = forwarder.clone();
        tasks.spawn(async move { ask(&forwarder, &owner).await });
    }
    tasks.join_all().await
}

#[test]
fn identical_questions_share_one_query() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| slow(100, &address(seen, 1, 60))).await;
        let forwarder = forwarder(&[FIRST]);
        // The case of a question does not matter, and each client gets its own.
        let owners = (0..100).map(|at| ["a.example.", "A.Example."][at % 2].to_owned());
        let responses = ask_all(&forwarder, owners).await;
        assert!(responses.iter().all(|response| addresses(response) == [1]));
        let upper = responses.iter().filter(|response| {
            response.answers[0].name.to_string() == "A.Example."
                && response.queries[0].name.to_string() == "A.Example."
        });
        assert_eq!(upper.count(), 50);
        assert_eq!(upstream.count(), 1);
        assert_eq!(forwarder.counters().shared.get(), 99);
        assert_eq!(forwarder.pending(), 0);
    });
}

#[test]
fn a_client_that_gives_up_does_not_end_the_query_of_others() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| slow(200, &address(seen, 1, 60))).await;
        let forwarder = forwarder(&[FIRST]);
        let impatient =
            tokio::time::timeout(Duration::from_millis(50), ask(&forwarder, "a.example.")).await;
        assert!(impatient.is_err());
        assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [1]);
        assert_eq!(upstream.count(), 1);
    });
}

#[test]
fn queries_over_the_limit_are_refused() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| slow(200, &address(seen, 1, 60))).await;
        let options = ForwardOptions {
            max_concurrent: 2,
            ..options(&[FIRST])
        };
        let forwarder = Forwarder::new(options).unwrap();
        let owners = (0..5).map(|at| format!("n{at}.example."));
        let responses = ask_all(&forwarder, owners).await;
        let refused = |response: &&Message| code(response) == ResponseCode::Refused;
        assert_eq!(responses.iter().filter(refused).count(), 3);
        assert_eq!(
            (
                upstream.count(),
                forwarder.counters().max_concurrent_rejects.get()
            ),
            (2, 3)
        );
        // 2 * 8 clients wait, further ones do not.
        let responses = ask_all(&forwarder, vec!["same.example.".to_owned(); 24]).await;
        assert_eq!(responses.iter().filter(refused).count(), 8);
        assert_eq!(addresses(&ask(&forwarder, "later.example.").await), [1]);
    });
}

#[test]
fn a_dead_stub_domain_takes_no_place_of_other_names() {
    run(|| async {
        let _silent = Upstream::start(FIRST, |_| Vec::new()).await;
        let _healthy = Upstream::start(SECOND, |seen| send(&address(seen, 2, 60))).await;
        let forwarder = Forwarder::new(ForwardOptions {
            max_concurrent: 4,
            stub_domains: vec![StubDomain {
                domain: name("dead.example."),
                upstreams: vec![FIRST.parse().unwrap()],
            }],
            ..options(&[SECOND])
        })
        .unwrap();
        let mut flood = JoinSet::new();
        for at in 0..50 {
            let forwarder = forwarder.clone();
            flood.spawn(async move { ask(&forwarder, &format!("n{at}.dead.example.")).await });
        }
        eventually("all places are taken", || async {
            forwarder.pending() == 4
        })
        .await;
        for at in 0..20 {
            let response = ask(&forwarder, &format!("n{at}.example.")).await;
            assert_eq!(addresses(&response), [2]);
        }
        assert_eq!(forwarder.pending(), 4, "the flood still waits");
    });
}

#[test]
fn a_query_to_upstreams_that_are_down_gets_one_short_try() {
    run(|| async {
        let first = Upstream::start(FIRST, |_| Vec::new()).await;
        let second = Upstream::start(SECOND, |_| Vec::new()).await;
        let forwarder = Forwarder::new(ForwardOptions {
            attempts: Some(2),
            ..options(&[FIRST, SECOND])
        })
        .unwrap();
        ask(&forwarder, "a.example.").await;
        let are_down = || {
            forwarder
                .upstreams()
                .iter()
                .all(|upstream| upstream.is_down())
        };
        eventually("the upstreams are down", || async { are_down() }).await;
        let before = (first.count(), second.count());
        let start = Instant::now();
        let response = ask(&forwarder, "b.example.").await;
        assert_eq!(code(&response), ResponseCode::ServFail);
        // Two rounds of two upstreams and 2 s end at the deadline of 5 s.
        assert!(
            start.elapsed() < Duration::from_secs(2),
            "{:?}",
            start.elapsed()
        );
        // With and without EDNS.
        assert_eq!((first.count(), second.count()), (before.0 + 2, before.1));
    });
}

#[test]
fn each_client_gets_its_share_of_the_places_of_slow_upstreams() {
    run(|| async {
        let _upstream = Upstream::start(FIRST, |seen| slow(500, &address(seen, 1, 60))).await;
        let forwarder = Forwarder::new(ForwardOptions {
            max_concurrent: 10,
            ..options(&[FIRST])
        })
        .unwrap();
        let client = |last| IpAddr::from(Ipv4Addr::new(10, 0, 0, last));
        let mut flood = JoinSet::new();
        for at in 0..30 {
            let forwarder = forwarder.clone();
            let request = request(&format!("n{at}.example."));
            flood.spawn(async move { forwarder.resolve_for(client(1), &request).await });
        }
        eventually("all places are taken", || async {
            forwarder.pending() == 10
        })
        .await;
        let mut others = JoinSet::new();
        for (at, last) in [(0, 2), (1, 2), (2, 3), (3, 3), (4, 4)] {
            let forwarder = forwarder.clone();
            let request = request(&format!("other{at}.example."));
            others.spawn(async move { forwarder.resolve_for(client(last), &request).await });
        }
        let others = others.join_all().await;
        assert!(others.iter().all(|response| addresses(response) == [1]));
        let flood = flood.join_all().await;
        let refused = |response: &&Message| code(response) == ResponseCode::Refused;
        assert_eq!(flood.iter().filter(refused).count(), 20 + 5);
        assert_eq!(forwarder.counters().max_concurrent_rejects.get(), 20 + 5);
    });
}

#[test]
fn zone_transfers_are_refused_without_a_query() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| slow(0, &address(seen, 1, 60))).await;
        let forwarder = forwarder(&[FIRST]);
        for record_type in [RecordType::AXFR, RecordType::IXFR] {
            let response = forwarder
                .resolve(&request_of("example.", record_type))
                .await;
            assert_eq!(code(&response), ResponseCode::Refused);
        }
        assert_eq!(upstream.count(), 0);
    });
}

#[test]
fn a_loop_through_another_forwarder_ends_after_one_round() {
    run(|| async {
        let own = Arc::<OnceLock<Forwarder>>::default();
        let target = Arc::clone(&own);
        let upstream = Upstream::start(FIRST, move |seen| {
            // The other forwarder sends our query back to us.
            let (forwarder, question) = (target.get().unwrap().clone(), seen.name());
            tokio::spawn(async move { ask(&forwarder, &question).await });
            Vec::new()
        })
        .await;
        own.set(forwarder(&[FIRST])).unwrap();
        let forwarder = own.get().unwrap();
        assert_eq!(
            code(&ask(forwarder, "a.example.").await),
            ResponseCode::ServFail
        );
        // With and without EDNS, and none for the query that came back.
        assert_eq!(upstream.count(), 2);
        eventually("no query is left", || async { forwarder.pending() == 0 }).await;
    });
}
