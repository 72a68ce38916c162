//! Chains and jumps of modes iptables and ipvs, by the iptables programs.
//!
//! A host may have rules of both kinds of iptables at once, so both are looked
//! at: the legacy tables of xtables, and those that live in nf_tables.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, Result};
use vipline_nftables::{Client, Name, Object, TableId};
use vipline_service_model::Family;

use super::names::{self, JUMPS};
use super::tool;

/// The tables that upstream has chains in.
const TABLES: [&str; 3] = ["filter", "nat", "mangle"];

/// How `iptables-save` begins to say that a table is beyond it.
const BEYOND: &str = "# Table `";

/// The words of a rule that match new connections.
const NEW: [&str; 4] = ["-m", "conntrack", "--ctstate", "NEW"];

/// What one iptables program says of one family.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Saved {
    /// The program that changes what was saved.
    pub restore: String,
    /// What was saved.
    pub text: String,
}

/// What is to be removed from one table, all at once.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Document {
    restore: String,
    table: String,
    /// The rules that lead into the chains, as they were saved.
    jumps: Vec<String>,
    chains: Vec<String>,
}

/// Displays as a shell command.
impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { restore, .. } = self;
        let (arguments, text) = (ARGUMENTS.join(" "), self.text());
        write!(f, "{restore} {arguments} <<'END'\n{text}END")
    }
}

/// Waits for those who change rules at the same time.
const ARGUMENTS: [&str; 3] = ["--noflush", "--wait", "5"];

impl Document {
    /// Returns what this is in a few words.
    pub fn summary(&self) -> String {
        let Self { restore, table, .. } = self;
        let program = restore.trim_end_matches("-restore");
        let (chains, jumps) = (self.chains.len(), self.jumps.len());
        format!("{chains} chains and {jumps} jumps to them in table {table} of {program}")
    }

    /// Returns what the program reads: chains are emptied before they go.
    fn text(&self) -> String {
        let mut text = format!("*{}\n", self.table);
        for chain in &self.chains {
            text += &format!(":{chain} - [0:0]\n");
        }
        for jump in &self.jumps {
            text += &format!("-D {jump}\n");
        }
        for chain in &self.chains {
            text += &format!("-X {chain}\n");
        }
        text + "COMMIT\n"
    }

    /// Removes it.
    ///
    /// # Errors
    ///
    /// What the program says; nothing is removed then.
    pub fn apply(&self) -> Result<()> {
        let program = tool::find(&self.restore).with_context(|| self.restore.clone())?;
        tool::run(&program, &ARGUMENTS, &self.text()).map(drop)
    }
}

/// Returns what is to be removed of what was saved, and what stays and why.
///
/// A chain that somebody else's rule leads to stays as it is, and so does what
/// it leads to itself.
pub fn plan(saved: &Saved) -> (Vec<Document>, Vec<String>) {
    let (mut documents, mut stays) = (Vec::new(), Vec::new());
    for table in tables(&saved.text) {
        let (jumps, others): (Vec<&Rule<'_>>, _) = table
            .rules
            .iter()
            .partition(|rule| rule.is_jump(table.name));
        let is_ours = |chain: &&str| names::is_chain(table.name, chain);
        let mut ours: HashSet<&str> = table.chains.iter().copied().filter(is_ours).collect();
        while let Some((chain, rule)) = used(&ours, &others) {
            ours.remove(chain);
            let (table, text) = (table.name, rule.text);
            stays.push(format!(
                "{table} {chain} stays, for a rule leads to it that stays: -A {text}"
            ));
        }
        let chains = table.chains.iter().filter(|chain| ours.contains(*chain));
        let chains: Vec<_> = chains.map(|&chain| chain.to_owned()).collect();
        if !chains.is_empty() || !jumps.is_empty() {
            documents.push(Document {
                restore: saved.restore.clone(),
                table: table.name.to_owned(),
                jumps: jumps.iter().map(|rule| rule.text.to_owned()).collect(),
                chains,
            });
        }
    }
    (documents, stays)
}

/// Returns a chain that a rule outside of all of them leads to, and the rule.
fn used<'a>(chains: &HashSet<&str>, rules: &[&'a Rule<'a>]) -> Option<(&'a str, &'a Rule<'a>)> {
    let outside = rules.iter().filter(|rule| !chains.contains(&*rule.chain));
    let mut targets = outside.filter_map(|rule| Some((rule.target()?, *rule)));
    targets.find(|(target, _)| chains.contains(target))
}

/// A table as it was saved.
struct Table<'a> {
    name: &'a str,
    chains: Vec<&'a str>,
    rules: Vec<Rule<'a>>,
}

