//! Rules in the form in which the nft variant stores them.
//!
//! `iptables-nft-restore` writes rules as expressions of nf_tables. Addresses,
//! interfaces, protocols, ports, packet marks and rate limits have expressions of their
//! own. All other matches and targets are structures of xtables, which the kernel
//! evaluates with `CONFIG_NFT_COMPAT`.
//! [`encode`] returns the same expressions, and [`decode`] reads them, without a
//! process. `iptables-nft-save` prints encoded rules like those of
//! `iptables-nft-restore`. [`Client`] reads the tables and commits their edits.
//!
//! ```
//! use vipline_iptables::{Family, Rule, nft};
//!
//! let text = "-p tcp -m comment --comment web -m tcp --dport 80 -j ACCEPT";
//! let rule = Rule::parse(text)?;
//! let encoded = nft::encode(&rule, Family::V4)?;
//! assert_eq!(nft::decode(&encoded, Family::V4).unwrap().to_string(), text);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Kernel interface
//!
//! Structures of `linux/netfilter/xt_*.h` and `linux/netfilter_ipv4/ipt_*.h`, which stand in
//! the files of their matches and targets. The revisions are those of iptables 1.8.9; newer
//! versions print them, too.
//!
//! # Limitations
//!
//! - Match bpf has an encoding for bytecode, not for pinned programs.
//! - Targets HMARK, LED and SECMARK have no encoding.
//! - Match `set` and target `SET` contain the index of a set, which [`Client::set_names`]
//!   reads: [`encode_with_sets`] and [`decode_with_sets`] take it.
//! - `--sport` and `--dport` that are both negated become two comparisons.
//!   iptables 1.8.9 compares both at once, which also matches packets with one of the
//!   two ports.

mod batch;

#[cfg(target_os = "linux")]
mod client;

mod compat;

mod deletions;

mod error;

mod native;

mod native_targets;

mod partial;

#[cfg(target_os = "linux")]
mod save;

#[cfg(target_os = "linux")]
mod saved;

mod sets;

#[cfg(target_os = "linux")]
mod single;

mod tables;

use std::borrow::Cow;
use std::fmt;

use vipline_nftables as nftables;
use vipline_nftables::expr::{self, Counter, Expr, Immediate, MetaKey};
use vipline_nftables::{Compat, Data, Name};

use self::native::Condition;
use crate::Protocol;
use crate::extensions::set_indexes::SetIndexes;
use crate::extensions::structure::{Context, Encoded, address_of};
use crate::matches::{Match, Tcp, Udp};
use crate::options::address::Network;
use crate::options::negatable::Negatable;
use crate::targets::Target;
use crate::{Counters, Family, Rule};

pub use crate::extensions::structure::Undecoded;
#[cfg(target_os = "linux")]
pub use client::Client;
pub use compat::Lack;
pub use error::{Error, Operation, RejectedOperation};
pub use partial::{decode_match, decode_target, encode_partially, rule_text, text_rule};
#[cfg(target_os = "linux")]
pub use saved::{Saved, SavedChain, SavedRule};
pub use sets::SetNames;
pub use tables::{base_chains, table_id};
pub use vipline_nftables::Generation;

/// Error: a part of the rule has no encoding, because this crate has none, or because an IP set
/// of the rule does not exist.
///
/// Nothing was sent. A rule contains the index of a set, so it cannot precede the set.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unsupported {
    part: Box<str>,
    /// Name of the IP set, if it is the reason.
    missing_set: Option<Box<str>>,
}

impl std::error::Error for Unsupported {}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.missing_set {
            Some(name) => write!(f, "IP set {name:?} does not exist"),
            None => write!(f, "no nf_tables encoding of {:?}", self.part),
        }
    }
}

impl Unsupported {
    fn new(part: impl ToString) -> Self {
        Self {
            part: part.to_string().into(),
            missing_set: None,
        }
    }

