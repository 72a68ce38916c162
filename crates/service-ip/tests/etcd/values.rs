//! Tests of stored values and conflicts.

use std::error::Error as _;
use std::net::IpAddr;

use vipline_service_ip::{
    AddressRange, Allocator, Change, CommitError, Envelope, Error, InvalidValue, Pool,
    RangeAllocation, Store, StoreError, Version,
};

use crate::server::{KEY, Server, owner, random};

type Snapshot = vipline_service_ip::Snapshot<Allocator<AddressRange>>;

/// Object of an API server with the first address allocated, in protobuf.
const PROTOBUF: &[u8] = b"k8s\0\
    \x0a\x15\x0a\x02v1\x12\x0fRangeAllocation\
    \x12\x22\
    \x0a\x10\x0a\x00\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00\
    \x12\x0b10.0.0.0/27\
    \x1a\x01\x01\
    \x1a\x00\x22\x00";

/// The same object in JSON.
const JSON: &[u8] = br#"{"kind":"RangeAllocation","apiVersion":"v1","metadata":{"creationTimestamp":null},"range":"10.0.0.0/27","data":"AQ=="}
"#;

#[test]
fn allocated_items_are_unavailable_to_other_registries() {
    let server = Server::start();
    server.inside(|| {
        let (mut one, mut other) = (server.registry(), server.registry());
        let first = "10.0.0.1".parse().unwrap();
        one.reserve(first, &owner()).unwrap();
        let error = other.reserve(first, &owner()).unwrap_err();
        assert!(
            matches!(&error, Error::Allocation(error) if error.is_allocated()),
            "{error:?}"
        );
        let mut random = random(1);
        let mut items = vec![first];
        for turn in 0..29 {
            let registry = if turn % 2 == 0 { &mut one } else { &mut other };
            items.push(registry.allocate(&owner(), &mut random).unwrap());
        }
        for registry in [&mut one, &mut other] {
            let full = registry.allocate(&owner(), &mut random).unwrap_err();
            assert!(
                matches!(&full, Error::Allocation(error) if error.is_full()),
                "{full:?}"
            );
        }
        items.sort();
        items.dedup();
        assert_eq!(items.len(), 30, "each is given once");
        assert!(other.release(first, &owner()).unwrap());
        assert!(!one.release(first, &owner()).unwrap());
        assert_eq!(one.allocate(&owner(), &mut random).unwrap(), first);
    });
    let stored = server.get(KEY).unwrap();
    let (envelope, allocation) = Envelope::decode(&stored).unwrap();
    assert_eq!(envelope, Envelope::new(), "a new one is in protobuf");
    assert_eq!(&*allocation.range, "10.0.0.0/27");
    assert_eq!(allocation.data, [0x3f, 0xff, 0xff, 0xff]);
}

/// Returns a change that allocates an address, and the resulting state.
fn take(base: &Snapshot, address: &str) -> (Change<IpAddr>, Snapshot) {
    let (address, mut after) = (address.parse().unwrap(), base.clone());
    after.pool.reserve(address).unwrap();
    let taken = [(address, owner())].into();
    let freed = [].into();
    (Change { freed, taken }, after)
}

