//! Single rules, identified by handles, with a real kernel.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

use testkit::netns::Netns;
use testkit::nft;
use vipline_netlink::{Dump, Errno};
use vipline_nftables::expression::tcp_dport;
use vipline_nftables::statement::accept;
use vipline_nftables::{
    Action, BatchBuilder, Client, Error, Family, Name, Operation, Rule, RuleHandle, RulePosition,
    Subject, TableId,
};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn table() -> TableId {
    TableId::new(Family::Ip, name("t"))
}

/// Returns a rule that accepts packets to a port.
fn rule(port: u16) -> Rule {
    Rule::new(Family::Ip, [tcp_dport().is(port), accept()]).unwrap()
}

/// A network namespace with table `ip t`, chain `c` and a client.
struct Lab {
    netns: Netns,
    client: Client,
}

impl Lab {
    fn new() -> Self {
        let netns = Netns::new().unwrap();
        let client = netns.run(Client::open).unwrap();
        let mut lab = Self { netns, client };
        lab.commit(|batch| {
            batch.add_table(&table());
            batch.add_regular_chain(&table(), &name("c"));
        })
        .unwrap();
        lab
    }

    fn commit(&mut self, fill: impl FnOnce(&mut BatchBuilder)) -> Result<(), Error> {
        let mut batch = self.client.batch(None);
        fill(&mut batch);
        self.client.commit_batch(batch)
    }

    fn add(&mut self, position: RulePosition, port: u16) {
        self.commit(|batch| batch.add_rule(&table(), &name("c"), position, &rule(port)))
            .unwrap();
    }

    /// Returns handle and ports of the rules of chain `c`.
    fn rules(&mut self) -> Vec<(RuleHandle, String)> {
        let mut rules = Vec::new();
        let each = |rule: vipline_nftables::InstalledRule<'_>| {
            assert_eq!((rule.table, rule.chain), ("t", "c"));
            rules.push((rule.handle, rule.decode().unwrap().to_string()));
        };
        let dump = self.client.rules(&table(), Some(&name("c")), each).unwrap();
        assert_eq!(dump, Dump::Complete(()));
        rules
    }

    fn handle(&mut self, port: u16) -> RuleHandle {
        let text = rule(port).to_string();
        let rules = self.rules();
        rules.iter().find(|(_, rule)| *rule == text).unwrap().0
    }

    #[track_caller]
    fn assert_ports(&mut self, ports: &[u16]) {
        let texts: Vec<_> = self.rules().into_iter().map(|(_, text)| text).collect();
        let expected: Vec<_> = ports.iter().map(|port| rule(*port).to_string()).collect();
        assert_eq!(texts, expected);
    }

    fn nft(&self, script: &str) {
        let output = self.netns.run(|| nft::run(&["-f", "-"], script));
        assert!(output.status.success(), "{script}\n{output:?}");
    }

    /// Returns the encoded expressions of all rules of the table.
    fn bytes(&mut self) -> Vec<Vec<u8>> {
        let mut rules = Vec::new();
        let each = |rule: vipline_nftables::InstalledRule<'_>| {
            let exprs = rule.expressions().unwrap().map(Result::unwrap);
            rules.push(exprs.flat_map(|expr| expr.value.to_vec()).collect());
        };
        assert_eq!(
            self.client.rules(&table(), None, each).unwrap(),
            Dump::Complete(())
        );
        rules
    }
}

#[test]
fn rules_are_added_at_every_position() {
    let mut lab = Lab::new();
    lab.add(RulePosition::Tail, 2);
    lab.add(RulePosition::Head, 1);
    lab.add(RulePosition::Tail, 4);
    let at = lab.handle(2);
    lab.add(RulePosition::After(at), 3);
    let at = lab.handle(1);
    lab.add(RulePosition::Before(at), 0);
    lab.assert_ports(&[0, 1, 2, 3, 4]);
}

