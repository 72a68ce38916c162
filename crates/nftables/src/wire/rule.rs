//! Codec of rules.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, nest, put_be32, put_be64, put_str};

use super::{missing, put_userdata, split_header, userdata};
use crate::expr::{
    Expr, ExprType, NFTA_DYNSET_SET_ID, NFTA_EXPR_DATA, NFTA_EXPR_NAME, NFTA_IMMEDIATE_DATA,
    NFTA_IMMEDIATE_DREG, NFTA_LIST_ELEM, NFTA_OBJREF_SET_ID, SetRef,
};
use crate::object::rule::set_of;
use crate::value::verdict::{NFTA_DATA_VERDICT, NFTA_VERDICT_CHAIN_ID, NFTA_VERDICT_CODE};
use crate::{Compat, Data, Name, Rule, RuleHandle, TableId};

// enum nft_rule_attributes
pub(super) const NFTA_RULE_TABLE: u16 = 1;
pub(crate) const NFTA_RULE_CHAIN: u16 = 2;
pub(crate) const NFTA_RULE_HANDLE: u16 = 3;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_RULE_COMPAT: u16 = 5;
const NFTA_RULE_POSITION: u16 = 6;
const NFTA_RULE_USERDATA: u16 = 7;
pub(crate) const NFTA_RULE_CHAIN_ID: u16 = 11;
// enum nft_rule_compat_attributes
const NFTA_RULE_COMPAT_PROTO: u16 = 1;
const NFTA_RULE_COMPAT_FLAGS: u16 = 2;
/// Flag: the rule matches all other protocols.
pub(crate) const NFT_RULE_COMPAT_F_INV: u32 = 1 << 1;

/// IDs of the anonymous sets and chains of a rule, within a transaction.
#[derive(Debug, Default)]
pub(crate) struct AnonymousIds {
    /// IDs of the sets, in the order of [`Rule::sets`].
    pub(crate) sets: Vec<u32>,
    /// Names and IDs of the chains.
    pub(crate) chains: Vec<(Name, u32)>,
}

/// A rule in a reply of the kernel. [`decode`](Self::decode) decodes its expressions.
///
/// Rules that are only counted or deleted by handle are not decoded.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct InstalledRule<'a> {
    /// Name of the table.
    pub table: &'a str,
    /// Name of the chain.
    pub chain: &'a str,
    /// Handle.
    pub handle: RuleHandle,
    payload: &'a [u8],
}

impl<'a> InstalledRule<'a> {
    /// Reads the names and the handle of a rule in a reply: the payload after the
    /// netlink header.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the payload is malformed, or if a name or the handle is missing.
    pub fn read(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let (table, chain, handle) = id(payload)?;
        Ok(Self {
            table,
            chain,
            handle: RuleHandle(handle),
            payload,
        })
    }

    /// Decodes the rule. Anonymous sets have no elements.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if an expression is malformed.
    pub fn decode(&self) -> Result<Rule, DecodeError> {
        let (_, attrs) = split_header(self.payload)?;
        Ok(decode(attrs)?.2)
    }

    /// Returns the encoded expressions: a list of attributes (`NFTA_RULE_EXPRESSIONS`).
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the payload is malformed.
    pub fn expressions(&self) -> Result<Attrs<'a>, DecodeError> {
        expressions(self.payload)
    }
}

