//! Changes of single rules, elements, sets and chains, options of dumps and commits, and
//! declarations of sets, with a real kernel.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[path = "single/declared.rs"]
mod declared;

#[path = "single/dumps.rs"]
mod dumps;

#[path = "single/handles.rs"]
mod handles;

#[path = "rulesets/raw.rs"]
mod raw;

use ipnet::IpNet;
use testkit::netns::Netns;
use testkit::nft;
use vipline_netlink::Dump;
use vipline_nftables::expr::{Counter, Expr};
use vipline_nftables::expression::tcp_dport;
use vipline_nftables::statement::{accept, counter, drop};
use vipline_nftables::{
    BaseChain, Chain, ChainType, Client, Datatype, Element, Error, Family, Generation, Hook, Name,
    Object, Rule, RuleHandle, RulePosition, Ruleset, Set, SetFlags, Table, TableId, Transaction,
    diff,
};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn table() -> TableId {
    TableId::new(Family::Inet, name("filter"))
}

/// Returns a rule that accepts packets to a port.
fn rule(port: u16) -> Rule {
    Rule::new(Family::Inet, [tcp_dport().is(port), accept()]).unwrap()
}

fn ports() -> Set {
    Set::new(table(), name("ports"), [Datatype::InetService])
}

/// A network namespace with a client.
struct Lab {
    netns: Netns,
    client: Client,
}

impl Lab {
    fn new() -> Self {
        let netns = Netns::new().unwrap();
        let client = netns.run(Client::open).unwrap();
        Self { netns, client }
    }

    /// A lab with a chain of another program.
    fn with_input() -> Self {
        let lab = Self::new();
        lab.nft(&format!(
            "table inet filter {{\nchain input {{\n{THEIRS}\n}}\n}}"
        ));
        lab
    }

    fn nft(&self, script: &str) {
        let output = self.netns.run(|| nft::run(&["-f", "-"], script));
        assert!(output.status.success(), "{script}\n{output:?}");
    }

    /// Returns the lines of the chain in the listing of `nft`.
    fn list(&self) -> Vec<String> {
        let arguments = ["-a", "list", "chain", "inet", "filter", "input"];
        let output = self.netns.run(|| nft::run(&arguments, ""));
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().map(|line| line.trim().to_owned());
        let rules = lines.filter(|line| {
            line.contains("# handle") && !line.contains('{') || line.contains("dport")
        });
        rules.collect()
    }

    fn add_rule(&mut self, position: RulePosition, port: u16) -> RuleHandle {
        let rule = rule(port);
        self.client
            .add_rule(&table(), &name("input"), position, &rule)
            .unwrap()
    }
}

fn lines(handles: &[(&str, RuleHandle)]) -> Vec<String> {
    let line = |(text, handle): &(&str, RuleHandle)| format!("{text} # handle {}", handle.0);
    handles.iter().map(line).collect()
}

const THEIRS: &str = "ip saddr 192.0.2.1 counter packets 7 bytes 9";

#[test]
fn a_chain_of_another_program_gets_one_rule_and_loses_it_by_its_handle() {
    let mut lab = Lab::with_input();
    let theirs = RuleHandle(2);
    assert_eq!(lab.list(), lines(&[(THEIRS, theirs)]));
    let last = lab.add_rule(RulePosition::Tail, 4);
    let first = lab.add_rule(RulePosition::Head, 1);
    let before = lab.add_rule(RulePosition::Before(theirs), 2);
    let after = lab.add_rule(RulePosition::After(theirs), 3);
    let all = [
        ("tcp dport 1 accept", first),
        ("tcp dport 2 accept", before),
        (THEIRS, theirs),
        ("tcp dport 3 accept", after),
        ("tcp dport 4 accept", last),
    ];
    assert_eq!(lab.list(), lines(&all));
    let (client, input) = (&mut lab.client, name("input"));
    let refused = Rule::new(Family::Inet, [tcp_dport().is(5), drop()]).unwrap();
    let new = client
        .replace_rule(&table(), &input, before, &refused)
        .unwrap();
    for handle in [first, after, last] {
        client.delete_rule(&table(), &input, handle).unwrap();
    }
    assert_eq!(
        lab.list(),
        lines(&[("tcp dport 5 drop", new), (THEIRS, theirs)])
    );
}

