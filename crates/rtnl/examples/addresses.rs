//! Lists the addresses of all interfaces, then adds and removes addresses.
//!
//! Run as root: `cargo run -p vipline-rtnl --example addresses`. The example
//! prints the addresses of the current network namespace. It makes changes only
//! in a network namespace of its own.
#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::error::Error;

use testkit::netns::Netns;
use vipline_reconcile::diff;
use vipline_rtnl::{Address, Client, Commands, Name, Object, Snapshot};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    println!("# Addresses in this network namespace:\n");
    print(&Client::open()?.dump()?);
    Netns::new()?.run(change)
}

fn change() -> Result<()> {
    let mut client = Client::open()?;
    let lo = Name::new("lo")?;
    let mut wanted: Vec<Object> = client.dump_link(&lo)?.into_objects().collect();
    for net in ["10.96.0.1/32", "fd00:96::1/128"] {
        wanted.push(Address::new(lo, net.parse()?).into());
    }
    // The difference between kernel and desired state is the list of commands.
    let commands = Commands::from_edits(&diff(client.dump_link(&lo)?.into_objects(), &wanted));
    println!("\n# Commands committed in a new network namespace:\n\n{commands}");
    client.commit(&commands)?;
    println!("# Addresses in the new network namespace:\n");
    print(&client.dump()?);

    // Commands are independent: an error names the rejected command, and the
    // others are applied.
    if let Err(error) = client.commit(&commands) {
        println!("\n# An existing address is not added again:\n\n{error}");
    }
    Ok(())
}

/// Prints all links that have addresses.
fn print(all: &Snapshot) {
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
