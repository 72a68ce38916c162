//! Decodes arbitrary messages as replies and notifications of ctnetlink.

use vipline_conntrack::{CpuStatistics, Event, Expectation, Filter, Flow, Usage};
use vipline_netlink::message::Messages;

/// Limit of the input: a re-encoded attribute may be slightly longer, and must not exceed
/// 64 KiB.
const LONGEST: usize = 32 << 10;

/// Checks that a decoded entry survives a round trip and can be formatted.
fn check_flow(flow: &Flow) {
    let mut again = Vec::new();
    flow.encode(&mut again);
    assert_eq!(Flow::decode(&again).as_ref(), Ok(flow));
    assert!(flow.to_string().contains(&flow.original.to_string()));
    assert!(!flow.key().to_string().is_empty());
    let zone = flow.zone.unwrap_or(0);
    let filter = Filter::new().with_family(flow.family()).with_zone(zone);
    assert!(filter.with_protocol(flow.original.protocol).matches(flow));
}

/// Checks one input.
pub(crate) fn run(input: &[u8]) {
    for message in Messages::new(input).flatten() {
        if let (Ok(flow), 0..LONGEST) = (Flow::decode(message.payload), message.payload.len()) {
            check_flow(&flow);
        }
        if let Ok(Some(event)) = Event::decode(&message) {
            assert_ne!(event, Event::Overrun);
        }
        if let Ok(expectation) = Expectation::decode(message.payload) {
            let mut again = Vec::new();
            expectation.encode(&mut again);
            assert_eq!(Expectation::decode(&again).as_ref(), Ok(&expectation));
            assert!(!expectation.to_string().is_empty());
        }
        let _ = CpuStatistics::decode(message.payload);
        let _ = Usage::decode(message.payload);
    }
}
