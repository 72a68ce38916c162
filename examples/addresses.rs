//! Local addresses: what interfaces have them, and one more made and removed.
//!
//! Run it as root with `cargo run -p vipline-rtnl --example addresses`.
//! It prints the addresses of the network namespace in which it runs, then makes
//! a namespace of its own and changes nothing outside of it.
#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::error::Error;

use testkit::netns::Netns;
use vipline_reconcile::diff;
use vipline_rtnl::{Address, Addresses, Client, Commands, Name, Object};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    println!("# The addresses here:\n");
    print(&Client::open()?.dump()?);
    Netns::new()?.run(change)
}

fn change() -> Result<()> {
    let mut client = Client::open()?;
    let lo = Name::new("lo")?;
    let mut wanted: Vec<Object> = client.dump_of(&lo)?.into_objects().collect();
    for net in ["10.96.0.1/32", "fd00:96::1/128"] {
        wanted.push(Address::new(lo, net.parse()?).into());
    }
    // The difference to what the kernel has is what has to be done.
    let commands = Commands::from_edits(&diff(client.dump_of(&lo)?.into_objects(), &wanted));
    println!("\n# What is committed in a namespace of our own:\n\n{commands}");
    client.commit(&commands)?;
    println!("# The addresses there:\n");
    print(&client.dump()?);

    // Commands stand alone: a refusal names what was refused, the rest is done.
    if let Err(error) = client.commit(&commands) {
        println!("\n# What is there already is not added again:\n\n{error}");
    }
    Ok(())
}

/// Prints links that have addresses, and these.
fn print(all: &Addresses) {
    for link in all.links() {
        let state = if link.is_up() { "up" } else { "down" };
        for address in all.of(&link.name) {
            println!(
                "{:15} {state:4} {} ({})",
                link.name, address.net, address.scope
            );
        }
    }
}
