//! Tests of private functions of the socket.

use testkit::netns::Netns;

use super::*;

#[test]
fn reception_ends_after_the_timeout() {
    let mut socket = Socket::open(Protocol::ROUTE).unwrap();
    socket.set_timeout(Duration::from_millis(5)).unwrap();
    let nothing = socket.receive(RecvFlags::empty());
    assert!(matches!(nothing, Err(Error::Timeout)), "{nothing:?}");
    assert_eq!(socket.counters(), Counters::default());
}

#[test]
fn a_dump_succeeds_after_a_dump_that_failed_midway() {
    const TABLES: u16 = 3000;
    let netns = Netns::new().unwrap();
    let mut socket = netns.run(|| Socket::open(Protocol::NETFILTER)).unwrap();
    let nf_tables: &[u8] = &[0, 0, 0, 10];
    let (mut batch, mut seq) = (Vec::new(), socket.sequence());
    let mut message = |ty, flags, payload: &[u8]| {
        let start = begin(&mut batch, ty, NLM_F_REQUEST | flags, seq);
        seq += 1;
        batch.extend_from_slice(payload);
        end(&mut batch, start);
    };
    message(16, 0, nf_tables);
    for table in 1..=TABLES {
        let mut payload = vec![1, 0, 0, 0];
        crate::attr::put_str(&mut payload, 1, &table.to_string());
        message(0xa00, crate::message::NLM_F_CREATE, &payload);
    }
    message(
        0xa00,
        crate::message::NLM_F_CREATE | NLM_F_ACK,
        &[1, 0, 0, 0, 6, 0, 1, 0, b'1', 0, 0, 0],
    );
    message(17, 0, nf_tables);
    let _ = socket.batch(&batch).unwrap();

    let tables = |socket: &mut Socket| {
        let count = |count: &mut u16, _: Message<'_>| {
            *count += 1;
            Ok::<(), Error>(())
        };
        socket.dump(0xa01, &[1, 0, 0, 0], 1, || 0, count)
    };
    socket.datagram = Vec::with_capacity(8);
    let limit = socket.datagram.capacity();
    match tables(&mut socket) {
        Err(Error::Truncated {
            bytes,
            limit: reported,
        }) => assert!(reported == limit && bytes > limit),
        other => panic!("{other:?}"),
    }
    socket.datagram = Vec::with_capacity(BUFFER);
    assert_eq!(tables(&mut socket).unwrap(), Dump::Complete(TABLES));
}
