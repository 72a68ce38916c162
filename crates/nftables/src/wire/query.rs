//! Requests.

use vipline_netlink::attr::put_str;

use super::message_types::*;
use super::{element, flowtable, put_chain_id, put_header, put_table_name, rule, set, stateful};
use crate::{Element, Family, Name, RuleHandle, Set, TableId};

/// A request. [`Assembler`](super::Assembler) decodes the replies.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Query<'a> {
    /// The tables of all families.
    Tables,
    /// A table. Not a dump request.
    Table(&'a TableId),
    /// A chain, without its rules. Not a dump request.
    Chain(&'a TableId, &'a Name),
    /// The chains of a family.
    Chains(Family),
    /// The rules of a table.
    Rules(&'a TableId),
    /// The rules of a chain.
    RulesOf(&'a TableId, &'a Name),
    /// The rules of a table or of one of its chains. Resets their counters and quotas.
    /// Linux 6.2 or later.
    ResetRules(&'a TableId, Option<&'a Name>),
    /// A rule by its handle. Not a dump request.
    Rule(&'a TableId, &'a Name, RuleHandle),
    /// A rule by its handle. Resets its counters and quotas. Not a dump request.
    /// Linux 6.2 or later.
    ResetRule(&'a TableId, &'a Name, RuleHandle),
    /// The sets and maps of a table.
    Sets(&'a TableId),
    /// The stateful objects of a table.
    Stateful(&'a TableId),
    /// The stateful objects of a table. Resets counters and quotas.
    ResetStateful(&'a TableId),
    /// The flowtables of a table.
    Flowtables(&'a TableId),
    /// The elements of a set or map.
    Elements(&'a Set),
    /// The element with the key of an element. Not a dump request.
    Element(&'a Element),
    /// The element with the key of an element. Resets its counters and quotas. Not a dump
    /// request. Linux 6.5 or later.
    ResetElement(&'a Element),
    /// The current generation. Not a dump request.
    Generation,
}

impl Query<'_> {
    /// Returns the netlink message type.
    pub fn message_type(&self) -> u16 {
        message_type(match self {
            Self::Tables | Self::Table(_) => NFT_MSG_GETTABLE,
            Self::Chain(..) | Self::Chains(_) => NFT_MSG_GETCHAIN,
            Self::Rules(_) | Self::RulesOf(..) | Self::Rule(..) => NFT_MSG_GETRULE,
            Self::ResetRules(..) | Self::ResetRule(..) => NFT_MSG_GETRULE_RESET,
            Self::Sets(_) => NFT_MSG_GETSET,
            Self::Stateful(_) => NFT_MSG_GETOBJ,
            Self::ResetStateful(_) => NFT_MSG_GETOBJ_RESET,
            Self::Flowtables(_) => NFT_MSG_GETFLOWTABLE,
            Self::Elements(_) | Self::Element(_) => NFT_MSG_GETSETELEM,
            Self::ResetElement(_) => NFT_MSG_GETSETELEM_RESET,
            Self::Generation => NFT_MSG_GETGEN,
        })
    }

    /// Appends the payload: the message without the netlink header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let family = match self {
            Self::Table(id)
            | Self::Chain(id, _)
            | Self::Rules(id)
            | Self::RulesOf(id, _)
            | Self::ResetRules(id, _)
            | Self::Rule(id, ..)
            | Self::ResetRule(id, ..)
            | Self::Stateful(id)
            | Self::ResetStateful(id)
            | Self::Flowtables(id)
            | Self::Sets(id) => id.family.number(),
            Self::Chains(family) => family.number(),
            Self::Elements(set) => set.table.family.number(),
            Self::Element(element) | Self::ResetElement(element) => {
                element.set().table.family.number()
            }
            Self::Tables | Self::Generation => 0,
        };
        put_header(out, family, 0);
        match self {
            Self::Table(id) => put_table_name(out, id),
            Self::Chain(id, chain) => put_chain_id(out, id, chain),
            Self::Rules(id) | Self::ResetRules(id, None) => {
                put_str(out, rule::NFTA_RULE_TABLE, id.name.as_str())
            }
            Self::RulesOf(id, chain) | Self::ResetRules(id, Some(chain)) => {
                rule::put_chain(out, id, chain)
            }
            Self::Sets(id) => put_str(out, set::NFTA_SET_TABLE, id.name.as_str()),
            Self::Stateful(id) | Self::ResetStateful(id) => stateful::put_table(out, id),
            Self::Flowtables(id) => flowtable::put_table(out, id),
            Self::Elements(set) => set::put_name(out, &set.table, &set.name),
            Self::Element(element) | Self::ResetElement(element) => {
                element::put_key(out, element);
            }
            Self::Rule(id, chain, handle) | Self::ResetRule(id, chain, handle) => {
                rule::put_chain(out, id, chain);
                rule::put_handle(out, handle.0);
            }
            Self::Tables | Self::Chains(_) | Self::Generation => {}
        }
    }
}
