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
/// use vipline_nftables::selector::{ct_state, tcp_dport};
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
        self.exprs.len() == other.exprs.len()
            && self.exprs.iter().zip(&other.exprs).all(|(one, other)| {
                one == other || counts(one) && one.without_counts() == other.without_counts()
            })
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