#[test]
fn a_rule_with_anonymous_sets_is_added_alone() {
    let mut lab = Lab::with_input();
    let rule = Rule::new(Family::Inet, [tcp_dport().is_in([22, 80]), accept()]).unwrap();
    let input = name("input");
    let handle = lab
        .client
        .add_rule(&table(), &input, RulePosition::Head, &rule)
        .unwrap();
    let lines_with = [
        ("tcp dport { 22, 80 } accept", handle),
        (THEIRS, RuleHandle(2)),
    ];
    assert_eq!(lab.list(), lines(&lines_with));
    let handle = lab
        .client
        .replace_rule(&table(), &input, handle, &rule)
        .unwrap();
    let missing = lab
        .client
        .add_rule(&table(), &name("none"), RulePosition::Head, &rule)
        .unwrap_err();
    assert_eq!(
        missing.to_string(),
        "add rule inet filter none tcp dport { 22, 80 } accept: no such file or directory"
    );
    lab.client.delete_rule(&table(), &input, handle).unwrap();
    assert_eq!(lab.list(), lines(&[(THEIRS, RuleHandle(2))]));
}

#[test]
fn a_dump_has_the_handles_of_rules() {
    let mut lab = Lab::with_input();
    let ports = tcp_dport().is_in([22, 80]);
    let input = name("input");
    let first = Rule::new(Family::Inet, [ports, accept()]).unwrap();
    let first = lab
        .client
        .add_rule(&table(), &input, RulePosition::Head, &first)
        .unwrap();
    let last = lab.add_rule(RulePosition::Tail, 3);
    let installed = lab.client.dump(&[table()]).unwrap();
    let rules: Vec<_> = installed.rules(&table(), &input).collect();
    let handles: Vec<_> = rules.iter().map(|(handle, _)| *handle).collect();
    assert_eq!(handles, [first, RuleHandle(2), last]);
    // A rule of a dump can be written back: here after the last one.
    let (handle, rule) = rules[0];
    let client = &mut lab.client;
    client.delete_rule(&table(), &input, handle).unwrap();
    let moved = client
        .add_rule(&table(), &input, RulePosition::After(last), rule)
        .unwrap();
    let expected = [
        (THEIRS, RuleHandle(2)),
        ("tcp dport 3 accept", last),
        ("tcp dport { 22, 80 } accept", moved),
    ];
    assert_eq!(lab.list(), lines(&expected));
    let none = Ruleset::from_iter(installed.into_objects());
    assert_eq!(none.rules(&table(), &input).count(), 0);
}

#[test]
fn an_error_names_the_rule_or_its_handle() {
    let mut lab = Lab::with_input();
    let (client, none) = (&mut lab.client, RuleHandle(99));
    let input = name("input");
    let errors = [
        client
            .add_rule(&table(), &name("none"), RulePosition::Tail, &rule(1))
            .unwrap_err(),
        client
            .add_rule(&table(), &input, RulePosition::After(none), &rule(1))
            .unwrap_err(),
        client
            .replace_rule(&table(), &input, none, &rule(1))
            .unwrap_err(),
        client.delete_rule(&table(), &input, none).unwrap_err(),
        client
            .delete(Chain::new(table(), name("none")))
            .unwrap_err(),
        client.delete(ports()).unwrap_err(),
        client
            .add(ports().element(&[7_u16.into()]).unwrap())
            .unwrap_err(),
        client
            .delete(Table::new(TableId::new(Family::Ip, name("none"))))
            .unwrap_err(),
    ];
    for error in &errors {
        assert!(error.is_not_found(), "{error}");
        assert!(!error.may_be_applied());
    }
    let texts = errors.map(|error| error.to_string());
    assert_eq!(
        texts,
        [
            "add rule inet filter none tcp dport 1 accept",
            "add rule inet filter input tcp dport 1 accept",
            "replace rule inet filter input handle 99",
            "delete rule inet filter input handle 99",
            "delete chain inet filter none",
            "delete set inet filter ports",
            "add element inet filter ports { 7 }",
            "delete table ip none",
        ]
        .map(|text| format!("{text}: no such file or directory"))
    );
}

