//! Selection of the chains and jumps to remove in the output of `iptables-save`.
//!
//! A node that changes its mode, or leaves the cluster, still has the chains of the former
//! kube-proxy, and the kernel still evaluates them. They must go, and nothing else may: in the
//! same tables are rules of the kubelet, of network policies and of the operator, and some of
//! them may jump to chains of a kube-proxy.
//!
//! The kernel applies the changes of one table as a whole, and refuses to delete a chain that a
//! rule jumps to. So one chain that cannot go would keep all of them. That is why the plan looks
//! at every rule of the table, not only at the chains. For example, an operator has a chain of
//! their own that jumps to one of ours:
//!
//! ```text
//! -A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES   jump: removed
//! -A KUBE-SERVICES -j KUBE-NODEPORTS       in a removed chain: goes with it
//! -A MINE -j KUBE-NODEPORTS                stays, so KUBE-NODEPORTS stays
//! -A KUBE-NODEPORTS -j KUBE-MARK-MASQ      stays with its chain, so KUBE-MARK-MASQ stays
//! ```
//!
//! KUBE-SERVICES is removed, and two messages name the chains that stay and the rules because of
//! which they do.
//!
//! What must stay true:
//!
//! - Chains are selected by the list in [`owned`](crate::owned), and jumps by their full rule.
//!   A rule that only resembles a jump, such as one with a source address, is the operator's.
//! - A table is read as a whole: a rule that the plan does not see keeps its chain in use, and
//!   then the restore fails.
//! - This module only plans. `apply/cleanup.rs` reads the tables and applies the documents.

use std::collections::HashSet;
use std::fmt;

use ipnet::IpNet;
use vipline_iptables::matches::{AddrType, AddressTypes, Conntrack, CtState, Match};
use vipline_iptables::targets::Target;
use vipline_iptables::{
    Chain, ChainName, Object, Position, Restore, Rule, RuleLine, SharedRule, Table, TableName,
    Tables,
};
use vipline_reconcile::Edit;
use vipline_service_model::{Counted, Family};

use crate::cleanup::names::Selection;
use crate::cleanup::{Found, Removal, Step};
use crate::owned::Jump;

/// The rules of the node.
pub(crate) struct SavedRules(pub(crate) Vec<Saved>);

impl Found for SavedRules {
    // The excluded networks are those of virtual servers that stay. Whose a rule is, its chain or
    // its full text tells.
    fn plan(&self, _excluded: &[IpNet], removal: &mut Removal) {
        for saved in &self.0 {
            let (documents, stays) = plan(saved);
            removal.steps.extend(documents.into_iter().map(Step::new));
            removal.stays.extend(stays);
        }
    }
}

/// Tables of one family and variant, as `iptables-save` prints them.
///
/// One value for each pair: a node may have rules in both variants at once, and which chains go
/// depends on the variant that the running mode uses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Saved {
    /// The restore program of the same variant and family.
    pub(crate) restore: String,
    /// The output.
    pub(crate) text: String,
    /// Family, if the tables are read and changed over netlink instead of by programs.
    pub(crate) over_netlink: Option<Family>,
    /// The chains and jumps to remove.
    pub(crate) selection: Selection,
}

/// Removals in one table, applied atomically.
///
/// One document for each table, because a failure in table `nat` must not keep the chains of
/// table `filter`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::backend::iptables) struct Document {
    restore: String,
    over_netlink: Option<Family>,
    table: TableName,
    /// Jumps to the chains, and the chains.
    removals: Vec<Edit<Object>>,
}

/// Displays as a shell command, which an operator may run instead. So it waits for the lock of
/// xtables, which another program may hold.
impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { restore, .. } = self;
        let text = self.text();
        write!(f, "{restore} --noflush --wait 5 <<'END'\n{text}END")
    }
}

