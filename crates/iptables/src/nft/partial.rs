//! Rules for evaluation: parts without an encoding remain as text.

use std::sync::Arc;

use vipline_nftables as nftables;
use vipline_nftables::expr::{self, Counter, Expr};
use vipline_nftables::{Bytes, Name};

use super::sets::SetIndexes;
use super::{Decoder, head, put_match, put_target};
use crate::matches::Match;
use crate::structure::{Context, Undecoded};
use crate::targets::Target;
use crate::{Counters, Family, Rule};

/// Name of a match or target that is text. The kernel has no such extension.
pub(crate) const TEXT: &str = "text";

/// Encodes a rule. A part without an encoding becomes a match or target [`TEXT`].
pub(crate) fn encode_partially(
    rule: &Rule<'_>,
    family: Family,
    sets: &SetIndexes,
) -> nftables::Rule {
    let context = Context { family, sets };
    let mut exprs = Vec::with_capacity(8);
    if head(rule, family, &mut exprs).is_none() {
        exprs = vec![text_match(&rule.to_string())];
        return nftables::Rule::from_exprs(exprs);
    }
    for one in &rule.matches {
        let before = exprs.len();
        if put_match(rule, one, context, &mut exprs).is_none() {
            exprs.truncate(before);
            exprs.push(text_match(&one.to_string()));
        }
    }
    let Counters { packets, bytes } = rule.counters.unwrap_or_default();
    exprs.push(Counter { packets, bytes }.into());
    if let Some(target) = &rule.target {
        let before = exprs.len();
        if put_target(target, context, &mut exprs).is_none() {
            exprs.truncate(before);
            exprs.push(text_target(&target.to_string()));
        }
    }
    nftables::Rule::from_exprs(exprs)
}

/// Returns a rule that is only text: it cannot be parsed.
pub(crate) fn text_rule(text: &str) -> nftables::Rule {
    nftables::Rule::from_exprs([text_match(text)])
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a short name without NUL bytes")
}

fn text_match(text: &str) -> Expr {
    let (name, info) = (name(TEXT), Bytes::from(text.as_bytes()));
    let revision = 0;
    expr::Match {
        name,
        revision,
        info,
    }
    .into()
}

fn text_target(text: &str) -> Expr {
    let (name, info) = (name(TEXT), Bytes::from(text.as_bytes()));
    let revision = 0;
    expr::Target {
        name,
        revision,
        info,
    }
    .into()
}

/// Returns the text of a match or target [`TEXT`].
pub(crate) fn text(name: &Name, info: &[u8]) -> Option<String> {
    let text = (name.as_str() == TEXT).then(|| str::from_utf8(info));
    Some(text?.ok()?.to_owned())
}

/// Decodes a match.
pub(crate) fn decode_match(
    one: &expr::Match,
    family: Family,
    sets: &SetIndexes,
) -> Result<Match<'static>, Undecoded> {
    if let Some(text) = text(&one.name, &one.info) {
        return Ok(Match::Other(text.into()));
    }
    let context = Context { family, sets };
    Match::decode(one.name.as_str(), one.revision, &one.info, context)
}

/// Decodes a target.
pub(crate) fn decode_target(
    target: &expr::Target,
    family: Family,
    sets: &SetIndexes,
) -> Result<Target<'static>, Undecoded> {
    if let Some(text) = text(&target.name, &target.info) {
        return Ok(Target::Other(text.into()));
    }
    let context = Context { family, sets };
    Target::decode(target.name.as_str(), target.revision, &target.info, context)
}

/// Returns the text of a rule as `iptables-save` prints it after `-A CHAIN `.
///
/// Returns `None` for a rule in another form than that of iptables.
pub(crate) fn rule_text(
    rule: &nftables::Rule,
    family: Family,
    sets: &Arc<SetIndexes>,
) -> Option<String> {
    if let [Expr::Match(one)] = &*rule.exprs
        && let Some(text) = text(&one.name, &one.info)
    {
        return Some(text);
    }
    let decoded = Decoder::new(family, sets).decode(&rule.exprs)?;
    let encoded = encode_partially(&decoded, family, sets);
    let is_same = |(one, other): (&Expr, &Expr)| match (one, other) {
        (Expr::Counter(_), Expr::Counter(_)) => true,
        (one, other) => one == other,
    };
    let mut pairs = encoded.exprs.iter().zip(&rule.exprs);
    let is_same = encoded.exprs.len() == rule.exprs.len() && pairs.all(is_same);
    is_same.then(|| decoded.to_string())
}
