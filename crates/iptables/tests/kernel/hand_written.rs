//! Hand-written documents lead to the same rules in a [`Ruleset`] as in the kernel.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use testkit::iptables::Programs;
use testkit::netns::Netns;
use vipline_iptables::{Family, Line, RestoreOptions, Ruleset, Tables, Variant, program_name};

const TEXT: &str = include_str!("../documents/hand-written.txt");

/// Number of documents, restored with each variant.
const COUNT: usize = 171;

/// A document, and how to restore it.
struct Document {
    text: String,
    family: Family,
    options: RestoreOptions,
    fails: bool,
    /// Whether only the legacy variant accepts it.
    is_legacy: bool,
}

/// Returns the groups of documents.
fn groups() -> Vec<(&'static str, Vec<Document>)> {
    let groups = TEXT.split("\n== ").skip(1);
    let group = |text: &'static str| {
        let (title, text) = text.split_once('\n').unwrap();
        let mut documents: Vec<Document> = Vec::new();
        for line in text.trim_end_matches('\n').lines() {
            match line
                .strip_prefix("--")
                .filter(|words| !words.starts_with(|c: char| c != ' '))
            {
                Some(words) => documents.push(document(words)),
                None => documents.last_mut().unwrap().text += &format!("{line}\n"),
            }
        }
        (title, documents)
    };
    groups.map(group).collect()
}

fn document(words: &str) -> Document {
    let mut document = Document {
        text: String::new(),
        family: Family::V4,
        options: RestoreOptions::new(),
        fails: false,
        is_legacy: false,
    };
    for word in words.split_whitespace() {
        match word {
            "counters" => document.options.counters = true,
            "fails" => document.fails = true,
            "legacy" => document.is_legacy = true,
            "noflush" => document.options.noflush = true,
            "v6" => document.family = Family::V6,
            _ => panic!("{word}"),
        }
    }
    document
}

fn restore(program: &Path, document: &Document) -> Output {
    let mut command = Command::new(program);
    command.args(document.options.noflush.then_some("--noflush"));
    command.args(document.options.counters.then_some("--counters"));
    let pipes = command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    // A program can end before it has read the whole input.
    let _ = child
        .stdin
        .take()
        .unwrap()
        .write_all(document.text.as_bytes());
    child.wait_with_output().unwrap()
}

/// Lines of tables.
type Saved = BTreeMap<String, Vec<String>>;

/// Returns the tables of a save: declarations and rules. Tables without rules, chains
/// and policies are left out, since not every program creates them.
///
/// Counters of policies are compared if the document sets them. The programs differ in
/// what a later document leaves of the counters.
fn tables(text: &str, document: &Document) -> Saved {
    let parsed = Tables::parse(text).unwrap();
    let mut tables = BTreeMap::new();
    for table in &parsed {
        let lines: Vec<_> = table.lines().map(|line| line_of(line, document)).collect();
        let is_default = |line: &String| {
            line.starts_with('*') || line == "COMMIT" || line.ends_with(" ACCEPT [0:0]")
        };
        if !lines.iter().all(is_default) {
            tables.insert(table.name().to_owned(), lines);
        }
    }
    tables
}

fn line_of(line: &Line<'_>, document: &Document) -> String {
    match line {
        Line::Chain(chain) if !document.options.counters => match chain.policy() {
            Some(policy) => format!(":{} {policy} [0:0]", chain.name()),
            None => line.to_string(),
        },
        line => line.to_string(),
    }
}

/// Returns the lines that only one of two saves has.
fn difference(one: &Saved, other: &Saved) -> String {
    let lines = |saved: &Saved| -> Vec<String> { saved.values().flatten().cloned().collect() };
    let (one, other) = (lines(one), lines(other));
    let kernel = one.iter().filter(|line| !other.contains(line));
    let predicted = other.iter().filter(|line| !one.contains(line));
    let kernel: String = kernel.map(|line| format!("  kernel {line}\n")).collect();
    let predicted: String = predicted
        .map(|line| format!("  ruleset {line}\n"))
        .collect();
    kernel + &predicted
}

#[test]
fn hand_written_documents_lead_to_the_rules_of_the_kernel() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for variant in Variant::ALL {
        let programs = Programs::new().unwrap();
        for (title, documents) in groups() {
            let netns = Netns::new().unwrap();
            let mut rulesets = Family::ALL.map(|family| Ruleset::new(family, variant));
            for (document, number) in documents.iter().zip(1..) {
                if document.is_legacy && variant == Variant::Nft {
                    continue;
                }
                count += 1;
                let prefix = format!("{}-{variant}", program_name(document.family));
                let [save, program] = programs.variant(&prefix).unwrap();
                let place = usize::from(document.family == Family::V6);
                let output = netns.run(|| restore(&program, document));
                let parsed = Tables::parse(&document.text).map_err(|error| error.to_string());
                let result = parsed.and_then(|tables| {
                    assert_eq!(tables.to_string(), document.text);
                    let result = rulesets[place].restore(&tables, document.options);
                    result.map_err(|error| error.to_string())
                });
                let is_right =
                    result.is_err() == document.fails && output.status.success() != document.fails;
                // A rejected document changes nothing, which the next save shows.
                if is_right && document.fails && number < documents.len() {
                    continue;
                }
                let mut save = Command::new(save);
                let saved = netns.run(|| save.arg("--counters").output()).unwrap();
                let saved = tables(&String::from_utf8(saved.stdout).unwrap(), document);
                let predicted = tables(&rulesets[place].to_save_with_counters(), document);
                if !is_right || saved != predicted {
                    let answer = String::from_utf8_lossy(&output.stderr).into_owned();
                    wrong.push(format!(
                        "{variant} {title} {number}: {result:?} {answer}\n{}",
                        difference(&saved, &predicted)
                    ));
                }
            }
        }
    }
    let equal = count - wrong.len();
    testkit::figures!("hand-written documents: {equal} of {count} lead to the rules of the kernel");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(count, COUNT);
}
