//! Matches and targets of xtables as extensions of the evaluator of nf_tables.

use vipline_iptables::nft::{self, SetNames, Undecoded};
use vipline_iptables::{Family, TableName};
use vipline_nftables::expr::{Match, Target};
use vipline_nftables::{Chain, Rule, TableId};

use super::rules::LEGACY;
use super::{actions, conditions};
use crate::{Cause, Context, Extensions, Flow};

/// Evaluates matches and targets of xtables, and writes rules in the syntax of iptables.
///
/// [`Rules::evaluator`](super::Rules::evaluator) uses it. Callers with a
/// [`Ruleset`](vipline_nftables::Ruleset) of their own register it with
/// [`Evaluator::with_extensions`](crate::Evaluator::with_extensions).
#[derive(Clone, Debug, Default)]
pub struct Xtables {
    sets: SetNames,
}

impl Xtables {
    /// Creates the extensions for rules with these IP sets.
    pub fn new(sets: SetNames) -> Self {
        Self { sets }
    }
}

/// Returns the family of a table of iptables.
fn table_family(id: &TableId) -> Option<Family> {
    let family = id.family.ip()?;
    let name = id.name.as_str();
    let name = name.strip_prefix(LEGACY).unwrap_or(name);
    let mut bases = nft::base_chains(TableName::new(name).ok()?);
    bases.next().map(|_| family)
}

impl Extensions for Xtables {
    fn evaluate_match(&self, one: &Match, context: &mut Context<'_, '_>) -> Result<Flow, Cause> {
        // A long structure that is always equal to its text.
        if one.name.as_str() == "comment" {
            return Ok(Flow::Next);
        }
        let unsupported = |error| {
            let Match { name, revision, .. } = one;
            Cause::unsupported(match error {
                Undecoded::Unknown => format!("match {name}"),
                Undecoded::Unsupported => {
                    format!("revision {revision} or a value of match {name}")
                }
            })
        };
        let decoded = nft::decode_match(one, actions::family(context), &self.sets);
        conditions::evaluate(&decoded.map_err(unsupported)?, context)
    }

    fn evaluate_target(
        &self,
        target: &Target,
        context: &mut Context<'_, '_>,
    ) -> Result<Flow, Cause> {
        let unsupported = |error| {
            let Target { name, revision, .. } = target;
            Cause::unsupported(match error {
                Undecoded::Unknown => format!("target {name}"),
                Undecoded::Unsupported => {
                    format!("revision {revision} or a value of target {name}")
                }
            })
        };
        let decoded = nft::decode_target(target, actions::family(context), &self.sets);
        actions::evaluate(&decoded.map_err(unsupported)?, context)
    }

    fn rule_text(&self, chain: &Chain, rule: &Rule) -> Option<String> {
        let family = table_family(&chain.table)?;
        let text = nft::rule_text(rule, family, &self.sets)?;
        let line = format!("-A {} {text}", chain.name);
        Some(line.trim_end().to_owned())
    }
}