/// A rule as it was saved.
struct Rule<'a> {
    chain: String,
    /// Its text, from the name of the chain on.
    text: &'a str,
    /// Its words after the name of the chain.
    words: Vec<String>,
}

fn tables(text: &str) -> Vec<Table<'_>> {
    let mut tables: Vec<Table<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            let (chains, rules) = (Vec::new(), Vec::new());
            tables.push(Table {
                name,
                chains,
                rules,
            });
        } else if let Some(table) = tables.last_mut() {
            if let Some(chain) = line.strip_prefix(':') {
                table.chains.extend(chain.split(' ').next());
            } else if let Some(text) = line.strip_prefix("-A ") {
                let mut words = words(text);
                let chain = words.remove(0);
                table.rules.push(Rule { chain, text, words });
            }
        }
    }
    tables
}

/// Splits a line of at least one word as `iptables-restore` does.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut quoted, mut escaped) = (false, false);
    for character in line.chars() {
        match character {
            '\\' if quoted && !escaped => escaped = true,
            '"' if !escaped => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => {
                escaped = false;
                words.last_mut().expect("there is one").push(character);
            }
        }
    }
    words
}

impl Rule<'_> {
    /// Returns where the rule leads.
    fn target(&self) -> Option<&str> {
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--comment" => drop(words.next()),
                "-j" | "-g" => return words.next().map(String::as_str),
                _ => {}
            }
        }
        None
    }

    /// Tells whether upstream made the rule to lead packets to its chains.
    fn is_jump(&self, table: &str) -> bool {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let words = words.strip_prefix(&NEW).unwrap_or(&words);
        let ["-m", "comment", "--comment", comment, "-j", to] = *words else {
            return false;
        };
        JUMPS.iter().any(|jump| {
            (jump.table, jump.from, jump.to, jump.comment) == (table, &*self.chain, to, comment)
        })
    }
}

/// What may be read without a program.
enum Trace {
    /// There is nothing.
    Nothing,
    /// There is something, in words.
    Something(String),
    /// It cannot be told.
    Unknown,
}

/// Returns what the programs say, and what could not be checked.
pub fn look(mut client: Option<&mut Client>) -> (Vec<Saved>, Vec<String>) {
    let (mut found, mut unchecked) = (Vec::new(), Vec::new());
    for (family, prefix) in [(Family::V4, "iptables"), (Family::V6, "ip6tables")] {
        for (kind, trace) in [
            ("legacy", legacy_trace(family)),
            ("nft", nft_trace(client.as_deref_mut(), family)),
        ] {
            let program = match (&trace, program(prefix, kind)) {
                (Trace::Nothing, _) | (Trace::Unknown, None) => continue,
                (Trace::Something(what), None) => {
                    let lack = format!("{prefix}-{kind}-save is not installed");
                    unchecked.push(format!("{what}: not checked, for {lack}"));
                    continue;
                }
                (_, Some(program)) => program,
            };
            match tool::run(&program, &[], "") {
                Ok(text) => {
                    let beyond = text.lines().filter(|line| line.starts_with(BEYOND));
                    unchecked.extend(beyond.map(|line| format!("{prefix}-{kind}-save: {line}")));
                    let name = program.file_name().unwrap_or_default().to_string_lossy();
                    let restore = name.replace("-save", "-restore");
                    found.push(Saved { restore, text });
                }
                Err(error) => unchecked.push(format!("{error:#}")),
            }
        }
    }
    (found, unchecked)
}

/// Finds the program that saves rules of a kind.
///
/// Where only one kind is installed it may have no name of its own.
fn program(prefix: &str, kind: &str) -> Option<PathBuf> {
    let own = tool::find(&format!("{prefix}-{kind}-save"));
    own.or_else(|| {
        let program = tool::find(&format!("{prefix}-save"))?;
        let version = tool::run(&program, &["--version"], "").ok()?;
        let is_nft = version.contains("nf_tables");
        (is_nft == (kind == "nft")).then_some(program)
    })
}