#[test]
fn one_call_adds_and_deletes_each_kind_of_object() {
    let mut lab = Lab::new();
    let client = &mut lab.client;
    let base = BaseChain::new(ChainType::Filter, Hook::Input, 0);
    let input = Chain::new(table(), name("input")).with_base(base);
    let port = ports().element(&[22_u16.into()]).unwrap();
    client.add(Table::new(table())).unwrap();
    client.add(input.clone()).unwrap();
    client.add(ports()).unwrap();
    client.add(port.clone()).unwrap();
    // As with `nft add`, an object that exists stays as it is.
    client.add(port.clone()).unwrap();
    let installed = client.dump(&[table()]).unwrap();
    assert_eq!(installed.objects().count(), 4);
    assert_eq!(client.element(&port).unwrap(), Some(port.clone()));
    client.delete(port.clone()).unwrap();
    assert_eq!(client.element(&port).unwrap(), None);
    client.delete(ports()).unwrap();
    client.delete(input).unwrap();
    assert_eq!(client.dump(&[table()]).unwrap().objects().count(), 1);
    client.delete(Table::new(table())).unwrap();
    assert!(client.tables().unwrap().is_empty());
}

#[test]
fn tables_of_all_families_are_listed() {
    let mut lab = Lab::new();
    let families = ["ip", "ip6", "inet", "arp", "bridge", "netdev"];
    let script = families.map(|family| format!("add table {family} t{family}\n"));
    lab.nft(&(script.concat() + "add table ip6 sleeping { flags dormant; comment \"night\"; }"));
    let tables = lab.client.tables().unwrap();
    let mut texts: Vec<_> = tables.iter().map(|table| table.id.to_string()).collect();
    texts.sort_unstable();
    let mut expected = families
        .map(|family| format!("{family} t{family}"))
        .to_vec();
    expected.push("ip6 sleeping".to_owned());
    expected.sort_unstable();
    assert_eq!(texts, expected);
    let ids: Vec<_> = tables.into_iter().map(|table| table.id).collect();
    assert_eq!(lab.client.dump(&ids).unwrap().objects().count(), 7);
}

#[test]
fn an_element_is_returned_with_its_data_and_lifetime() {
    let mut lab = Lab::new();
    lab.nft(
        "table inet filter {\n\
         map m { type ipv4_addr : inet_service; flags timeout; }\n\
         set nets { type ipv4_addr; flags interval; }\n\
         }\n\
         add element inet filter m { 192.0.2.1 timeout 1h comment \"one\" : 80 }\n\
         add element inet filter nets { 192.0.2.0/24, 198.51.100.7-198.51.100.9 }",
    );
    let installed = lab.client.dump(&[table()]).unwrap();
    let (map, _) = installed.set(&table(), "m").unwrap();
    let (nets, _) = installed.set(&table(), "nets").unwrap();
    assert!(nets.has_intervals() && nets.flags.contains(SetFlags::INTERVAL));
    let mut get = |set: &Set, address: [u8; 4]| {
        let key = set
            .element(&[std::net::Ipv4Addr::from(address).into()])
            .unwrap();
        lab.client.element(&key).unwrap()
    };
    let found = get(map, [192, 0, 2, 1]).unwrap();
    assert!(found.expires_in().is_some() && found.comment().is_some());
    let text = found.to_string();
    assert!(
        text.starts_with("192.0.2.1 timeout 1h") && text.ends_with(": 80"),
        "{text}"
    );
    assert_eq!(get(map, [192, 0, 2, 2]), None);
    let texts = [[192, 0, 2, 77], [198, 51, 100, 8]].map(|it| get(nets, it).unwrap().to_string());
    assert_eq!(texts, ["192.0.2.0/24", "198.51.100.7-198.51.100.9"]);
    assert_eq!(get(nets, [198, 51, 100, 10]), None);
}

