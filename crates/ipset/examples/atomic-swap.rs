//! Replaces the entries of a set atomically: fills a second set, and swaps both. Packets match
//! the old entries or the new ones, never a part of them.
//!
//! Run it as root with `cargo run --example atomic-swap`. The program works in a network
//! namespace of its own, so the sets of the host stay as they are.

use std::error::Error;
use std::io::{self, Write};
use std::net::IpAddr;

use nix::sched::{CloneFlags, unshare};
use vipline_ipset::{Client, Command, Commands, Entry, Member, Name};
use vipline_ipset::{Set, SetFamily, SetType, Strictness};

#[allow(dead_code, reason = "a test includes this file")]
fn main() -> Result<(), Box<dyn Error>> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let (blocked, out) = (Name::new("blocked")?, &mut io::stdout());
    let set = Set::new(blocked.clone(), SetType::HashIp, SetFamily::V4);
    let mut client = Client::open()?;
    client.create(set)?;
    let addresses = ["192.0.2.7".parse()?, "192.0.2.8".parse()?];
    replace(&mut client, &blocked, &addresses, out)?;
    let addresses = ["192.0.2.8".parse()?, "198.51.100.1".parse()?];
    replace(&mut client, &blocked, &addresses, out)
}

/// Replaces the addresses of a `hash:ip` set and prints the new ones.
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
    client.commit(&addresses.iter().map(add).collect::<Commands>())?;

    // Rules that use the set match the new entries from here on.
    client.swap(name, &next.name)?;
    client.destroy(&next.name)?;

    let new = client.list(name)?.entries;
    let mut new: Vec<String> = new.iter().map(|it| it.member.to_string()).collect();
    // The kernel returns entries in the order of their hashes.
    new.sort();
    let old = old.entries.len();
    writeln!(out, "{name}: {old} entries replaced by {}", new.join(", "))?;
    Ok(())
}
