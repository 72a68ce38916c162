//! Lists the addresses of all interfaces, then adds and removes addresses.
//!
//! Run as root: `cargo run --example addresses`. The example
//! prints the addresses of the current network namespace. It makes changes only
//! in a network namespace of its own.

use std::error::Error;
use std::io::{self, Write};

use nix::sched::{CloneFlags, unshare};
use vipline_reconcile::diff;
use vipline_rtnl::{Address, Client, Commands, Name, Object, Snapshot};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let mut out = io::stdout();
    writeln!(out, "# Addresses in this network namespace:\n")?;
    print(&Client::open()?.dump()?, &mut out)?;
    // A network namespace of its own, so that the host stays as it is.
    unshare(CloneFlags::CLONE_NEWNET)?;
    change(&mut out)
}

/// Adds addresses in the network namespace of the calling thread.
pub(crate) fn change(out: &mut impl Write) -> Result<()> {
    let mut client = Client::open()?;
    let lo = Name::new("lo")?;
    let mut wanted: Vec<Object> = client.dump_link(&lo)?.into_objects().collect();
    for net in ["10.96.0.1/32", "fd00:96::1/128"] {
        wanted.push(Address::new(lo, net.parse()?).into());
    }
    // The difference between kernel and desired state is the list of commands.
    let commands = Commands::from_edits(&diff(client.dump_link(&lo)?.into_objects(), &wanted));
    writeln!(
        out,
        "\n# Commands committed in a new network namespace:\n\n{commands}"
    )?;
    client.commit(&commands)?;
    writeln!(out, "# Addresses in the new network namespace:\n")?;
    print(&client.dump()?, out)?;

    // Commands are independent: an error names the rejected command, and the
    // others are applied.
    if let Err(error) = client.commit(&commands) {
        writeln!(
            out,
            "\n# An existing address is not added again:\n\n{error}"
        )?;
    }
    Ok(())
}

/// Prints all links that have addresses.
fn print(all: &Snapshot, out: &mut impl Write) -> Result<()> {
    for link in all.links() {
        let state = if link.is_up() { "up" } else { "down" };
        for address in all.of(&link.name) {
            let (name, scope) = (&link.name, &address.scope);
            writeln!(out, "{name:15} {state:4} {} ({scope})", address.net)?;
        }
    }
    Ok(())
}
