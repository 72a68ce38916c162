//! Chains and jumps of modes iptables and ipvs, removed by the iptables
//! programs.
//!
//! A host may have rules of both variants of iptables, so both are checked: the
//! legacy tables of xtables, and those in nf_tables.

use std::collections::HashSet;
use std::env;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, Result};
use vipline_iptables::matches::{Conntrack, CtState};
use vipline_iptables::targets::Target;
use vipline_iptables::{
    Chain, ChainName, Client, Error, Family, Object, Position, Restore, Rule, RuleLine, Rules,
    SharedRule, Table, TableName, Tables, Variant,
};
use vipline_nftables as nftables;
use vipline_reconcile::Edit;

use super::{Scope, names};

/// The tables that contain upstream's chains.
const TABLES: [&str; 3] = ["mangle", "filter", "nat"];

/// Output of one `iptables-save` program for one family.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Saved {
    /// The restore program of the same variant and family.
    pub restore: String,
    /// The output.
    pub text: String,
}

/// Removals in one table, applied atomically.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Document {
    restore: String,
    table: TableName,
    /// Jumps to the chains, and the chains.
    removals: Vec<Edit<Object>>,
}

/// Displays as a shell command.
impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { restore, .. } = self;
        let text = self.text();
        write!(f, "{restore} --noflush --wait 5 <<'END'\n{text}END")
    }
}

impl Document {
    /// Returns a summary for the log.
    pub fn summary(&self) -> String {
        let Self { restore, table, .. } = self;
        let program = restore.trim_end_matches("-restore");
        let is_chain = |edit: &&Edit<Object>| matches!(edit.object(), Object::Chain(_));
        let chains = self.removals.iter().filter(is_chain).count();
        let jumps = self.removals.len() - chains;
        format!("{chains} chains and {jumps} jumps to them in table {table} of {program}")
    }

    /// Returns the input of the restore program. Chains are flushed before they
    /// are deleted.
    fn text(&self) -> Restore<'_> {
        Restore::from_edits(&self.removals)
    }

    /// Applies the removals.
    ///
    /// # Errors
    ///
    /// The program fails. Nothing is removed then.
    pub fn apply(&self) -> Result<()> {
        let name = self.restore.trim_end_matches("-restore");
        let mut client = open(name)?.with_context(|| format!("{name} is not installed"))?;
        Ok(client.restore(&self.text())?)
    }
}

/// Returns the removals, and messages about chains that stay.
///
/// A chain stays if a rule of another program jumps to it. So do the chains
/// that it jumps to.
pub fn plan(scope: Scope, saved: &Saved) -> (Vec<Document>, Vec<String>) {
    let tables = match Tables::parse(&saved.text) {
        Ok(tables) => tables,
        Err(error) => {
            let program = saved.restore.replace("-restore", "-save");
            return (
                Vec::new(),
                vec![format!("{program}: cannot be parsed: {error}")],
            );
        }
    };
    let (mut documents, mut stays) = (Vec::new(), Vec::new());
    for table in &tables {
        let Ok(name) = TableName::new(table.name()) else {
            continue;
        };
        let rules = table.rules().map(|line| JumpRule::new(scope, table, line));
        let (jumps, others): (Vec<_>, Vec<_>) = rules.partition(|rule| rule.is_upstream_jump);
        let chains = table
            .chains()
            .filter_map(|chain| ChainName::new(chain.name()).ok());
        let chains = chains.filter(|chain| names::is_chain(scope, table.name(), chain.as_str()));
        let mut chains: HashSet<ChainName> = chains.collect();
        while let Some((chain, rule)) = used(&chains, &others) {
            chains.remove(&chain);
            let (from, spec) = (rule.line.chain(), rule.line.spec());
            stays.push(format!(
                "{name} {chain} stays, because a rule that stays jumps to it: -A {from} {spec}"
            ));
        }
        let removals = removals(name, table, &jumps, &chains);
        if !removals.is_empty() {
            documents.push(Document {
                restore: saved.restore.clone(),
                table: name,
                removals,
            });
        }
    }
    (documents, stays)
}

