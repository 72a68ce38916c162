//! A small firewall: built from values, committed, dumped and changed.
//!
//! Run it as root with `cargo run -p vipline-nftables --example firewall`.
//! The example runs in a new network namespace and does not change the host.
#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::error::Error;

use ipnet::IpNet;
use testkit::netns::Netns;
use vipline_nftables::expr::CtState;
use vipline_nftables::expression::{ct_state, iifname, ip_saddr, tcp_dport};
use vipline_nftables::statement::{accept, counter, drop, log};
use vipline_nftables::{
    BaseChain, Chain, ChainType, Client, Datatype, Family, Hook, Name, Object, Policy, Rule, Set,
    SetFlags, Table, TableId, Transaction,
};
use vipline_reconcile::{Edit, diff};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    Netns::new()?.run(run)
}

fn run() -> Result<()> {
    let mut client = Client::open()?;
    let firewall = Firewall::new()?;
    let tables = [firewall.table.clone()];

    // The edits are the difference between the dump and the desired objects.
    let installed = client.dump(&tables)?;
    let wanted = firewall.objects()?;
    let transaction = Transaction::from_edits(&diff(installed.into_objects(), &wanted));
    println!("# Atomic transaction:\n\n{transaction}");
    client.commit(&transaction)?;

    let installed = client.dump(&tables)?;
    println!("# Ruleset in the kernel:\n\n{installed}");
    assert!(
        diff(installed.into_objects(), &wanted).is_empty(),
        "the kernel has what was wanted"
    );

    // A later transaction contains only the changed objects.
    let https = firewall.ports.element(&[443_u16.into()])?;
    let transaction = Transaction::from_edits(&[Edit::Add(https.into())]);
    println!("# Additional port:\n\n{transaction}");
    client.commit(&transaction)?;

    // An error names the rejected operation; the kernel applies nothing.
    let telnet = firewall.ports.element(&[23_u16.into()])?;
    let refused = client.commit(&Transaction::from_edits(&[Edit::Remove(telnet.into())]));
    if let Err(error) = refused {
        println!("# Deletion of a missing element fails:\n\n{error}");
    }
    Ok(())
}

/// The table and the sets that rules and elements refer to.
struct Firewall {
    table: TableId,
    /// Open TCP ports.
    ports: Set,
    /// Blocked source networks.
    blocked: Set,
}

impl Firewall {
    fn new() -> Result<Self> {
        let table = TableId::new(Family::Inet, Name::new("firewall")?);
        let ports = Set::set(
            table.clone(),
            Name::new("open-ports")?,
            [Datatype::InetService.into()],
        );
        let blocked = Set::set(
            table.clone(),
            Name::new("blocked")?,
            [Datatype::Ipv4Addr.into()],
        );
        Ok(Self {
            table,
            ports,
            blocked: blocked.with_flags(SetFlags::INTERVAL),
        })
    }

    /// Returns all objects of the firewall, in any order.
    fn objects(&self) -> Result<Vec<Object>> {
        let mut objects: Vec<Object> = vec![
            Table::new(self.table.clone()).into(),
            self.ports.clone().into(),
            self.blocked.clone().into(),
            self.input()?.into(),
        ];
        for port in [22_u16, 80] {
            objects.push(self.ports.element(&[port.into()])?.into());
        }
        for network in ["192.0.2.0/24", "198.51.100.64/26"] {
            let network: IpNet = network.parse()?;
            objects.push(self.blocked.element(&[network.into()])?.into());
        }
        Ok(objects)
    }

    /// Returns the base chain for packets to the local host.
    fn input(&self) -> Result<Chain> {
        let rule = |statements: Vec<_>| Rule::new(Family::Inet, statements);
        let input = BaseChain::new(ChainType::Filter, Hook::Input, 0).with_policy(Policy::Drop);
        let chain = Chain::new(self.table.clone(), Name::new("input")?);
        Ok(chain.with_base(input).with_rules([
            rule(vec![iifname().is("lo"), accept()]),
            rule(vec![
                ct_state().is(CtState::ESTABLISHED | CtState::RELATED),
                accept(),
            ]),
            rule(vec![ip_saddr().in_set(&self.blocked), counter(), drop()]),
            rule(vec![tcp_dport().in_set(&self.ports), accept()]),
            rule(vec![log(&Name::new("refused: ")?), counter()]),
        ]))
    }
}