/// Asks the kernel which legacy tables there are.
fn legacy_trace(family: Family) -> Trace {
    let path = match family {
        Family::V4 => "/proc/thread-self/net/ip_tables_names",
        Family::V6 => "/proc/thread-self/net/ip6_tables_names",
    };
    match fs::read_to_string(path) {
        Ok(text) => {
            let is_of_interest = |table: &&str| TABLES.contains(table);
            let tables: Vec<_> = text.lines().filter(is_of_interest).collect();
            match tables.len() {
                0 => Trace::Nothing,
                _ => Trace::Something(format!(
                    "legacy {family} iptables tables {}",
                    tables.join(", ")
                )),
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Trace::Nothing,
        Err(_) => Trace::Unknown,
    }
}

/// Asks the kernel which chains of upstream's are in nf_tables.
fn nft_trace(client: Option<&mut Client>, family: Family) -> Trace {
    let Some(client) = client else {
        return Trace::Nothing;
    };
    let nft_family = match family {
        Family::V4 => vipline_nftables::Family::Ip,
        Family::V6 => vipline_nftables::Family::Ip6,
    };
    let table = |name| TableId::new(nft_family, Name::new(name).expect("it is a name"));
    let tables = TABLES.map(table);
    let Ok(ruleset) = client.dump(&tables) else {
        return Trace::Unknown;
    };
    let chains = ruleset.objects().filter_map(|object| match object {
        Object::Chain(chain) => Some(chain),
        _ => None,
    });
    let ours =
        chains.filter(|chain| names::is_chain(chain.table.name.as_str(), chain.name.as_str()));
    match ours.count() {
        0 => Trace::Nothing,
        count => Trace::Something(format!(
            "{count} chains of iptables in {family} of nf_tables"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node of mode iptables with rules of others, as iptables 1.8.9 saves it.
    const NODE: &str = include_str!("captures/iptables.txt");

    fn saved(text: &str) -> Saved {
        Saved {
            restore: "iptables-legacy-restore".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn what_upstream_made_goes_and_what_others_made_stays() {
        let (documents, stays) = plan(&saved(NODE));
        let shown: String = documents.iter().map(|one| format!("{one}\n")).collect();
        assert_eq!(shown, include_str!("captures/iptables-plan.sh"));
        assert_eq!(stays, Vec::<String>::new());
        let summary = documents[1].summary();
        let expected = "6 chains and 9 jumps to them in table filter of iptables-legacy";
        assert_eq!(summary, expected);
    }

    #[test]
    fn a_chain_that_others_use_stays_and_what_it_leads_to() {
        let text = "*nat\n:OUTPUT ACCEPT [0:0]\n:MINE - [0:0]\n:KUBE-NODEPORTS - [0:0]\n\
                    :KUBE-MARK-MASQ - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:KUBE-SERVICES - [0:0]\n\
                    -A MINE -p tcp -m comment --comment \"a -j KUBE-SERVICES\" -j KUBE-NODEPORTS\n\
                    -A KUBE-NODEPORTS -j KUBE-MARK-MASQ\n\
                    -A KUBE-SERVICES -j KUBE-NODEPORTS\nCOMMIT\n";
        let (documents, stays) = plan(&saved(text));
        assert_eq!(documents.len(), 1);
        assert_eq!(documents[0].chains, ["KUBE-POSTROUTING", "KUBE-SERVICES"]);
        assert_eq!(stays.len(), 2, "{stays:?}");
        assert!(
            stays[0].starts_with("nat KUBE-NODEPORTS stays, "),
            "{stays:?}"
        );
        let end = "leads to it that stays: -A KUBE-NODEPORTS -j KUBE-MARK-MASQ";
        assert!(stays[1].ends_with(end), "{stays:?}");
    }

    #[test]
    fn a_jump_is_upstreams_only_if_all_of_it_is() {
        let good = "-m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES";
        let is_jump = |table: &str, rule: &str| {
            let text = format!("*{table}\n-A {rule}\nCOMMIT\n");
            tables(&text)[0].rules[0].is_jump(table)
        };
        assert!(is_jump("nat", &format!("OUTPUT {good}")));
        let new = "-m conntrack --ctstate NEW";
        assert!(is_jump("filter", &format!("OUTPUT {new} {good}")));
        for (table, rule) in [
            ("nat", format!("INPUT {good}")),
            ("mangle", format!("OUTPUT {good}")),
            ("nat", format!("OUTPUT -s 10.0.0.1/32 {good}")),
            ("nat", format!("OUTPUT {new} {new} {good}")),
            ("nat", "OUTPUT -j KUBE-SERVICES".to_owned()),
            (
                "nat",
                good.replacen("-m", "OUTPUT -m", 1)
                    .replace("portals", "port"),
            ),
        ] {
            assert!(!is_jump(table, &rule), "{table} {rule}");
        }
    }

    #[test]
    fn words_are_split_as_iptables_splits_them() {
        let split = words(r#"A --comment "say \"no\" \\ -j B" -j C"#);
        assert_eq!(split, ["A", "--comment", r#"say "no" \ -j B"#, "-j", "C"]);
    }
}