#[test]
fn a_reset_returns_the_counters_before_it() {
    let mut lab = Lab::with_input();
    let mut counts = || {
        let mut counts = Vec::new();
        let dump = lab
            .client
            .reset_rules(&table(), Some(&name("input")), |rule| {
                for expr in rule.decode().unwrap().exprs {
                    if let Expr::Counter(Counter { packets, bytes, .. }) = expr {
                        counts.push((rule.handle.0, packets, bytes));
                    }
                }
            });
        assert_eq!(dump.unwrap(), Dump::Complete(()));
        counts
    };
    assert_eq!(counts(), [(2, 7, 9)]);
    assert_eq!(counts(), [(2, 0, 0)]);
}

#[test]
fn a_reset_of_one_rule_leaves_the_others() {
    let mut lab = Lab::with_input();
    let input = name("input");
    lab.nft("add rule inet filter input tcp dport { 1, 2 } counter packets 5 bytes 6");
    let installed = lab.client.dump(&[table()]).unwrap();
    let handles: Vec<_> = installed.rules(&table(), &input).map(|it| it.0).collect();
    // Without the family, the text includes the match of the network protocol.
    let text = |rule: Option<Rule>| rule.unwrap().to_string().replace("meta nfproto ipv4 ", "");
    let client = &mut lab.client;
    let before = client.reset_rule(&table(), &input, handles[0]).unwrap();
    assert_eq!(text(before), THEIRS);
    let after = client.rule(&table(), &input, handles[0]).unwrap();
    assert_eq!(text(after), "ip saddr 192.0.2.1 counter");
    let other = client.rule(&table(), &input, handles[1]).unwrap();
    assert!(text(other).ends_with("counter packets 5 bytes 6"));
    let none = RuleHandle(99);
    assert_eq!(client.rule(&table(), &input, none).unwrap(), None);
    assert_eq!(client.reset_rule(&table(), &input, none).unwrap(), None);
}

#[test]
fn a_reset_of_one_element_leaves_the_others() {
    let mut lab = Lab::new();
    lab.nft(
        "table inet filter {\n\
         set counted { type ipv4_addr; counter; }\n\
         set nets { type ipv4_addr; flags interval; counter; }\n\
         }\n\
         add element inet filter counted { 192.0.2.1 counter packets 3 bytes 4 }\n\
         add element inet filter counted { 192.0.2.2 counter packets 5 bytes 6 }",
    );
    let installed = lab.client.dump(&[table()]).unwrap();
    let set = |name| installed.set(&table(), name).unwrap().0.clone();
    let element = |name, address: [u8; 4]| {
        let address = std::net::Ipv4Addr::from(address);
        set(name).element(&[address.into()]).unwrap()
    };
    let client = &mut lab.client;
    // nft 1.0.6 loses the values of intervals.
    let values = Counter {
        packets: 7,
        bytes: 8,
    };
    let net = "192.0.2.0/24".parse::<IpNet>().unwrap();
    let net = set("nets").element(&[net.into()]).unwrap();
    client.add(net.with_exprs([values.into()])).unwrap();
    let mut reset = |element| client.reset_element(&element).unwrap();
    let text = |element: Option<Element>| element.unwrap().to_string();
    let one = || element("counted", [192, 0, 2, 1]);
    assert_eq!(text(reset(one())), "192.0.2.1 counter packets 3 bytes 4");
    assert_eq!(text(reset(one())), "192.0.2.1 counter");
    let net = || element("nets", [192, 0, 2, 77]);
    assert_eq!(text(reset(net())), "192.0.2.0/24 counter packets 7 bytes 8");
    assert_eq!(text(reset(net())), "192.0.2.0/24 counter");
    assert_eq!(reset(element("counted", [192, 0, 2, 9])), None);
    let other = client.element(&element("counted", [192, 0, 2, 2])).unwrap();
    assert_eq!(text(other), "192.0.2.2 counter packets 5 bytes 6");
}

