//! Rules.

use crate::expr::{Access, Cmp, CmpOp, Expr, Meta, MetaKey, Register, Reject, SetRef};
use crate::statement::{Protocols, Statement, Step};
use crate::{Bytes, Comment, Family};

/// A rule: expressions that are evaluated one after the other.
///
/// [`Rule::new`] makes one of statements that read as in nft:
///
/// ```
/// use vipline_nftables::expr::CtState;
/// use vipline_nftables::expression::{ct_state, tcp_dport};
/// use vipline_nftables::statement::accept;
/// use vipline_nftables::{Family, Rule};
///
/// let rule = Rule::new(Family::Ip, [
///     ct_state().is(CtState::NEW),
///     tcp_dport().is(22_u16),
///     accept(),
/// ]);
/// assert_eq!(rule.to_string(), "ct state new tcp dport 22 accept");
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// The expressions in their order.
    pub exprs: Vec<Expr>,
    /// What `nft` lists as its comment.
    pub comment: Option<Comment>,
}

impl Rule {
    /// Makes a rule for a table of this family.
    ///
    /// Statements about headers that not every packet has get the test for
    /// their protocol in front of them, unless one was made before, as nft
    /// does: `meta l4proto tcp` before `tcp dport`, in the family `inet` also
    /// `meta nfproto ipv4` before `ip daddr`.
    pub fn new(family: Family, statements: impl IntoIterator<Item = Statement>) -> Self {
        let mut exprs = Vec::new();
        let mut known = Protocols {
            network: matches!(family, Family::Ip | Family::Ip6).then_some(family),
            transport: None,
        };
        for statement in statements {
            let needs = statement.needs();
            if let Some(network) = needs.network.filter(|_| known.network.is_none()) {
                exprs.extend(network_test(family, network));
                known.network = Some(network);
            }
            if let Some(transport) = needs.transport.filter(|t| known.transport != Some(*t)) {
                exprs.extend(test(MetaKey::L4Proto, [transport].into()));
                known.transport = Some(transport);
            }
            known = known.with(statement.gives());
            match statement.0 {
                Step::Exprs { exprs: step, .. } => exprs.extend(step),
                Step::Reject => exprs.push(Reject::port_unreachable(family).into()),
            }
        }
        Self {
            exprs,
            comment: None,
        }
    }

    /// Returns the rule with a comment.
    #[must_use]
    pub fn with_comment(mut self, comment: Comment) -> Self {
        self.comment = Some(comment);
        self
    }

    /// Tells whether the kernel sees no difference: counts and comments aside.
    pub(crate) fn same(&self, other: &Self) -> bool {
        let counts = |expr: &Expr| matches!(expr, Expr::Counter(_) | Expr::Quota(_));
        let same = |one: &Expr, other: &Expr| {
            one == other || counts(one) && one.without_counts() == other.without_counts()
        };
        let mut others = other.exprs.iter().filter(|expr| !is_idle(expr));
        let mut ones = self.exprs.iter().filter(|expr| !is_idle(expr));
        ones.all(|one| others.next().is_some_and(|other| same(one, other)))
            && others.next().is_none()
    }

    /// Returns the sets the rule looks values up in or adds elements to.
    pub fn sets(&self) -> impl Iterator<Item = &SetRef> {
        self.exprs.iter().filter_map(|expr| match expr {
            Expr::Lookup(lookup) => Some(&lookup.set),
            Expr::Dynset(dynset) => Some(&dynset.set),
            Expr::Objref(objref) => match &objref.source {
                crate::expr::ObjrefSource::Map { set, .. } => Some(set),
                crate::expr::ObjrefSource::Named { .. } => None,
            },
            _ => None,
        })
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

/// Tells whether an expression does nothing: nft 1.0.6 turns the bytes of a
/// number that has one, and young kernels refuse that.
fn is_idle(expr: &Expr) -> bool {
    matches!(expr, Expr::Byteorder(turn) if turn.len <= 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::{Byteorder, ByteorderOp};

    #[test]
    fn a_turn_of_a_single_byte_is_no_difference_and_one_of_two_is() {
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
            Rule {
                exprs,
                comment: None,
            }
        };
        let plain = rule(&[]);
        for idle in [&[1][..], &[1, 1]] {
            assert!(plain.same(&rule(idle)) && rule(idle).same(&plain));
        }
        for busy in [&[2][..], &[1, 2]] {
            assert!(!plain.same(&rule(busy)) && !rule(busy).same(&plain));
        }
    }
}