impl Document {
    /// Returns the input of the restore program. Chains are flushed before they
    /// are deleted, because the kernel deletes only empty ones. That also deletes the jumps
    /// among them, so their order does not matter.
    pub(in crate::backend::iptables) fn text(&self) -> Restore<'_> {
        Restore::from_edits(&self.removals)
    }

    /// Returns the removals.
    pub(in crate::backend::iptables) fn edits(&self) -> &[Edit<Object>] {
        &self.removals
    }

    /// Returns the family, if the table is changed over netlink.
    pub(in crate::backend::iptables) fn over_netlink(&self) -> Option<Family> {
        self.over_netlink
    }

    /// Returns the numbers of chains and jumps, for a log.
    pub(in crate::backend::iptables) fn counts(&self) -> String {
        let Self { table, .. } = self;
        let program = self.program();
        let is_chain = |edit: &&Edit<Object>| matches!(edit.object(), Object::Chain(_));
        let chains = self.removals.iter().filter(is_chain).count();
        let jumps = self.removals.len() - chains;
        let (chains, jumps) = (Counted(chains, "chain"), Counted(jumps, "jump"));
        format!("{chains} and {jumps} to them in table {table} of {program}")
    }

    /// Returns the name of the programs without `-save` and `-restore`.
    pub(in crate::backend::iptables) fn program(&self) -> &str {
        self.restore.trim_end_matches("-restore")
    }
}

/// Returns the removals, and messages about chains that stay.
///
/// A chain stays if a rule of another program jumps to it. So do the chains
/// that it jumps to.
fn plan(saved: &Saved) -> (Vec<Document>, Vec<String>) {
    let tables = match Tables::parse(&saved.text) {
        Ok(tables) => tables,
        // Without a table there is no way to tell what would be left in use, so all stays.
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
        // Cannot fail: only tables were saved whose names are constants.
        let Ok(name) = TableName::new(table.name()) else {
            continue;
        };
        let selection = saved.selection;
        let rules = table
            .rules()
            .map(|line| JumpRule::new(selection, table, line));
        // The jumps are removed in any case, even if their chain stays: so they keep no chain in
        // use. Every other rule might.
        let (jumps, others): (Vec<_>, Vec<_>) = rules.partition(|rule| rule.is_upstream_jump);
        let mut chains: HashSet<ChainName> = table
            .chains()
            .filter_map(|chain| ChainName::new(chain.name()).ok())
            .filter(|chain| selection.has_chain(table.name(), chain.as_str()))
            .collect();
        // A chain that stays keeps its rules, which may jump to others. So after each one all
        // rules are searched again, until no rule outside of the chains leads into them. Few
        // chains stay, so the repeated search does not matter.
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
                over_netlink: saved.over_netlink,
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
            // Only additions use these two. A removal finds the rule by its text.
            position: Position::Head,
            occurrence: 0,
            rule: jump.line.spec().into(),
        };
        Some(Edit::Remove(entry.into()))
    });
    // In the order of the table, so that the command that is shown is always the same one: a set
    // has no order.
    let declared = table.chains().filter_map(|chain| chains.get(chain.name()));
    let chains = declared.map(|&chain| {
        let chain = Chain::new(name, chain);
        Edit::Remove(chain.into())
    });
    jumps.chain(chains).collect()
}

/// Returns a chain that a rule outside of `chains` jumps to, and the rule. A rule inside of them
/// goes with its chain.
fn used<'r, 'a>(
    chains: &HashSet<ChainName>,
    rules: &'r [JumpRule<'a>],
) -> Option<(ChainName, &'r JumpRule<'a>)> {
    let mut outside = rules
        .iter()
        .filter(|rule| !chains.contains(rule.line.chain()));
    outside.find_map(|rule| Some((*chains.get(&rule.target?)?, rule)))
}

/// A rule and the chain that it jumps to, if any.
struct JumpRule<'a> {
    line: RuleLine<'a>,
    target: Option<ChainName>,
    /// Whether the rule is one of upstream's jumps.
    is_upstream_jump: bool,
}

