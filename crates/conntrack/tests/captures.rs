//! Messages of Linux 6.18 and the output of conntrack 1.4.7 for each.
//!
//! Recorded in new network namespaces (`unshare -n`), one flow at a time, by
//! `strace -e trace=recvmsg -e read=all conntrack -L -o extended`, and
//! `conntrack -L expect` for `expectations.hex`.
//! Each message follows the command that created the flow and the output; sequence
//! numbers and netlink port IDs are 0.
//! Flows of packets have counters because `net.netfilter.nf_conntrack_acct` was 1.
#![allow(clippy::unwrap_used, reason = "a test")]

use vipline_conntrack::{Event, Expectation, Flow, Protocol, Sctp, SctpState, State, Status};
use vipline_netlink::attr::{Attr, Attrs};
use vipline_netlink::message::{Message, Messages};

const FLOWS: &str = include_str!("captures/flows.hex");
const EXPECTATIONS: &str = include_str!("captures/expectations.hex");

/// `struct nfgenmsg`.
const HEADER: usize = 4;
// enum ctattr_type
const CTA_SEQ_ADJ_ORIG: u16 = 15;
const CTA_SEQ_ADJ_REPLY: u16 = 16;
const CTA_SYNPROXY: u16 = 24;
/// Attributes that are empty without an adjustment.
const ADJUSTMENTS: [u16; 2] = [CTA_SEQ_ADJ_ORIG, CTA_SEQ_ADJ_REPLY];

/// A message, the command that created its flow, and the output of `conntrack`.
struct Capture {
    made: &'static str,
    printed: String,
    bytes: Vec<u8>,
}

impl Capture {
    fn message(&self) -> Message<'_> {
        let mut messages = Messages::new(&self.bytes);
        let message = messages.next().unwrap().unwrap();
        assert!(messages.next().is_none(), "{}", self.made);
        message
    }

    fn flow(&self) -> Flow {
        Flow::decode(self.message().payload).unwrap()
    }
}

