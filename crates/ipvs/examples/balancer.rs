//! A virtual server with two real servers: weights, and the removal of one server after its
//! last connection.
//!
//! Run it as root with `cargo run --example balancer`, on a kernel with the module `ip_vs`. The
//! program works in a network namespace of its own, so the host stays as it is.

use std::error::Error;
use std::io::{self, Write};

use nix::sched::{CloneFlags, unshare};
use vipline_ipvs::{Client, Commands, RealServer, Scheduler, ServiceKey, Transport, VirtualServer};

#[allow(dead_code, reason = "a test includes this file")]
fn main() -> Result<(), Box<dyn Error>> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    run(&mut io::stdout())
}

/// Changes the table of this network namespace, and writes the table after each step.
pub(crate) fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut client = Client::open()?;
    let web = ServiceKey::new(Transport::Tcp, "10.0.0.1".parse()?, 80);
    let small = RealServer::new("10.1.0.5".parse()?, 8080);
    let large = RealServer::new("10.1.0.6".parse()?, 8080).with_weight(3);
    let commands = Commands::new()
        .add_service(VirtualServer::new(web, Scheduler::WeightedRoundRobin))
        .add_destination(web, small)
        .add_destination(web, large);
    client.commit(&commands)?;
    writeln!(out, "# Three of four connections go to the large server:")?;
    write!(out, "{}", client.dump()?)?;

    // Without a weight, the server keeps its connections and gets no new ones.
    let draining = large.with_weight(0);
    client.commit(&Commands::new().edit_destination(web, draining))?;
    write!(out, "# It drains:\n{}", client.dump()?)?;

    // A proxy would ask again later, until no connection is left.
    for destination in client.destinations(&web)? {
        let (server, connections) = (destination.server, destination.connections);
        if server.weight == 0 && connections.active + connections.inactive == 0 {
            let commands = Commands::new().remove_destination(web, server.endpoint());
            client.commit(&commands)?;
        }
    }
    write!(out, "# It is removed:\n{}", client.dump()?)?;

    // Commands are independent: all others are applied, and the error names those that failed.
    let commands = Commands::new().remove_destination(web, large.endpoint());
    if let Err(error) = client.commit(&commands.remove_service(web)) {
        writeln!(out, "# A command failed:\n{error}")?;
    }
    Ok(())
}
