//! Decodes arbitrary bytes as a range allocation in etcd.

use vipline_service_ip::{AddressRange, Allocator, Envelope, PortRange, Range, RangeAllocation};

/// Checks that a decoded allocation survives a round trip.
fn check<R: Range>(allocation: &RangeAllocation, range: R) {
    let Ok(allocator) = allocation.allocator(range.clone()) else {
        return;
    };
    let written = RangeAllocation::of(&allocator).expect("a decoded allocation is valid");
    let again = written
        .allocator(range)
        .expect("an encoded allocation is valid");
    assert_eq!(again.used(), allocator.used());
    let zeros = allocation.data.len() - written.data.len();
    assert!(allocation.data.ends_with(&written.data));
    assert!(allocation.data.iter().take(zeros).all(|byte| *byte == 0));
    let _: Allocator<R> = again;
}

/// Checks one input.
pub(crate) fn run(input: &[u8]) {
    let Ok((envelope, allocation)) = Envelope::decode(input) else {
        return;
    };
    let written = envelope.encode(&allocation);
    let (again, found) = Envelope::decode(&written).expect("an encoded allocation is valid");
    assert_eq!(found, allocation);
    assert_eq!(again.encode(&found), written);

    let other = RangeAllocation {
        range: "30000-32767".into(),
        data: input.to_vec(),
    };
    let (_, found) =
        Envelope::decode(&envelope.encode(&other)).expect("an encoded allocation is valid");
    assert_eq!(found, other);

    if let Ok(network) = allocation.range.parse::<AddressRange>() {
        check(&allocation, network);
    }
    if let Ok(ports) = allocation.range.parse::<PortRange>() {
        check(&allocation, ports);
    }
}
