//! Host ports of pods, as the CNI plugin `portmap` makes them: TCP port 8080 of the host leads
//! to port 80 of a pod. Rules stay as they are, and a host port is one element of their map.
//!
//! Run it as root with `cargo run --example host-ports`. The program works in a network
//! namespace of its own, so the host stays as it is.
#![allow(clippy::print_stdout, reason = "the output is the purpose")]

use std::error::Error;
use std::net::SocketAddr;

use nix::sched::{CloneFlags, unshare};
use vipline_nftables::expr::AddrType;
use vipline_nftables::expression::{fib_daddr_type, tcp_dport};
use vipline_nftables::statement::dnat;
use vipline_nftables::{
    BaseChain, Chain, ChainType, Client, Datatype, Family, Hook, Object, Rule, Set, Table, TableId,
    Transaction, diff,
};

fn main() -> Result<(), Box<dyn Error>> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let table = TableId::new(Family::Ip, "host-ports".parse()?);
    let data = [Datatype::Ipv4Addr, Datatype::InetService];
    let key = Datatype::InetService;
    let ports = Set::map(table.clone(), "ports".parse()?, key, data);
    let host_port = |port: u16, pod: SocketAddr| {
        let element = ports.element(&[port.into()])?;
        element.with_data(&[pod.ip().into(), pod.port().into()])
    };
    let web = host_port(8080, "10.88.0.5:80".parse()?)?;
    let mut client = Client::open()?;
    // A container runtime repeats an interrupted request: all steps may find their work done.
    for _ in 0..2 {
        // The difference to the rules that exist. Host ports of other pods stay.
        let installed = client.dump(&table)?.into_objects();
        let installed = installed.filter(|it| !matches!(it, Object::Element(_)));
        client.commit(&Transaction::from_edits(&diff(installed, &rules(&ports)?)))?;
        client.add(web.clone())?;
    }
    print!("{}", client.dump(&[table])?);
    if let Err(error) = client.add(host_port(8080, "10.88.0.6:80".parse()?)?) {
        println!("another pod cannot have the port: {error}");
    }
    client.destroy(web.clone())?;
    client.destroy(web)?;
    println!("{} host ports are left", client.elements(&ports)?.len());
    Ok(())
}

fn rules(ports: &Set) -> Result<Vec<Object>, Box<dyn Error>> {
    let local = fib_daddr_type().is(AddrType::Local);
    let rule = Rule::new(ports.table.family, [local, dnat(tcp_dport().map(ports))])?;
    let mut objects = vec![Table::new(ports.table.clone()).into(), ports.clone().into()];
    for (name, hook) in [("prerouting", Hook::Prerouting), ("output", Hook::Output)] {
        let chain = Chain::new(ports.table.clone(), name.parse()?);
        let base = BaseChain::new(ChainType::Nat, hook, -100);
        objects.push(chain.with_base(base).with_rules([rule.clone()]).into());
    }
    Ok(objects)
}
