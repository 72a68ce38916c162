//! The jobs by rustables.
#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;

use jobs::{Outcome, expect};
use rustables::expr::{Counter, Immediate, VerdictKind};
use rustables::set::SetBuilder;
use rustables::{
    Batch, Chain, Hook, HookClass, MsgType, Protocol, ProtocolFamily, Rule, Table,
    list_rules_for_chain,
};

fn main() -> ExitCode {
    jobs::main(|job, _| {
        Some(match job {
            jobs::ADD_ELEMENTS => add_elements(),
            jobs::ADD_RULES => add_rules(),
            jobs::READ_RULES => read_rules(),
            _ => return None,
        })
    })
}

fn table() -> Table {
    Table::new(ProtocolFamily::Ipv4).with_name(jobs::TABLE)
}

fn chain() -> Chain {
    Chain::new(&table()).with_name(jobs::CHAIN)
}

fn add_elements() -> Outcome<()> {
    let mut batch = Batch::new();
    let builder = || SetBuilder::<Ipv4Addr>::new(jobs::SET, &table());
    let (set, _) = builder()?.finish();
    // The kernel requires an ID of a new set.
    let mut set = set.with_id(1_u32);
    set.family = ProtocolFamily::Ipv4;
    batch.add(&set, MsgType::Add);
    let addresses: Vec<_> = jobs::addresses().collect();
    for addresses in addresses.chunks(jobs::ELEMENTS_OF_A_MESSAGE) {
        let mut builder = builder()?;
        addresses.iter().for_each(|address| builder.add(address));
        batch.add(&builder.finish().1, MsgType::Add);
    }
    Ok(batch.send()?)
}

fn add_rules() -> Outcome<()> {
    let mut batch = Batch::new();
    let chain = chain()
        .with_hook(Hook::new(HookClass::In, 0))
        .add_to_batch(&mut batch);
    let rules: Vec<_> = jobs::rules().collect();
    for rules in rules.chunks(jobs::RULES_OF_A_BATCH) {
        for (source, port) in rules {
            Rule::new(&chain)?
                .match_ip(IpAddr::V4(*source), true)
                .dport(*port, Protocol::TCP)
                .with_expr(Counter::default())
                .with_expr(Immediate::new_verdict(VerdictKind::Accept))
                .add_to_batch(&mut batch);
        }
        std::mem::replace(&mut batch, Batch::new()).send()?;
    }
    Ok(())
}

fn read_rules() -> Outcome<()> {
    expect(list_rules_for_chain(&chain())?.len(), jobs::RULES)
}
