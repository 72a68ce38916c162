//! Prints the number of rules of each chain, and their targets.
//!
//! Run it with `iptables-save | cargo run --example iptables-stat`.
#![allow(clippy::print_stdout, reason = "the output is the purpose")]

use std::collections::BTreeMap;
use std::error::Error;
use std::io;

use vipline_iptables::{RuleLine, Tables};

fn main() -> Result<(), Box<dyn Error>> {
    let text = io::read_to_string(io::stdin())?;
    for table in &Tables::parse(&text)? {
        println!("*{}: {} rules", table.name(), table.rules().count());
        for chain in table.chains() {
            let mut targets: BTreeMap<String, usize> = BTreeMap::new();
            for line in table.rules_of(chain.name()) {
                *targets.entry(target(line)?).or_default() += 1;
            }
            let targets = targets.iter();
            let targets: String = targets
                .map(|(name, count)| format!("  {count} x {name}"))
                .collect();
            let policy = chain.policy().map(|policy| policy.to_string());
            let policy = policy.unwrap_or_default();
            let line = format!("  {:<29}{policy:<8}{targets}", chain.name());
            println!("{}", line.trim_end());
        }
    }
    Ok(())
}

/// Returns the target of a rule without its options, such as `-j DNAT`.
fn target(line: &RuleLine<'_>) -> Result<String, Box<dyn Error>> {
    let Some(target) = line.rule()?.target else {
        return Ok("nothing".to_owned());
    };
    let text = target.to_string();
    Ok(text.split(' ').take(2).collect::<Vec<_>>().join(" "))
}