#[test]
fn a_conflict_returns_the_current_state_and_changes_nothing() {
    let server = Server::start();
    server.put(KEY, None);
    let [mut one, mut other] = [(); 2].map(|()| server.store(&server.cluster(), KEY));
    server.inside(|| {
        let base = one.load().unwrap();
        assert_eq!(base.version, Version(0), "the key does not exist");
        let (change, after) = take(&base, "10.0.0.1");
        let first = one.commit(base.version, &change, &after).unwrap();
        // The other registry has not loaded the state.
        let (change, after) = take(&base, "10.0.0.2");
        for _ in 0..2 {
            let outcome = other.commit(base.version, &change, &after);
            let Err(CommitError::Conflict { now: Some(now) }) = outcome else {
                panic!("{outcome:?}");
            };
            assert_eq!(now.version, first);
            assert_eq!(now.pool.items().next(), "10.0.0.1".parse().ok());
            assert_eq!(now.pool.used(), 1);
        }
        let now = other.load().unwrap();
        let (change, after) = take(&now, "10.0.0.2");
        let second = other.commit(first, &change, &after).unwrap();
        assert!(second > first);
        server.put(KEY, None);
        let outcome = other.commit(second, &change, &after);
        let Err(CommitError::Conflict { now: Some(now) }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!((now.version, now.pool.used()), (Version(0), 0));
    });
    assert_eq!(server.get(KEY), None);
}

#[test]
fn objects_of_an_api_server_keep_their_encoding() {
    let server = Server::start();
    for stored in [PROTOBUF, JSON] {
        server.put(KEY, Some(stored));
        server.inside(|| {
            let mut registry = server.registry();
            let taken: Vec<_> = registry.refresh().unwrap().pool.items().collect();
            assert_eq!(taken, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
            registry
                .reserve("10.0.0.3".parse().unwrap(), &owner())
                .unwrap();
        });
        let expected = match stored {
            PROTOBUF => String::from_utf8_lossy(stored).replace("\x1a\x01\x01", "\x1a\x01\x05"),
            _ => String::from_utf8_lossy(stored).replace("AQ==", "BQ=="),
        };
        let found = server.get(KEY).unwrap();
        assert_eq!(String::from_utf8_lossy(&found), expected);
        server.inside(|| {
            let mut registry = server.registry();
            registry
                .release("10.0.0.3".parse().unwrap(), &owner())
                .unwrap();
        });
        assert_eq!(server.get(KEY).unwrap(), stored);
    }
}

#[test]
fn invalid_values_are_rejected_and_kept() {
    let server = Server::start();
    let no_range = Envelope::new().encode(&RangeAllocation {
        range: "30000-32767".into(),
        data: vec![1],
    });
    let outside = Envelope::new().encode(&RangeAllocation {
        range: "10.0.0.0/27".into(),
        data: vec![0x40, 0, 0, 0],
    });
    let values = [
        (&b""[..], "not a RangeAllocation in JSON, at byte 0"),
        (b"v1", "not a RangeAllocation in JSON, at byte 0"),
        (&PROTOBUF[..40], "unexpected end, at byte 40"),
        (
            br#"{"kind":"Service","apiVersion":"v1"}"#,
            "not a v1 RangeAllocation, at byte 0",
        ),
        (
            &no_range,
            r#"the object has the range "30000-32767", not 10.0.0.0/27"#,
        ),
        (
            &outside,
            "item 30 is allocated, but the range 10.0.0.0/27 has 30 items",
        ),
    ];
    for (value, words) in values {
        server.put(KEY, Some(value));
        server.inside(|| {
            let mut registry = server.registry();
            let error = registry.allocate(&owner(), &mut random(1)).unwrap_err();
            assert!(
                matches!(&error, Error::Store(StoreError::Snapshot { source, .. })
                    if source.to_string() == words),
                "{error:?}"
            );
            assert_eq!(error.to_string(), KEY);
        });
        assert_eq!(server.get(KEY).unwrap_or_default(), value);
    }
    // The same applies to a value found by a conflicting commit.
    server.put(KEY, Some(PROTOBUF));
    server.inside(|| {
        let mut registry = server.registry();
        registry.refresh().unwrap();
        server.put(KEY, Some(b"none"));
        let error = registry.allocate(&owner(), &mut random(1)).unwrap_err();
        let source = error.source().unwrap();
        assert!(
            matches!(
                source.downcast_ref(),
                Some(InvalidValue::Corrupt { at: 0 | 1, .. })
            ),
            "{error:?}"
        );
    });
    assert_eq!(server.get(KEY).unwrap(), b"none");
}
