//! Replaces the entries of a set atomically: fills a second set, and swaps both.
//!
//! Packets match the old entries or the new ones, never a part of them.
//!
//! Run it with `cargo run --example atomic-swap -- SET ADDRESS...`.

use std::error::Error;
use std::io::Write;
use std::net::IpAddr;

use vipline_ipset::{Client, Command, Commands, Entry, Member, Name, Strictness};

/// Replaces the addresses of a `hash:ip` set and prints the new entries.
pub(crate) fn replace(
    client: &mut Client,
    name: &Name,
    addresses: &[IpAddr],
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    // A set of the same type and options, without entries.
    let old = client.list(name)?;
    let mut next = old.set.clone();
    next.name = Name::new(&format!("{name}-next"))?;
    client.create(next.clone())?;

    // All entries in few messages.
    let add = |address: &IpAddr| {
        let entry = Entry::new(next.name.clone(), Member::Ip(*address));
        Command::Add(entry.into(), Strictness::Exist)
    };
    let adds: Vec<Command> = addresses.iter().map(add).collect();
    client.commit(&Commands::from(adds))?;

    // Rules that use the set match the new entries from here on.
    client.swap(name, &next.name)?;
    client.destroy(&next.name)?;
    let new = client.list(name)?;
    let (before, after) = (old.entries.len(), new.entries.len());
    writeln!(out, "{name}: {before} entries replaced by {after}")?;
    for entry in &new.entries {
        writeln!(out, "{}", entry.member)?;
    }
    Ok(())
}

#[allow(dead_code, reason = "a test includes this file")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().ok_or("usage: atomic-swap SET ADDRESS...")?;
    let addresses: Vec<IpAddr> = args
        .map(|address| address.parse())
        .collect::<Result<_, _>>()?;
    let mut client = Client::open()?;
    replace(
        &mut client,
        &Name::new(&name)?,
        &addresses,
        &mut std::io::stdout(),
    )
}
