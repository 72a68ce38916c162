//! Shared queries, limits of concurrent queries, and loops.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cluster_dns::forward::{ForwardOptions, Forwarder};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use tokio::task::JoinSet;

use crate::scripted::{
    Action, FIRST, Upstream, address, addresses, ask, code, eventually, forwarder, options,
    request_of, run,
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
        // 2 * 16 clients wait, further ones do not.
        let responses = ask_all(&forwarder, vec!["same.example.".to_owned(); 40]).await;
        assert_eq!(responses.iter().filter(refused).count(), 8);
        assert_eq!(addresses(&ask(&forwarder, "later.example.").await), [1]);
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
        assert_eq!(upstream.count(), 1);
        eventually("no query is left", || async { forwarder.pending() == 0 }).await;
    });
}
