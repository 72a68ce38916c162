//! Deletes the conntrack entries of a removed backend, and no others.
//!
//! Run it as root with `cargo run --example forget-flows`. The example makes changes only
//! in a network namespace of its own.
#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};

use nix::sched::{CloneFlags, unshare};
use vipline_conntrack::{Client, Family, Filter, Flow, Protocol, Status, Tuple, TupleFilter};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10));
const BACKENDS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 1, 0, 7)),
    IpAddr::V4(Ipv4Addr::new(10, 1, 0, 8)),
];

fn main() -> Result<()> {
    // A network namespace of its own, so that the host stays as it is.
    unshare(CloneFlags::CLONE_NEWNET)?;
    run()
}

fn run() -> Result<()> {
    let mut client = Client::open()?;
    client.create_all((0..6).map(question))?;
    println!("# Each client reaches one of two backends:\n");
    client
        .dump(&Filter::new(), |flow| println!("{flow}"))
        .map(drop)?;

    // The kernel filters the entries by service and returns them one by one.
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
        "\n# Backend {gone} is removed, and {} flows are deleted:\n",
        done.deleted
    );
    client
        .dump(&Filter::new(), |flow| println!("{flow}"))
        .map(drop)?;

    // If the filter alone selects the entries, one call deletes them.
    let _ = client.flush(&asked.reply(TupleFilter::new().source(stays)))?;
    assert_eq!(client.usage()?.entries, 0, "all entries are deleted");
    Ok(())
}

/// Returns the flow of a request that reaches one of the backends.
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
