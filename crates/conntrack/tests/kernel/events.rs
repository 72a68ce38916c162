//! Tests of events and of their loss.

use std::time::{Duration, Instant};

use vipline_conntrack::{Event, Events, Groups, Update};

use crate::lab::{Lab, udp};

/// Maximum delay of events.
const PATIENCE: Duration = Duration::from_secs(20);

/// Reads until `count` events were received.
pub(crate) fn read(events: &mut Events, count: usize) -> Vec<Event> {
    let (mut received, start) = (Vec::new(), Instant::now());
    while received.len() < count {
        assert!(start.elapsed() < PATIENCE, "{received:?}");
        events.read(|event| received.push(event)).unwrap();
        std::thread::yield_now();
    }
    received
}

#[test]
fn created_updated_and_destroyed_flows_cause_events() {
    let mut lab = Lab::new();
    let mut events = lab.netns.run(|| Events::open(Groups::all(), &[]).unwrap());
    lab.client.create(&udp(1)).unwrap();
    let change = Update::new().with_mark(7, u32::MAX);
    lab.client.update(&udp(1).key(), change).unwrap();
    assert!(lab.client.delete(&udp(1).key()).unwrap());
    let received = read(&mut events, 3);
    let [
        Event::New(new),
        Event::Update(updated),
        Event::Destroy(gone),
    ] = received.as_slice()
    else {
        panic!("{received:?}");
    };
    for flow in [new, updated, gone] {
        assert_eq!(flow.original, udp(1).original);
        assert_eq!(flow.reply, udp(1).reply);
        assert_eq!(flow.id, new.id);
    }
    assert_eq!(updated.mark, Some(7));
}

#[test]
fn groups_and_ignored_port_ids_select_events() {
    let mut lab = Lab::new();
    let (port, groups) = (lab.client.port_id(), Groups::DESTROY);
    let mut gone = lab.netns.run(|| Events::open(groups, &[]).unwrap());
    let mut of_others = lab
        .netns
        .run(|| Events::open(Groups::all(), &[port]).unwrap());
    lab.client.create(&udp(1)).unwrap();
    assert!(lab.client.delete(&udp(1).key()).unwrap());
    lab.conntrack("-I -p udp -s 10.0.0.1 -d 10.0.0.2 --sport 2 --dport 53 -t 100");
    let received = read(&mut gone, 1);
    assert!(
        matches!(received.as_slice(), [Event::Destroy(_)]),
        "{received:?}"
    );
    let received = read(&mut of_others, 1);
    let [Event::New(new)] = received.as_slice() else {
        panic!("{received:?}");
    };
    assert_eq!(new.original.source_port(), Some(2));
}

#[test]
fn an_overrun_is_an_event_and_later_events_are_received() {
    let mut lab = Lab::new();
    let mut events = lab.netns.run(|| Events::open(Groups::NEW, &[]).unwrap());
    events.set_recv_buffer_size(4096).unwrap();
    lab.client.create_all((0..2000).map(udp)).unwrap();
    let mut received = Vec::new();
    let start = Instant::now();
    while !received.contains(&Event::Overrun) {
        assert!(start.elapsed() < PATIENCE, "{received:?}");
        events.read(|event| received.push(event)).unwrap();
    }
    assert!(received.len() < 2000, "{}", received.len());
    lab.client.create(&udp(5000)).unwrap();
    let start = Instant::now();
    let is_last = |event: &Event| matches!(event, Event::New(flow) if flow.original.source_port() == Some(5000));
    while !received.iter().any(is_last) {
        assert!(start.elapsed() < PATIENCE, "{received:?}");
        events.read(|event| received.push(event)).unwrap();
    }
}