/// Appends the attributes of a new rule, after those that name its chain.
pub(crate) fn put_body(out: &mut Vec<u8>, rule: &Rule, anonymous: &AnonymousIds) {
    let mut sets = anonymous.sets.iter();
    nest(out, NFTA_RULE_EXPRESSIONS, |out| {
        for expr in &rule.exprs {
            nest(out, NFTA_LIST_ELEM, |out| {
                if let Some(SetRef::Anonymous(_)) = set_of(expr) {
                    let id = sets.next().copied().unwrap_or_default();
                    put_with_set_id(out, expr, id);
                } else {
                    put_expr(out, expr, &anonymous.chains);
                }
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
    put_userdata(out, NFTA_RULE_USERDATA, |out| {
        userdata::put_plain(out, rule.userdata.as_ref(), rule.comment.as_ref());
    });
}

/// Appends an expression that uses an anonymous set, with the ID of the set.
fn put_with_set_id(out: &mut Vec<u8>, expr: &Expr, id: u32) {
    put_str(out, NFTA_EXPR_NAME, expr.name());
    nest(out, NFTA_EXPR_DATA, |out| match expr {
        Expr::Lookup(lookup) => lookup.encode_with_set_id(out, id),
        Expr::Dynset(dynset) => {
            dynset.encode(out);
            put_be32(out, NFTA_DYNSET_SET_ID, id);
        }
        Expr::Objref(objref) => {
            objref.encode(out);
            put_be32(out, NFTA_OBJREF_SET_ID, id);
        }
        _ => {}
    });
}

/// Appends an expression. A verdict names an anonymous chain by its ID.
fn put_expr(out: &mut Vec<u8>, expr: &Expr, chains: &[(Name, u32)]) {
    let target = match expr {
        Expr::Immediate(immediate) => match &immediate.data {
            Data::Verdict(verdict) => verdict.chain().map(|chain| (immediate, verdict, chain)),
            Data::Value(_) => None,
        },
        _ => None,
    };
    let named = target.and_then(|(immediate, verdict, chain)| {
        let (_, id) = chains.iter().find(|(name, _)| name == chain)?;
        Some((immediate, verdict, *id))
    });
    let Some((immediate, verdict, id)) = named else {
        return expr.encode(out);
    };
    put_str(out, NFTA_EXPR_NAME, expr.name());
    nest(out, NFTA_EXPR_DATA, |out| {
        put_be32(out, NFTA_IMMEDIATE_DREG, immediate.destination.number());
        nest(out, NFTA_IMMEDIATE_DATA, |out| {
            nest(out, NFTA_DATA_VERDICT, |out| {
                put_be32(out, NFTA_VERDICT_CODE, verdict.code() as u32);
                put_be32(out, NFTA_VERDICT_CHAIN_ID, id);
            });
        });
    });
}

/// Appends the attributes that name the chain of rules by its ID.
pub(crate) fn put_chain_id(out: &mut Vec<u8>, table: &TableId, id: u32) {
    put_str(out, NFTA_RULE_TABLE, table.name.as_str());
    put_be32(out, NFTA_RULE_CHAIN_ID, id);
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

/// Decodes a rule and the names of its table and chain.
///
/// The names are not copied: all rules of a chain have the same.
pub(crate) fn decode(attrs: Attrs<'_>) -> Result<(&str, &str, Rule), DecodeError> {
    let (mut table, mut chain, mut comment, mut raw) = (None, None, None, None);
    let mut exprs = Vec::new();
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NFTA_RULE_TABLE => table = Some(attr.str()?),
            NFTA_RULE_CHAIN => chain = Some(attr.str()?),
            NFTA_RULE_EXPRESSIONS => {
                // A dump keeps many rules, so none has room for more expressions than it has.
                exprs.reserve_exact(attr.attrs().count());
                for expr in attr.attrs() {
                    exprs.push(Expr::decode(expr?.value)?);
                }
            }
            NFTA_RULE_USERDATA => (comment, raw) = userdata::plain(attr.value),
            _ => {}
        }
    }
    let (Some(table), Some(chain)) = (table, chain) else {
        return Err(missing(NFTA_RULE_CHAIN, "chain of a rule"));
    };
    let mut rule = Rule::from_exprs(exprs);
    (rule.comment, rule.userdata) = (comment, raw);
    Ok((table, chain, rule))
}

/// Returns the name of a chain in a reply.
pub(crate) fn chain_name(chain: &str) -> Result<Name, DecodeError> {
    Name::new(chain).map_err(|_| missing(NFTA_RULE_CHAIN, "name"))
}
