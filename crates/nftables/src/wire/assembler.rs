//! Assembly of rulesets from dump replies.

use std::collections::BTreeMap;
use std::sync::Arc;

use vipline_netlink::DecodeError;

use super::NFNL_SUBSYS_NFTABLES;
use super::element::{self, Received};
use super::message_types::*;
use crate::expr::{AnonymousSet, Expr, Immediate, SetRef};
use crate::object::rule::set_of_mut;
use crate::object::ruleset::TableContent;
use crate::{
    Chain, ChainFlags, Data, Family, Name, Rule, RuleHandle, Ruleset, Set, SetFlags, SetSpec,
    TableId, Verdict,
};

/// A message of the kernel.
///
/// Exhaustive: a message has a type and a payload.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecordedMessage {
    /// Netlink message type.
    pub message_type: u16,
    /// Payload after the netlink header.
    pub payload: Box<[u8]>,
}

/// Assembles a [`Ruleset`] from dump replies.
///
/// Push the replies to [`Query::Table`](super::Query::Table), then those to
/// [`Query::Chains`](super::Query::Chains), `Rules` and `Sets`, then for each
/// of [`Assembler::sets`] those to [`Query::Elements`](super::Query::Elements).
/// Objects of other tables are ignored.
#[derive(Debug, Default)]
pub struct Assembler {
    tables: Vec<TableId>,
    ruleset: Ruleset,
    rules: Vec<(TableId, Name, Rule, RuleHandle)>,
    sets: Vec<Set>,
    /// Elements of each set in `sets`.
    elements: Vec<Received>,
    /// Set of the previous elements: usually also that of the next.
    last: usize,
    /// Messages, if they are recorded.
    recorded: Option<Vec<RecordedMessage>>,
}

impl Assembler {
    /// Creates an assembler for these tables.
    pub fn new(tables: &(impl AsRef<[TableId]> + ?Sized)) -> Self {
        Self {
            tables: tables.as_ref().to_vec(),
            ..Self::default()
        }
    }

    /// Creates an assembler for these tables that also keeps the messages.
    pub(crate) fn recording(tables: &[TableId]) -> Self {
        Self {
            recorded: Some(Vec::new()),
            ..Self::new(tables)
        }
    }

    /// Removes and returns the recorded messages.
    pub(crate) fn take_recorded(&mut self) -> Vec<RecordedMessage> {
        self.recorded.take().unwrap_or_default()
    }

    /// Creates an assembler for the elements of one set.
    pub(crate) fn for_set(set: &Set) -> Self {
        Self {
            sets: vec![set.clone()],
            elements: vec![Received::new(set)],
            ..Self::default()
        }
    }

    /// Returns the sets received so far, including anonymous sets.
    pub fn sets(&self) -> &[Set] {
        &self.sets
    }

    /// Processes a message: its type, and its payload after the netlink header.
    ///
    /// Other messages are ignored.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the payload is malformed.
    pub fn push(&mut self, message_type: u16, payload: &[u8]) -> Result<(), DecodeError> {
        if let Some(recorded) = &mut self.recorded {
            let payload = payload.into();
            recorded.push(RecordedMessage {
                message_type,
                payload,
            });
        }
        let (family, attrs) = super::split_header(payload)?;
        let (Some(family), [NFNL_SUBSYS_NFTABLES, kind]) = (family, message_type.to_be_bytes())
        else {
            return Ok(());
        };
        match kind {
            NFT_MSG_NEWTABLE => {
                let table = super::table(family, attrs)?;
                if self.is_wanted(&table.id) {
                    self.ruleset.extend([table.into()]);
                }
            }
            NFT_MSG_NEWCHAIN => {
                let chain = super::chain(family, attrs)?;
                if self.is_wanted(&chain.table) {
                    self.ruleset.extend([chain.into()]);
                }
            }
            NFT_MSG_NEWRULE => {
                let (table, chain, rule) = super::rule::decode(attrs)?;
                let is_here = |id: &&TableId| id.family == family && id.name.as_str() == table;
                if let Some(table) = self.tables.iter().find(is_here).cloned() {
                    let handle = super::rule::id(payload).map_or(0, |(_, _, handle)| handle);
                    let chain = self.chain_name(chain)?;
                    self.rules.push((table, chain, rule, RuleHandle(handle)));
                }
            }
            NFT_MSG_NEWSET => {
                let set = super::set::decode(family, attrs)?;
                if self.is_wanted(&set.table) {
                    self.elements.push(Received::new(&set));
                    self.sets.push(set);
                }
            }
            NFT_MSG_NEWOBJ => {
                let object = super::stateful::decode(family, attrs)?;
                if self.is_wanted(&object.table) {
                    self.ruleset.extend([object.into()]);
                }
            }
            NFT_MSG_NEWFLOWTABLE => {
                let flowtable = super::flowtable::decode(family, attrs)?;
                if self.is_wanted(&flowtable.table) {
                    self.ruleset.extend([flowtable.into()]);
                }
            }
            NFT_MSG_NEWSETELEM => self.take_elements(family, payload)?,
            _ => {}
        }
        Ok(())
    }

    /// Returns the name of a chain. The rules of a chain arrive together, so they share one.
    fn chain_name(&self, chain: &str) -> Result<Name, DecodeError> {
        match self.rules.last() {
            Some((_, last, ..)) if last.as_str() == chain => Ok(last.clone()),
            _ => super::rule::chain_name(chain),
        }
    }

