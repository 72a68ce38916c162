//! Creates a lab and sends requests to a backend. Does not need root.
#![allow(clippy::print_stdout, reason = "a program prints")]

use std::io;

use testkit::lab::Lab;
use testkit::privilege::become_root;
use testkit::traffic::{Probe, Protocol, Server};

fn main() -> io::Result<()> {
    become_root()?;
    let lab = Lab::new()?;
    let backend = &lab.backends[0];
    for address in backend.addresses() {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let at = (address, 8080).into();
            let server = Server::start(&backend.netns, protocol, at, &backend.name)?;
            let answers = Probe::new(protocol, server.address()).times(&lab.client.netns, 100);
            println!("{protocol} {at}: {answers}");
        }
    }
    Ok(())
}
