//! Rules of many kinds, loaded by `nft`, printed by this crate and loaded again, and
//! copied over netlink. The kernel must have the same expressions each time.
//!
//! The test counts the rules that are equal, refused and different, and requires that
//! all are equal. With `SUITE_VERBOSE=1` it prints the others. The rules are in
//! `suite/*.rules`; `suite/data.rs` describes the format.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[path = "suite/data.rs"]
mod data;

#[path = "suite/kernel.rs"]
mod kernel;

#[path = "suite/packet.rs"]
mod packet;

#[path = "suite/program.rs"]
mod program;

use std::collections::BTreeSet;
use std::fmt;

use data::{Loaded, Table};
use kernel::Lab;
use vipline_nftables::{Chain, Object, Transaction};
use vipline_reconcile::Edit;

/// Outcome of a copy of a rule.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Equal,
    Refused(String),
    Different(String),
}

/// Outcomes of all rules of one kind of copy.
struct Report {
    kind: &'static str,
    outcomes: Vec<(Loaded, String, Outcome)>,
}

impl Report {
    fn count(&self, is_counted: impl Fn(&Outcome) -> bool) -> usize {
        let outcomes = self.outcomes.iter();
        outcomes.filter(|(_, _, it)| is_counted(it)).count()
    }

    fn equal(&self) -> usize {
        self.count(|it| *it == Outcome::Equal)
    }

    fn different(&self) -> usize {
        self.count(|it| matches!(it, Outcome::Different(_)))
    }

