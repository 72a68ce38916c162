//! Rules.

use crate::expr::{
    Access, Cmp, CmpOp, Expr, Meta, MetaKey, ObjrefSource, Register, Reject, SetRef,
};
use crate::language::lower::Protocols;
use crate::statement::{Statement, Step};
use crate::{Bytes, Chain, Comment, Family, InvalidValue};

/// A rule: kernel expressions that are evaluated in order.
///
/// [`Rule::new`] builds a rule from statements that read like nft syntax:
///
/// ```
/// use vipline_nftables::expr::CtState;
/// use vipline_nftables::expression::{ct_state, tcp_dport};
/// use vipline_nftables::statement::accept;
/// use vipline_nftables::{Family, Rule};
///
/// let rule = Rule::new(Family::Ip, [
///     ct_state().is(CtState::NEW),
///     tcp_dport().is(22),
///     accept(),
/// ])?;
/// assert_eq!(rule.to_string(), "ct state new tcp dport 22 accept");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Rule {
    /// Kernel expressions, in order of evaluation.
    pub exprs: Vec<Expr>,
    /// Comment, listed by `nft`.
    pub comment: Option<Comment>,
    /// Protocol for matches and targets of xtables. Dumps never contain it.
    pub compat: Option<Compat>,
    /// Anonymous chains with their rules: `jump { … }`.
    ///
    /// A verdict of the rule jumps to the name of each. The name has a meaning only
    /// within the rule: the kernel chooses another.
    pub chains: Vec<Chain>,
    /// User data of a dump that this crate would write otherwise.
    pub(crate) userdata: Option<Bytes>,
}

/// The protocol that matches and targets of xtables see as the one of the rule:
/// `NFTA_RULE_COMPAT`.
///
/// Some of them require a protocol: match `tcp` requires protocol 6. The kernel
/// checks this when it adds the rule; packets are not compared with it.
///
/// Exhaustive: the kernel knows one flag.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Compat {
    /// IP protocol.
    pub protocol: u8,
    /// Whether the rule matches all other protocols: `NFT_RULE_COMPAT_F_INV`.
    pub invert: bool,
}

/// The handle of a rule: its number, unique within the table.
///
/// The kernel assigns handles and does not use them again. A replaced rule has a new
/// handle.
///
/// Exhaustive: a handle is one number.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RuleHandle(pub u64);

/// The position of a new rule in its chain.
///
/// Exhaustive: the kernel has these positions.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RulePosition {
    /// Before all rules of the chain: `insert rule`.
    Head,
    /// After all rules of the chain: `add rule`.
    Tail,
    /// Immediately before a rule.
    Before(RuleHandle),
    /// Immediately after a rule.
    After(RuleHandle),
}

impl Rule {
    /// Creates a rule for a table of this family.
    ///
    /// Like nft, inserts a protocol match before a statement that depends on a
    /// header, unless a previous statement already matches the protocol:
    /// `meta l4proto tcp` before `tcp dport`, and in family `inet`
    /// `meta nfproto ipv4` before `ip daddr`.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if an expression cannot have the value that a statement compares it
    /// with or assigns, such as an address of another family. It names both.
    pub fn new(
        family: Family,
        statements: impl IntoIterator<Item = Statement>,
    ) -> Result<Self, InvalidValue> {
        let mut exprs = Vec::new();
        let mut known = Protocols {
            network: matches!(family, Family::Ip | Family::Ip6).then_some(family),
            transport: None,
        };
        for statement in statements {
            let requires = statement.requires();
            if let Some(network) = requires.network.filter(|_| known.network.is_none()) {
                exprs.extend(network_test(family, network));
                known.network = Some(network);
            }
            if let Some(transport) = requires.transport.filter(|t| known.transport != Some(*t)) {
                exprs.extend(test(MetaKey::L4Proto, [transport].into()));
                known.transport = Some(transport);
            }
            known = known.with(statement.implies());
            match statement.0 {
                Step::Exprs { exprs: step, .. } => exprs.extend(step),
                Step::Reject => exprs.push(Reject::port_unreachable(family).into()),
                Step::Invalid(invalid) => return Err(invalid),
            }
        }
        Ok(Self::from_exprs(exprs))
    }

    /// Creates a rule of kernel expressions, without adding protocol matches.
    pub fn from_exprs(exprs: impl Into<Vec<Expr>>) -> Self {
        Self {
            exprs: exprs.into(),
            comment: None,
            compat: None,
            chains: Vec::new(),
            userdata: None,
        }
    }

