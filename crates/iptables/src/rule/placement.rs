//! Tables and built-in chains in which iptables accepts options, matches and targets.

use crate::matches::Match;
use crate::parse_error::{ParseError, RuleProblem};
use crate::rule::Rule;
use crate::rule::check::{Refused, locate};
use crate::targets::Target;
use crate::{ChainName, TableName};

/// Chains of received packets.
const BEFORE: &[&str] = &["PREROUTING", "INPUT", "FORWARD"];
/// Chains of packets to send.
const AFTER: &[&str] = &["FORWARD", "OUTPUT", "POSTROUTING"];
/// All built-in chains.
const BUILT_IN: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// Returns an error if iptables or the kernel refuses the rule in the chain.
pub(super) fn check(
    rule: &Rule<'_>,
    table: TableName,
    chain: ChainName,
    text: &str,
) -> Result<(), ParseError> {
    let (table, chain) = (table.as_str(), chain.as_str());
    let refused = |(word, problem)| ParseError::of_word(text, locate(text, word), problem);
    let is_in = |chains: &[&str]| !BUILT_IN.contains(&chain) || chains.contains(&chain);
    if rule.in_interface.is_some() && !is_in(BEFORE) {
        return Err(refused(("-i", RuleProblem::WrongChain)));
    }
    if rule.out_interface.is_some() && !is_in(AFTER) {
        return Err(refused(("-o", RuleProblem::WrongChain)));
    }
    for one in &rule.matches {
        if let (Some(name), Some(chains)) = (one.name(), match_chains(one))
            && !is_in(chains)
        {
            return Err(refused((name, RuleProblem::WrongChain)));
        }
    }
    let target = rule.target.as_ref();
    let place = target.and_then(|target| Some((target.name()?, target_place(target)?)));
    match place {
        Some((name, (tables, chains))) => {
            placed(name, table, tables, is_in(chains)).map_err(refused)
        }
        None => Ok(()),
    }
}

fn placed<'r>(
    name: &'static str,
    table: &str,
    tables: &'static str,
    is_in_chain: bool,
) -> Result<(), Refused<'r>> {
    if !tables.split(' ').any(|one| one == table) {
        return Err((name, RuleProblem::RequiresTable(tables)));
    }
    if is_in_chain {
        Ok(())
    } else {
        Err((name, RuleProblem::WrongChain))
    }
}

/// Returns the only built-in chains of a match.
fn match_chains(one: &Match<'_>) -> Option<&'static [&'static str]> {
    Some(match one {
        Match::Owner(_) => &["OUTPUT", "POSTROUTING"],
        Match::Eui64(_) | Match::Mac(_) => BEFORE,
        Match::Rpfilter(_) => &["PREROUTING"],
        Match::Socket(_) => &["PREROUTING", "INPUT"],
        _ => return None,
    })
}

/// Returns the only tables, separated by spaces, and the only built-in chains of a target.
fn target_place(target: &Target<'_>) -> Option<(&'static str, &'static [&'static str])> {
    Some(match target {
        Target::Dnat(_) | Target::Redirect(_) => ("nat", &["PREROUTING", "OUTPUT"]),
        Target::Snat(_) => ("nat", &["INPUT", "POSTROUTING"]),
        Target::Masquerade(_) => ("nat", &["POSTROUTING"]),
        Target::Netmap(_) => ("nat", &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"]),
        Target::Tproxy(_) => ("mangle", &["PREROUTING"]),
        Target::Classify(_) => ("mangle", AFTER),
        Target::Checksum(_)
        | Target::Dscp(_)
        | Target::Ecn(_)
        | Target::Hl(_)
        | Target::Tcpoptstrip(_)
        | Target::Tos(_)
        | Target::Ttl(_) => ("mangle", &BUILT_IN),
        Target::Ct(_) | Target::Notrack => ("raw", &["PREROUTING", "OUTPUT"]),
        Target::Reject(_) => ("filter", &["INPUT", "FORWARD", "OUTPUT"]),
        Target::Synproxy(_) => ("filter", &["INPUT", "FORWARD"]),
        _ => return None,
    })
}
