//! Generators of arbitrary stateful objects and flowtables.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use vipline_nftables::expr::{Counter, Limit, Quota};
use vipline_nftables::{
    CtExpectation, CtHelper, CtTimeout, Flowtable, FlowtableFlags, Name, Object, State,
    StatefulObject, Synproxy,
};

use super::{comment, name, table};

fn state() -> impl Strategy<Value = State> {
    let numbers = any::<(u64, u64)>();
    let timeouts = vec((1..12_u16, any::<u32>()), 0..4);
    prop_oneof![
        numbers.prop_map(|(packets, bytes)| Counter { packets, bytes }.into()),
        (any::<(u64, u64)>(), any::<bool>()).prop_map(|((bytes, consumed), over)| {
            let quota = Quota {
                bytes,
                consumed,
                over,
            };
            quota.into()
        }),
        (1..u64::MAX).prop_map(|rate| Limit::per_second(rate).into()),
        (name(), any::<u16>(), any::<u8>())
            .prop_map(|(helper, l3proto, l4proto)| CtHelper::new(helper, l3proto, l4proto).into()),
        (any::<u16>(), any::<u8>(), timeouts).prop_map(|(l3proto, l4proto, timeouts)| {
            let mut timeout = CtTimeout::new(l3proto, l4proto);
            timeout.timeouts = timeouts;
            timeout.into()
        }),
        any::<(u16, u8, u16, u32, u8)>().prop_map(|(l3proto, l4proto, dport, timeout, size)| {
            let timeout = Duration::from_millis(timeout.into());
            CtExpectation::new(l3proto, l4proto, dport, timeout, size).into()
        }),
        any::<(u16, u8, u32)>()
            .prop_map(|(mss, wscale, flags)| Synproxy::new(mss, wscale).with_flags(flags).into()),
        name().prop_map(State::Secmark),
    ]
}

/// A stateful object.
pub(super) fn stateful() -> impl Strategy<Value = Object> {
    (name(), state(), comment()).prop_map(|(name, state, comment)| {
        let mut object = StatefulObject::new(table(), name, state);
        object.comment = comment;
        object.into()
    })
}

/// Names of devices, of which some end with an asterisk.
pub(super) fn devices() -> impl Strategy<Value = Vec<Name>> {
    let device = "[a-z]{1,14}\\*?".prop_map(|text| Name::new(&text).unwrap());
    vec(device, 0..4)
}

/// A flowtable.
pub(super) fn flowtable() -> impl Strategy<Value = Object> {
    (name(), any::<i32>(), devices(), any::<u32>()).prop_map(|(name, priority, devices, flags)| {
        let flags = FlowtableFlags::from_bits_retain(flags);
        let mut flowtable = Flowtable::new(table(), name, priority).with_flags(flags);
        flowtable.devices = devices;
        flowtable.into()
    })
}
