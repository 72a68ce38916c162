//! `-m policy`: IPsec policies.

use std::fmt;

use ipnet::IpNet;

use crate::Protocol;
use crate::extensions::structure::{Reader, Structure, Writer, flags};
use crate::options::address::Bare;
use crate::options::field::{Field, Value, names};
use crate::options::negatable::Negatable;
use crate::options::number;
use crate::options::protocol;
use crate::options::{Extension, Parsed, Unsupported, Values, set_flag, set_once};

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
                let parse = |text: &str| protocol::parse(text).filter(is_ipsec);
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

/// Number of elements of `struct xt_policy_info`.
const XT_POLICY_MAX_ELEM: usize = 4;
/// Length of `struct xt_policy_elem`.
const ELEMENT_LEN: usize = 76;

// enum xt_policy_flags
const XT_POLICY_MATCH_IN: u16 = 1;
const XT_POLICY_MATCH_OUT: u16 = 2;
const XT_POLICY_MATCH_NONE: u16 = 4;
const XT_POLICY_MATCH_STRICT: u16 = 8;

// enum xt_policy_modes
const XT_POLICY_MODE_TRANSPORT: u8 = 0;
const XT_POLICY_MODE_TUNNEL: u8 = 1;

/// `struct xt_policy_info`.
impl Structure for Policy {
    const NAME: &'static str = "policy";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let direction = match self.direction? {
            PolicyDirection::In => XT_POLICY_MATCH_IN,
            PolicyDirection::Out => XT_POLICY_MATCH_OUT,
        };
        let is_none = self.policy? == PolicyKind::None;
        for element in &self.elements {
            write_element(element, out)?;
        }
        let unused = XT_POLICY_MAX_ELEM.checked_sub(self.elements.len())?;
        out.zeros(unused * ELEMENT_LEN);
        out.u16(flags([
            (true, direction),
            (is_none, XT_POLICY_MATCH_NONE),
            (self.strict, XT_POLICY_MATCH_STRICT),
        ]));
        // A policy without conditions has one empty element.
        let len = match is_none {
            true => 0,
            false => self.elements.len().max(1),
        };
        out.u16(len.try_into().ok()?);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut elements = Vec::new();
        for _ in 0..XT_POLICY_MAX_ELEM {
            elements.push(read_element(reader)?);
        }
        let (flags, len) = (reader.u16()?, reader.u16()?);
        elements.truncate(len.into());
        if *elements == [PolicyElement::default()] {
            elements.clear();
        }
        let direction = match flags & (XT_POLICY_MATCH_IN | XT_POLICY_MATCH_OUT) {
            XT_POLICY_MATCH_IN => PolicyDirection::In,
            XT_POLICY_MATCH_OUT => PolicyDirection::Out,
            _ => return None,
        };
        let policy = match flags & XT_POLICY_MATCH_NONE {
            0 => PolicyKind::Ipsec,
            _ => PolicyKind::None,
        };
        Some(Self {
            direction: Some(direction),
            policy: Some(policy),
            strict: flags & XT_POLICY_MATCH_STRICT != 0,
            elements,
        })
    }
}

/// Returns the bits of `struct xt_policy_spec`, from the first one.
fn spec(fields: [bool; 6]) -> u8 {
    let bits = flags(fields.into_iter().zip((0..).map(|bit| 1_u8 << bit)));
    if cfg!(target_endian = "big") {
        bits.reverse_bits()
    } else {
        bits
    }
}

/// Writes `struct xt_policy_elem`.
fn write_element(it: &PolicyElement, out: &mut Writer<'_>) -> Option<()> {
    for network in [it.tunnel_source, it.tunnel_destination] {
        match network.as_ref().map(Negatable::value) {
            Some(network) => out.address(network.addr())?.address(network.netmask())?,
            None => out.zeros(32),
        };
    }
    out.u32(it.spi.map_or(0, |spi| *spi.value()));
    out.u32(it.reqid.map_or(0, |reqid| *reqid.value()));
    out.u8(it.protocol.map_or(0, |protocol| protocol.value().0));
    out.u8(match it.mode.as_ref().map(Negatable::value) {
        Some(PolicyMode::Tunnel) => XT_POLICY_MODE_TUNNEL,
        Some(PolicyMode::Transport) | None => XT_POLICY_MODE_TRANSPORT,
    });
    // The order of the fields of `struct xt_policy_spec`.
    let conditions = [
        it.tunnel_source.map(|it| it.is_negated()),
        it.tunnel_destination.map(|it| it.is_negated()),
        it.protocol.map(|it| it.is_negated()),
        it.mode.map(|it| it.is_negated()),
        it.spi.map(|it| it.is_negated()),
        it.reqid.map(|it| it.is_negated()),
    ];
    out.u8(spec(conditions.map(|one| one.is_some())));
    out.u8(spec(conditions.map(|one| one == Some(true))));
    Some(())
}

/// Reads `struct xt_policy_elem`.
fn read_element(reader: &mut Reader<'_>) -> Option<PolicyElement> {
    let (source, destination) = (reader.network()?, reader.network()?);
    let (spi, reqid) = (reader.u32()?, reader.u32()?);
    let [protocol, mode, used, inverted] = reader.array()?;
    let negated = |field: usize| {
        let bit = spec(std::array::from_fn(|at| at == field));
        (used & bit != 0).then_some(inverted & bit != 0)
    };
    let network = |field, network: Option<IpNet>| match negated(field) {
        Some(is_negated) => Some(Some(Negatable::new(is_negated, network?))),
        None => Some(None),
    };
    let mode = match mode {
        XT_POLICY_MODE_TRANSPORT => PolicyMode::Transport,
        _ => PolicyMode::Tunnel,
    };
    Some(PolicyElement {
        tunnel_source: network(0, source)?,
        tunnel_destination: network(1, destination)?,
        protocol: negated(2).map(|it| Negatable::new(it, Protocol(protocol))),
        mode: negated(3).map(|it| Negatable::new(it, mode)),
        spi: negated(4).map(|it| Negatable::new(it, spi)),
        reqid: negated(5).map(|it| Negatable::new(it, reqid)),
    })
}