#[test]
fn an_invalid_key_is_not_taken_for_an_old_kernel() {
    let mut lab = Lab::new();
    lab.nft("table inet filter {\nset ports { type ipv4_addr; }\n}");
    // In the kernel the set has keys of another length.
    let port = ports().element(&[22_u16.into()]).unwrap();
    let errors = [lab.client.element(&port), lab.client.reset_element(&port)];
    let texts = errors.map(|error| error.unwrap_err().to_string());
    assert_eq!(
        texts,
        ["get", "reset"]
            .map(|verb| format!("{verb} element inet filter ports {{ 22 }}: invalid argument"))
    );
}

#[test]
fn a_reset_returns_the_named_counters_before_it() {
    let mut lab = Lab::new();
    lab.nft(
        "table inet filter {\ncounter hits { packets 3 bytes 4; }\n\
         quota traffic { over 10 bytes used 6 bytes; }\n}",
    );
    let mut texts = || {
        let objects = lab.client.reset_objects(&table()).unwrap();
        let texts = objects
            .into_iter()
            .map(|object| Object::from(object).to_string());
        texts.collect::<Vec<_>>()
    };
    let expected = [
        "add counter inet filter hits { packets 3 bytes 4; }",
        "add quota inet filter traffic { over 10 bytes used 6 bytes; }",
    ];
    assert_eq!(texts(), expected);
    let expected = [
        "add counter inet filter hits { packets 0 bytes 0; }",
        "add quota inet filter traffic { over 10 bytes; }",
    ];
    assert_eq!(texts(), expected);
    let missing = TableId::new(Family::Ip, name("missing"));
    assert!(lab.client.reset_objects(&missing).unwrap().is_empty());
}

/// The objects that a program wants: a chain with one rule.
fn desired() -> [Object; 2] {
    let rule = Rule::new(Family::Inet, [counter(), accept()]).unwrap();
    let chain = Chain::new(table(), name("input")).with_rules([rule]);
    [Table::new(table()).into(), chain.into()]
}

#[test]
fn a_commit_after_a_foreign_change_is_refused_and_a_retry_succeeds() {
    let mut lab = Lab::new();
    let mut refused = 0;
    let netns = &lab.netns;
    let change = |number: i32| {
        let script = format!("add table ip other{number}");
        assert!(
            netns
                .run(|| nft::run(&["-f", "-"], &script))
                .status
                .success()
        );
    };
    // Another program changes the ruleset between the first two dumps and their commits.
    for foreign_changes in (0..3).rev() {
        let installed = lab.client.dump(&[table()]).unwrap();
        let generation = installed.generation();
        assert_ne!(generation, Generation::default());
        let transaction = Transaction::from_edits(&diff(installed, &desired()));
        if foreign_changes > 0 {
            change(foreign_changes);
        }
        match lab.client.commit_at(&transaction, generation) {
            Ok(()) => break,
            Err(error) => {
                assert!(matches!(error, Error::Outdated), "{error:?}");
                assert!(error.is_outdated());
                assert!(!error.may_be_applied());
                assert!(lab.client.dump(&[table()]).unwrap().is_empty());
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 2);
    let installed = lab.client.dump(&[table()]).unwrap();
    assert_eq!(installed.generation(), lab.client.generation().unwrap());
    assert!(diff(installed, &desired()).is_empty());
}
