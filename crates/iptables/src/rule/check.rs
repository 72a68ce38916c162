//! Rules that are well-formed but that iptables refuses.

use crate::Protocol;
use crate::matches::{Flags, Match, RecentAction, Statistic, Tcp};
use crate::options::lexer::Lexer;
use crate::options::negatable::Negatable;
use crate::parse_error::{ParseError, RuleProblem};
use crate::rule::Rule;
use crate::targets::{NatPorts, Reject, Target};
use crate::{Family, Variant};

/// Maximum length of an interface name: `IFNAMSIZ` without the NUL byte.
const MAX_INTERFACE: usize = 15;
/// Maximum length of the name of an IP set.
const MAX_SET: usize = 31;
/// Maximum length of a comment.
const MAX_COMMENT: usize = 255;

/// A word that iptables refuses, and the reason.
pub(super) type Refused<'r> = (&'r str, RuleProblem);

/// Returns an error if iptables refuses a rule in every address family, or in `family`.
///
/// `text` is the text of the rule.
pub(super) fn check(rule: &Rule<'_>, family: Option<Family>, text: &str) -> Result<(), ParseError> {
    let refused = |(word, problem)| ParseError::of_word(text, locate(text, word), problem);
    head(rule).map_err(refused)?;
    for one in &rule.matches {
        name_lengths(one).map_err(refused)?;
        options(one).map_err(refused)?;
        if let (Some(name), Some((protocols, names))) = (one.name(), match_protocols(one)) {
            require(rule, name, protocols, names).map_err(refused)?;
        }
    }
    if let Some(target) = &rule.target
        && let (Some(name), Some((protocols, names))) = (target.name(), target_protocols(target))
    {
        require(rule, name, protocols, names).map_err(refused)?;
    }
    match family {
        Some(family) => in_family(rule, family).map_err(refused),
        None => Ok(()),
    }
}

/// Returns an error if the kernel refuses a rule of a variant.
pub(super) fn check_variant(
    rule: &Rule<'_>,
    variant: Variant,
    text: &str,
) -> Result<(), ParseError> {
    let selects_syn = |one: &Match<'_>| match one {
        Match::Tcp(Tcp {
            flags: Some(Negatable::Is(flags)),
            ..
        }) => flags.set.contains(Flags::SYN),
        _ => false,
    };
    let is_refused = variant == Variant::Legacy
        && matches!(rule.target, Some(Target::Tcpmss(_)))
        && !rule.matches.iter().any(selects_syn);
    match is_refused {
        true => Err(ParseError::of_word(
            text,
            locate(text, "TCPMSS"),
            RuleProblem::RequiresOption("--syn or --tcp-flags with SYN"),
        )),
        false => Ok(()),
    }
}

/// Returns the byte offset of a word, or 0.
pub(super) fn locate(text: &str, wanted: &str) -> usize {
    let mut words = Lexer::new(text);
    let mut first = None;
    let mut is_name = false;
    while let Ok(Some(word)) = words.next() {
        // A protocol can have the name of a match.
        if is_name && word.text == wanted {
            return word.start;
        }
        is_name = matches!(&*word.text, "-m" | "--match" | "-j" | "--jump");
        // Options and values may be joined.
        if word.text == wanted || word.text.starts_with('-') && word.text.ends_with(wanted) {
            first = first.or(Some(word.start));
        }
    }
    first.unwrap_or(0)
}

fn head<'r>(rule: &'r Rule<'_>) -> Result<(), Refused<'r>> {
    let interfaces = [&rule.in_interface, &rule.out_interface];
    for name in interfaces.into_iter().flatten() {
        short(name.value(), MAX_INTERFACE)?;
    }
    Ok(())
}

fn short(name: &str, max: usize) -> Result<(), Refused<'_>> {
    if name.len() > max {
        Err((name, RuleProblem::TooLong(max)))
    } else {
        Ok(())
    }
}

fn name_lengths<'r>(one: &'r Match<'_>) -> Result<(), Refused<'r>> {
    match one {
        Match::Physdev(it) => {
            let names = [&it.input, &it.output].into_iter().flatten();
            names
                .into_iter()
                .try_for_each(|name| short(name.value(), MAX_INTERFACE))
        }
        Match::Set(it) => short(it.name.value(), MAX_SET),
        Match::Comment(it) if it.0.len() > MAX_COMMENT => {
            Err(("comment", RuleProblem::TooLong(MAX_COMMENT)))
        }
        _ => Ok(()),
    }
}

