//! `-m policy`: IPsec policies.

use std::fmt;

use ipnet::IpNet;

use crate::address::Bare;
use crate::field::{Field, Value, names};
use crate::negatable::Negatable;
use crate::number;
use crate::options::{Extension, Parsed, Unsupported, Values, set_flag, set_once};
use crate::protocol::Protocol;

/// Matches the IPsec policy of a packet: `-m policy --dir in --pol ipsec`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Policy {
    /// Direction; iptables requires one.
    pub direction: Option<PolicyDirection>,
    /// Whether the packet has a policy. Default: it has one.
    pub policy: Option<PolicyKind>,
    /// Whether the elements are all elements of the policy, in order.
    pub strict: bool,
    /// Elements of the policy, at most 4.
    pub elements: Vec<PolicyElement>,
}

/// An element of an IPsec policy.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PolicyElement {
    /// Request ID.
    pub reqid: Option<Negatable<u32>>,
    /// Security parameter index.
    pub spi: Option<Negatable<u32>>,
    /// Protocol: AH, ESP or IPComp.
    pub protocol: Option<Negatable<Protocol>>,
    /// Mode.
    pub mode: Option<Negatable<PolicyMode>>,
    /// Destination of the tunnel. Host bits are preserved.
    pub tunnel_destination: Option<Negatable<IpNet>>,
    /// Source of the tunnel. Host bits are preserved.
    pub tunnel_source: Option<Negatable<IpNet>>,
}

names! {
    /// Directions of a policy.
    pub enum PolicyDirection by str::eq {
        /// Policy of a received packet.
        In = "in",
        /// Policy of a packet to send.
        Out = "out",
    }
}

names! {
    /// Whether a packet has a policy.
    pub enum PolicyKind by str::eq {
        /// No policy.
        None = "none",
        /// An IPsec policy.
        Ipsec = "ipsec",
    }
}

names! {
    /// Modes of IPsec.
    pub enum PolicyMode by str::eq {
        /// Transport.
        Transport = "transport",
        /// Tunnel.
        Tunnel = "tunnel",
    }
}

impl Policy {
    /// Maximum number of elements: `XT_POLICY_MAX_ELEM`.
    const MAX: usize = 4;

    /// Matches packets with an IPsec policy.
    pub fn ipsec(direction: PolicyDirection) -> Self {
        Self {
            direction: Some(direction),
            policy: Some(PolicyKind::Ipsec),
            ..Self::default()
        }
    }

    fn is_complete(&self) -> bool {
        let is_empty = |element: &PolicyElement| *element == PolicyElement::default();
        let is_valid = |element: &PolicyElement| {
            let has_tunnel =
                element.tunnel_source.is_some() || element.tunnel_destination.is_some();
            !is_empty(element)
                && (!has_tunnel || element.mode == Some(Negatable::Is(PolicyMode::Tunnel)))
        };
        let has_none = self.policy == Some(PolicyKind::None);
        self.direction.is_some()
            && self.policy.is_some()
            && self.elements.len() <= Self::MAX
            && self.elements.iter().all(is_valid)
            && !(has_none && (self.strict || !self.elements.is_empty()))
            && (self.elements.len() <= 1 || self.strict)
            && !(self.strict && self.elements.is_empty())
    }
}

impl PolicyElement {
    fn parse_option(&mut self, option: &str, values: &mut Values<'_, '_>) -> Parsed {
        match option {
            "--reqid" => self.reqid.fill(option, values),
            "--spi" => set_once(&mut self.spi, values.negatable(number::parse_as)?),
            "--proto" => {
                let is_ipsec = |it: &Protocol| matches!(it.0, 50 | 51 | 108);
                let parse = |text: &str| Protocol::parse(text).filter(is_ipsec);
                set_once(&mut self.protocol, values.negatable(parse)?)
            }
            "--mode" => self.mode.fill(option, values),
            "--tunnel-dst" => self.tunnel_destination.fill(option, values),
            "--tunnel-src" => self.tunnel_source.fill(option, values),
            _ => Ok(false),
        }
    }
}

impl<'a> Extension<'a> for Policy {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &[
            "--dir",
            "--pol",
            "--strict",
            "--reqid",
            "--spi",
            "--proto",
            "--mode",
            "--tunnel-src",
            "--tunnel-dst",
            "--next",
        ]
    }

    fn min_options(&self) -> usize {
        if self.is_complete() { 2 } else { usize::MAX }
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--dir" => self.direction.fill(option, values),
            "--pol" => self.policy.fill(option, values),
            "--strict" => set_flag(&mut self.strict),
            "--next" if self.elements.is_empty() => Err(Unsupported),
            "--next" => {
                self.elements.push(PolicyElement::default());
                Ok(true)
            }
            _ if Self::options().contains(&option) => {
                if self.elements.is_empty() {
                    self.elements.push(PolicyElement::default());
                }
                let last = self.elements.last_mut().ok_or(Unsupported)?;
                last.parse_option(option, values)
            }
            _ => Ok(false),
        }
    }
}

impl fmt::Display for PolicyElement {
    /// Writes the options, each with a leading space.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reqid.write("--reqid", f)?;
        if let Some(spi) = &self.spi {
            write!(f, " {}--spi {:#x}", spi.bang(), spi.value())?;
        }
        if let Some(protocol) = &self.protocol {
            protocol.write(f, "--proto")?;
        }
        if let Some(mode) = &self.mode {
            Value::write(mode, "--mode", f)?;
        }
        if let Some(network) = self.tunnel_destination {
            network.map(Bare).write(f, "--tunnel-dst")?;
        }
        match self.tunnel_source {
            Some(network) => network.map(Bare).write(f, "--tunnel-src"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m policy")?;
        self.direction.write("--dir", f)?;
        self.policy.write("--pol", f)?;
        self.strict.write("--strict", f)?;
        for (at, element) in self.elements.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { " --next" })?;
            element.fmt(f)?;
        }
        Ok(())
    }
}