    fn is_wanted(&self, table: &TableId) -> bool {
        self.tables.contains(table)
    }

    fn take_elements(&mut self, family: Family, payload: &[u8]) -> Result<(), DecodeError> {
        let (table, name) = element::list_names(payload)?;
        let is_here = |set: &Set| {
            set.table.family == family
                && set.name.as_str() == name
                && set.table.name.as_str() == table
        };
        if !self.sets.get(self.last).is_some_and(is_here) {
            let Some(place) = self.sets.iter().position(is_here) else {
                return Ok(());
            };
            self.last = place;
        }
        let set = self.sets.get(self.last);
        let Some((set, elements)) = set.zip(self.elements.get_mut(self.last)) else {
            return Ok(());
        };
        element::decode_list(payload, |raw| elements.push(set, raw))
    }

    /// Returns the assembled ruleset.
    ///
    /// Anonymous sets become part of their rules.
    pub fn finish(self) -> Ruleset {
        let mut ruleset = self.ruleset;
        let mut anonymous = BTreeMap::new();
        for (set, received) in self.sets.into_iter().zip(self.elements) {
            if set.flags.contains(SetFlags::ANONYMOUS) {
                let key = (set.table.clone(), set.name.clone());
                let set = with_pattern(set);
                let elements = received.into_elements(&set);
                let set_ref = SetRef::Anonymous(AnonymousSet { set, elements }.into());
                anonymous.insert(key, set_ref);
                continue;
            }
            let elements = received.into_elements(&set);
            let content = ruleset.tables.entry(set.table.clone()).or_default();
            let name = set.name.clone();
            content.sets.insert(name, (Some(set), elements));
        }
        ruleset.anonymous.clone_from(&anonymous);
        let mut rules: BTreeMap<(TableId, Name), Vec<Rule>> = BTreeMap::new();
        for (table, chain, mut rule, handle) in self.rules {
            for set in rule.exprs.iter_mut().filter_map(set_of_mut) {
                let key = (table.clone(), set.name().clone());
                if let Some(set_ref) = anonymous.get(&key) {
                    *set = set_ref.clone();
                }
            }
            let key = (table, chain);
            ruleset.handles.entry(key.clone()).or_default().push(handle);
            rules.entry(key).or_default().push(rule);
        }
        for ((table, chain), rules) in rules {
            let content = ruleset.tables.get_mut(&table);
            if let Some(chain) = content.and_then(|content| content.chains.get_mut(&chain)) {
                chain.rules = rules.into();
            }
        }
        for content in ruleset.tables.values_mut() {
            let chains = std::mem::take(&mut content.chains);
            let (anonymous, named): (BTreeMap<_, _>, BTreeMap<_, _>) = chains
                .into_iter()
                .partition(|(_, chain)| chain.flags.contains(ChainFlags::BINDING));
            content.chains = named;
            if anonymous.is_empty() {
                continue;
            }
            for chain in content.chains.values_mut() {
                chain.rules = with_chains(&chain.rules, &anonymous, NESTED_CHAINS);
            }
        }
        // A table that was deleted during the dump may leave only anonymous chains.
        ruleset
            .tables
            .retain(|_, content| *content != TableContent::default());
        ruleset
    }
}

/// Maximum depth of anonymous chains in anonymous chains; the kernel allows 16 jumps.
const NESTED_CHAINS: usize = 16;

/// Returns rules with the anonymous chains that they jump to.
fn with_chains(rules: &[Rule], chains: &BTreeMap<Name, Chain>, depth: usize) -> Arc<[Rule]> {
    let Some(depth) = depth.checked_sub(1) else {
        return rules.into();
    };
    let resolve = |rule: &Rule| {
        let mut rule = rule.clone();
        for expr in &mut rule.exprs {
            let Some(target) = jump_target(expr) else {
                continue;
            };
            let Some(chain) = chains.get(target) else {
                continue;
            };
            let mut chain = chain.clone();
            chain.rules = with_chains(&chain.rules, chains, depth);
            let name = format!("__chain{}", rule.chains.len());
            if let Ok(name) = Name::new(&name) {
                (*target, chain.name) = (name.clone(), name);
            }
            rule.chains.push(chain);
        }
        rule
    };
    rules.iter().map(resolve).collect()
}

/// Returns the chain that an expression jumps to.
fn jump_target(expr: &mut Expr) -> Option<&mut Name> {
    let Expr::Immediate(Immediate {
        data: Data::Verdict(Verdict::Jump(chain) | Verdict::Goto(chain)),
        ..
    }) = expr
    else {
        return None;
    };
    Some(chain)
}

/// Replaces the number in the name of an anonymous set by `%d`, so that the kernel
/// chooses the number again.
pub(crate) fn with_pattern(set: Set) -> Set {
    let name = set.name.as_str();
    let pattern = name.trim_end_matches(|it: char| it.is_ascii_digit());
    let is_numbered = ["__set", "__map", "__objmap"].contains(&pattern);
    match Name::new(&format!("{pattern}%d")) {
        Ok(name) if is_numbered => Set::from(SetSpec {
            name,
            ..(*set).clone()
        }),
        _ => set,
    }
}
