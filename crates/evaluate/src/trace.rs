//! The path of a packet through the ruleset.

use std::fmt;
use std::sync::Arc;

use vipline_nftables::{Chain, Element, Hook, Name, Policy, Rule, RuleHandle, TableId, Verdict};

use super::environment::Route;
use super::extension::Extensions;
use super::index::Installed;
use super::loss::Loss;
use super::packet::connection::Tuple;
#[cfg(feature = "ipvs")]
use crate::ipvs::IpvsEvent;

/// An event on the path of a packet.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A rule was evaluated.
    Rule(RuleStep),
    /// The policy of a base chain applied.
    Policy {
        /// Hook.
        hook: Hook,
        /// Table of the chain.
        table: TableId,
        /// Name of the chain.
        chain: Name,
        /// Policy.
        policy: Policy,
    },
    /// Connection tracking translated the packet.
    Translated {
        /// Hook.
        hook: Hook,
        /// Packet before the translation.
        from: Tuple,
        /// Packet after the translation.
        to: Tuple,
    },
    /// IPVS handled the packet.
    #[cfg(feature = "ipvs")]
    Ipvs {
        /// Hook.
        hook: Hook,
        /// What IPVS did.
        event: IpvsEvent,
    },
    /// A [function](crate::HookFunction) of the caller handled the packet.
    Function {
        /// Hook.
        hook: Hook,
        /// What the function [recorded](crate::Context::record).
        text: String,
    },
    /// The packet was routed.
    Routed(Route),
    /// The host lost the packet, which ends its path.
    Lost(Loss),
}

/// The evaluation of a rule.
#[derive(Clone, Debug)]
pub struct RuleStep {
    pub(super) installed: Arc<Installed>,
    pub(super) extensions: Option<Arc<dyn Extensions>>,
    pub(super) index: usize,
    /// Hook of the base chain.
    pub hook: Hook,
    /// Result of the rule.
    pub result: RuleResult,
    /// Elements of sets and maps that matched, in order.
    pub elements: Vec<Element>,
    /// Number of expressions that were executed, including the one that broke the rule.
    pub executed: usize,
}

/// The result of a rule.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RuleResult {
    /// The rule is not complete. Only in errors.
    Pending,
    /// An expression broke the rule: the packet did not match.
    NoMatch,
    /// All expressions were executed, without a verdict.
    Match,
    /// The rule returned a verdict.
    Verdict(Verdict),
    /// The rule ended the evaluation otherwise: `reject`, `queue` or `fwd`.
    End,
}

impl RuleStep {
    /// Returns the table.
    pub fn table(&self) -> &TableId {
        &self.installed.chain.table
    }

    /// Returns the chain.
    pub fn chain(&self) -> &Chain {
        &self.installed.chain
    }

    /// Returns the position of the rule in the chain, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the handle, if the ruleset is a dump.
    pub fn handle(&self) -> Option<RuleHandle> {
        self.installed.handles.get(self.index).copied()
    }

    /// Returns the rule.
    pub fn rule(&self) -> Option<&Rule> {
        self.installed.chain.rules.get(self.index)
    }

    /// Returns the rule in nft syntax, or as [`Extensions::rule_text`] writes it.
    pub fn text(&self) -> String {
        let extensions = self.extensions.as_ref().zip(self.rule());
        let text = extensions.and_then(|(it, rule)| it.rule_text(self.chain(), rule));
        if let Some(text) = text {
            return text;
        }
        let family = self.table().family;
        self.rule().map_or_else(String::new, |rule| {
            rule.text_in(family, &self.installed.sets)
        })
    }

    /// Returns whether the rule did more than compare: it matched.
    pub fn is_match(&self) -> bool {
        !matches!(self.result, RuleResult::NoMatch | RuleResult::Pending)
    }
}

impl PartialEq for RuleStep {
    fn eq(&self, other: &Self) -> bool {
        let place = |it: &Self| (Arc::as_ptr(&it.installed), it.index, it.hook, it.executed);
        place(self) == place(other)
            && self.result == other.result
            && self.elements == other.elements
    }
}

impl fmt::Display for RuleStep {
    /// Writes hook, table, chain, handle or position, and the rule.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.hook, self.table(), self.chain().name)?;
        match self.handle() {
            Some(handle) => write!(f, " handle {}", handle.0)?,
            None => write!(f, " rule {}", self.index + 1)?,
        }
        write!(f, ": {}", self.text())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(step) => {
                write!(f, "{step}")?;
                let mut elements = step.elements.iter();
                elements.try_for_each(|it| write!(f, "\n    element @{} {{ {it} }}", it.set().name))
            }
            Self::Policy {
                hook,
                table,
                chain,
                policy,
            } => write!(f, "{hook} {table} {chain}: policy {policy}"),
            Self::Translated { hook, from, to } => write!(f, "{hook}: translated {from} to {to}"),
            #[cfg(feature = "ipvs")]
            Self::Ipvs { hook, event } => write!(f, "{hook}: {event}"),
            Self::Function { hook, text } => write!(f, "{hook}: {text}"),
            Self::Routed(Route::Local) => f.write_str("routed to this host"),
            Self::Routed(Route::Interface(interface)) => {
                write!(f, "routed through {}", interface.name)
            }
            Self::Routed(Route::Discard(kind, network)) => {
                write!(f, "routed to {kind} {network}")
            }
            Self::Routed(Route::None) => f.write_str("no route"),
            Self::Lost(loss) => write!(f, "lost: {loss}"),
        }
    }
}

/// The events on the path of a packet, in order.
///
/// Displays the rules that matched, and all other events, one in each line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    pub(super) events: Vec<Event>,
}

impl Trace {
    /// Returns all events.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns all evaluated rules.
    pub fn rules(&self) -> impl DoubleEndedIterator<Item = &RuleStep> {
        self.events.iter().filter_map(|event| match event {
            Event::Rule(step) => Some(step),
            _ => None,
        })
    }

    /// Returns the rules that matched.
    pub fn matches(&self) -> impl DoubleEndedIterator<Item = &RuleStep> {
        self.rules().filter(|step| step.is_match())
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in &self.events {
            if !matches!(event, Event::Rule(step) if !step.is_match()) {
                writeln!(f, "{event}")?;
            }
        }
        Ok(())
    }
}
