//! Commits an IPVS table from text, dumps it, and changes it.
//!
//! Run it as root with `cargo run --example balancer`, on a kernel
//! with the module `ip_vs`.
//! The example creates a network namespace and changes nothing outside it.
#![allow(clippy::print_stdout, reason = "the output is the purpose")]

use std::error::Error;

use nix::sched::{CloneFlags, unshare};
use vipline_ipvs::{Client, Commands, Object, Table};
use vipline_reconcile::diff;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const FIRST: &str = "\
-A -t 10.0.0.1:80 -s wrr
-a -t 10.0.0.1:80 -r 10.1.0.5:8080 -m -w 1
-a -t 10.0.0.1:80 -r 10.1.0.6:8080 -m -w 3
";

const SECOND: &str = "\
-A -t 10.0.0.1:80 -s mh -b mh-port
-a -t 10.0.0.1:80 -r 10.1.0.5:8080 -m -w 0
-a -t 10.0.0.1:80 -r 10.1.0.7:8080 -m -w 3
";

fn main() -> Result<()> {
    // A network namespace of its own, so that the host stays as it is.
    unshare(CloneFlags::CLONE_NEWNET)?;
    run()
}

fn run() -> Result<()> {
    let mut client = Client::open()?;
    for text in [FIRST, SECOND] {
        // Commit the difference between the kernel's table and the desired one.
        let desired: Vec<Object> = text.parse::<Table>()?.objects().collect();
        let commands = Commands::from_edits(&diff(client.dump()?.objects(), &desired));
        println!("# Commands:\n\n{commands}");
        client.commit(&commands)?;
    }
    println!("# Table in the kernel:\n\n{}", client.dump()?);

    // Commands are independent: an error names the rejected ones, the others are
    // applied.
    let commands: Commands = "-D -t 10.0.0.9:80\n-D -t 10.0.0.1:80\n".parse()?;
    if let Err(error) = client.commit(&commands) {
        println!("# Removing a missing service is an error:\n\n{error}");
    }
    assert!(
        client.dump()?.servers().next().is_none(),
        "the table is empty"
    );
    Ok(())
}
