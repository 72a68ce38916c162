//! The protocols that the previous statements of a rule match.
//!
//! nft adds a match of the protocol to each use of a named header field, unless a previous
//! statement matches the protocol. A field is therefore named only after such a statement.

use crate::Family;
use crate::expr::{MetaKey, PayloadBase};
use crate::expression::{Expression, Term};
use crate::header::{self, HeaderField, Layer};

/// `ARPHRD_ETHER`
const ETHERNET: [u8; 2] = 1_u16.to_ne_bytes();

/// The known protocols of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// Family of the table, if it is known.
    family: Option<Family>,
    ethernet: bool,
    network: Option<Family>,
    transport: Option<u8>,
}

impl Context {
    /// Returns what the family of the table implies.
    pub(crate) fn new(family: Option<Family>) -> Self {
        let network = family.filter(|it| matches!(it, Family::Ip | Family::Ip6 | Family::Arp));
        Self {
            family,
            ethernet: matches!(family, None | Some(Family::Bridge)),
            network,
            transport: None,
        }
    }

    pub(crate) fn family(&self) -> Option<Family> {
        self.family
    }

    pub(crate) fn network(&self) -> Option<Family> {
        self.network
    }

    /// Returns the expression for bytes of the packet.
    pub(crate) fn payload(&self, base: PayloadBase, offset: u32, len: u32) -> Expression {
        let mut fields = HeaderField::at(base, offset, len);
        match fields.find(|field| self.has(field) && !is_port(field)) {
            Some(field) => Expression(Term::Header(field)),
            None => Expression(Term::Payload { base, offset, len }),
        }
    }

    /// Returns the address field that starts with bytes of the packet.
    pub(crate) fn addr(
        &self,
        base: PayloadBase,
        offset: u32,
        len: u32,
    ) -> Option<&'static HeaderField> {
        HeaderField::addrs_at(base, offset, len).find(|field| self.has(field))
    }

    /// Returns whether packets are known to have the header of a field.
    fn has(&self, field: &HeaderField) -> bool {
        match field.layer {
            Layer::Any => field.base != PayloadBase::Link || self.ethernet,
            Layer::Network(family) => match self.network {
                Some(network) => family == network,
                None => self.family.is_none() && family != Family::Arp,
            },
            Layer::Transport(proto) => self.transport == Some(proto),
        }
    }

    /// Records that an expression equals a value.
    pub(crate) fn matched(&mut self, left: &Expression, value: &[u8]) {
        let is_link = matches!(self.family, Some(Family::Bridge | Family::Netdev));
        match (&left.0, value) {
            (Term::Meta(MetaKey::L4Proto), [proto]) => self.transport = Some(*proto),
            (Term::Header(field), [proto])
                if field.name == "protocol"
                    || (field.protocol, field.name) == ("ip6", "nexthdr") =>
            {
                self.transport = Some(*proto);
            }
            (Term::Meta(MetaKey::NfProto), [number]) if self.family == Some(Family::Inet) => {
                self.network = Family::from_number(*number);
            }
            (Term::Meta(MetaKey::Protocol), _) if is_link => self.ethertype(value),
            (Term::Header(field), _) if is_link && std::ptr::eq(*field, &header::ETHER_TYPE) => {
                self.ethertype(value);
            }
            (Term::Meta(MetaKey::Iiftype), value) if *value == ETHERNET => self.ethernet = true,
            _ => {}
        }
    }

    fn ethertype(&mut self, value: &[u8]) {
        self.network = match value {
            [0x08, 0x00] => Some(Family::Ip),
            [0x86, 0xdd] => Some(Family::Ip6),
            [0x08, 0x06] => Some(Family::Arp),
            _ => self.network,
        };
    }
}

/// Returns whether a field has a name for all transport protocols, too.
fn is_port(field: &HeaderField) -> bool {
    field.name.ends_with("port") && field.layer != Layer::Any
}
