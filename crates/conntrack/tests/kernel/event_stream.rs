//! Tests of events and requests in a program with tokio.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use vipline_conntrack::netlink::tokio::{AsyncClient, EventStream};
use vipline_conntrack::{Error, Event, Events, Groups};

use crate::lab::{Lab, udp};

/// Maximum delay of events.
const PATIENCE: Duration = Duration::from_secs(20);

/// More flows than one read of the stream has.
const MANY: u16 = 300;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Returns the source port of the next flow that was created.
async fn next(events: &mut EventStream<Events>) -> Result<u16, Error> {
    let Event::New(flow) = timeout(PATIENCE, events.next()).await.unwrap()? else {
        panic!("no other events were requested");
    };
    Ok(flow.original.source_port().unwrap())
}

#[test]
fn events_of_flows_arrive_in_order_beside_the_requests() {
    let Lab { netns, client } = Lab::new();
    let events = netns.run(|| Events::open(Groups::NEW, &[]).unwrap());
    events.set_recv_buffer_size(8 << 20).unwrap();
    runtime().block_on(async {
        let mut events = EventStream::new(events).unwrap();
        let client = AsyncClient::new(client);
        let create =
            |client: &mut vipline_conntrack::Client| client.create_all((1..=MANY).map(udp));
        let receive = async {
            let mut ports = Vec::new();
            for _ in 0..MANY {
                ports.push(next(&mut events).await.unwrap());
            }
            ports
        };
        let (created, ports) = tokio::join!(client.call(create), receive);
        assert_eq!(created.unwrap(), usize::from(MANY));
        assert_eq!(ports, (1..=MANY).collect::<Vec<_>>());
    });
}

#[test]
fn lost_events_are_an_error_and_later_events_are_received() {
    let mut lab = Lab::new();
    let events = lab.netns.run(|| Events::open(Groups::NEW, &[]).unwrap());
    events.set_recv_buffer_size(4096).unwrap();
    runtime().block_on(async {
        let mut events = EventStream::new(events).unwrap();
        lab.client.create_all((0..2000).map(udp)).unwrap();
        let mut received = 0;
        let error = loop {
            match next(&mut events).await {
                Ok(_) => received += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::NotificationsLost), "{error}");
        assert!(!error.may_be_applied());
        assert!(received < 2000, "{received}");
        lab.client.create(&udp(5000)).unwrap();
        assert_eq!(next(&mut events).await.unwrap(), 5000);
    });
}