fn captures(text: &'static str) -> Vec<Capture> {
    let lines: Vec<&str> = text.lines().collect();
    let capture = |lines: &[&'static str]| {
        let [made, printed, bytes] = lines else {
            panic!("{lines:?}");
        };
        Capture {
            made: made.strip_prefix("# ").unwrap(),
            // The age depends on the time.
            printed: printed[2..].replace(" delta-time=0", ""),
            bytes: self::bytes(bytes),
        }
    };
    lines.chunks(3).map(capture).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let bytes = hex.as_bytes().chunks(2);
    bytes
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Returns the flow that was created by a command with this text.
#[track_caller]
fn flow(made: &str) -> Flow {
    let captures = captures(FLOWS);
    let mut found = captures
        .iter()
        .filter(|capture| capture.made.contains(made));
    let flow = found.next().unwrap().flow();
    assert!(found.next().is_none(), "{made}");
    flow
}

/// Returns whether an attribute states something about its flow.
fn is_said(attr: &Attr<'_>) -> bool {
    match attr.kind {
        kind if ADJUSTMENTS.contains(&kind) => !attr.value.is_empty(),
        CTA_SYNPROXY => attr.attrs().any(|attr| attr.unwrap().be32() != Ok(0)),
        _ => true,
    }
}

/// Returns the attributes of a message in a canonical order.
fn content(payload: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let attrs = Attrs::new(&payload[HEADER..]).map(Result::unwrap);
    let said = attrs.filter(is_said);
    let mut content: Vec<_> = said.map(|attr| (attr.kind, attr.value.to_vec())).collect();
    content.sort();
    content
}

#[test]
fn decoded_flows_are_formatted_like_the_output_of_conntrack() {
    for capture in captures(FLOWS) {
        assert_eq!(
            capture.flow().to_string(),
            capture.printed,
            "{}",
            capture.made
        );
    }
}

#[test]
fn decoded_flows_encode_to_the_same_attributes() {
    for capture in captures(FLOWS) {
        let (flow, mut again) = (capture.flow(), Vec::new());
        flow.encode(&mut again);
        let payload = capture.message().payload;
        assert_eq!(content(&again), content(payload), "{}", capture.made);
        assert_eq!(again[..HEADER], payload[..HEADER]);
        assert_eq!(Flow::decode(&again).unwrap(), flow, "{}", capture.made);
        let other = flow.extension.map(|extension| extension.other);
        assert_eq!(other.unwrap_or_default(), [], "{}", capture.made);
    }
}

#[test]
fn decoding_a_truncated_message_does_not_panic() {
    for capture in captures(FLOWS) {
        let payload = capture.message().payload;
        for length in 0..payload.len() {
            let _ = Flow::decode(&payload[..length]);
        }
    }
}

#[test]
fn translated_flows_have_translated_reply_tuples() {
    let to_backend = flow("--dst-nat");
    assert!(to_backend.is_translated());
    assert!(to_backend.status.contains(Status::DST_NAT));
    assert_eq!(to_backend.reply.source.to_string(), "10.1.0.7");
    assert_eq!(to_backend.reply.source_port(), Some(8080));
    let masqueraded = flow("--src-nat");
    assert!(masqueraded.is_translated());
    assert_eq!(masqueraded.reply.destination.to_string(), "fd00::9");
    assert!(!flow("-w 5").is_translated());
    assert!(!flow("--orig-zone 6").is_translated());
}

#[test]
fn a_zone_applies_to_both_directions_or_to_one() {
    let both = flow("-w 5");
    assert_eq!((both.zone, both.zone_id()), (Some(5), 5));
    let original = flow("--orig-zone 6");
    assert_eq!((original.zone, original.original.zone), (None, Some(6)));
    assert_eq!(original.zone_id(), 6);
    let reply = flow("--reply-zone 7");
    assert_eq!((reply.reply.zone, reply.zone_id()), (Some(7), 7));
    assert_eq!(flow("-p 99").zone_id(), 0);
}

#[test]
fn optional_extensions_are_decoded() {
    let extension = |flow: Flow| *flow.extension.unwrap();
    let labels = extension(flow("label 69")).labels.unwrap();
    let set: Vec<u8> = (0..200).filter(|label| labels.contains(*label)).collect();
    assert_eq!(set, [69]);
    let helped = flow("a helper");
    assert!(helped.status.contains(Status::HELPER));
    assert_eq!(helped.counters.as_ref().unwrap().original.packets, 4);
    assert_eq!(extension(helped).helper.as_deref(), Some("ftp"));
    let begun = extension(flow("timestamp")).timestamps.unwrap();
    let (start_of_2026, start_of_2027) = (1_767_225_600, 1_798_761_600);
    assert!((start_of_2026..start_of_2027).contains(&(begun.start / 1_000_000_000)));
    assert_eq!(begun.stop, None);
    let sctp = Sctp {
        state: Some(SctpState::ESTABLISHED),
        vtag_original: Some(1),
        vtag_reply: Some(2),
    };
    assert_eq!(flow("-p sctp").state, Some(State::Sctp(sctp)));
}

#[test]
fn a_dumped_message_decodes_as_an_update_event() {
    for capture in captures(FLOWS) {
        let event = Event::decode(&capture.message()).unwrap().unwrap();
        assert_eq!(event, Event::Update(capture.flow().into()));
    }
    let expected = &captures(EXPECTATIONS)[0];
    let event = Event::decode(&expected.message()).unwrap().unwrap();
    let Event::UpdateExpectation(expectation) = event else {
        panic!("{event:?}");
    };
    let mut again = Vec::new();
    expectation.encode(&mut again);
    assert_eq!(Expectation::decode(&again).as_ref(), Ok(&*expectation));
}

#[test]
fn an_expectation_is_decoded() {
    let [capture] = captures(EXPECTATIONS).try_into().ok().unwrap();
    let expected = Expectation::decode(capture.message().payload).unwrap();
    let printed = capture.printed;
    assert!(
        printed.contains(&format!("proto=6 {} ", expected.tuple)),
        "{printed}"
    );
    assert_eq!(expected.tuple.protocol, Protocol::TCP);
    assert_eq!(expected.tuple.destination_port(), Some(4 << 8 | 5));
    assert_eq!(expected.mask.source.to_string(), "255.255.255.255");
    assert_eq!(expected.master.destination_port(), Some(21));
    assert_eq!(expected.timeout, Some(299));
    assert_eq!((expected.class, expected.flags), (Some(0), Some(0)));
    assert_eq!(expected.helper.as_deref(), Some("ftp"));
    assert_eq!(expected.zone, None);
}