    /// Returns the name of the IP set that does not exist, if that is the reason.
    pub fn missing_set(&self) -> Option<&str> {
        self.missing_set.as_deref()
    }

    /// Creates the error of a part with a set that does not exist.
    fn of_set(part: impl ToString, name: Option<&str>) -> Self {
        Self {
            missing_set: name.map(Box::from),
            ..Self::new(part)
        }
    }
}

/// Encodes a rule, with its initial counters.
///
/// Unset values of the rule get the defaults of the family.
///
/// # Errors
///
/// [`Unsupported`] if a match, a target or a value has no encoding, if an address is not
/// of the family, or if a match `tcp` or `udp` is not in a rule of its protocol.
/// Match `set` and target `SET` require [`encode_with_sets`].
pub fn encode(rule: &Rule<'_>, family: Family) -> Result<nftables::Rule, Unsupported> {
    encode_with(rule, family, &SetIndexes::default())
}

/// Encodes a rule with match `set` or target `SET`, which contain the index of a set.
///
/// # Errors
///
/// Like [`encode`], and for sets that `sets` does not have.
pub fn encode_with_sets(
    rule: &Rule<'_>,
    family: Family,
    sets: &SetNames,
) -> Result<nftables::Rule, Unsupported> {
    encode_with(rule, family, &sets.0)
}

/// Encodes a rule. `sets` has the IP sets of match `set`.
fn encode_with(
    rule: &Rule<'_>,
    family: Family,
    sets: &SetIndexes,
) -> Result<nftables::Rule, Unsupported> {
    let context = Context { family, sets };
    let mut exprs = Vec::with_capacity(8);
    head(rule, family, &mut exprs).ok_or_else(|| Unsupported::new(rule))?;
    for one in &rule.matches {
        put_match(rule, one, context, &mut exprs)
            .ok_or_else(|| Unsupported::of_set(one, sets.missing_in(one)))?;
    }
    let Counters { packets, bytes } = rule.counters.unwrap_or_default();
    exprs.push(Counter { packets, bytes }.into());
    if let Some(target) = &rule.target {
        put_target(target, context, &mut exprs)
            .ok_or_else(|| Unsupported::of_set(target, sets.missing_of(target)))?;
    }
    let (protocol, invert) = match rule.protocol {
        Some(protocol) => (protocol.value().0, protocol.is_negated()),
        None => (0, false),
    };
    Ok(nftables::Rule::from_exprs(exprs).with_compat(Compat { protocol, invert }))
}

/// Offsets of source and destination address in the network header.
fn address_offsets(family: Family) -> (u32, u32) {
    match family {
        Family::V4 => (12, 16),
        Family::V6 => (8, 24),
    }
}

/// Appends the conditions outside of matches.
fn head(rule: &Rule<'_>, family: Family, out: &mut native::Exprs) -> Option<()> {
    if let Some(name) = &rule.in_interface {
        native::interface(out, MetaKey::Iifname, name)?;
    }
    if let Some(name) = &rule.out_interface {
        native::interface(out, MetaKey::Oifname, name)?;
    }
    match rule.protocol {
        Some(Negatable::Is(Protocol(0))) | None => {}
        Some(Negatable::Not(Protocol(0))) => return None,
        Some(protocol) => native::protocol(out, protocol),
    }
    let (source, destination) = address_offsets(family);
    for (offset, network) in [(source, &rule.source), (destination, &rule.destination)] {
        let Some(network) = network else { continue };
        let (address, _) = network.value().parts();
        if address.is_ipv4() != (family == Family::V4) {
            return None;
        }
        native::address(out, offset, network)?;
    }
    match rule.fragment {
        Some(_) if family == Family::V6 => return None,
        Some(fragment) => native::fragment(out, fragment),
        None => {}
    }
    Some(())
}

