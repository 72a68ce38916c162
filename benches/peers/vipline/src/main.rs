//! The jobs by the crates of Vipline.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use jobs::{Outcome, expect};
use vipline_conntrack::{Family as FlowFamily, Filter, Protocol, TupleFilter};
use vipline_ipset::{Commands, Entry, Member, SetFamily, SetType};
use vipline_iptables::Tables;
use vipline_nftables::expression::{ip_saddr, tcp_dport};
use vipline_nftables::statement::{accept, counter};
use vipline_nftables::{
    BaseChain, Chain, ChainType, Client, Datatype, Edit, Family, Hook, Name, Object, Rule,
    RulePosition, Set, TableId, Transaction,
};

fn main() -> ExitCode {
    jobs::main(|job, file| {
        Some(match job {
            jobs::ADD_ELEMENTS => add_elements(),
            jobs::ADD_RULES => add_rules(),
            jobs::READ_RULES => read_rules(),
            jobs::LIST_FLOWS => list_flows(&Filter::new().with_family(FlowFamily::V4), jobs::FLOWS),
            jobs::FILTER_FLOWS => list_flows(&filter(), jobs::FLOWS / jobs::ONE_OF),
            jobs::ADD_ENTRIES => add_entries(),
            jobs::PARSE_SAVE => parse_save(file),
            _ => return None,
        })
    })
}

fn table() -> Outcome<TableId> {
    Ok(TableId::new(Family::Ip, Name::new(jobs::TABLE)?))
}

fn add(objects: Vec<Object>) -> Outcome<()> {
    let edits: Vec<_> = objects.into_iter().map(Edit::Add).collect();
    Client::open()?.commit(&Transaction::from_edits(&edits))?;
    Ok(())
}

fn add_elements() -> Outcome<()> {
    let set = Set::new(table()?, Name::new(jobs::SET)?, Datatype::Ipv4Addr);
    let mut objects = vec![set.clone().into()];
    for address in jobs::addresses() {
        objects.push(set.element(&[address.into()])?.into());
    }
    add(objects)
}

fn add_rules() -> Outcome<()> {
    let (table, mut client) = (table()?, Client::open()?);
    let base = BaseChain::new(ChainType::Filter, Hook::Input, 0);
    let chain = Chain::new(table.clone(), Name::new(jobs::CHAIN)?).with_base(base);
    // One transaction, which keeps only the messages.
    let mut batch = client.batch(None);
    batch.add_chain(&chain);
    for (source, port) in jobs::rules() {
        let statements = [
            ip_saddr().is(source),
            tcp_dport().is(port),
            counter(),
            accept(),
        ];
        let rule = Rule::new(Family::Ip, statements)?;
        batch.add_rule(&table, &chain.name, RulePosition::Tail, &rule);
    }
    Ok(client.commit_batch(batch)?)
}

fn read_rules() -> Outcome<()> {
    let (mut rules, mut failed) = (Vec::new(), None);
    let dump = Client::open()?.rules(&table()?, None, |rule| match rule.decode() {
        Ok(rule) => rules.push(rule),
        Err(error) => failed = Some(error),
    })?;
    match failed {
        Some(error) => Err(error.into()),
        None => {
            dump.complete().ok_or("the rules changed")?;
            expect(rules.len(), jobs::RULES)
        }
    }
}

fn filter() -> Filter {
    Filter::new()
        .with_family(FlowFamily::V4)
        .with_protocol(Protocol::UDP)
        .with_original(TupleFilter::new().with_destination_port(jobs::PORT))
}

fn list_flows(filter: &Filter, expected: u32) -> Outcome<()> {
    let flows = vipline_conntrack::Client::open()?.flows(filter)?;
    expect(flows.into_inner().len(), expected)
}

fn add_entries() -> Outcome<()> {
    let name = vipline_ipset::Name::new(jobs::SET)?;
    let set = vipline_ipset::Set::new(name.clone(), SetType::HashIp, SetFamily::V4);
    let entries = jobs::addresses()
        .map(|address| Entry::new(name.clone(), Member::Ip(address.into())).into());
    let objects = [set.into()].into_iter().chain(entries);
    let edits: Vec<_> = objects.map(vipline_ipset::Edit::Add).collect();
    vipline_ipset::Client::open()?.commit(&Commands::from_edits(&edits))?;
    Ok(())
}

fn parse_save(file: PathBuf) -> Outcome<()> {
    let text = fs::read_to_string(file)?;
    let tables = Tables::parse(&text)?;
    let lines = tables.iter().flat_map(|table| table.rules());
    let rules: Vec<_> = lines.map(|line| line.rule()).collect::<Result<_, _>>()?;
    expect(rules.len(), jobs::LINES)
}
