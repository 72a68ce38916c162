//! Deletes the flows to a UDP endpoint that is removed, and no others. Otherwise a client that
//! keeps sending would never reach another endpoint: the kernel remembers the first one.
//!
//! Run it as root with `cargo run --example forget-flows`. The program works in a network
//! namespace of its own, so the flows of the host stay as they are.
#![allow(clippy::print_stdout, reason = "the output is the purpose")]

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};

use nix::sched::{CloneFlags, unshare};
use vipline_conntrack::{Client, Family, Filter, Flow, Protocol, Status, Tuple, TupleFilter};

const SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10));
const REMOVED: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 7));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 8));

fn main() -> Result<(), Box<dyn Error>> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let mut client = Client::open()?;
    client.create_all((1..=6).map(flow))?;
    print_flows(&mut client)?;

    // Clients sent the packets to the service, and the endpoint replies.
    let to_service = TupleFilter::new()
        .with_destination(SERVICE)
        .with_destination_port(53);
    let stale = Filter::new()
        .with_family(Family::V4)
        .with_protocol(Protocol::UDP)
        .with_original(to_service)
        .with_reply(TupleFilter::new().with_source(REMOVED));
    let _ = client.flush(&stale)?;
    println!("Endpoint {REMOVED} is removed. Its flows are deleted:");
    print_flows(&mut client)
}

fn print_flows(client: &mut Client) -> Result<(), Box<dyn Error>> {
    let mut flows = client.flows(&Filter::new())?.into_inner();
    // The kernel returns them in the order of their hashes.
    flows.sort_by_key(|flow| flow.original.source);
    for flow in &flows {
        println!("client {} at {}", flow.original.source, flow.reply.source);
    }
    Ok(())
}

/// Returns the flow of a client that reaches one of the endpoints.
fn flow(number: u8) -> Flow {
    let client = IpAddr::V4(Ipv4Addr::new(10, 1, 1, number));
    let endpoint = [REMOVED, OTHER][usize::from(number) % 2];
    let request = Tuple::ports(Protocol::UDP, (client, 40_000), (SERVICE, 53));
    let reply = Tuple::ports(Protocol::UDP, (endpoint, 5353), (client, 40_000));
    let mut flow = Flow::new(request, reply);
    (flow.status, flow.timeout) = (Status::DST_NAT | Status::SEEN_REPLY, Some(120));
    flow
}