/// Returns edits that remove jumps and chains.
fn removals(
    name: TableName,
    table: &Table<'_>,
    jumps: &[JumpRule<'_>],
    chains: &HashSet<ChainName>,
) -> Vec<Edit<Object>> {
    let jumps = jumps.iter().filter_map(|jump| {
        let entry = SharedRule {
            table: name,
            chain: ChainName::new(jump.line.chain()).ok()?,
            position: Position::Head,
            occurrence: 0,
            rule: jump.line.spec().into(),
        };
        Some(Edit::Remove(entry.into()))
    });
    let declared = table.chains().filter_map(|chain| chains.get(chain.name()));
    let chains = declared.map(|&chain| {
        let chain = Chain::new(name, chain, Rules::default());
        Edit::Remove(chain.into())
    });
    jumps.chain(chains).collect()
}

/// Returns a chain that a rule outside of `chains` jumps to, and the rule.
fn used<'r, 'a>(
    chains: &HashSet<ChainName>,
    rules: &'r [JumpRule<'a>],
) -> Option<(ChainName, &'r JumpRule<'a>)> {
    let mut outside = rules
        .iter()
        .filter(|rule| !chains.contains(rule.line.chain()));
    outside.find_map(|rule| Some((*chains.get(&rule.target?)?, rule)))
}

/// A rule and its target.
struct JumpRule<'a> {
    line: RuleLine<'a>,
    target: Option<ChainName>,
    /// Whether the rule is one of upstream's jumps.
    is_upstream_jump: bool,
}

impl<'a> JumpRule<'a> {
    fn new(scope: Scope, table: &Table<'_>, line: &RuleLine<'a>) -> Self {
        // An unparsable rule is treated as a rule without a target. If it has
        // one, the restore program fails.
        let rule = line.rule().ok();
        let target = rule.as_ref().and_then(|rule| match rule.target {
            Some(Target::Jump(chain) | Target::Goto(chain)) => Some(chain),
            _ => None,
        });
        Self {
            line: *line,
            target,
            is_upstream_jump: rule
                .is_some_and(|rule| is_jump(scope, table.name(), line.chain(), &rule)),
        }
    }
}

/// Returns whether a rule is one of upstream's jumps.
fn is_jump(scope: Scope, table: &str, chain: &str, rule: &Rule<'_>) -> bool {
    let mut jumps = names::jumps(scope).filter(|jump| (jump.table, jump.from) == (table, chain));
    jumps.any(|jump| {
        let to = ChainName::new(jump.to).expect("a valid name");
        let all = Rule::new().comment(jump.comment).jump(to);
        let mut new = all.clone();
        new.matches.insert(0, Conntrack::state(CtState::NEW).into());
        *rule == all || *rule == new
    })
}

