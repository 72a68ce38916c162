//! Typed rules.

mod abbreviation;

mod check;

mod joined;

mod lists;

mod open;

mod parse;

mod placement;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use crate::Protocol;
use crate::counters::Counters;
use crate::matches::{Comment, Match};
use crate::options::address::Network;
use crate::options::negatable::Negatable;
use crate::options::quote::Bare;
use crate::targets::Target;
use crate::{ChainName, Family, ParseError, TableName, Variant};

/// A rule without its chain: the text after `-A CHAIN` of a saved line.
///
/// `Display` prints the same text as `iptables-save` 1.8.9.
///
/// ```
/// use vipline_iptables::matches::Match;
/// use vipline_iptables::{ChainName, Rule, Transport};
///
/// let rule = Rule::new()
///     .with_destination("10.96.0.20/32".parse::<ipnet::IpNet>()?)
///     .with_protocol(Transport::Tcp)
///     .with_comment("a/b cluster IP")
///     .with_match(Match::dport(Transport::Tcp, 80))
///     .with_jump(ChainName::new("KUBE-SVC-X")?);
/// let text = r#"-d 10.96.0.20/32 -p tcp -m comment --comment "a/b cluster IP" -m tcp --dport 80 -j KUBE-SVC-X"#;
/// assert_eq!(rule.to_string(), text);
/// assert_eq!(Rule::parse(text)?, rule);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Rule<'a> {
    /// Source address: `-s`.
    pub source: Option<Negatable<Network>>,
    /// Destination address: `-d`.
    pub destination: Option<Negatable<Network>>,
    /// Input interface: `-i`. A trailing `+` matches any suffix.
    pub in_interface: Option<Negatable<Cow<'a, str>>>,
    /// Output interface: `-o`.
    pub out_interface: Option<Negatable<Cow<'a, str>>>,
    /// IP protocol: `-p`.
    pub protocol: Option<Negatable<Protocol>>,
    /// Second and later fragments, which have no ports: `-f`.
    pub fragment: Option<Negatable<()>>,
    /// Initial counters: `-c`. `Display` does not print them; a save has them before `-A`.
    pub counters: Option<Counters>,
    /// Match extensions.
    pub matches: Vec<Match<'a>>,
    /// Target; without one, the rule only counts packets.
    pub target: Option<Target<'a>>,
}

impl<'a> Rule<'a> {
    /// Creates a rule that matches every packet and has no target.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses the text after `-A CHAIN` of a saved line or a command line.
    ///
    /// Unknown matches and targets, and those with unsupported options or values,
    /// are preserved as text in [`Match::Other`] and [`Target::Other`].
    /// If an option outside of matches is unsupported, the whole rule becomes one
    /// [`Match::Other`].
    ///
    /// ```
    /// use vipline_iptables::{Family, Rule};
    ///
    /// let rule = Rule::parse("-m tcp -p tcp -d 10.0.0.1 --dport 80 -j REJECT")?;
    /// assert_eq!(
    ///     rule.for_family(Family::V4).to_string(),
    ///     "-d 10.0.0.1/32 -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable",
    /// );
    /// # Ok::<(), vipline_iptables::ParseError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ParseError`] for an unclosed quote, a word in place of an option, a missing value,
    /// and for typed parts that iptables refuses: a match without its protocol, an option
    /// without another one that it requires, a long name.
    pub fn parse(text: &'a str) -> Result<Self, ParseError> {
        parse::Parser::new(text).parse()
    }

    /// Parses a command line, which can list several addresses: `-s 10.0.0.1,10.0.0.2`.
    ///
    /// Returns one rule for each pair of source and destination, in the order in which
    /// iptables appends them. [`parse`](Self::parse) preserves such a text as one part.
    ///
    /// ```
    /// use vipline_iptables::Rule;
    ///
    /// let rules = Rule::parse_all("-s 10.0.0.1,10.1.0.0/16 -j DROP")?;
    /// let texts: Vec<_> = rules.iter().map(Rule::to_string).collect();
    /// assert_eq!(texts, ["-s 10.0.0.1/32 -j DROP", "-s 10.1.0.0/16 -j DROP"]);
    /// # Ok::<(), vipline_iptables::ParseError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`parse`](Self::parse), and [`RuleProblem::NegatedList`](crate::RuleProblem)
    /// for a negated list.
    pub fn parse_all(text: &'a str) -> Result<Vec<Self>, ParseError> {
        parse::Parser::new(text).parse_all()
    }

