//! Rules.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, nest, put_be32, put_be64, put_str};

use super::{NFTA_LIST_ELEM, missing, name, put_userdata, split_header, userdata};
use crate::expr::{Expr, Lookup, SetRef};
use crate::{Compat, Name, Rule, TableId};

// enum nft_rule_attributes
pub(super) const NFTA_RULE_TABLE: u16 = 1;
pub(crate) const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_HANDLE: u16 = 3;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_RULE_COMPAT: u16 = 5;
const NFTA_RULE_POSITION: u16 = 6;
const NFTA_RULE_USERDATA: u16 = 7;
// enum nft_rule_compat_attributes
const NFTA_RULE_COMPAT_PROTO: u16 = 1;
const NFTA_RULE_COMPAT_FLAGS: u16 = 2;
/// Flag: the rule matches all other protocols.
pub(crate) const NFT_RULE_COMPAT_F_INV: u32 = 1 << 1;
// enum nft_expr_attributes
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;

/// Appends the attributes of a new rule, after those that name its chain.
///
/// `anonymous` are the IDs of the rule's anonymous sets, in order.
pub(crate) fn put_body(out: &mut Vec<u8>, rule: &Rule, anonymous: &[u32]) {
    let mut anonymous = anonymous.iter();
    nest(out, NFTA_RULE_EXPRESSIONS, |out| {
        for expr in &rule.exprs {
            nest(out, NFTA_LIST_ELEM, |out| match expr {
                Expr::Lookup(
                    lookup @ Lookup {
                        set: SetRef::Anonymous(_),
                        ..
                    },
                ) => {
                    put_str(out, NFTA_EXPR_NAME, expr.name());
                    let id = anonymous.next().copied().unwrap_or_default();
                    nest(out, NFTA_EXPR_DATA, |out| {
                        lookup.encode_with_set_id(out, id)
                    });
                }
                expr => expr.encode(out),
            });
        }
    });
    if let Some(Compat { protocol, invert }) = rule.compat {
        nest(out, NFTA_RULE_COMPAT, |out| {
            put_be32(out, NFTA_RULE_COMPAT_PROTO, protocol.into());
            let flags = if invert { NFT_RULE_COMPAT_F_INV } else { 0 };
            put_be32(out, NFTA_RULE_COMPAT_FLAGS, flags);
        });
    }
    if let Some(comment) = &rule.comment {
        put_userdata(out, NFTA_RULE_USERDATA, |out| {
            userdata::put_comment(out, comment)
        });
    }
}

/// Appends the attributes that name the chain of rules.
pub(crate) fn put_chain(out: &mut Vec<u8>, table: &TableId, chain: &Name) {
    put_str(out, NFTA_RULE_TABLE, table.name.as_str());
    put_str(out, NFTA_RULE_CHAIN, chain.as_str());
}

/// Appends the handle of a rule.
pub(crate) fn put_handle(out: &mut Vec<u8>, handle: u64) {
    put_be64(out, NFTA_RULE_HANDLE, handle);
}

/// Appends the handle of the rule next to which a rule is added.
pub(crate) fn put_position(out: &mut Vec<u8>, handle: u64) {
    put_be64(out, NFTA_RULE_POSITION, handle);
}

/// Decodes the names of table and chain and the handle of a rule.
pub(crate) fn id(payload: &[u8]) -> Result<(&str, &str, u64), DecodeError> {
    let (_, attrs) = split_header(payload)?;
    let (mut table, mut chain) = (None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_RULE_TABLE => table = Some(attr.str()?),
            NFTA_RULE_CHAIN => chain = Some(attr.str()?),
            NFTA_RULE_HANDLE => {
                let (Some(table), Some(chain)) = (table, chain) else {
                    break;
                };
                return Ok((table, chain, attr.be64()?));
            }
            _ => {}
        }
    }
    Err(missing(NFTA_RULE_HANDLE, "chain and handle of a rule"))
}

/// Returns the list of encoded expressions of a rule.
pub(crate) fn expressions(payload: &[u8]) -> Result<Attrs<'_>, DecodeError> {
    let (_, attrs) = split_header(payload)?;
    for attr in attrs {
        let attr = attr?;
        if attr.kind == NFTA_RULE_EXPRESSIONS {
            return Ok(attr.attrs());
        }
    }
    Ok(Attrs::new(&[]))
}

/// Number of expressions for which a rule has room at first.
const TYPICAL_EXPRS: usize = 8;

/// Decodes a rule and the names of its table and chain.
pub(crate) fn decode(attrs: Attrs<'_>) -> Result<(Name, Name, Rule), DecodeError> {
    let (mut table, mut chain, mut comment) = (None, None, None);
    let mut exprs = Vec::with_capacity(TYPICAL_EXPRS);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_RULE_TABLE => table = Some(name(&attr)?),
            NFTA_RULE_CHAIN => chain = Some(name(&attr)?),
            NFTA_RULE_EXPRESSIONS => {
                for expr in attr.attrs() {
                    exprs.push(Expr::decode(expr?.value)?);
                }
            }
            NFTA_RULE_USERDATA => comment = userdata::comment(attr.value),
            _ => {}
        }
    }
    let (Some(table), Some(chain)) = (table, chain) else {
        return Err(missing(NFTA_RULE_CHAIN, "chain of a rule"));
    };
    let mut rule = Rule::from_exprs(exprs);
    rule.comment = comment;
    Ok((table, chain, rule))
}