fn put_match(
    rule: &Rule<'_>,
    one: &Match<'_>,
    context: Context<'_>,
    out: &mut native::Exprs,
) -> Option<()> {
    // Expressions compare bytes of any transport protocol, so iptables requires the option.
    let requires = |protocol| (rule.protocol == Some(Negatable::Is(protocol))).then_some(());
    match one {
        Match::Limit(limit) => native::limit(out, limit),
        Match::Mark(mark) => native::mark(out, mark),
        // A match without options, or with the number of a TCP option, is a structure.
        Match::Tcp(tcp) if tcp.option.is_none() && *tcp != Tcp::new() => {
            requires(Protocol::TCP)?;
            if let Some(flags) = &tcp.flags {
                native::flags(out, flags);
            }
            native::ports(out, &tcp.sport, &tcp.dport);
        }
        Match::Udp(udp) if *udp != Udp::new() => {
            requires(Protocol::UDP)?;
            native::ports(out, &udp.sport, &udp.dport);
        }
        one => {
            let Encoded {
                name,
                revision,
                bytes,
            } = one.encode(context)?;
            let one = expr::Match {
                name: Name::new(name).ok()?,
                revision,
                info: bytes.into(),
            };
            out.push(one.into());
        }
    }
    Some(())
}

fn put_target(target: &Target<'_>, context: Context<'_>, out: &mut native::Exprs) -> Option<()> {
    if let Some(verdict) = native_targets::verdict(target) {
        out.push(Immediate::from(verdict).into());
        return Some(());
    }
    if native_targets::put(out, target)? {
        return Some(());
    }
    let Encoded {
        name,
        revision,
        bytes,
    } = target.encode(context)?;
    let target = expr::Target {
        name: Name::new(name).ok()?,
        revision,
        info: bytes.into(),
    };
    out.push(target.into());
    Some(())
}

/// Decodes a rule. Counts are ignored.
///
/// Returns `None` if [`encode`] does not return the same expressions: the rule has
/// unknown parts, or another program wrote it in another form.
pub fn decode(rule: &nftables::Rule, family: Family) -> Option<Rule<'static>> {
    decode_with(rule, family, &SetIndexes::default())
}

/// Decodes a rule with match `set` or target `SET`.
///
/// Returns `None` like [`decode`], and for the index of an unknown set.
pub fn decode_with_sets(
    rule: &nftables::Rule,
    family: Family,
    sets: &SetNames,
) -> Option<Rule<'static>> {
    decode_with(rule, family, &sets.0)
}

/// Decodes a rule. `sets` has the IP sets of match `set`.
fn decode_with(rule: &nftables::Rule, family: Family, sets: &SetIndexes) -> Option<Rule<'static>> {
    let decoded = Decoder::new(family, sets).decode(&rule.exprs)?;
    let encoded = encode_with(&decoded, family, sets).ok()?;
    let same = |pair: (&Expr, &Expr)| match pair {
        (Expr::Counter(_), Expr::Counter(_)) => true,
        (one, other) => one == other,
    };
    let is_same =
        encoded.exprs.len() == rule.exprs.len() && encoded.exprs.iter().zip(&rule.exprs).all(same);
    is_same.then_some(decoded)
}

/// Decoder of a rule.
struct Decoder<'s> {
    rule: Rule<'static>,
    family: Family,
    sets: &'s SetIndexes,
    /// Whether the last match was read from expressions of nf_tables.
    is_native: bool,
}

impl<'s> Decoder<'s> {
    fn new(family: Family, sets: &'s SetIndexes) -> Self {
        Self {
            rule: Rule::new(),
            family,
            sets,
            is_native: false,
        }
    }

