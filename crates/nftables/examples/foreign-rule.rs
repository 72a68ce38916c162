//! A rule in the chain of another program: reads the rules, adds one in front of the rule that
//! rejects everything else, and removes exactly this one again.
//!
//! Run it as root with `cargo run --example foreign-rule`. It runs `nft` as the other program,
//! in a network namespace of its own, so that the host stays as it is.
#![allow(clippy::disallowed_types, reason = "it runs nft")]
#![allow(clippy::print_stdout, reason = "the output is the purpose")]

use std::error::Error;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use vipline_nftables::expression::tcp_dport;
use vipline_nftables::statement::accept;
use vipline_nftables::{Client, Comment, Family, Name, Rule, RulePosition, TableId};

const FIREWALL: &str = "table inet firewall {
    set blocked { type ipv4_addr; elements = { 192.0.2.7 } }
    chain input {
        type filter hook input priority filter; policy accept;
        ct state established,related accept
        ip saddr @blocked counter packets 3 bytes 180 drop
        tcp dport 22 accept
        reject
    }
}";

fn main() -> Result<(), Box<dyn Error>> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    Command::new("nft").arg(FIREWALL).status()?;

    let table = TableId::new(Family::Inet, "firewall".parse()?);
    let input = Name::new("input")?;
    let mut client = Client::open()?;
    let before = client.dump(&table)?;
    print!("# Rules of the other program:\n\n{before}");

    // Each rule has a handle, which stays the same until the rule is deleted.
    let mut rules = before.rules(&table, &input);
    let reject = rules.find(|(_, rule)| rule.to_string().starts_with("reject"));
    let (reject, _) = reject.ok_or("no rule rejects the rest")?;
    // The comment tells an operator whose rule this is.
    let ours = Rule::new(table.family, [tcp_dport().is(9100), accept()])?;
    let ours = ours.with_comment(Comment::new("metrics")?);
    let handle = client.add_rule(&table, &input, RulePosition::Before(reject), &ours)?;
    let with_ours = client.dump(&table)?;
    println!("\n# With ours:\n\n{with_ours}");

    // An equal rule of the other program would stay: it has another handle.
    client.delete_rule(&table, &input, handle)?;
    let after = client.dump(&table)?;
    let are_same = after.rules(&table, &input).eq(before.rules(&table, &input));
    println!("# All other rules and their handles are as before: {are_same}");
    Ok(())
}
