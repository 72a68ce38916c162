//! Edits a ruleset that other programs edit, too: every step may find its work done, and the
//! counters of the other rules stay. One client runs iptables, the other one uses netlink.
//!
//! Run it as root with `cargo run --features nft --example iptables-edit`. The program works in
//! a network namespace of its own, so the rules of the host stay as they are.
#![allow(clippy::print_stdout, reason = "the output is the purpose")]

use std::error::Error;

use nix::sched::{CloneFlags, unshare};
use vipline_iptables::{ChainName, Client, Counters, Family, Refusal, Rule, SaveOptions};
use vipline_iptables::{SingleCommands, TableName, Variant, nft};

fn main() -> Result<(), Box<dyn Error>> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let (filter, input) = (TableName::FILTER, ChainName::INPUT);
    let mut iptables = Client::open_variant(Family::V4, Variant::Nft)?;
    let mut netlink = nft::Client::open(Family::V4)?;
    // The rule of another program has counted packets.
    let (packets, bytes) = (7, 420);
    let ssh = Rule::parse("-p tcp --dport 22 -j ACCEPT")?;
    let ssh = ssh.with_counters(Counters { packets, bytes });
    iptables.append(filter, input, &ssh)?;
    for (is_wanted, title) in [(true, "With our chain"), (false, "Without our chain")] {
        // The second client finds nothing to do.
        edit(&mut iptables, is_wanted)?;
        edit(&mut netlink, is_wanted)?;
        let saved = iptables.save_with(SaveOptions::new().with_table(filter).with_counters())?;
        let rules = saved.lines().filter(|line| line.contains("-A "));
        println!("{title}:\n{}", rules.collect::<Vec<_>>().join("\n"));
    }
    Ok(())
}

/// Adds or removes a chain of our own, and the jump to it in front of all other rules.
fn edit<C: SingleCommands>(client: &mut C, is_wanted: bool) -> Result<(), Box<dyn Error>> {
    let (filter, input) = (TableName::FILTER, ChainName::INPUT);
    let web = ChainName::new("WEB")?;
    let jump = Rule::parse("-p tcp --dport 80 -j WEB")?;
    if is_wanted {
        match client.new_chain(filter, web) {
            Err(error) if error.is_already_exists() => {}
            created => created?,
        }
        client.ensure(filter, web, &Rule::parse("-s 192.0.2.0/24 -j DROP")?)?;
        if !client.check(filter, input, &jump)? {
            client.insert(filter, input, 1, &jump)?;
        }
    } else {
        if client.check(filter, input, &jump)? {
            client.delete(filter, input, &jump)?;
        }
        let flushed = client.flush_chain(filter, web);
        match flushed.and_then(|()| client.delete_chain(filter, web)) {
            Err(error) if error.is_not_found() => {}
            deleted => deleted?,
        }
    }
    Ok(())
}