    fn decode(mut self, mut exprs: &[Expr]) -> Option<Rule<'static>> {
        while let [first, rest @ ..] = exprs {
            exprs = match first {
                Expr::Counter(_) => rest,
                Expr::Match(one) => {
                    let one = partial::extension_match(one, self.family, self.sets).ok()?;
                    self.push(one, false);
                    rest
                }
                Expr::Target(target) => {
                    let target = partial::extension_target(target, self.family, self.sets).ok()?;
                    self.rule.target = Some(target);
                    rest
                }
                Expr::Immediate(Immediate {
                    data: Data::Verdict(verdict),
                    ..
                }) => {
                    self.rule.target = Some(native_targets::from_verdict(verdict)?);
                    rest
                }
                Expr::Immediate(_) | Expr::Log(_) => {
                    let (target, rest) = native_targets::read(exprs)?;
                    self.rule.target = Some(target);
                    rest
                }
                _ => {
                    let (condition, rest) = native::read(exprs)?;
                    self.condition(condition)?;
                    rest
                }
            };
        }
        Some(self.rule)
    }

    fn push(&mut self, one: Match<'static>, is_native: bool) {
        self.rule.matches.push(one);
        self.is_native = is_native;
    }

    fn condition(&mut self, condition: Condition) -> Option<()> {
        match condition {
            Condition::Interface(key, name) => {
                let place = match key {
                    MetaKey::Iifname => &mut self.rule.in_interface,
                    _ => &mut self.rule.out_interface,
                };
                *place = Some(name.map(Cow::from));
            }
            Condition::Protocol(protocol) => self.rule.protocol = Some(protocol),
            Condition::Address(offset, mask, value) => {
                let network = network(self.family, mask.as_deref(), value.value())?;
                let (source, destination) = address_offsets(self.family);
                let place = match offset {
                    offset if offset == source => &mut self.rule.source,
                    offset if offset == destination => &mut self.rule.destination,
                    _ => return None,
                };
                *place = Some(value.map(|_| network));
            }
            Condition::Fragment(fragment) => self.rule.fragment = Some(fragment),
            Condition::Mark(mark) => self.push(mark.into(), true),
            Condition::Limit(limit) => self.push(limit.into(), true),
            Condition::Flags(flags) => {
                let tcp = Tcp {
                    flags: Some(flags),
                    ..Tcp::new()
                };
                self.push(tcp.into(), true);
            }
            Condition::BothPorts(sport, dport) => {
                self.port(0, Negatable::Is(sport.into()))?;
                self.port(2, Negatable::Is(dport.into()))?;
            }
            Condition::Ports(offset, ports) => self.port(offset, ports)?,
        }
        Some(())
    }

    /// Adds a condition on ports to the last match, or to a new one.
    fn port(&mut self, offset: u32, ports: Negatable<crate::Ports>) -> Option<()> {
        let protocol = self.rule.protocol;
        let fits = |one: &Match<'_>| match (one, offset) {
            (Match::Tcp(Tcp { sport, dport, .. }) | Match::Udp(Udp { sport, dport }), 0) => {
                sport.is_none() && dport.is_none()
            }
            (Match::Tcp(Tcp { dport, .. }) | Match::Udp(Udp { dport, .. }), 2) => dport.is_none(),
            _ => false,
        };
        if !self.is_native || !self.rule.matches.last().is_some_and(fits) {
            let empty = match protocol {
                Some(Negatable::Is(Protocol::TCP)) => Tcp::new().into(),
                Some(Negatable::Is(Protocol::UDP)) => Udp::new().into(),
                _ => return None,
            };
            self.push(empty, true);
        }
        let (Match::Tcp(Tcp { sport, dport, .. }) | Match::Udp(Udp { sport, dport })) =
            self.rule.matches.last_mut()?
        else {
            return None;
        };
        let place = match offset {
            0 => sport,
            2 => dport,
            _ => return None,
        };
        *place = Some(ports);
        Some(())
    }
}

/// Returns the network of a mask, if any, and the compared bytes of an address.
fn network(family: Family, mask: Option<&[u8]>, value: &[u8]) -> Option<Network> {
    let padded = |bytes: &[u8]| -> Option<std::net::IpAddr> {
        let mut all = [0; 16];
        all.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(address_of(all, family))
    };
    let ones = [0xff; 16];
    let mask = match mask {
        Some(mask) => mask,
        None => ones.get(..value.len())?,
    };
    Network::masked(padded(value)?, padded(mask)?)
}