    /// Sets the protocol for matches and targets of xtables.
    #[must_use]
    pub fn with_compat(mut self, compat: Compat) -> Self {
        self.compat = Some(compat);
        self
    }

    /// Sets the comment.
    #[must_use]
    pub fn with_comment(mut self, comment: Comment) -> Self {
        self.comment = Some(comment);
        self
    }

    /// Returns whether the kernel treats both rules alike. Ignores counts, comments
    /// and [`Rule::compat`].
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        let counts =
            |expr: &Expr| matches!(expr, Expr::Counter(_) | Expr::Quota(_) | Expr::Last(_));
        let same = |one: &Expr, other: &Expr| {
            one == other || counts(one) && one.without_counts() == other.without_counts()
        };
        let mut others = other.exprs.iter().filter(|expr| !is_no_op(expr));
        let mut ones = self.exprs.iter().filter(|expr| !is_no_op(expr));
        ones.all(|one| others.next().is_some_and(|other| same(one, other)))
            && others.next().is_none()
            && self.chains.len() == other.chains.len()
            && self
                .chains
                .iter()
                .zip(&other.chains)
                .all(|(one, other)| one.is_equivalent(other))
    }

    /// Returns the sets that the rule uses for lookups or updates.
    pub fn sets(&self) -> impl Iterator<Item = &SetRef> {
        self.exprs.iter().filter_map(set_of)
    }
}

/// Returns the set that an expression uses.
pub(crate) fn set_of(expr: &Expr) -> Option<&SetRef> {
    match expr {
        Expr::Lookup(lookup) => Some(&lookup.set),
        Expr::Dynset(dynset) => Some(&dynset.set),
        Expr::Objref(objref) => match &objref.source {
            ObjrefSource::Map { set, .. } => Some(set),
            ObjrefSource::Named { .. } => None,
        },
        _ => None,
    }
}

/// Returns the set that an expression uses.
pub(crate) fn set_of_mut(expr: &mut Expr) -> Option<&mut SetRef> {
    match expr {
        Expr::Lookup(lookup) => Some(&mut lookup.set),
        Expr::Dynset(dynset) => Some(&mut dynset.set),
        Expr::Objref(objref) => match &mut objref.source {
            ObjrefSource::Map { set, .. } => Some(set),
            ObjrefSource::Named { .. } => None,
        },
        _ => None,
    }
}

fn network_test(family: Family, network: Family) -> [Expr; 2] {
    let ip6 = network == Family::Ip6;
    match family {
        Family::Bridge | Family::Netdev => {
            let ethertype: u16 = if ip6 { 0x86dd } else { 0x0800 };
            test(MetaKey::Protocol, ethertype.to_be_bytes().into())
        }
        _ => test(MetaKey::NfProto, [network.number()].into()),
    }
}

fn test(key: MetaKey, data: Bytes) -> [Expr; 2] {
    let register = Register::word(0);
    let access = Access::Load(register);
    let op = CmpOp::Eq;
    [
        Meta { key, access }.into(),
        Cmp {
            source: register,
            op,
            data,
        }
        .into(),
    ]
}

/// Returns whether an expression has no effect.
///
/// nft 1.0.6 adds byte order conversions of single bytes; newer kernels reject
/// them.
fn is_no_op(expr: &Expr) -> bool {
    matches!(expr, Expr::Byteorder(turn) if turn.len <= 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::{Byteorder, ByteorderOp};

    #[test]
    fn a_byte_order_conversion_of_a_single_byte_is_ignored() {
        let turn = |len| {
            Expr::from(Byteorder {
                source: Register::word(0),
                destination: Register::word(0),
                op: ByteorderOp::ToNetwork,
                len,
                size: 2,
            })
        };
        let rule = |turns: &[u32]| {
            let mut exprs = test(MetaKey::L4Proto, [6].into()).to_vec();
            exprs.extend(turns.iter().map(|len| turn(*len)));
            Rule::from_exprs(exprs)
        };
        let plain = rule(&[]);
        for idle in [&[1][..], &[1, 1]] {
            assert!(plain.is_equivalent(&rule(idle)) && rule(idle).is_equivalent(&plain));
        }
        for busy in [&[2][..], &[1, 2]] {
            assert!(!plain.is_equivalent(&rule(busy)) && !rule(busy).is_equivalent(&plain));
        }
    }
}
