//! Hostile upstream answers and spoofed replies.

use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::{CNAME, NS};
use hickory_proto::rr::{RData, Record};

use crate::scripted::{
    Action, FIRST, SECOND, Upstream, address, addresses, ask, code, empty, forwarder, name, now,
    record, run, send,
};

#[test]
fn replies_with_a_wrong_id_question_or_source_are_ignored() {
    run(|| async {
        let _upstream = Upstream::start(FIRST, |seen| {
            let mut wrong_id = address(seen, 66, 60);
            wrong_id.metadata.id = wrong_id.metadata.id.wrapping_add(1);
            let mut wrong_question = address(seen, 66, 60);
            wrong_question.queries[0].name = name("b.example.");
            let spoofed = address(seen, 66, 60).to_vec().unwrap();
            vec![
                now(&wrong_id),
                now(&wrong_question),
                now(&seen.message),
                Action::Send(Duration::ZERO, Vec::new()),
                Action::Send(Duration::ZERO, vec![0xFF; 600]),
                Action::SendFrom("127.0.0.99:53".parse().unwrap(), spoofed.clone()),
                Action::SendFrom("127.0.0.11:54".parse().unwrap(), spoofed),
                Action::Send(
                    Duration::from_millis(20),
                    address(seen, 1, 60).to_vec().unwrap(),
                ),
            ]
        })
        .await;
        let forwarder = forwarder(&[FIRST]);
        assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [1]);
        assert_eq!(forwarder.upstreams()[0].counters().mismatches.get(), 5);
        assert_eq!(forwarder.upstreams()[0].counters().failures.get(), 0);
    });
}

#[test]
fn guessed_replies_move_a_query_to_tcp() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| {
            if seen.is_tcp {
                return send(&address(seen, 1, 60));
            }
            let guess = |at: u16| {
                let mut message = address(seen, 66, 60);
                message.metadata.id = message.metadata.id.wrapping_add(at);
                now(&message)
            };
            // The right ID is last.
            (1..=16)
                .map(guess)
                .chain([now(&address(seen, 66, 60))])
                .collect()
        })
        .await;
        let forwarder = forwarder(&[FIRST]);
        assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [1]);
        assert_eq!(
            upstream
                .seen()
                .iter()
                .map(|seen| seen.is_tcp)
                .collect::<Vec<_>>(),
            [false, true]
        );
    });
}

#[test]
fn a_malformed_reply_is_repeated_over_tcp_and_then_fails_over() {
    run(|| async {
        let broken = Upstream::start(FIRST, |seen| {
            let mut bytes = address(seen, 66, 60).to_vec().unwrap();
            // The header promises more records than there are.
            bytes[7] = 9;
            vec![Action::Send(Duration::ZERO, bytes)]
        })
        .await;
        let healthy = Upstream::start(SECOND, |seen| send(&address(seen, 2, 60))).await;
        let forwarder = forwarder(&[FIRST, SECOND]);
        assert_eq!(addresses(&ask(&forwarder, "a.example.").await), [2]);
        assert_eq!((broken.count(), healthy.count()), (2, 1));
        // The upstream responds, so that it is not down for other names.
        for owner in ["b.example.", "c.example.", "d.example."] {
            assert_eq!(addresses(&ask(&forwarder, owner).await), [2]);
        }
        assert!(!forwarder.upstreams()[0].is_down());
        assert_eq!((broken.count(), broken.checks()), (8, 0));
    });
}

#[test]
fn records_of_other_names_answer_no_question() {
    run(|| async {
        let upstream = Upstream::start(FIRST, |seen| {
            if seen.name() != "attacker.example." {
                return send(&address(seen, 1, 60));
            }
            let mut message = address(seen, 66, 60);
            let alias = RData::CNAME(CNAME(name("attacker.example.")));
            message.add_answer(Record::from_rdata(name("alias.example."), 60, alias));
            message.add_answer(record("victim.example.", 66, 86_400));
            let servers = RData::NS(NS(name("victim.example.")));
            message.add_authority(Record::from_rdata(name("example."), 60, servers));
            message.add_additional(record("victim.example.", 66, 86_400));
            message.add_additional(record("other.example.", 66, 86_400));
            send(&message)
        })
        .await;
        let forwarder = forwarder(&[FIRST]);
        let response = ask(&forwarder, "attacker.example.").await;
        assert_eq!(addresses(&response), [66]);
        assert_eq!((response.answers.len(), response.additionals.len()), (1, 1));
        for owner in [
            "victim.example.",
            "alias.example.",
            "other.example.",
            "example.",
        ] {
            assert_eq!(addresses(&ask(&forwarder, owner).await), [1], "{owner}");
        }
        assert_eq!(upstream.count(), 5, "each name is asked");
    });
}

#[test]
fn a_cname_loop_is_a_failure_of_its_own_name_only() {
    run(|| async {
        let _upstream = Upstream::start(FIRST, |seen| {
            if seen.name() == "good.example." {
                return send(&address(seen, 1, 60));
            }
            let mut message = empty(seen);
            for (owner, target) in [("a.example.", "b.example."), ("b.example.", "a.example.")] {
                let alias = RData::CNAME(CNAME(name(target)));
                message.add_answer(Record::from_rdata(name(owner), 60, alias));
            }
            message.add_answer(record("good.example.", 66, 60));
            send(&message)
        })
        .await;
        let forwarder = forwarder(&[FIRST]);
        for owner in ["a.example.", "b.example."] {
            assert_eq!(code(&ask(&forwarder, owner).await), ResponseCode::ServFail);
        }
        assert_eq!(addresses(&ask(&forwarder, "good.example.").await), [1]);
    });
}
