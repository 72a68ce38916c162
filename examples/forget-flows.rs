//! A backend goes away: the flows to it are forgotten, and no others.
//!
//! Run it as root with `cargo run -p vipline-conntrack --example forget-flows`.
//! It makes a network namespace of its own and changes nothing outside of it.
#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};

use testkit::netns::Netns;
use vipline_conntrack::{Client, Family, Filter, Flow, Protocol, Status, Tuple, TupleFilter};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10));
const BACKENDS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 1, 0, 7)),
    IpAddr::V4(Ipv4Addr::new(10, 1, 0, 8)),
];

fn main() -> Result<()> {
    Netns::new()?.run(run)
}

fn run() -> Result<()> {
    let mut client = Client::open()?;
    client.create_all((0..6).map(question))?;
    println!("# Clients ask, and each is sent to one of two backends:\n");
    client
        .dump(&Filter::new(), |flow| println!("{flow}"))
        .map(drop)?;

    // The kernel tells only of flows to the service, and hands them over one
    // by one.
    let to_service = TupleFilter::new().destination(SERVICE).destination_port(53);
    let asked = Filter::new()
        .family(Family::V4)
        .protocol(Protocol::UDP)
        .original(to_service);
    let [gone, stays] = BACKENDS;
    let mut stale = Vec::new();
    client
        .dump(&asked, |flow| {
            if flow.reply.source == gone {
                stale.push(flow.key());
            }
        })
        .map(drop)?;
    let done = client.delete_all(stale)?;
    println!(
        "\n# {gone} goes away, and {} flows with it:\n",
        done.deleted
    );
    client
        .dump(&Filter::new(), |flow| println!("{flow}"))
        .map(drop)?;

    // Where nothing but the filter decides, it is one call.
    let _ = client.flush(&asked.reply(TupleFilter::new().source(stays)))?;
    assert_eq!(client.usage()?.entries, 0, "all are gone");
    Ok(())
}

/// Returns the flow of a question that is sent to one of the backends.
fn question(number: u8) -> Flow {
    let host = IpAddr::V4(Ipv4Addr::new(10, 1, 1, number));
    let backend = BACKENDS[usize::from(number) % BACKENDS.len()];
    let asked = Tuple::ports(Protocol::UDP, (host, 40_000), (SERVICE, 53));
    let answered = Tuple::ports(Protocol::UDP, (backend, 5353), (host, 40_000));
    let mut flow = Flow::new(asked, answered);
    flow.status = Status::DST_NAT | Status::SEEN_REPLY;
    flow.timeout = Some(120);
    flow
}