impl<'a> JumpRule<'a> {
    fn new(selection: Selection, table: &Table<'_>, line: &RuleLine<'a>) -> Self {
        // An unparsable rule is treated as a rule without a target. If it has one, the restore
        // program fails, and the table stays as it is: an error, but no damage.
        let rule = line.rule().ok();
        // From the parsed rule, because a comment may contain `-j KUBE-SERVICES`, too.
        let target = rule.as_ref().and_then(|rule| match rule.target {
            Some(Target::Jump(chain) | Target::Goto(chain)) => Some(chain),
            // A verdict or an extension, such as ACCEPT or MARK, keeps no chain in use.
            _ => None,
        });
        Self {
            line: *line,
            target,
            is_upstream_jump: rule
                .is_some_and(|rule| is_jump(selection, table.name(), line.chain(), &rule)),
        }
    }
}

/// Returns whether a rule is one of upstream's jumps.
fn is_jump(selection: Selection, table: &str, chain: &str, rule: &Rule<'_>) -> bool {
    let mut jumps = selection
        .jumps()
        .filter(|jump| (jump.table, jump.from) == (table, chain));
    jumps.any(|jump| forms(jump).contains(rule))
}

/// Returns the forms of a jump: for all packets, for new connections, and for local
/// destinations.
///
/// The list of jumps does not say which release wrote which form, so any of them is upstream's.
/// They are compared as parsed rules with those of the table, because the quotes of a comment
/// are no part of it.
pub(in crate::backend) fn forms(jump: &Jump) -> [Rule<'static>; 3] {
    let to = ChainName::new(jump.to).expect("the list of jumps has valid names");
    let all = Rule::new().with_comment(jump.comment).with_jump(to);
    let with = |first: Match<'static>| {
        let mut rule = all.clone();
        // Before the comment: the order of matches is a part of a rule.
        rule.matches.insert(0, first);
        rule
    };
    let new = with(Conntrack::state(CtState::NEW).into());
    let local = with(AddrType::destination(AddressTypes::LOCAL).into());
    [all, new, local]
}

#[cfg(all(test, feature = "ipvs"))]
mod tests {
    use super::*;
    use crate::cleanup::Scope;
    use crate::{IptablesBackend, Mode};

    /// A node of mode iptables with rules of other programs, saved by iptables
    /// 1.8.9.
    const NODE: &str = include_str!("captures/iptables.txt");

    /// Selects the chains and jumps of all modes.
    const ALL: Selection = Selection::new(Scope::AllModes, false);

    fn saved(text: &str) -> Saved {
        Saved {
            restore: "iptables-legacy-restore".to_owned(),
            text: text.to_owned(),
            over_netlink: None,
            selection: ALL,
        }
    }

    #[test]
    fn upstreams_rules_are_removed_and_other_rules_stay() {
        let (documents, stays) = plan(&saved(NODE));
        let shown: String = documents.iter().map(|one| format!("{one}\n")).collect();
        assert_eq!(shown, include_str!("captures/iptables-plan.sh"));
        assert_eq!(stays, Vec::<String>::new());
        let summary = documents[1].counts();
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
            let scope = Scope::AllExcept(mode, IptablesBackend::Programs);
            let (documents, stays) = plan(&Saved {
                selection: Selection::new(scope, true),
                ..saved(&text)
            });
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
        let (documents, stays) = plan(&saved(text));
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
            JumpRule::new(ALL, table, table.rules().next().unwrap()).is_upstream_jump
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
        let leading = JumpRule::new(ALL, table, table.rules().next().unwrap());
        assert_eq!(leading.target.unwrap().as_str(), "C");
    }

    #[test]
    fn unparsable_rules_are_reported_and_stay() {
        let (documents, stays) = plan(&saved("*nat\n:KUBE-SERVICES - [0:0]\n"));
        assert_eq!(documents, []);
        assert_eq!(stays.len(), 1, "{stays:?}");
        assert!(
            stays[0].starts_with("iptables-legacy-save: cannot be parsed: "),
            "{stays:?}"
        );
    }
}
