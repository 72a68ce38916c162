//! Answers of the cache as clients see them.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use cluster_dns::forward::{AnswerType, Forwarder, Query, StubDomain};
use hickory_proto::op::{Edns, Message, ResponseCode};
use hickory_proto::rr::RecordType;

use crate::scripted::{
    FIRST, SECOND, Upstream, address, addresses, ask, code, eventually, forwarder, name, no_name,
    options, request, request_of, run, send,
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[test]
fn positive_and_negative_answers_are_cached() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| match &*seen.name() {
            "a.example." => send(&address(seen, 1, 60)),
            _ => send(&no_name(seen, 60)),
        })
        .await;
        let forwarder = forwarder(&[FIRST]);
        for _ in 0..3 {
            assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [1]);
            let missing = ask(&forwarder, "missing.example.").await;
            assert_eq!(code(&missing), ResponseCode::NXDomain);
            assert_eq!(missing.authorities.len(), 1);
        }
        assert_eq!(upstream.count(), 2);
        let counters = forwarder.counters();
        for answer_type in [AnswerType::Success, AnswerType::Denial] {
            assert_eq!(counters.cache_hits.of(answer_type).get(), 2);
            assert_eq!(forwarder.entries(answer_type), 1);
        }
        assert_eq!(counters.cache_misses.get(), 2);
    });
}

#[test]
fn a_cached_answer_is_available_without_waiting() {
    run(|| async {
        let _upstream = Upstream::start(FIRST, |seen| send(&address(seen, 1, 60))).await;
        let forwarder = forwarder(&[FIRST]);
        let bytes = request("A.Example.").to_vec().unwrap();
        let query = Query::parse(&bytes).unwrap();
        let mut out = Vec::new();
        let now = std::time::Instant::now();
        assert!(
            forwarder
                .cached(&query, CLIENT, 512, now, &mut out)
                .is_none()
        );
        forwarder.answer(&query, CLIENT, 512, &mut out).await;
        let answered = out.clone();
        let cached = forwarder
            .cached(&query, CLIENT, 512, std::time::Instant::now(), &mut out)
            .unwrap();
        assert_eq!(
            (cached.answer_type, cached.rcode, cached.is_stale),
            (AnswerType::Success, 0, false)
        );
        assert_eq!(answered[..12], out[..12]);
        assert_eq!(addresses(&Message::from_vec(&out).unwrap()), [1]);
        let later = std::time::Instant::now() + Duration::from_secs(20);
        forwarder
            .cached(&query, CLIENT, 512, later, &mut out)
            .unwrap();
        let ttl = Message::from_vec(&out).unwrap().answers[0].ttl;
        assert!((9..=10).contains(&ttl), "{ttl}");
        let end = std::time::Instant::now() + Duration::from_secs(31);
        assert!(
            forwarder
                .cached(&query, CLIENT, 512, end, &mut out)
                .is_none()
        );
    });
}

#[test]
fn the_bits_do_and_cd_have_answers_of_their_own() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| {
            let dnssec_ok = seen
                .message
                .edns
                .as_ref()
                .is_some_and(|edns| edns.flags().dnssec_ok);
            let cd = seen.message.metadata.checking_disabled;
            send(&address(seen, u8::from(dnssec_ok) + 2 * u8::from(cd), 60))
        })
        .await;
        let forwarder = forwarder(&[FIRST]);
        for _ in 0..2 {
            for bits in 0..4 {
                let mut request = request("a.example.");
                request.metadata.checking_disabled = bits & 2 != 0;
                let mut edns = Edns::new();
                edns.set_dnssec_ok(bits & 1 != 0);
                request.set_edns(edns);
                let response = forwarder.resolve(&request).await;
                assert_eq!(addresses(&response), [bits]);
                assert_eq!(
                    response.edns.as_ref().unwrap().flags().dnssec_ok,
                    bits & 1 != 0
                );
                assert_eq!(response.metadata.checking_disabled, bits & 2 != 0);
            }
        }
        assert_eq!(upstream.count(), 4);
    });
}

