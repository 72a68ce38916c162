//! Rules.

mod error;

mod parse;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use crate::address::Network;
use crate::matches::{Comment, Match};
use crate::negatable::Negatable;
use crate::protocol::Protocol;
use crate::quote::Bare;
use crate::targets::Target;
use crate::{ChainName, Family};

pub(crate) use error::Problem;
pub use error::RuleError;

/// One rule without its chain: what follows `-A CHAIN` in a save.
///
/// It is printed as `iptables-save` 1.8.9 prints it.
///
/// ```
/// use vipline_iptables::{ChainName, Rule, Transport};
///
/// let rule = Rule::new()
///     .destination("10.96.0.20/32".parse::<ipnet::IpNet>()?)
///     .protocol(Transport::Tcp)
///     .comment("a/b cluster IP")
///     .matching(Transport::Tcp.dport(80))
///     .jump(ChainName::new("KUBE-SVC-X")?);
/// let text = r#"-d 10.96.0.20/32 -p tcp -m comment --comment "a/b cluster IP" -m tcp --dport 80 -j KUBE-SVC-X"#;
/// assert_eq!(rule.to_string(), text);
/// assert_eq!(Rule::parse(text)?, rule);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rule<'a> {
    /// The source address: `-s`.
    pub source: Option<Negatable<Network>>,
    /// The destination address: `-d`.
    pub destination: Option<Negatable<Network>>,
    /// The interface a packet came in by, `+` for any end of its name: `-i`.
    pub in_interface: Option<Negatable<Cow<'a, str>>>,
    /// The interface a packet goes out by: `-o`.
    pub out_interface: Option<Negatable<Cow<'a, str>>>,
    /// The protocol above IP: `-p`.
    pub protocol: Option<Negatable<Protocol>>,
    /// Fragments but the first, which have no ports: `-f`.
    pub fragment: Option<Negatable<()>>,
    /// What else a packet has to be.
    pub matches: Vec<Match<'a>>,
    /// What is done with a packet; it is counted in any case.
    pub target: Option<Target<'a>>,
}

impl<'a> Rule<'a> {
    /// Makes a rule that matches every packet and does nothing with it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads what follows `-A CHAIN` in a save, or on a command line.
    ///
    /// Matches and targets that are not known, or have options or values that
    /// are not known, are kept as they are written, as [`Match::Other`] and
    /// [`Target::Other`].
    /// Where options stand outside of matches and make no sense, the whole text
    /// is one [`Match::Other`].
    ///
    /// ```
    /// use vipline_iptables::{Family, Rule};
    ///
    /// let rule = Rule::parse("-m tcp -p tcp -d 10.0.0.1 --dport 80 -j REJECT")?;
    /// assert_eq!(
    ///     rule.for_family(Family::V4).to_string(),
    ///     "-d 10.0.0.1/32 -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable",
    /// );
    /// # Ok::<(), vipline_iptables::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The text is no rule: a quote is not closed, a word stands where an
    /// option has to, or an option lacks its value.
    pub fn parse(text: &'a str) -> Result<Self, RuleError> {
        parse::Parser::new(text).parse()
    }

    /// Tells what iptables of the family takes where nothing is told.
    ///
    /// That is the message of REJECT, the mask of `recent` and the address of
    /// TPROXY; they stand in every save.
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

    /// Wants a source address of the network.
    #[must_use]
    pub fn source(mut self, network: impl Into<Network>) -> Self {
        self.source = Some(Negatable::Is(network.into()));
        self
    }

    /// Wants a source address outside of the network.
    #[must_use]
    pub fn not_source(mut self, network: impl Into<Network>) -> Self {
        self.source = Some(Negatable::Not(network.into()));
        self
    }

    /// Wants a destination address of the network.
    #[must_use]
    pub fn destination(mut self, network: impl Into<Network>) -> Self {
        self.destination = Some(Negatable::Is(network.into()));
        self
    }

    /// Wants a destination address outside of the network.
    #[must_use]
    pub fn not_destination(mut self, network: impl Into<Network>) -> Self {
        self.destination = Some(Negatable::Not(network.into()));
        self
    }

    /// Wants packets that came in by the interface.
    #[must_use]
    pub fn in_interface(mut self, name: impl Into<Cow<'a, str>>) -> Self {
        self.in_interface = Some(Negatable::Is(name.into()));
        self
    }

    /// Wants packets that came in by another interface.
    #[must_use]
    pub fn not_in_interface(mut self, name: impl Into<Cow<'a, str>>) -> Self {
        self.in_interface = Some(Negatable::Not(name.into()));
        self
    }

    /// Wants packets that go out by the interface.
    #[must_use]
    pub fn out_interface(mut self, name: impl Into<Cow<'a, str>>) -> Self {
        self.out_interface = Some(Negatable::Is(name.into()));
        self
    }

    /// Wants packets that go out by another interface.
    #[must_use]
    pub fn not_out_interface(mut self, name: impl Into<Cow<'a, str>>) -> Self {
        self.out_interface = Some(Negatable::Not(name.into()));
        self
    }

    /// Wants packets of the protocol.
    #[must_use]
    pub fn protocol(mut self, protocol: impl Into<Protocol>) -> Self {
        self.protocol = Some(Negatable::Is(protocol.into()));
        self
    }

    /// Wants packets of another protocol.
    #[must_use]
    pub fn not_protocol(mut self, protocol: impl Into<Protocol>) -> Self {
        self.protocol = Some(Negatable::Not(protocol.into()));
        self
    }

    /// Wants one thing more of packets.
    #[must_use]
    pub fn matching(mut self, wanted: impl Into<Match<'a>>) -> Self {
        self.matches.push(wanted.into());
        self
    }

    /// Adds a remark, which stands where the method is called.
    #[must_use]
    pub fn comment(self, text: impl Into<Cow<'a, str>>) -> Self {
        self.matching(Comment::new(text))
    }

    /// Does this with packets.
    #[must_use]
    pub fn target(mut self, target: impl Into<Target<'a>>) -> Self {
        self.target = Some(target.into());
        self
    }

    /// Goes on in the chain; what that does not decide comes back.
    #[must_use]
    pub fn jump(self, chain: ChainName) -> Self {
        self.target(Target::Jump(chain))
    }

    /// Goes on in the chain, and does not come back.
    #[must_use]
    pub fn goto(self, chain: ChainName) -> Self {
        self.target(Target::Goto(chain))
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

/// Writes parts with blanks between them.
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
