//! Encoded rules equal the rules that `iptables-nft-restore` writes.

use std::collections::{BTreeMap, BTreeSet};

use vipline_iptables::{Family, Line, Policy, Rule, TableName, Tables, Variant, nft};
use vipline_nftables as nftables;
use vipline_nftables::{Edit, Name, Object, Table, TableId, Transaction};

use crate::lab::Lab;
use crate::rules::{canonical, encoded, loose, prepare};
use crate::suite::VERSIONS;
use crate::suite::cases::cases;

/// Matches and targets without an encoding.
const UNSUPPORTED: &[&str] = &["-m set", "-j SET"];

fn is_unsupported(rule: &str) -> bool {
    UNSUPPORTED.iter().any(|part| rule.contains(part))
}

/// A network namespace with the programs of the nft variant and a client of nf_tables.
struct NftLab {
    lab: Lab,
    nftables: nftables::Client,
}

impl NftLab {
    fn new(family: Family) -> Self {
        let lab = Lab::new(family, Variant::Nft);
        lab.netns.run(prepare);
        let nftables = lab.netns.run(nftables::Client::open).unwrap();
        Self { lab, nftables }
    }

    fn table(&self, table: TableName) -> TableId {
        nft::table_id(self.lab.family, table)
    }

    /// Returns the chains of a table.
    fn chains(&mut self, table: TableName) -> BTreeMap<String, nftables::Chain> {
        let table = self.table(table);
        let dump = self.nftables.dump(&[table]).unwrap();
        let chains = dump.into_objects().filter_map(|object| match object {
            Object::Chain(chain) => Some((chain.name.to_string(), *chain)),
            _ => None,
        });
        chains.collect()
    }