    /// Checks typed parts like iptables: protocols that a match or target requires, options
    /// that require each other, lengths of names, and the address family.
    ///
    /// ```
    /// use vipline_iptables::matches::Match;
    /// use vipline_iptables::{Family, Rule, RuleProblem, Transport};
    ///
    /// let rule = Rule::new().with_match(Match::dport(Transport::Tcp, 80));
    /// let error = rule.check(Family::V4).unwrap_err();
    /// assert_eq!(error.problem(), Some(RuleProblem::RequiresProtocol("tcp")));
    /// assert!(rule.with_protocol(Transport::Tcp).check(Family::V4).is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// [`ParseError`] with the word in the printed rule. [`parse`](Self::parse) returns the
    /// same errors, except those of the address family.
    pub fn check(&self, family: Family) -> Result<(), ParseError> {
        check::check(self, Some(family), &self.to_string())
    }

    /// Checks whether the rule is valid in a chain: interfaces, and the tables and chains of
    /// matches and targets.
    ///
    /// A chain that is not built in can be reached from each built-in chain of the table.
    ///
    /// ```
    /// use vipline_iptables::{ChainName, Rule, RuleProblem, TableName};
    ///
    /// let rule = Rule::parse("-i eth0 -j DROP")?;
    /// let filter = TableName::FILTER;
    /// assert!(rule.check_chain(filter, ChainName::INPUT).is_ok());
    /// let error = rule.check_chain(filter, ChainName::OUTPUT).unwrap_err();
    /// assert_eq!(error.problem(), Some(RuleProblem::WrongChain));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ParseError`] with the word in the printed rule, and
    /// [`RuleProblem::WrongChain`](crate::RuleProblem) or
    /// [`RuleProblem::RequiresTable`](crate::RuleProblem).
    pub fn check_chain(&self, table: TableName, chain: ChainName) -> Result<(), ParseError> {
        placement::check(self, table, chain, &self.to_string())
    }

    /// Checks whether the kernel side of a variant accepts the rule.
    ///
    /// The legacy variant refuses target TCPMSS unless a match `tcp` selects packets with
    /// flag SYN. The nft variant accepts it.
    ///
    /// ```
    /// use vipline_iptables::{Rule, Variant};
    ///
    /// let rule = Rule::parse("-p tcp -j TCPMSS --set-mss 1400")?;
    /// assert!(rule.check_variant(Variant::Legacy).is_err());
    /// assert!(rule.check_variant(Variant::Nft).is_ok());
    /// # Ok::<(), vipline_iptables::ParseError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ParseError`] with the word in the printed rule, and
    /// [`RuleProblem::RequiresOption`](crate::RuleProblem).
    pub fn check_variant(&self, variant: Variant) -> Result<(), ParseError> {
        check::check_variant(self, variant, &self.to_string())
    }

    /// Sets unset values to the defaults of the family.
    ///
    /// These are the message of REJECT, the masks of `recent` and `connlimit`, the address
    /// of TPROXY and the last date of `time`, which `iptables-save` always prints.
    #[must_use]
    pub fn for_family(mut self, family: Family) -> Self {
        for one in &mut self.matches {
            one.apply_family_defaults(family);
        }
        if let Some(target) = &mut self.target {
            target.apply_family_defaults(family);
        }
        self
    }

    /// Matches source addresses of the network.
    #[must_use]
    pub fn with_source(mut self, network: impl Into<Network>) -> Self {
        self.source = Some(Negatable::Is(network.into()));
        self
    }

    /// Matches source addresses outside the network.
    #[must_use]
    pub fn with_not_source(mut self, network: impl Into<Network>) -> Self {
        self.source = Some(Negatable::Not(network.into()));
        self
    }

    /// Matches destination addresses of the network.
    #[must_use]
    pub fn with_destination(mut self, network: impl Into<Network>) -> Self {
        self.destination = Some(Negatable::Is(network.into()));
        self
    }

    /// Matches destination addresses outside the network.
    #[must_use]
    pub fn with_not_destination(mut self, network: impl Into<Network>) -> Self {
        self.destination = Some(Negatable::Not(network.into()));
        self
    }

