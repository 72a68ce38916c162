//! A firewall with named counters and a named set.
//!
//! Run it as root with `cargo run --example firewall`.
//! The example runs in a new network namespace and does not change the host.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the example sends a packet"
)]

use std::error::Error;
use std::io::{self, Write};
use std::net::UdpSocket;
use std::process::Command;

use ipnet::IpNet;
use nix::sched::{CloneFlags, unshare};
use vipline_nftables::expr::{Counter, CtState};
use vipline_nftables::expression::{ct_state, ip_saddr, tcp_dport, udp_dport};
use vipline_nftables::statement::{accept, drop};
use vipline_nftables::{
    BaseChain, Chain, ChainType, Client, Datatype, Error as NftError, Family, Hook, Name, Object,
    Policy, Rule, RulePosition, Set, SetFlags, StatefulObject, Table, TableId, Transaction, diff,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Maximum number of attempts to install the firewall while other programs commit.
const ATTEMPTS: usize = 10;

fn main() -> Result<()> {
    // A network namespace of its own, so that the host stays as it is.
    unshare(CloneFlags::CLONE_NEWNET)?;
    Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status()?;
    run(&mut io::stdout().lock())
}

/// Installs the firewall and changes it. Writes the steps to `out`.
pub(crate) fn run(out: &mut impl Write) -> Result<()> {
    let mut client = Client::open()?;
    let firewall = Firewall::new()?;
    let (table, input) = (&firewall.table, &firewall.input);
    let tables = [table.clone()];

    // Declarative: the kernel gets the difference to what it has, in one transaction.
    firewall.install(&mut client)?;
    writeln!(out, "# Installed:\n\n{}", client.dump(&tables)?)?;

    // One call for one change. The other rules and all counters stay as they are.
    client.add(firewall.ports.element(&[443_u16.into()])?)?;
    let dns = [udp_dport().is(53), firewall.dns.statement(), accept()];
    let dns = Rule::new(table.family, dns)?;
    let dns = client.add_rule(table, input, RulePosition::Head, &dns)?;
    writeln!(out, "# With HTTPS and DNS:\n\n{}", client.dump(&tables)?)?;

    // The counters of one packet.
    UdpSocket::bind("127.0.0.1:0")?.send_to(b"?", "127.0.0.1:53")?;
    writeln!(out, "# Counters, which are then zero:\n")?;
    for object in client.reset_objects(table)? {
        writeln!(out, "{}", Object::from(object))?;
    }
    client.delete_rule(table, input, dns)?;

    // An error names the object. The kernel applied nothing.
    let telnet = firewall.ports.element(&[23_u16.into()])?;
    if let Err(error) = client.delete(telnet) {
        writeln!(out, "\n# Error:\n\n{error}")?;
    }
    Ok(())
}

/// The table, the set and the counters that rules and elements refer to.
struct Firewall {
    table: TableId,
    /// Name of the chain for packets to the local host.
    input: Name,
    /// Open TCP ports.
    ports: Set,
    /// Blocked source networks.
    blocked: Set,
    /// Counter of dropped packets.
    dropped: StatefulObject,
    /// Counter of DNS requests.
    dns: StatefulObject,
}

impl Firewall {
    fn new() -> Result<Self> {
        let table = TableId::new(Family::Inet, Name::new("firewall")?);
        let set = |name, key: Datatype| Set::new(table.clone(), name, [key]);
        let counter = |name| StatefulObject::new(table.clone(), name, Counter::default());
        let blocked = set(Name::new("blocked")?, Datatype::Ipv4Addr);
        Ok(Self {
            input: Name::new("input")?,
            ports: set(Name::new("open-ports")?, Datatype::InetService),
            blocked: blocked.with_flags(SetFlags::INTERVAL),
            dropped: counter(Name::new("dropped")?),
            dns: counter(Name::new("dns")?),
            table: table.clone(),
        })
    }

    /// Makes the table equal to the desired objects, whatever it contains.
    fn install(&self, client: &mut Client) -> Result<()> {
        let desired = self.objects()?;
        for _ in 0..ATTEMPTS {
            let installed = client.dump(&self.table)?;
            let generation = installed.generation();
            let transaction = Transaction::from_edits(&diff(installed, &desired));
            match client.commit_at(&transaction, generation) {
                // Another program committed since the dump.
                Err(NftError::Outdated) => {}
                result => return Ok(result?),
            }
        }
        Err(NftError::Outdated.into())
    }

    /// Returns all objects of the firewall, in any order.
    fn objects(&self) -> Result<Vec<Object>> {
        let mut objects: Vec<Object> = vec![
            Table::new(self.table.clone()).into(),
            self.dropped.clone().into(),
            self.dns.clone().into(),
            self.ports.clone().into(),
            self.blocked.clone().into(),
            self.chain()?.into(),
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

    fn chain(&self) -> Result<Chain> {
        let rule = |statements: Vec<_>| Rule::new(self.table.family, statements);
        let known = CtState::ESTABLISHED | CtState::RELATED;
        let base = BaseChain::new(ChainType::Filter, Hook::Input, 0).with_policy(Policy::Drop);
        let chain = Chain::new(self.table.clone(), self.input.clone()).with_base(base);
        Ok(chain.with_rules([
            rule(vec![ct_state().is(known), accept()])?,
            rule(vec![
                ip_saddr().in_set(&self.blocked),
                self.dropped.statement(),
                drop(),
            ])?,
            rule(vec![tcp_dport().in_set(&self.ports), accept()])?,
        ]))
    }
}