/// Checks options that are only allowed or only complete together.
fn options<'r>(one: &Match<'_>) -> Result<(), Refused<'r>> {
    match one {
        Match::AddrType(it) if it.source.is_none() && it.destination.is_none() => Err((
            "addrtype",
            RuleProblem::RequiresOption("--src-type or --dst-type"),
        )),
        Match::Owner(it) if it.suppl_groups && it.gid.is_none() => {
            Err(("--suppl-groups", RuleProblem::RequiresOption("--gid-owner")))
        }
        Match::Statistic(Statistic::Nth { every, packet }) if packet >= every.value() => {
            Err(("--packet", RuleProblem::OutOfRange))
        }
        Match::Recent(it) => {
            let action = it.action.as_ref().map(|action| *action.value());
            let compares = matches!(action, Some(RecentAction::Check | RecentAction::Update));
            if it.rttl && !compares {
                return Err((
                    "--rttl",
                    RuleProblem::RequiresOption("--rcheck or --update"),
                ));
            }
            if it.reap && it.seconds.is_none() {
                return Err(("--reap", RuleProblem::RequiresOption("--seconds")));
            }
            match it.hitcount {
                Some(hits) if hits > u32::from(u16::MAX) => {
                    Err(("--hitcount", RuleProblem::OutOfRange))
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Protocols, of which a rule must have one, and their names.
type Protocols = (&'static [Protocol], &'static str);

const TCP: Protocols = (&[Protocol::TCP], "tcp");

/// Protocols with ports that NAT can change.
const NAT: Protocols = (
    &[
        Protocol::TCP,
        Protocol::UDP,
        Protocol::SCTP,
        Protocol::DCCP,
        Protocol::ICMP,
    ],
    "tcp, udp, sctp, dccp or icmp",
);

fn match_protocols(one: &Match<'_>) -> Option<Protocols> {
    Some(match one {
        Match::Tcp(_) | Match::Tcpmss(_) | Match::Osf(_) => TCP,
        Match::Ecn(it) if it.tcp_ece.is_some() || it.tcp_cwr.is_some() => TCP,
        Match::Udp(_) => (&[Protocol::UDP], "udp"),
        Match::Sctp(_) => (&[Protocol::SCTP], "sctp"),
        Match::Dccp(_) => (&[Protocol::DCCP], "dccp"),
        Match::Icmp(_) => (&[Protocol::ICMP], "icmp"),
        Match::Icmp6(_) => (&[Protocol::ICMPV6], "ipv6-icmp"),
        Match::Esp(_) => (&[Protocol::ESP], "esp"),
        Match::Ipcomp(_) => (&[Protocol::COMP], "ipcomp"),
        Match::Mh(_) => (&[Protocol::MH], "mobility-header"),
        Match::Multiport(_) => (
            &[
                Protocol::TCP,
                Protocol::UDP,
                Protocol::UDPLITE,
                Protocol::SCTP,
                Protocol::DCCP,
            ],
            "tcp, udp, udplite, sctp or dccp",
        ),
        _ => return None,
    })
}

fn target_protocols(target: &Target<'_>) -> Option<Protocols> {
    let nat = |ports: Option<NatPorts>| ports.map(|_| NAT);
    match target {
        Target::Ecn(_) | Target::Synproxy(_) | Target::Tcpmss(_) | Target::Tcpoptstrip(_) => {
            Some(TCP)
        }
        Target::Reject(Reject::TcpReset) => Some(TCP),
        Target::Tproxy(_) => Some((&[Protocol::TCP, Protocol::UDP], "tcp or udp")),
        Target::Dnat(it) => nat(it.ports),
        Target::Snat(it) => nat(it.ports),
        Target::Masquerade(it) => nat(it.ports),
        Target::Redirect(it) => nat(it.ports),
        _ => None,
    }
}

fn require<'r>(
    rule: &Rule<'_>,
    name: &'static str,
    protocols: &[Protocol],
    names: &'static str,
) -> Result<(), Refused<'r>> {
    match rule.protocol {
        Some(Negatable::Is(protocol)) if protocols.contains(&protocol) => Ok(()),
        _ => Err((name, RuleProblem::RequiresProtocol(names))),
    }
}

fn in_family<'r>(rule: &Rule<'_>, family: Family) -> Result<(), Refused<'r>> {
    let is_v4 = family == Family::V4;
    let is_ah = rule.protocol == Some(Negatable::Is(Protocol::AH));
    for (option, network) in [("-s", &rule.source), ("-d", &rule.destination)] {
        if network.is_some_and(|network| network.value().is_ipv4() != is_v4) {
            return Err((option, RuleProblem::WrongFamily));
        }
    }
    if rule.fragment.is_some() && !is_v4 {
        return Err(("-f", RuleProblem::WrongFamily));
    }
    for one in &rule.matches {
        match (match_family(one), one.name()) {
            (Some(other), Some(name)) if other != family => {
                return Err((name, RuleProblem::WrongFamily));
            }
            _ if matches!(one, Match::Ah(_)) && is_v4 && !is_ah => {
                return Err(("ah", RuleProblem::RequiresProtocol("ah")));
            }
            _ => {}
        }
    }
    let target = rule.target.as_ref();
    match target.and_then(|target| Some((target_family(target)?, target.name()?))) {
        Some((other, name)) if other != family => Err((name, RuleProblem::WrongFamily)),
        _ => Ok(()),
    }
}

/// Returns the only address family of a match.
fn match_family(one: &Match<'_>) -> Option<Family> {
    match one {
        Match::Icmp(_) | Match::Ttl(_) | Match::Realm(_) => Some(Family::V4),
        Match::Icmp6(_)
        | Match::Hl(_)
        | Match::Frag(_)
        | Match::Dst(_)
        | Match::Hbh(_)
        | Match::Rt(_)
        | Match::Ipv6Header(_)
        | Match::Mh(_)
        | Match::Eui64(_)
        | Match::Srh(_) => Some(Family::V6),
        Match::IpRange(it) => {
            let range = it.source.or(it.destination)?;
            Some(Family::of(range.value().first))
        }
        _ => None,
    }
}

/// Returns the only address family of a target.
fn target_family(target: &Target<'_>) -> Option<Family> {
    match target {
        Target::Ttl(_) | Target::Ecn(_) => Some(Family::V4),
        Target::Hl(_) | Target::Dnpt(_) | Target::Snpt(_) => Some(Family::V6),
        Target::Dnat(it) => it.addresses.map(|range| Family::of(range.first)),
        Target::Snat(it) => it.addresses.map(|range| Family::of(range.first)),
        Target::Tproxy(it) => it.address.map(Family::of),
        Target::Tee(it) => it.gateway.map(Family::of),
        Target::Reject(it) => it.family(),
        _ => None,
    }
}