    /// Matches packets from the input interface.
    #[must_use]
    pub fn with_in_interface(mut self, name: impl Into<Cow<'a, str>>) -> Self {
        self.in_interface = Some(Negatable::Is(name.into()));
        self
    }

    /// Matches packets from all other input interfaces.
    #[must_use]
    pub fn with_not_in_interface(mut self, name: impl Into<Cow<'a, str>>) -> Self {
        self.in_interface = Some(Negatable::Not(name.into()));
        self
    }

    /// Matches packets to the output interface.
    #[must_use]
    pub fn with_out_interface(mut self, name: impl Into<Cow<'a, str>>) -> Self {
        self.out_interface = Some(Negatable::Is(name.into()));
        self
    }

    /// Matches packets to all other output interfaces.
    #[must_use]
    pub fn with_not_out_interface(mut self, name: impl Into<Cow<'a, str>>) -> Self {
        self.out_interface = Some(Negatable::Not(name.into()));
        self
    }

    /// Matches packets of the protocol.
    #[must_use]
    pub fn with_protocol(mut self, protocol: impl Into<Protocol>) -> Self {
        self.protocol = Some(Negatable::Is(protocol.into()));
        self
    }

    /// Matches packets of all other protocols.
    #[must_use]
    pub fn with_not_protocol(mut self, protocol: impl Into<Protocol>) -> Self {
        self.protocol = Some(Negatable::Not(protocol.into()));
        self
    }

    /// Matches second and later fragments, which have no ports.
    #[must_use]
    pub fn with_fragment(mut self) -> Self {
        self.fragment = Some(Negatable::Is(()));
        self
    }

    /// Matches packets that are not fragmented, and first fragments.
    #[must_use]
    pub fn with_not_fragment(mut self) -> Self {
        self.fragment = Some(Negatable::Not(()));
        self
    }

    /// Sets the initial counters. Default: 0.
    #[must_use]
    pub fn with_counters(mut self, counters: Counters) -> Self {
        self.counters = Some(counters);
        self
    }

    /// Adds a match extension.
    #[must_use]
    pub fn with_match(mut self, wanted: impl Into<Match<'a>>) -> Self {
        self.matches.push(wanted.into());
        self
    }

    /// Adds a comment as the next match extension.
    #[must_use]
    pub fn with_comment(self, text: impl Into<Cow<'a, str>>) -> Self {
        self.with_match(Comment::new(text))
    }

    /// Sets the target.
    #[must_use]
    pub fn with_target(mut self, target: impl Into<Target<'a>>) -> Self {
        self.target = Some(target.into());
        self
    }

    /// Jumps to a chain: `-j`. Packets without a verdict return.
    #[must_use]
    pub fn with_jump(self, chain: ChainName) -> Self {
        self.with_target(Target::Jump(chain))
    }

    /// Goes to a chain without returning: `-g`.
    #[must_use]
    pub fn with_goto(self, chain: ChainName) -> Self {
        self.with_target(Target::Goto(chain))
    }
}

impl fmt::Display for Rule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Parts { f, any: false };
        if let Some(source) = &self.source {
            parts.option(source.bang(), "-s ", source.value())?;
        }
        if let Some(destination) = &self.destination {
            parts.option(destination.bang(), "-d ", destination.value())?;
        }
        if let Some(interface) = &self.in_interface {
            parts.option(interface.bang(), "-i ", &Bare(interface.value()))?;
        }
        if let Some(interface) = &self.out_interface {
            parts.option(interface.bang(), "-o ", &Bare(interface.value()))?;
        }
        if let Some(protocol) = &self.protocol {
            parts.option(protocol.bang(), "-p ", protocol.value())?;
        }
        if let Some(fragment) = &self.fragment {
            parts.option(fragment.bang(), "-f", &"")?;
        }
        for one in &self.matches {
            parts.option("", "", one)?;
        }
        match &self.target {
            Some(target) => parts.option("", "", target),
            None => Ok(()),
        }
    }
}

/// Writes parts separated by spaces.
struct Parts<'f, 'b> {
    f: &'f mut fmt::Formatter<'b>,
    any: bool,
}

impl Parts<'_, '_> {
    fn option(&mut self, bang: &str, option: &str, value: &impl fmt::Display) -> fmt::Result {
        if self.any {
            self.f.write_str(" ")?;
        }
        self.any = true;
        self.f.write_str(bang)?;
        self.f.write_str(option)?;
        value.fmt(self.f)
    }
}