    /// Prints the counts, and the rules that are not equal if `SUITE_VERBOSE` is set.
    fn print(&self) {
        testkit::figures!("{self}");
        if std::env::var_os("SUITE_VERBOSE").is_none() {
            return;
        }
        for (rule, text, outcome) in &self.outcomes {
            match outcome {
                Outcome::Equal => {}
                Outcome::Refused(why) => {
                    println!("{} REFUSED {rule}\n\t{text}\n\t{why}", self.kind);
                }
                Outcome::Different(why) => {
                    println!("{} DIFFERENT {rule}\n\t{text}\n\t{why}", self.kind);
                }
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, equal) = (self.outcomes.len(), self.equal());
        let refused = self.count(|it| matches!(it, Outcome::Refused(_)));
        let different = self.different();
        let kind = self.kind;
        write!(
            f,
            "{kind}: {all} rules, {equal} equal, {refused} refused, {different} different"
        )
    }
}

/// Loads all rules with `nft`, and returns them in the order of the kernel's dump.
fn load(lab: &Lab, tables: &[Table]) -> Vec<Loaded> {
    let rules: Vec<Loaded> = tables.iter().flat_map(Table::rules).collect();
    let lines: Vec<String> = rules.iter().map(|rule| rule.command(&rule.text)).collect();
    let refused = lab.load(tables, &lines);
    let names: Vec<_> = refused
        .iter()
        .map(|(at, _)| rules[*at].to_string())
        .collect();
    assert!(
        names.is_empty(),
        "nft or the kernel refuses rules that are not marked so:\n{}",
        names.join("\n")
    );
    rules
}

/// Loads our text of all rules with `nft`.
fn text_report(tables: &[Table], rules: &[Loaded], original: &mut Lab) -> Report {
    let expected = original.expressions(tables);
    let chains = original.chains(tables);
    let texts: Vec<String> = tables
        .iter()
        .zip(chains)
        .flat_map(|(table, chain)| {
            let text = Object::from(chain).to_string();
            let prefix = table.rule_prefix();
            let rules = text.lines().filter_map(|line| line.strip_prefix(&*prefix));
            rules.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(texts.len(), rules.len(), "each rule has a line");
    let copy = Lab::new();
    // Comments stand for what has no syntax. `nft` refuses them.
    let commented = |at: &usize| texts[*at].contains("/*");
    let (comments, loaded): (Vec<usize>, Vec<usize>) = (0..rules.len()).partition(commented);
    let line = |at: &usize| rules[*at].command(&texts[*at]);
    let lines: Vec<String> = loaded.iter().map(line).collect();
    let refused = copy.load(tables, &lines).into_iter();
    let mut refused: Vec<_> = refused.map(|(at, why)| (loaded[at], why)).collect();
    refused.extend(comments.into_iter().map(|at| (at, "no syntax".to_owned())));
    let skipped: BTreeSet<usize> = refused.iter().map(|(at, _)| *at).collect();
    let mut actual = copy.expressions(tables).into_iter();
    let outcomes = rules.iter().zip(texts).zip(expected).enumerate();
    let outcomes = outcomes.map(|(at, ((rule, text), expected))| {
        let outcome = if skipped.contains(&at) {
            let why = refused.iter().find(|(refused, _)| *refused == at);
            Outcome::Refused(why.map(|(_, why)| why.clone()).unwrap_or_default())
        } else {
            kernel::compare(&expected, &actual.next().unwrap())
        };
        (rule.clone(), text, outcome)
    });
    Report {
        kind: "text",
        outcomes: outcomes.collect(),
    }
}

/// Commits all rules over netlink in another namespace.
fn netlink_report(tables: &[Table], rules: &[Loaded], original: &mut Lab) -> Report {
    let expected = original.expressions(tables);
    let mut copy = Lab::new();
    assert_eq!(copy.load(tables, &[]), []);
    let chains = original.chains(tables);
    let refused = commit_all(&mut copy, &chains);
    let mut actual = copy.expressions(tables).into_iter();
    let outcomes = rules.iter().zip(expected).enumerate();
    let outcomes = outcomes.map(|(at, (rule, expected))| {
        let outcome = match refused.iter().find(|(refused, _)| *refused == at) {
            Some((_, why)) => Outcome::Refused(why.clone()),
            None => kernel::compare(&expected, &actual.next().unwrap()),
        };
        (rule.clone(), String::new(), outcome)
    });
    Report {
        kind: "netlink",
        outcomes: outcomes.collect(),
    }
}

/// Commits chains with their rules, and returns the indexes of the refused rules.
///
/// If the kernel refuses the whole, each chain, and finally each rule, is its own
/// transaction.
fn commit_all(lab: &mut Lab, chains: &[Chain]) -> Vec<(usize, String)> {
    let add = |chain: &Chain| Edit::Add(Object::from(chain.clone()));
    let edits: Vec<_> = chains.iter().map(add).collect();
    if lab.client.commit(&Transaction::from_edits(&edits)).is_ok() {
        return Vec::new();
    }
    let (mut refused, mut first) = (Vec::new(), 0);
    for chain in chains {
        let edits = [add(chain)];
        let whole = lab.client.commit(&Transaction::from_edits(&edits));
        if whole.is_err() {
            for (at, rule) in chain.rules.iter().enumerate() {
                let single = chain.clone().with_rules([rule.clone()]);
                let edits = [add(&single)];
                if let Err(error) = lab.client.commit(&Transaction::from_edits(&edits)) {
                    refused.push((first + at, error.to_string()));
                }
            }
        }
        first += chain.rules.len();
    }
    refused
}

#[test]
fn rules_of_nft_keep_their_meaning_as_text_and_over_netlink() {
    let tables = data::tables();
    let mut original = Lab::new();
    let rules = load(&original, &tables);
    let text = text_report(&tables, &rules, &mut original);
    let netlink = netlink_report(&tables, &rules, &mut original);
    text.print();
    netlink.print();
    for report in [text, netlink] {
        assert_eq!(report.equal(), rules.len(), "{report}; see SUITE_VERBOSE=1");
    }
}

#[test]
fn rules_of_other_programs_keep_their_meaning_as_text() {
    let (mut original, tables) = (Lab::new(), packet::tables());
    let (tables, chains): (Vec<Table>, Vec<Chain>) = tables.into_iter().unzip();
    assert_eq!(original.load(&tables, &[]), []);
    assert_eq!(commit_all(&mut original, &chains), []);
    let rules: Vec<Loaded> = tables.iter().flat_map(Table::rules).collect();
    let report = text_report(&tables, &rules, &mut original);
    report.print();
    assert_eq!(report.different(), 0, "{report}; see SUITE_VERBOSE=1");
}
