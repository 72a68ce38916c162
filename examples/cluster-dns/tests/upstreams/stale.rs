//! Stale answers while the upstreams are away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use cluster_dns::forward::Forwarder;
use hickory_proto::op::{Edns, ResponseCode};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use tokio::time::sleep;

use crate::scripted::{
    Action, FIRST, Upstream, address, addresses, ask, code, error, eventually, forwarder, no_name,
    options, request, run, send,
};

/// Time until answers with a TTL of one second are over.
const EXPIRY: Duration = Duration::from_millis(1_100);

#[test]
fn a_stale_answer_bridges_an_outage_and_the_recovery_is_noticed() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| send(&address(seen, 1, 1))).await;
        let forwarder = forwarder(&[FIRST]);
        assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [1]);
        upstream.stop().await;
        sleep(EXPIRY).await;
        for _ in 0..10 {
            let response = ask(&forwarder, "a.example.").await;
            assert_eq!(addresses(&response), [1]);
            assert_eq!(response.answers[0].ttl, 30);
            sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(forwarder.counters().served_stale.get(), 10);
        assert_eq!(
            code(&ask(&forwarder, "unknown.example.").await),
            ResponseCode::ServFail
        );
        let _back = Upstream::start(FIRST, |seen| send(&address(seen, 2, 60))).await;
        let is_fresh = || async { addresses(&ask(&forwarder, "a.example.").await) == [2] };
        eventually("the new answer arrives", is_fresh).await;
        let is_known = || async { addresses(&ask(&forwarder, "unknown.example.").await) == [2] };
        eventually("the failure is over", is_known).await;
    });
}

#[test]
fn a_stale_answer_has_an_extended_error() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| send(&no_name(seen, 1))).await;
        let forwarder = forwarder(&[FIRST]);
        let mut request = request("a.example.");
        request.set_edns(Edns::new());
        let fresh = forwarder.resolve(&request).await;
        assert!(fresh.edns.unwrap().option(EdnsCode::from(15)).is_none());
        upstream.stop().await;
        sleep(EXPIRY).await;
        let stale = forwarder.resolve(&request).await;
        assert_eq!(stale.metadata.response_code, ResponseCode::NXDomain);
        let edns = stale.edns.unwrap();
        let Some(EdnsOption::Unknown(15, bytes)) = edns.option(EdnsCode::from(15)) else {
            panic!("no extended error: {edns:?}");
        };
        assert_eq!(bytes[..], [0, 19]);
    });
}

#[test]
fn a_slow_upstream_gets_the_time_of_stale_wait() {
    run(|| async {
        let mode = Arc::<AtomicU8>::default();
        let current = Arc::clone(&mode);
        let upstream = Upstream::start(FIRST, move |seen| {
            let last = current.load(Ordering::SeqCst);
            let wait = Duration::from_millis(if last == 0 { 0 } else { 400 });
            let ttl = if last == 0 { 1 } else { 60 };
            vec![Action::Send(
                wait,
                address(seen, last, ttl).to_vec().unwrap(),
            )]
        })
        .await;
        let forwarder = forwarder(&[FIRST]);
        assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [0]);
        mode.store(1, Ordering::SeqCst);
        sleep(EXPIRY).await;
        let start = Instant::now();
        assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [0]);
        assert!(
            start.elapsed() >= Duration::from_millis(200),
            "the upstream got its time"
        );
        // The query continues, and refreshes the entry.
        eventually("the refresh", || async {
            addresses(&ask(&forwarder, "a.example.").await) == [1]
        })
        .await;
        assert_eq!(upstream.count(), 2);
    });
}

#[test]
fn a_failure_of_the_upstream_keeps_the_stale_answer() {
    run(|| async {
        let mode = Arc::<AtomicU8>::default();
        let current = Arc::clone(&mode);
        let _upstream = Upstream::start(FIRST, move |seen| match current.load(Ordering::SeqCst) {
            0 => send(&address(seen, 1, 1)),
            1 => send(&error(seen, ResponseCode::ServFail)),
            _ => send(&no_name(seen, 60)),
        })
        .await;
        let forwarder = forwarder(&[FIRST]);
        ask(&forwarder, "a.example.").await;
        mode.store(1, Ordering::SeqCst);
        sleep(EXPIRY).await;
        assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [1]);
        // NXDOMAIN is an answer, and replaces the entry.
        mode.store(2, Ordering::SeqCst);
        let is_gone =
            || async { code(&ask(&forwarder, "a.example.").await) == ResponseCode::NXDomain };
        eventually("the name is gone", is_gone).await;
    });
}

#[test]
fn stale_answers_end_at_their_bound() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| send(&address(seen, 1, 1))).await;
        let mut options = options(&[FIRST]);
        options.cache.stale = Duration::from_millis(500);
        let forwarder = Forwarder::new(options).unwrap();
        ask(&forwarder, "a.example.").await;
        upstream.stop().await;
        sleep(Duration::from_millis(1_600)).await;
        assert_eq!(
            code(&ask(&forwarder, "a.example.").await),
            ResponseCode::ServFail
        );
        assert_eq!(forwarder.counters().served_stale.get(), 0);
    });
}

#[test]
fn while_all_upstreams_are_down_stale_answers_do_not_wait() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| send(&address(seen, 1, 1))).await;
        let mut options = options(&[FIRST]);
        options.cache.stale_wait = Duration::from_secs(30);
        options.try_timeout = Some(Duration::from_secs(20));
        let forwarder = Forwarder::new(options).unwrap();
        for at in 0..10 {
            ask(&forwarder, &format!("n{at}.example.")).await;
        }
        upstream.stop().await;
        // A server that never replies, so that each query would take its whole time.
        let silent = Upstream::start(FIRST, |_| Vec::new()).await;
        sleep(EXPIRY).await;
        let first = forwarder.upstreams().swap_remove(0);
        let impatient = Duration::from_millis(10);
        let _ = tokio::time::timeout(impatient, ask(&forwarder, "n0.example.")).await;
        assert!(!first.is_down());
        // Queries fail only after 20 s, so that health checks have not begun. A refused
        // connection begins them.
        silent.stop().await;
        eventually("health checks fail", || async {
            let _ = tokio::time::timeout(impatient, ask(&forwarder, "other.example.")).await;
            first.is_down()
        })
        .await;
        let _silent = Upstream::start(FIRST, |_| Vec::new()).await;
        for at in 1..10 {
            assert_eq!(
                addresses(&ask(&forwarder, &format!("n{at}.example.")).await),
                [1]
            );
        }
        assert_eq!(forwarder.counters().served_stale.get(), 9);
    });
}
