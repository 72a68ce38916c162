//! Effects of rules on a packet that continues.

use std::fmt;

use proxy_core::evaluator::RuleStep;
use proxy_core::nftables::expr::{
    Access, Expr, Meta, MetaKey, Payload, PayloadAccess, PayloadBase,
};

/// Effect of a rule that may change the result of later rules. The strongest is the last.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Effect {
    /// The rule sets the mark, which rules and routes may read.
    Mark,
    /// The rule disables connection tracking, and with it all translations.
    Tracking,
    /// The rule changes the source or destination.
    Translation,
}

impl Effect {
    /// Returns the strongest effect of a rule.
    pub(super) fn of(step: &RuleStep) -> Option<Self> {
        let exprs = step.rule()?.exprs.iter();
        exprs.filter_map(of_expr).max()
    }
}

fn of_expr(expr: &Expr) -> Option<Effect> {
    Some(match expr {
        Expr::Nat(_) | Expr::Masq(_) | Expr::Redir(_) | Expr::Tproxy(_) => Effect::Translation,
        Expr::Payload(payload) if changes_address(payload) => Effect::Translation,
        Expr::Notrack(_) => Effect::Tracking,
        Expr::Meta(Meta {
            key: MetaKey::Mark,
            access: Access::Store(_),
        }) => Effect::Mark,
        Expr::Target(target) => match target.name.as_str() {
            "DNAT" | "SNAT" | "MASQUERADE" | "REDIRECT" | "NETMAP" | "TPROXY" => {
                Effect::Translation
            }
            "CT" | "NOTRACK" => Effect::Tracking,
            "MARK" | "CONNMARK" => Effect::Mark,
            _ => return None,
        },
        _ => return None,
    })
}

/// Returns whether an expression writes an address or a port. Other fields of the network
/// header are shorter, or before the addresses.
fn changes_address(payload: &Payload) -> bool {
    let is_store = matches!(payload.access, PayloadAccess::Store { .. });
    is_store
        && match payload.base {
            PayloadBase::Network => payload.offset >= 8 && payload.len >= 4,
            PayloadBase::Transport => payload.offset < 4,
            _ => false,
        }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mark => "sets the mark",
            Self::Tracking => "changes connection tracking",
            Self::Translation => "translates the packet",
        })
    }
}
