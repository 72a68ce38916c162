//! Encoded rules equal the rules that `iptables-nft-restore` writes.

use std::collections::{BTreeMap, BTreeSet};

use vipline_iptables::matches::Match;
use vipline_iptables::targets::Target;
use vipline_iptables::{Family, Line, Policy, Rule, TableName, Tables, Variant, nft};
use vipline_nftables as nftables;
use vipline_nftables::{Edit, Name, Object, Table, TableId, Transaction};

use crate::lab::Lab;
use crate::rules::{canonical, encoded, ipvs, loose, prepare};
use crate::suite::cases::{Case, cases};
use crate::suite::{ESTIMATORS, VERSIONS};

/// A network namespace with the programs of the nft variant and a client of nf_tables.
struct NftLab {
    lab: Lab,
    nftables: nftables::Client,
    sets: nft::SetNames,
}

impl NftLab {
    fn new(family: Family) -> Self {
        let lab = Lab::new(family, Variant::Nft);
        lab.netns.run(prepare);
        let nftables = lab.netns.run(nftables::Client::open).unwrap();
        let sets = || nft::Client::open(family).unwrap().set_names().unwrap();
        let sets = lab.netns.run(sets);
        Self {
            lab,
            nftables,
            sets,
        }
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
                    let rule = line.rule().unwrap();
                    let rule = nft::encode_with_sets(&rule, self.lab.family, &self.sets);
                    let rule = rule.unwrap();
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
        lab.lab.restore(ESTIMATORS).unwrap();
        lab.lab.restore(document(table, rules.iter())).unwrap();
        let chains = lab.chains(name);
        let installed = chains["RULES"].rules.iter();
        assert_eq!(installed.len(), rules.len());
        for (installed, text) in installed.zip(*rules) {
            let rule = Rule::parse(text).unwrap();
            let encoded = nft::encode_with_sets(&rule, family, &lab.sets);
            let decoded = nft::decode_with_sets(installed, family, &lab.sets);
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

/// Rules whose extension iptables-nft writes on no host of the tests. The match `ipvs` is
/// compared by the test `vm`, which takes the same rules of the suite.
fn is_excluded(case: &Case) -> bool {
    case.extension == ipvs::NAME || VERSIONS.lines().any(|line| line == case.text)
}

#[test]
fn rules_of_the_suite_have_the_expressions_of_iptables_nft() {
    let mut tables: BTreeMap<(String, &str), (Family, Vec<&str>)> = BTreeMap::new();
    for case in cases().into_iter().filter(|case| !is_excluded(case)) {
        let Some(saved) = case.saved else { continue };
        let rule = Rule::parse(saved).unwrap();
        if nft::encode(&rule, case.family).is_err() {
            let target = rule.target.as_ref().and_then(Target::name);
            let is_known = target.is_some_and(|name| NOT_ENCODED.contains(&name));
            assert!(is_known, "{saved}");
            continue;
        }
        let table = tables.entry((case.family.to_string(), case.table));
        let (_, rules) = table.or_insert((case.family, Vec::new()));
        rules.push(saved);
    }
    let (mut count, mut wrong) = (0, Vec::new());
    for ((_, table), (family, rules)) in tables {
        count += rules.len();
        wrong.extend(differences(family, &[(table, &rules)]));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    testkit::figures!("{count} rules of the suite are encoded like those of iptables-nft");
}

/// Targets without an encoding.
const NOT_ENCODED: [&str; 3] = ["HMARK", "LED", "SECMARK"];

#[test]
fn every_match_and_target_is_compared_with_iptables_nft() {
    let suite = cases().into_iter().filter(|case| !is_excluded(case));
    let suite = suite.filter_map(|case| case.saved);
    let lists = [
        canonical::BOTH,
        canonical::EXTENSIONS,
        canonical::V4,
        canonical::V6,
        encoded::BOTH,
        encoded::V4,
        encoded::V6,
    ];
    let lists = lists.into_iter().flatten().flat_map(|(_, rules)| *rules);
    let of_ipvs = ipvs::BOTH.iter();
    let mut compared = BTreeSet::new();
    for text in suite.chain(lists.chain(of_ipvs).copied()) {
        let rule = Rule::parse(text).unwrap();
        compared.extend(rule.matches.iter().filter_map(Match::name));
        compared.extend(rule.target.as_ref().and_then(Target::name));
    }
    for name in Match::NAMES.iter().chain(Target::NAMES) {
        let is_compared = compared.contains(name) || NOT_ENCODED.contains(name);
        assert!(is_compared, "no rule has {name}");
    }
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
            assert_committed(family, &document(table, rules.iter()));
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
