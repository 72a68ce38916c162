//! A test of a firewall without a kernel: the outcomes of packets, and the deciding rules.
//!
//! Run it with `cargo run --example nftables`. It needs no privileges.

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;

use vipline_evaluate::{Evaluator, Host, Packet};
use vipline_nftables::expression::{concat, ip_saddr, numgen_random, tcp_dport};
use vipline_nftables::statement::{accept, dnat};
use vipline_nftables::{
    BaseChain, Chain, ChainType, Datatype, Family, Hook, Name, Policy, Rule, Ruleset, Set, TableId,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    run(&mut io::stdout().lock())
}

/// Evaluates three packets. Writes their outcomes to `out`.
pub(crate) fn run(out: &mut impl Write) -> Result<()> {
    let ruleset = ruleset()?;
    let host = Host::new()
        .with_addr("eth0", "192.0.2.1/24".parse()?)
        .with_addr("eth1", "10.0.0.1/24".parse()?);
    let evaluator = Evaluator::new(&ruleset);
    let client: SocketAddr = "192.0.2.7:40000".parse()?;
    for (question, port) in [("SSH", 22), ("HTTP", 80), ("telnet", 23)] {
        let packet = Packet::tcp(client, SocketAddr::new("192.0.2.1".parse()?, port));
        writeln!(out, "# {question}:")?;
        for outcome in evaluator.evaluate(&packet.with_input("eth0"), &host)? {
            writeln!(out, "{outcome}")?;
        }
    }
    Ok(())
}

/// Returns a firewall that accepts SSH, and that balances HTTP between two servers.
fn ruleset() -> Result<Ruleset> {
    let id = TableId::new(Family::Ip, Name::new("firewall")?);
    let base = |text, kind, hook, priority| {
        let base = BaseChain::new(kind, hook, priority);
        Ok::<_, Box<dyn Error + Send + Sync>>((Chain::new(id.clone(), Name::new(text)?), base))
    };
    let (input, hook) = base("input", ChainType::Filter, Hook::Input, 0)?;
    let input = input.with_base(hook.with_policy(Policy::Drop));
    let ssh = [tcp_dport().is(22), accept()];
    let (balance, hook) = base("balance", ChainType::Nat, Hook::Prerouting, -100)?;
    let data = [Datatype::Ipv4Addr, Datatype::InetService];
    let key = [Datatype::InetService, Datatype::Mark];
    let servers = Set::map(id.clone(), Name::new("servers")?, key, data);
    let server = concat((tcp_dport(), numgen_random(2))).map(&servers);
    let inside: ipnet::IpNet = "10.0.0.0/24".parse()?;
    let http = [ip_saddr().is_not(inside), dnat(server)];
    let mut objects = vec![
        input.with_rules([Rule::new(id.family, ssh)?]).into(),
        balance
            .with_base(hook)
            .with_rules([Rule::new(id.family, http)?])
            .into(),
        servers.clone().into(),
    ];
    for (slot, addr) in [(0_u32, [10, 0, 0, 8]), (1, [10, 0, 0, 9])] {
        let element = servers.element(&[80_u16.into(), slot.into()])?;
        let addr = std::net::IpAddr::from(addr);
        objects.push(element.with_data(&[addr.into(), 8080_u16.into()])?.into());
    }
    Ok(objects.into_iter().collect())
}
