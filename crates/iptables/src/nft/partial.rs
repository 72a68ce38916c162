//! Rules of which some parts have no encoding: these remain as text.

use vipline_nftables as nftables;
use vipline_nftables::expr::{self, Counter, Expr};
use vipline_nftables::{Bytes, Name};

use super::sets::{SetIndexes, SetNames};
use super::{Decoder, head, put_match, put_target};
use crate::extensions::structure::{Context, Undecoded};
use crate::matches::Match;
use crate::targets::Target;
use crate::{Counters, Family, Rule};

/// Name of a match or target that is text. The kernel has no such extension.
const TEXT: &str = "text";

/// Encodes a rule for programs that read rules instead of a kernel: a match or target without an
/// encoding becomes one of name `text`, whose structure is its text.
///
/// No kernel has such an extension, so it refuses the rule. [`decode_match`], [`decode_target`]
/// and [`rule_text`] read the text.
pub fn encode_partially(rule: &Rule<'_>, family: Family, sets: &SetNames) -> nftables::Rule {
    let sets = &sets.0;
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

/// Returns a rule of one match with the whole text, such as that of a rule that this crate cannot
/// parse. See [`encode_partially`].
pub fn text_rule(text: &str) -> nftables::Rule {
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
fn text(name: &Name, info: &[u8]) -> Option<String> {
    let text = (name.as_str() == TEXT).then(|| str::from_utf8(info));
    Some(text?.ok()?.to_owned())
}

/// Decodes the structure of a match.
///
/// # Errors
///
/// [`Undecoded`] if the match is unknown, or one of its values. IP sets that `sets` does not have
/// are such values.
pub fn decode_match(
    one: &expr::Match,
    family: Family,
    sets: &SetNames,
) -> Result<Match<'static>, Undecoded> {
    extension_match(one, family, &sets.0)
}

pub(super) fn extension_match(
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

/// Decodes the structure of a target.
///
/// # Errors
///
/// As [`decode_match`].
pub fn decode_target(
    target: &expr::Target,
    family: Family,
    sets: &SetNames,
) -> Result<Target<'static>, Undecoded> {
    extension_target(target, family, &sets.0)
}

pub(super) fn extension_target(
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
/// Returns `None` for a rule in another form than that of iptables. Parts of
/// [`encode_partially`] are in the text.
pub fn rule_text(rule: &nftables::Rule, family: Family, sets: &SetNames) -> Option<String> {
    if let [Expr::Match(one)] = &*rule.exprs
        && let Some(text) = text(&one.name, &one.info)
    {
        return Some(text);
    }
    let decoded = Decoder::new(family, &sets.0).decode(&rule.exprs)?;
    let encoded = encode_partially(&decoded, family, sets);
    let is_same = |(one, other): (&Expr, &Expr)| match (one, other) {
        (Expr::Counter(_), Expr::Counter(_)) => true,
        (one, other) => one == other,
    };
    let mut pairs = encoded.exprs.iter().zip(&rule.exprs);
    let is_same = encoded.exprs.len() == rule.exprs.len() && pairs.all(is_same);
    is_same.then(|| decoded.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_without_an_encoding_remain_in_the_text_of_a_rule() {
        let sets = SetNames::default();
        let text = "-p tcp -m set --match-set pods src -j LED --led-trigger-id \"web\"";
        let rule = Rule::parse(text).unwrap();
        let encoded = encode_partially(&rule, Family::V4, &sets);
        assert_eq!(
            rule_text(&encoded, Family::V4, &sets).as_deref(),
            Some(text)
        );
        let [_, _, Expr::Match(set), _, Expr::Target(led)] = &*encoded.exprs else {
            panic!("{encoded}");
        };
        let set = decode_match(set, Family::V4, &sets).unwrap();
        assert_eq!(set, Match::Other("-m set --match-set pods src".into()));
        let led = decode_target(led, Family::V4, &sets).unwrap();
        assert_eq!(led, Target::Other("-j LED --led-trigger-id \"web\"".into()));
        let unparsed = text_rule("-m no-such-match");
        let text = rule_text(&unparsed, Family::V4, &sets);
        assert_eq!(text.as_deref(), Some("-m no-such-match"));
    }
}
