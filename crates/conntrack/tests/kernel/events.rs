//! Events: flows that come, change and go, and too many of them.

use std::time::{Duration, Instant};

use vipline_conntrack::{Change, Event, Events, Groups};

use crate::lab::{Lab, udp};

/// How long events may take to come.
const PATIENCE: Duration = Duration::from_secs(20);

/// Reads until so many events are there.
fn read(events: &mut Events, count: usize) -> Vec<Event> {
    let (mut heard, start) = (Vec::new(), Instant::now());
    while heard.len() < count {
        assert!(start.elapsed() < PATIENCE, "{heard:?}");
        events.read(|event| heard.push(event)).unwrap();
        std::thread::yield_now();
    }
    heard
}

#[test]
fn flows_that_come_change_and_go_are_told() {
    let mut lab = Lab::new();
    let mut events = lab.netns.run(|| Events::open(Groups::all(), &[]).unwrap());
    lab.client.create(&udp(1)).unwrap();
    let change = Change::new().mark(u32::MAX, 7);
    lab.client.update(&udp(1).key(), change).unwrap();
    assert!(lab.client.delete(&udp(1).key()).unwrap());
    let heard = read(&mut events, 3);
    let [
        Event::New(new),
        Event::Update(updated),
        Event::Destroy(gone),
    ] = heard.as_slice()
    else {
        panic!("{heard:?}");
    };
    for flow in [new, updated, gone] {
        assert_eq!(flow.original, udp(1).original);
        assert_eq!(flow.reply, udp(1).reply);
        assert_eq!(flow.id, new.id);
    }
    assert_eq!(updated.mark, Some(7));
}

#[test]
fn what_is_not_listened_to_is_not_told() {
    let mut lab = Lab::new();
    let (port, groups) = (lab.client.port_id(), Groups::DESTROY);
    let mut gone = lab.netns.run(|| Events::open(groups, &[]).unwrap());
    let mut of_others = lab
        .netns
        .run(|| Events::open(Groups::all(), &[port]).unwrap());
    lab.client.create(&udp(1)).unwrap();
    assert!(lab.client.delete(&udp(1).key()).unwrap());
    lab.conntrack("-I -p udp -s 10.0.0.1 -d 10.0.0.2 --sport 2 --dport 53 -t 100");
    let heard = read(&mut gone, 1);
    assert!(matches!(heard.as_slice(), [Event::Destroy(_)]), "{heard:?}");
    let heard = read(&mut of_others, 1);
    let [Event::New(new)] = heard.as_slice() else {
        panic!("{heard:?}");
    };
    assert_eq!(new.original.source_port(), Some(2));
}

#[test]
fn more_than_there_is_room_for_is_an_event_and_what_comes_later_is_told() {
    let mut lab = Lab::new();
    let mut events = lab.netns.run(|| Events::open(Groups::NEW, &[]).unwrap());
    events.set_recv_buffer_size(4096).unwrap();
    lab.client.create_all((0..2000).map(udp)).unwrap();
    let mut heard = Vec::new();
    let start = Instant::now();
    while !heard.contains(&Event::Overrun) {
        assert!(start.elapsed() < PATIENCE, "{heard:?}");
        events.read(|event| heard.push(event)).unwrap();
    }
    assert!(heard.len() < 2000, "{}", heard.len());
    lab.client.create(&udp(5000)).unwrap();
    let start = Instant::now();
    let is_last = |event: &Event| matches!(event, Event::New(flow) if flow.original.source_port() == Some(5000));
    while !heard.iter().any(is_last) {
        assert!(start.elapsed() < PATIENCE, "{heard:?}");
        events.read(|event| heard.push(event)).unwrap();
    }
}
