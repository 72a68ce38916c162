//! The jobs by nlink, whose calls are async.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use jobs::{Outcome, expect};
use nlink::netlink::netfilter::{ConntrackFilter, IpProtocol};
use nlink::netlink::nftables::{
    BaseChain, Chain, Family, FilterHook, Priority, Rule, Set, SetElement, SetKeyType,
};
use nlink::netlink::{Connection, Netfilter, Nftables};

fn main() -> ExitCode {
    jobs::main(|job, _| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return Some(Err(error.into())),
        };
        Some(match job {
            jobs::ADD_ELEMENTS => runtime.block_on(add_elements()),
            jobs::ADD_RULES => runtime.block_on(add_rules()),
            jobs::READ_RULES => runtime.block_on(read_rules()),
            jobs::LIST_FLOWS => runtime.block_on(list_flows()),
            jobs::FILTER_FLOWS => runtime.block_on(filter_flows()),
            _ => return None,
        })
    })
}

async fn add_elements() -> Outcome<()> {
    let connection = Connection::<Nftables>::new()?;
    let set = Set::new(jobs::TABLE, jobs::SET)
        .family(Family::Ip)
        .key_type(SetKeyType::Ipv4Addr);
    let elements: Vec<_> = jobs::addresses().map(SetElement::ipv4).collect();
    let mut transaction = connection.transaction().add_set(set.clone());
    for elements in elements.chunks(jobs::ELEMENTS_OF_A_MESSAGE) {
        transaction = transaction.add_set_elements(&set, elements);
    }
    Ok(transaction.commit(&connection).await?)
}

async fn add_rules() -> Outcome<()> {
    let connection = Connection::<Nftables>::new()?;
    let chain = Chain::new(jobs::TABLE, jobs::CHAIN)?.family(Family::Ip);
    let chain = chain.base(BaseChain::filter(FilterHook::Input, Priority::Filter));
    let mut transaction = connection.transaction().add_chain(chain);
    let rules: Vec<_> = jobs::rules().collect();
    for rules in rules.chunks(jobs::RULES_OF_A_BATCH) {
        for (source, port) in rules {
            let rule = Rule::new(jobs::TABLE, jobs::CHAIN).family(Family::Ip);
            let rule = rule.match_saddr_v4(*source, 32).match_tcp_dport(*port);
            transaction = transaction.add_rule(rule.counter().accept());
        }
        transaction.commit(&connection).await?;
        transaction = connection.transaction();
    }
    Ok(())
}

async fn read_rules() -> Outcome<()> {
    let connection = Connection::<Nftables>::new()?;
    let rules = connection.list_rules(jobs::TABLE, Family::Ip).await?;
    // `list_rules` keeps the expressions as bytes.
    let exprs: Vec<_> = rules.iter().map(|rule| rule.expressions()).collect();
    expect(exprs.len(), jobs::RULES)
}

async fn list_flows() -> Outcome<()> {
    let flows = Connection::<Netfilter>::new()?.get_conntrack().await?;
    expect(flows.len(), jobs::FLOWS)
}

async fn filter_flows() -> Outcome<()> {
    let filter = ConntrackFilter::new()
        .family(nlink::netlink::types::AddressFamily::Inet)
        .proto(IpProtocol::Udp)
        .orig_dst_port(jobs::PORT);
    let connection = Connection::<Netfilter>::new()?;
    let flows = connection.get_conntrack_matching(&filter).await?;
    expect(flows.len(), jobs::FLOWS / jobs::ONE_OF)
}