#[test]
fn a_rule_is_deleted_and_replaced_by_its_handle() {
    let mut lab = Lab::new();
    for port in [1, 2, 3] {
        lab.add(RulePosition::Tail, port);
    }
    let (first, second) = (lab.handle(1), lab.handle(2));
    lab.commit(|batch| {
        batch.delete_rule(&table(), &name("c"), first);
        batch.replace_rule(&table(), &name("c"), second, &rule(9));
    })
    .unwrap();
    lab.assert_ports(&[9, 3]);
    lab.commit(|batch| batch.flush_chain(&table(), &name("c")))
        .unwrap();
    lab.assert_ports(&[]);
    lab.commit(|batch| batch.delete_chain(&table(), &name("c")))
        .unwrap();
    assert_eq!(lab.client.chain(&table(), &name("c")).unwrap(), None);
}

#[test]
fn rules_with_unknown_expressions_stay_byte_for_byte() {
    let mut lab = Lab::new();
    let rules = "ip saddr 10.0.0.1 socket transparent 1 accept\nsocket mark 1 drop\n";
    lab.nft(&format!("table ip t {{\nchain c {{\n{rules}}}\n}}\n"));
    let before = lab.bytes();
    assert_eq!(before.len(), 2);
    lab.add(RulePosition::Head, 1);
    lab.add(RulePosition::Tail, 2);
    let [head, theirs @ .., tail] = &*lab.bytes() else {
        panic!("rules are missing");
    };
    assert_eq!(theirs, before);
    assert_ne!(head, tail);
    let (head, tail) = (lab.handle(1), lab.handle(2));
    lab.commit(|batch| {
        batch.delete_rule(&table(), &name("c"), head);
        batch.delete_rule(&table(), &name("c"), tail);
    })
    .unwrap();
    assert_eq!(lab.bytes(), before);
}

#[test]
fn existing_tables_and_chains_remain_as_they_are() {
    let mut lab = Lab::new();
    lab.nft("table ip t { flags dormant; }");
    lab.add(RulePosition::Tail, 1);
    let before = lab.client.table(&table()).unwrap();
    lab.commit(|batch| {
        batch.add_table(&table());
        batch.add_regular_chain(&table(), &name("c"));
    })
    .unwrap();
    assert_eq!(lab.client.table(&table()).unwrap(), before);
    lab.assert_ports(&[1]);
    let mut chains = Vec::new();
    let each = |chain: vipline_nftables::Chain| chains.push(chain.name.to_string());
    assert_eq!(
        lab.client.chains(Family::Ip, each).unwrap(),
        Dump::Complete(())
    );
    assert_eq!(chains, ["c"]);
}

#[test]
fn a_rejected_operation_is_named_by_its_index() {
    let mut lab = Lab::new();
    let result = lab.commit(|batch| {
        batch.add_rule(&table(), &name("c"), RulePosition::Tail, &rule(1));
        batch.delete_rule(&table(), &name("c"), RuleHandle(1 << 40));
    });
    let Error::Rejected {
        rejected,
        more: Some(0),
        ..
    } = result.unwrap_err()
    else {
        panic!("another error");
    };
    let [one] = &*rejected else {
        panic!("{rejected:?}");
    };
    assert_eq!(
        one.request,
        Operation::new(Action::Delete, Subject::Index(1))
    );
    assert_eq!(one.errno, Errno::NOENT);
    lab.assert_ports(&[]);
}

#[test]
fn a_batch_of_another_generation_is_rejected() {
    let mut lab = Lab::new();
    let generation = lab.client.generation().unwrap();
    lab.add(RulePosition::Tail, 1);
    let commit = |lab: &mut Lab, generation| {
        let mut batch = lab.client.batch(Some(generation));
        batch.add_rule(&table(), &name("c"), RulePosition::Tail, &rule(2));
        lab.client.commit_batch(batch)
    };
    assert!(commit(&mut lab, generation).unwrap_err().is_outdated());
    lab.assert_ports(&[1]);
    commit(&mut lab, generation.next()).unwrap();
    lab.assert_ports(&[1, 2]);
}

#[test]
fn a_missing_table_has_no_rules() {
    let mut lab = Lab::new();
    let missing = TableId::new(Family::Ip6, name("missing"));
    assert_eq!(lab.client.table(&missing).unwrap(), None);
    let each = |_: vipline_nftables::InstalledRule<'_>| panic!("a rule");
    let dump = lab.client.rules(&missing, Some(&name("c")), each).unwrap();
    assert_eq!(dump, Dump::Complete(()));
}
