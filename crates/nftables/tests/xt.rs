//! Matches, targets and base chains of iptables-nft, with a real kernel.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

use std::process::Command;

use testkit::netns::Netns;
use vipline_nftables::expr::{Counter, Expr, Match, Target};
use vipline_nftables::{
    BaseChain, Chain, ChainType, Client, Compat, Edit, Family, Hook, Name, Object, Policy, Rule,
    Ruleset, Table, TableId, Transaction,
};

/// Commands that write rules with matches and targets in table `filter`.
const COMMANDS: [&str; 6] = [
    "-P FORWARD DROP",
    "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    "-A INPUT -p sctp -m sctp --dport 80 -m comment --comment hello -j DROP",
    "-A INPUT ! -p tcp -m statistic --mode random --probability 0.5",
    "-A INPUT -m addrtype --dst-type LOCAL -j MARK --or-mark 0x4000",
    "-A INPUT -p tcp -j REJECT --reject-with tcp-reset",
];

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn filter() -> TableId {
    TableId::new(Family::Ip, name("filter"))
}

/// A network namespace with a client.
struct Lab(Netns, Client);

impl Lab {
    fn new() -> Self {
        let netns = Netns::new().unwrap();
        let client = netns.run(Client::open).unwrap();
        Self(netns, client)
    }

    fn run(&self, program: &str, args: &str) -> String {
        let mut command = Command::new(program);
        command.args(args.split_whitespace());
        let output = self.0.run(|| command.output()).unwrap();
        assert!(output.status.success(), "{program} {args}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn dump(&mut self) -> Ruleset {
        self.1.dump(&[filter()]).unwrap()
    }

    fn add(&mut self, objects: impl IntoIterator<Item = Object>) {
        let edits: Vec<_> = objects.into_iter().map(Edit::Add).collect();
        self.1.commit(&Transaction::from_edits(&edits)).unwrap();
    }

    /// Returns the lines of `iptables-nft-save`, except comments.
    fn save(&self) -> Vec<String> {
        let text = self.run("iptables-nft-save", "-c");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    }
}

#[test]
fn a_dump_of_iptables_nft_restores_the_same_rules() {
    let mut theirs = Lab::new();
    for command in COMMANDS {
        theirs.run("iptables-nft", command);
    }
    let dump = theirs.dump();
    let exprs = dump.objects().filter_map(|object| match object {
        Object::Chain(chain) => Some(chain),
        _ => None,
    });
    let exprs: Vec<Expr> = exprs
        .flat_map(|chain| chain.rules.to_vec())
        .flat_map(|rule| rule.exprs)
        .collect();
    let named = |wanted: &str| exprs.iter().filter(|expr| expr.name() == wanted).count();
    assert_eq!((named("match"), named("target")), (5, 2));
    assert!(!exprs.iter().any(|expr| matches!(expr, Expr::Other { .. })));

    // Dumps contain no protocol, which matches and targets of transport protocols
    // require.
    let objects = dump.clone().into_objects().map(|object| match object {
        Object::Chain(mut chain) => {
            let rules = chain.rules.iter().cloned().map(with_protocol);
            chain.rules = rules.collect();
            Object::Chain(chain)
        }
        object => object,
    });
    let mut ours = Lab::new();
    ours.add(objects);
    assert_eq!(ours.save(), theirs.save());
    let (ours, theirs) = (ours.dump(), theirs.dump());
    assert!(ours.objects().eq(theirs.objects()), "{ours}\n{theirs}");
}

/// Sets the protocol that the match or target of a rule requires.
fn with_protocol(rule: Rule) -> Rule {
    let protocol = rule.exprs.iter().find_map(|expr| match expr {
        Expr::Match(expr) if expr.name.as_str() == "sctp" => Some(132),
        Expr::Target(expr) if expr.name.as_str() == "REJECT" => Some(6),
        _ => None,
    });
    match protocol {
        Some(protocol) => rule.with_compat(Compat {
            protocol,
            invert: false,
        }),
        None => rule,
    }
}

#[test]
fn a_match_requires_the_protocol_of_the_rule() {
    let mut lab = Lab::new();
    let sctp = Match {
        name: name("sctp"),
        revision: 0,
        info: [0; 296].into(),
    };
    let rule = Rule::from_exprs([sctp.into()]);
    let commit = |lab: &mut Lab, rule: Rule| {
        let chain = Chain::new(filter(), name("A")).with_rules([rule]);
        let edits = [Table::new(filter()).into(), Object::from(chain)].map(Edit::Add);
        lab.1.commit(&Transaction::from_edits(&edits))
    };
    let compat = |protocol, invert| Compat { protocol, invert };
    assert!(commit(&mut lab, rule.clone()).is_err());
    assert!(commit(&mut lab, rule.clone().with_compat(compat(6, false))).is_err());
    assert!(commit(&mut lab, rule.clone().with_compat(compat(132, true))).is_err());
    commit(&mut lab, rule.with_compat(compat(132, false))).unwrap();
}

#[test]
fn a_base_chain_counts_packets_of_its_policy() {
    let mut lab = Lab::new();
    let base = BaseChain::new(ChainType::Filter, Hook::Output, 0).with_policy(Policy::Drop);
    let chain = |base| Chain::new(filter(), name("OUTPUT")).with_base(base);
    lab.add([
        Table::new(filter()).into(),
        chain(base.clone().with_counter()).into(),
    ]);
    lab.run("ip", "link set lo up");
    let send = || std::net::UdpSocket::bind("127.0.0.1:0")?.send_to(&[1], "127.0.0.1:9");
    lab.0.run(send).unwrap_err();

    let dump = lab.dump();
    let installed = dump.chain(&filter(), "OUTPUT").unwrap().base.clone();
    let counter = installed.unwrap().counter.unwrap();
    assert!(counter.packets > 0 && counter.bytes > 0, "{counter:?}");
    assert_ne!(counter, Counter::default());
    let wanted = [Table::new(filter()).into(), chain(base).into()];
    assert_eq!(vipline_nftables::diff(dump.into_objects(), &wanted), []);
}

#[test]
fn a_target_outside_of_its_table_is_rejected() {
    let mut lab = Lab::new();
    let mut info = [0; 24];
    info[4] = 1;
    let masquerade = Target {
        name: name("MASQUERADE"),
        revision: 0,
        info: info.into(),
    };
    let chain = Chain::new(filter(), name("A")).with_rules([Rule::from_exprs([masquerade.into()])]);
    let edits = [Table::new(filter()).into(), Object::from(chain)].map(Edit::Add);
    let error = lab.1.commit(&Transaction::from_edits(&edits)).unwrap_err();
    assert!(error.to_string().contains("target MASQUERADE 0"), "{error}");
}