/// Traces of rules that are visible without an iptables program.
enum Trace {
    /// No rules exist.
    None,
    /// Rules exist in these tables; with a description.
    Rules(Vec<&'static str>, String),
    /// Unknown.
    Unknown,
}

/// Returns the output of the iptables-save programs, and messages about failed
/// checks.
pub fn find(scope: Scope, mut client: Option<&mut nftables::Client>) -> (Vec<Saved>, Vec<String>) {
    let (mut found, mut unchecked) = (Vec::new(), Vec::new());
    for family in Family::ALL {
        for variant in Variant::ALL {
            let trace = match variant {
                Variant::Legacy => legacy_trace(family),
                Variant::Nft => nft_trace(scope, client.as_deref_mut(), family),
            };
            if let Trace::None = trace {
                continue;
            }
            let (tables, what) = match trace {
                Trace::Rules(tables, what) => (tables, Some(what)),
                _ => (TABLES.to_vec(), None),
            };
            match (programs(family, variant), what) {
                (Ok(Some((name, mut client))), _) => {
                    found.push(save(&name, &mut client, &tables, &mut unchecked));
                }
                (Ok(None), Some(what)) => {
                    let lack = format!("{family}-{variant}-save is not installed");
                    unchecked.push(format!("{what}: not checked: {lack}"));
                }
                (Ok(None), None) => {}
                (Err(error), _) => unchecked.push(format!("{error:#}")),
            }
        }
    }
    (found, unchecked)
}

/// Saves tables. Adds a message for each failure.
fn save(name: &str, client: &mut Client, tables: &[&str], unchecked: &mut Vec<String>) -> Saved {
    let mut text = String::new();
    for table in tables {
        let saved = client.save(TableName::new(table).expect("a valid name"));
        match saved {
            Ok(saved) => text += &saved,
            Err(error) => unchecked.push(format!("{name}-save: {}", crate::failure::chain(&error))),
        }
    }
    Saved {
        restore: format!("{name}-restore"),
        text,
    }
}

/// Finds the programs of a variant, and the prefix of their names.
///
/// If only one variant is installed, its programs may have names without the
/// variant.
fn programs(family: Family, variant: Variant) -> Result<Option<(String, Client)>> {
    let own = format!("{family}-{variant}");
    if let Some(client) = open(&own)? {
        return Ok(Some((own, client)));
    }
    let client = open(family.as_str())?.filter(|client| client.variant() == variant);
    Ok(client.map(|client| (family.to_string(), client)))
}

/// Opens the programs whose names have this prefix, if they are installed.
fn open(name: &str) -> Result<Option<Client>, Error> {
    let find = |end| find_program(&format!("{name}-{end}"));
    let programs = find("save").zip(find("restore"));
    let client = programs.map(|(save, restore)| Client::open_at(save, restore));
    client.transpose()
}

/// Finds a program in the directories of `PATH`.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Returns the legacy tables that exist in the kernel.
fn legacy_trace(family: Family) -> Trace {
    let (path, shown) = match family {
        Family::V4 => ("/proc/thread-self/net/ip_tables_names", "IPv4"),
        Family::V6 => ("/proc/thread-self/net/ip6_tables_names", "IPv6"),
    };
    match fs::read_to_string(path) {
        Ok(text) => {
            let is_there = |table: &&str| text.lines().any(|line| line == *table);
            let tables: Vec<_> = TABLES.into_iter().filter(is_there).collect();
            match tables.len() {
                0 => Trace::None,
                _ => {
                    let what = format!("legacy {shown} iptables tables {}", tables.join(", "));
                    Trace::Rules(tables, what)
                }
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Trace::None,
        Err(_) => Trace::Unknown,
    }
}

/// Returns the tables of nf_tables that contain upstream's chains.
fn nft_trace(scope: Scope, client: Option<&mut nftables::Client>, family: Family) -> Trace {
    let Some(client) = client else {
        return Trace::None;
    };
    let (family, shown) = match family {
        Family::V4 => (nftables::Family::Ip, "IPv4"),
        Family::V6 => (nftables::Family::Ip6, "IPv6"),
    };
    let table = |name| {
        let name = nftables::Name::new(name).expect("a valid name");
        nftables::TableId::new(family, name)
    };
    let Ok(ruleset) = client.dump(&TABLES.map(table)) else {
        return Trace::Unknown;
    };
    let table_of_chain = |object| match object {
        nftables::Object::Chain(chain) => {
            let mut tables = TABLES.into_iter();
            let table = tables.find(|table| *table == chain.table.name.as_str())?;
            names::is_chain(scope, table, chain.name.as_str()).then_some(table)
        }
        _ => None,
    };
    let tables: Vec<_> = ruleset.objects().filter_map(table_of_chain).collect();
    let tables_with_chains = TABLES.into_iter().filter(|table| tables.contains(table));
    match tables.len() {
        0 => Trace::None,
        count => {
            let what = format!("{count} chains of iptables in {shown} of nf_tables");
            Trace::Rules(tables_with_chains.collect(), what)
        }
    }
}

#[cfg(test)]
mod tests {
    use proxy_core::Mode;

    use super::*;

    /// A node of mode iptables with rules of other programs, saved by iptables
    /// 1.8.9.
    const NODE: &str = include_str!("captures/iptables.txt");

    fn saved(text: &str) -> Saved {
        Saved {
            restore: "iptables-legacy-restore".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn upstreams_rules_are_removed_and_other_rules_stay() {
        let (documents, stays) = plan(Scope::AllModes, &saved(NODE));
        let shown: String = documents.iter().map(|one| format!("{one}\n")).collect();
        assert_eq!(shown, include_str!("captures/iptables-plan.sh"));
        assert_eq!(stays, Vec::<String>::new());
        let summary = documents[1].summary();
        let expected = "6 chains and 9 jumps to them in table filter of iptables-legacy";
        assert_eq!(summary, expected);
    }

    #[test]
    fn rules_shared_with_the_running_mode_stay() {
        let portals = "-m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES";
        let firewall = "-m comment --comment";
        let text = format!(
            "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n\
             :KUBE-PROXY-FIREWALL - [0:0]\n:KUBE-NODEPORTS - [0:0]\n:KUBE-NODE-PORT - [0:0]\n\
             -A FORWARD {firewall} \"kube-proxy firewall rules\" -j KUBE-PROXY-FIREWALL\n\
             -A FORWARD {firewall} \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL\n\
             -A INPUT {firewall} \"kubernetes health check rules\" -j KUBE-NODE-PORT\n\
             -A INPUT {firewall} \"kubernetes health check service ports\" -j KUBE-NODEPORTS\n\
             COMMIT\n*nat\n:OUTPUT ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n\
             :KUBE-LOAD-BALANCER - [0:0]\n:KUBE-SVC-NPX46M4PTMTKRN6Y - [0:0]\n\
             -A OUTPUT {portals}\n-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ\n\
             -A KUBE-SVC-NPX46M4PTMTKRN6Y -j KUBE-MARK-MASQ\nCOMMIT\n"
        );
        let removed = |mode| {
            let (documents, stays) = plan(Scope::AllExcept(mode), &saved(&text));
            assert_eq!(stays, Vec::<String>::new());
            let texts = documents.iter().map(|one| one.text().to_string());
            let lines: Vec<_> = texts.flat_map(|text| removals_of(&text)).collect();
            lines.join("\n")
        };
        assert_eq!(
            removed(Mode::Iptables),
            "-D FORWARD -m comment --comment \"kube-proxy firewall rules\" -j KUBE-PROXY-FIREWALL\n\
             -D INPUT -m comment --comment \"kubernetes health check rules\" -j KUBE-NODE-PORT\n\
             -X KUBE-NODE-PORT\n-X KUBE-LOAD-BALANCER"
        );
        assert_eq!(
            removed(Mode::Ipvs),
            "-D FORWARD -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL\n\
             -D INPUT -m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS\n\
             -X KUBE-NODEPORTS\n-X KUBE-SVC-NPX46M4PTMTKRN6Y"
        );
    }

    /// Returns the lines that remove rules and chains.
    fn removals_of(text: &str) -> Vec<String> {
        let is_removal = |line: &&str| line.starts_with("-D ") || line.starts_with("-X ");
        text.lines().filter(is_removal).map(str::to_owned).collect()
    }

    #[test]
    fn a_chain_used_by_other_rules_stays_with_its_targets() {
        let text = "*nat\n:OUTPUT ACCEPT [0:0]\n:MINE - [0:0]\n:KUBE-NODEPORTS - [0:0]\n\
                    :KUBE-MARK-MASQ - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:KUBE-SERVICES - [0:0]\n\
                    -A MINE -p tcp -m comment --comment \"a -j KUBE-SERVICES\" -j KUBE-NODEPORTS\n\
                    -A KUBE-NODEPORTS -j KUBE-MARK-MASQ\n\
                    -A KUBE-SERVICES -j KUBE-NODEPORTS\nCOMMIT\n";
        let (documents, stays) = plan(Scope::AllModes, &saved(text));
        assert_eq!(documents.len(), 1);
        let text = documents[0].text().to_string();
        let removed: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("-X "))
            .collect();
        assert_eq!(removed, ["KUBE-SERVICES", "KUBE-POSTROUTING"]);
        assert_eq!(stays.len(), 2, "{stays:?}");
        assert!(
            stays[0].starts_with("nat KUBE-NODEPORTS stays, "),
            "{stays:?}"
        );
        let end = "because a rule that stays jumps to it: -A KUBE-NODEPORTS -j KUBE-MARK-MASQ";
        assert!(stays[1].ends_with(end), "{stays:?}");
    }

    #[test]
    fn only_an_exact_match_is_upstreams_jump() {
        let good = "-m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES";
        let is_jump = |table: &str, rule: &str| {
            let text = format!("*{table}\n-A {rule}\nCOMMIT\n");
            let tables = Tables::parse(&text).unwrap();
            let table = tables.iter().next().unwrap();
            JumpRule::new(Scope::AllModes, table, table.rules().next().unwrap()).is_upstream_jump
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
    fn a_comment_that_resembles_a_jump_has_no_target() {
        let rule = r#"A -m comment --comment "say \"no\" \\ -j B" -j C"#;
        let text = format!("*nat\n-A {rule}\nCOMMIT\n");
        let tables = Tables::parse(&text).unwrap();
        let table = tables.get("nat").unwrap();
        let leading = JumpRule::new(Scope::AllModes, table, table.rules().next().unwrap());
        assert_eq!(leading.target.unwrap().as_str(), "C");
    }

    #[test]
    fn unparsable_rules_are_reported_and_stay() {
        let (documents, stays) = plan(Scope::AllModes, &saved("*nat\n:KUBE-SERVICES - [0:0]\n"));
        assert_eq!(documents, []);
        assert_eq!(stays.len(), 1, "{stays:?}");
        assert!(
            stays[0].starts_with("iptables-legacy-save: cannot be parsed: "),
            "{stays:?}"
        );
    }
}