    /// Commits the encoded chains and rules of a document's table.
    fn commit(&mut self, table: &vipline_iptables::Table<'_>) {
        let name = TableName::new(table.name()).unwrap();
        let id = self.table(name);
        let mut chains: BTreeMap<String, nftables::Chain> = BTreeMap::new();
        for (name, base) in nft::base_chains(name) {
            let chain = nftables::Chain::new(id.clone(), name.clone()).with_base(base);
            chains.insert(name.to_string(), chain);
        }
        let mut rules: BTreeMap<String, Vec<nftables::Rule>> = BTreeMap::new();
        for line in table.lines() {
            match line {
                Line::Chain(line) => {
                    let name = Name::new(line.name()).unwrap();
                    let made = || nftables::Chain::new(id.clone(), name.clone());
                    let chain = chains.entry(name.to_string()).or_insert_with(made);
                    if let (Some(base), Some(Policy::Drop)) = (&mut chain.base, line.policy()) {
                        base.policy = nftables::Policy::Drop;
                    }
                }
                Line::Rule(line) => {
                    let rule = nft::encode(&line.rule().unwrap(), self.lab.family).unwrap();
                    rules.entry(line.chain().to_owned()).or_default().push(rule);
                }
                _ => {}
            }
        }
        for (name, rules) in rules {
            let chain = chains.get_mut(&name).unwrap();
            *chain = chain.clone().with_rules(rules);
        }
        let mut edits = vec![Edit::Add(Table::new(id).into())];
        edits.extend(chains.into_values().map(Object::from).map(Edit::Add));
        let result = self.nftables.commit(&Transaction::from_edits(&edits));
        result.unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Returns a document with the built-in chains of a table and rules of one chain.
fn document<'a>(table: &str, rules: impl Iterator<Item = &'a &'a str>) -> String {
    let mut document = format!("*{table}\n");
    for (name, _) in nft::base_chains(TableName::new(table).unwrap()) {
        document += &format!(":{name} ACCEPT [0:0]\n");
    }
    document += ":RULES - [0:0]\n:OTHER - [0:0]\n";
    for rule in rules {
        document += &format!("-A RULES {rule}\n");
    }
    document + "COMMIT\n"
}

/// Rules with parts without effect, which the program encodes and this crate drops.
const WITHOUT_EFFECT: [&str; 2] = [
    "-i + -o lo -p all -j ACCEPT",
    "-p icmp -m icmp --icmp-type 255/3",
];

/// Compares each rule with the expressions that the program writes.
fn assert_encoded(family: Family, tables: &[(&str, &[&str])]) {
    let wrong = differences(family, tables);
    assert!(wrong.is_empty(), "{family}\n{}", wrong.join("\n"));
}

/// Returns the rules whose expressions differ from those that the program writes.
fn differences(family: Family, tables: &[(&str, &[&str])]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (table, rules) in tables {
        let name = TableName::new(table).unwrap();
        let mut lab = NftLab::new(family);
        lab.lab.restore(document(table, rules.iter())).unwrap();
        let chains = lab.chains(name);
        let installed = chains["RULES"].rules.iter();
        assert_eq!(installed.len(), rules.len());
        for (installed, text) in installed.zip(*rules) {
            let rule = Rule::parse(text).unwrap();
            let encoded = nft::encode(&rule, family);
            let decoded = nft::decode(installed, family);
            if is_unsupported(text) {
                assert!(encoded.is_err(), "{text}");
                assert_eq!(decoded, None, "{text}");
                continue;
            }
            if WITHOUT_EFFECT.contains(text) {
                continue;
            }
            let decoded = decoded.map(|rule| rule.for_family(family));
            let is_decoded = decoded == Some(rule.for_family(family));
            if !is_decoded || encoded.as_ref().map(|rule| &rule.exprs) != Ok(&installed.exprs) {
                wrong.push(format!("{text}\n{:?}\n{encoded:?}", installed.exprs));
            }
        }
    }
    wrong
}

#[test]
fn encoded_rules_have_the_expressions_of_iptables_nft() {
    for family in Family::ALL {
        assert_encoded(family, canonical::BOTH);
        assert_encoded(family, loose::BOTH);
        assert_encoded(family, encoded::BOTH);
    }
    assert_encoded(Family::V4, canonical::EXTENSIONS);
    assert_encoded(Family::V4, encoded::V4);
    assert_encoded(Family::V6, encoded::V6);
    assert_encoded(Family::V4, canonical::V4);
    assert_encoded(Family::V4, loose::V4);
    assert_encoded(Family::V6, canonical::V6);
    assert_encoded(Family::V6, loose::V6);
}

/// Extensions of the suite without encoding, or that require other objects.
const NOT_ENCODED: [&str; 7] = [
    "HMARK", "LED", "SECMARK", "ipvs", "rateest", "nfacct", "set",
];

#[test]
fn rules_of_the_suite_have_the_expressions_of_iptables_nft() {
    let others: BTreeSet<_> = VERSIONS.lines().collect();
    let mut tables: BTreeMap<(String, &str), (Family, Vec<&str>)> = BTreeMap::new();
    for case in cases() {
        let is_excluded = others.contains(case.text) || NOT_ENCODED.contains(&case.extension);
        if let (Some(saved), false) = (case.saved, is_excluded) {
            let table = tables.entry((case.family.to_string(), case.table));
            let (_, rules) = table.or_insert((case.family, Vec::new()));
            rules.push(saved);
        }
    }
    let (mut count, mut wrong) = (0, Vec::new());
    for ((_, table), (family, rules)) in tables {
        count += rules.len();
        wrong.extend(differences(family, &[(table, &rules)]));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    testkit::figures!("{count} rules of the suite are encoded like those of iptables-nft");
}

/// Compares a table that the program restores with the one that this crate commits.
fn assert_committed(family: Family, document: &str) {
    let mut theirs = NftLab::new(family);
    theirs.lab.restore(document).unwrap();
    for table in Tables::parse(document).unwrap().iter() {
        let name = TableName::new(table.name()).unwrap();
        let saved = theirs.lab.rules_of(table.name());
        let mut ours = NftLab::new(family);
        ours.commit(table);
        assert_eq!(ours.lab.rules_of(table.name()), saved, "{family} {name}");
        assert_eq!(ours.chains(name), theirs.chains(name), "{family} {name}");
    }
}

#[test]
fn committed_rules_are_saved_like_restored_ones() {
    let tables = |family| match family {
        Family::V4 => [canonical::BOTH, canonical::V4, encoded::BOTH, encoded::V4],
        Family::V6 => [canonical::BOTH, canonical::V6, encoded::BOTH, encoded::V6],
    };
    for family in Family::ALL {
        for (table, rules) in tables(family).into_iter().flatten() {
            let rules = rules.iter().filter(|rule| !is_unsupported(rule));
            assert_committed(family, &document(table, rules));
        }
    }
}

#[test]
fn a_committed_policy_is_saved() {
    let text = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n";
    for family in Family::ALL {
        assert_committed(family, text);
    }
}

#[test]
fn captures_of_kube_proxy_are_committed_as_they_were_saved() {
    let captures = [
        (
            Family::V4,
            include_str!("../captures/kube-proxy-nft-v4.save"),
        ),
        (
            Family::V6,
            include_str!("../captures/kube-proxy-nft-v6.save"),
        ),
    ];
    for (family, capture) in captures {
        assert_committed(family, capture);
    }
}
