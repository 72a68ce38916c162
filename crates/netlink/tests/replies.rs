//! Truncated, stale, duplicate, lost and interrupted replies.
#![allow(clippy::unwrap_used, reason = "a test")]

use proptest::prelude::*;
use vipline_netlink::message::{NLM_F_ACK, NLM_F_REQUEST, begin, end};
use vipline_netlink::{AckTracker, Error, Outcome, ReplyTracker};

/// Message types of `linux/netlink.h`, and one above the reserved types.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const OBJECT: u16 = 16;

/// A change interrupted the dump.
const NLM_F_DUMP_INTR: u16 = 0x10;

/// Sequence number of the first message in a batch, and of a dump.
const SEQ: u32 = 100;

/// `ENOENT` of `asm-generic/errno-base.h`.
const ENOENT: i32 = 2;

/// Encodes a message of port ID 0.
fn message(ty: u16, flags: u16, seq: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let start = begin(&mut out, ty, flags, seq);
    out.extend_from_slice(payload);
    end(&mut out, start);
    out
}

/// Encodes the acknowledgment of a request: `struct nlmsgerr`.
fn acknowledgment(seq: u32, errno: i32) -> Vec<u8> {
    let request = message(OBJECT, 0, seq, &[]);
    let payload = [&(-errno).to_ne_bytes()[..], &request].concat();
    message(NLMSG_ERROR, 0, seq, &payload)
}

/// Encodes the datagrams of a dump of objects. Each part is one datagram.
fn dump(parts: &[Vec<u8>], flags: u16, seq: u32) -> Vec<Vec<u8>> {
    let object = |number: &u8| message(OBJECT, flags, seq, &[*number; 4]);
    let datagram = |part: &Vec<u8>| part.iter().flat_map(object).collect();
    let datagrams = parts.iter().map(datagram);
    let done = message(NLMSG_DONE, flags, seq, &0_i32.to_ne_bytes());
    datagrams.chain([done]).collect()
}

/// Receives datagrams until the reply is complete. Returns the tracker and the objects.
fn receive(datagrams: &[Vec<u8>]) -> Result<(ReplyTracker, Vec<u8>), Error> {
    let (mut reply, mut objects) = (ReplyTracker::new(SEQ, 0), Vec::new());
    for datagram in datagrams {
        if !reply.is_complete() {
            reply.receive(datagram, |object| objects.extend(object.payload.first()))?;
        }
    }
    Ok((reply, objects))
}

/// Encodes a batch of `changes` changes between its begin and its end. The last change
/// requests an acknowledgment.
fn batch(changes: u32) -> Vec<u8> {
    let flags = |at: u32| {
        if at == changes {
            NLM_F_REQUEST | NLM_F_ACK
        } else {
            NLM_F_REQUEST
        }
    };
    let messages = (0..changes + 2).map(|at| message(OBJECT, flags(at), SEQ + at, &[]));
    messages.flatten().collect()
}

/// Returns objects in datagrams.
fn parts() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 1..5), 1..6)
}

proptest! {
    #[test]
    fn a_late_reply_to_an_earlier_request_does_not_change_a_dump(
        parts in parts(),
        late in parts(),
        is_whole in any::<bool>(),
    ) {
        let mut earlier = dump(&late, NLM_F_DUMP_INTR, SEQ - 1);
        earlier.push(acknowledgment(SEQ - 1, ENOENT));
        if !is_whole {
            earlier.remove(0);
        }
        let datagrams = [earlier, dump(&parts, 0, SEQ)].concat();
        let (reply, objects) = receive(&datagrams).unwrap();
        prop_assert_eq!(objects, parts.concat());
        prop_assert!(reply.is_complete() && !reply.is_interrupted());
    }

    #[test]
    fn a_truncated_dump_is_an_error_or_incomplete(
        parts in parts(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut datagrams = dump(&parts, 0, SEQ);
        let bytes: usize = datagrams.iter().map(Vec::len).sum();
        let mut left = cut.index(bytes);
        for datagram in &mut datagrams {
            datagram.truncate(left);
            left -= datagram.len();
        }
        if let Ok((reply, objects)) = receive(&datagrams) {
            prop_assert!(!reply.is_complete());
            prop_assert!(parts.concat().starts_with(&objects));
        }
    }

    #[test]
    fn a_dump_is_interrupted_if_any_of_its_datagrams_is(
        parts in parts(),
        at in any::<prop::sample::Index>(),
    ) {
        let mut datagrams = dump(&parts, 0, SEQ);
        let interrupted = dump(&parts, NLM_F_DUMP_INTR, SEQ);
        let at = at.index(datagrams.len());
        datagrams[at].clone_from(&interrupted[at]);
        let (reply, _) = receive(&datagrams).unwrap();
        prop_assert!(reply.is_complete() && reply.is_interrupted());
    }

    #[test]
    fn a_batch_counts_as_committed_only_if_all_its_acknowledgments_arrive(
        changes in 1_u32..6,
        rejected in prop::collection::btree_set(1_u32..6, 0..3),
        lost in prop::collection::btree_set(0_usize..4, 0..3),
        is_duplicated in any::<bool>(),
        late in prop::collection::vec((0_u32..SEQ, 0..3_i32), 0..4),
    ) {
        let rejected: Vec<u32> = rejected.into_iter().filter(|at| *at <= changes).collect();
        let mut sent: Vec<_> = rejected.iter().map(|at| acknowledgment(SEQ + at, ENOENT)).collect();
        if !rejected.contains(&changes) {
            sent.push(acknowledgment(SEQ + changes, 0));
        }
        let mut acks = AckTracker::of_batch(&batch(changes), 0).unwrap();
        for (seq, errno) in late {
            acks.receive(&acknowledgment(seq, errno)).unwrap();
        }
        prop_assert!(!acks.is_complete());
        let mut is_lost = false;
        for (at, datagram) in sent.iter().enumerate() {
            match lost.contains(&at) {
                // The kernel reports the loss by ENOBUFS.
                true => is_lost = true,
                false => acks.receive(datagram).unwrap(),
            }
            if is_duplicated {
                acks.receive(&acknowledgment(SEQ - 1, ENOENT)).unwrap();
            }
        }
        let has_arrived = |at: usize| !lost.contains(&at);
        let is_error_known = (0..rejected.len()).any(has_arrived);
        match acks.into_outcome(is_lost.then_some(Error::Overrun)) {
            Outcome::Committed => prop_assert!(rejected.is_empty() && !is_lost),
            Outcome::Rejected { .. } => prop_assert!(is_error_known),
            Outcome::Unknown(_) => prop_assert!(is_lost && !is_error_known),
        }
    }

    #[test]
    fn a_truncated_acknowledgment_is_no_acknowledgment(cut in 0_usize..36, errno in 0..3_i32) {
        let mut acks = AckTracker::of_batch(&batch(1), 0).unwrap();
        let received = acks.receive(&acknowledgment(SEQ + 1, errno)[..cut]);
        prop_assert!(!acks.is_complete());
        let failure = received.err().map(Error::from);
        let is_unknown = matches!(acks.into_outcome(failure), Outcome::Unknown(_));
        prop_assert!(is_unknown);
    }
}
