//! A load balancer: a table of IPVS as text, committed, read back and changed.
//!
//! Run it as root with `cargo run -p vipline-ipvs --example balancer`, on a
//! kernel with the module `ip_vs`.
//! It makes a network namespace of its own and changes nothing outside of it.
#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::error::Error;

use testkit::netns::Netns;
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
    Netns::new()?.run(run)
}

fn run() -> Result<()> {
    let mut client = Client::open()?;
    for text in [FIRST, SECOND] {
        // The difference to what the kernel has is what has to be done.
        let wanted: Vec<Object> = text.parse::<Table>()?.objects().collect();
        let commands = Commands::from_edits(&diff(client.dump()?.objects(), &wanted));
        println!("# What is committed:\n\n{commands}");
        client.commit(&commands)?;
    }
    println!("# What the kernel has now:\n\n{}", client.dump()?);

    // Commands stand alone: a refusal names what was refused, the rest is done.
    let commands: Commands = "-D -t 10.0.0.9:80\n-D -t 10.0.0.1:80\n".parse()?;
    if let Err(error) = client.commit(&commands) {
        println!("# What is not there cannot be removed:\n\n{error}");
    }
    assert!(client.dump()?.servers().next().is_none(), "all is gone");
    Ok(())
}
