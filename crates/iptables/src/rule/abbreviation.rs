//! Abbreviated option names: `--dest` for `--destination`.

use crate::matches::Match;
use crate::rule::Rule;

/// Long names of general options and commands of iptables.
const GENERAL: &[&str] = &[
    "--append",
    "--check",
    "--delete",
    "--delete-chain",
    "--destination",
    "--dst",
    "--exact",
    "--flush",
    "--fragments",
    "--goto",
    "--help",
    "--in-interface",
    "--insert",
    "--ipv4",
    "--ipv6",
    "--jump",
    "--line-numbers",
    "--list",
    "--list-rules",
    "--match",
    "--modprobe",
    "--new-chain",
    "--numeric",
    "--out-interface",
    "--policy",
    "--protocol",
    "--rename-chain",
    "--replace",
    "--set-counters",
    "--source",
    "--src",
    "--table",
    "--verbose",
    "--version",
    "--wait",
    "--wait-interval",
    "--zero",
];

/// Returns the only option that begins with the text, like `getopt_long`.
///
/// The options are general ones, those of the matches and the target of the rule, and
/// those of a match that the protocol implies.
pub(super) fn expand(
    text: &str,
    rule: &Rule<'_>,
    implied: Option<&Match<'_>>,
) -> Option<&'static str> {
    let matches = rule.matches.iter().chain(implied);
    let target = rule.target.iter().flat_map(|target| target.options());
    let options = GENERAL
        .iter()
        .chain(target)
        .chain(matches.flat_map(|one| one.options()));
    let mut found = options.filter(|option| option.starts_with(text));
    let first = found.next().filter(|_| text.len() > 2)?;
    found.all(|option| option == first).then_some(first)
}