#[test]
fn a_popular_entry_is_refreshed_before_its_end() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| send(&address(seen, 1, 10))).await;
        // The time of prefetches begins after one second.
        let mut options = options(&[FIRST]);
        options.cache.prefetch_percent = 90;
        let forwarder = Forwarder::new(options).unwrap();
        for _ in 0..4 {
            ask(&forwarder, "popular.example.").await;
        }
        ask(&forwarder, "rare.example.").await;
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        assert_eq!(upstream.count(), 2);
        ask(&forwarder, "popular.example.").await;
        ask(&forwarder, "rare.example.").await;
        eventually("the popular name is refreshed", || async {
            upstream.count() == 3
        })
        .await;
        assert_eq!(upstream.seen()[2].name(), "popular.example.");
        assert_eq!(forwarder.counters().prefetches.get(), 1);
    });
}

#[test]
fn a_flush_removes_answers_and_those_under_way() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| {
            let wait = Duration::from_millis(if seen.name() == "slow.example." {
                200
            } else {
                0
            });
            let message = address(seen, 1, 60).to_vec().unwrap();
            vec![crate::scripted::Action::Send(wait, message)]
        })
        .await;
        let forwarder = forwarder(&[FIRST]);
        for owner in ["a.example.", "sub.a.example.", "b.example."] {
            ask(&forwarder, owner).await;
        }
        forwarder.flush_domain(&name("A.example."));
        assert_eq!(forwarder.entries(AnswerType::Success), 1);
        let slow = {
            let forwarder = forwarder.clone();
            tokio::spawn(async move { ask(&forwarder, "slow.example.").await })
        };
        eventually("the query is sent", || async { upstream.count() == 4 }).await;
        forwarder.flush();
        assert_eq!(addresses(&slow.await.unwrap()), [1]);
        assert_eq!(forwarder.entries(AnswerType::Success), 0);
    });
}

#[test]
fn names_of_a_stub_domain_use_its_upstreams() {
    run(|| async {
        let general = Upstream::start(FIRST, |seen| send(&address(seen, 1, 60))).await;
        let stub = Upstream::start(SECOND, |seen| send(&address(seen, 2, 60))).await;
        let mut options = options(&[FIRST]);
        options.stub_domains = vec!["corp.example=127.0.0.12".parse::<StubDomain>().unwrap()];
        let forwarder = Forwarder::new(options).unwrap();
        assert_eq!(addresses(&ask(&forwarder, "www.Corp.example.").await), [2]);
        assert_eq!(addresses(&ask(&forwarder, "www.example.").await), [1]);
        assert_eq!((general.count(), stub.count()), (1, 1));
    });
}

#[test]
fn a_flood_of_random_names_leaves_popular_names_cached() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| send(&address(seen, 1, 3_600))).await;
        let mut options = options(&[FIRST]);
        options.cache.success_capacity = 320;
        let forwarder = Forwarder::new(options).unwrap();
        let popular = (0..50)
            .map(|at| format!("popular{at}.example."))
            .collect::<Vec<_>>();
        for owner in popular.iter().chain(&popular) {
            ask(&forwarder, owner).await;
        }
        for at in 0..2_000 {
            ask(&forwarder, &format!("random{at}.example.")).await;
        }
        assert!(forwarder.entries(AnswerType::Success) <= 320);
        assert!(forwarder.counters().evictions.of(AnswerType::Success).get() >= 1_700);
        let before = upstream.count();
        for owner in &popular {
            assert_eq!(addresses(&ask(&forwarder, owner).await), [1]);
        }
        assert_eq!(upstream.count(), before, "popular names are still cached");
    });
}

#[test]
fn types_are_cached_separately() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| match seen.message.queries[0].query_type {
            RecordType::A => send(&address(seen, 1, 60)),
            _ => {
                let mut message = no_name(seen, 60);
                message.metadata.response_code = ResponseCode::NoError;
                send(&message)
            }
        })
        .await;
        let forwarder = forwarder(&[FIRST]);
        for _ in 0..2 {
            assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [1]);
            let response = forwarder
                .resolve(&request_of("a.example.", RecordType::AAAA))
                .await;
            assert_eq!(
                (code(&response), response.answers.len()),
                (ResponseCode::NoError, 0)
            );
        }
        assert_eq!(upstream.count(), 2);
    });
}
