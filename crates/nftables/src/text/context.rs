//! The protocols that the previous statements of a rule match.
//!
//! nft adds a match of the protocol to each use of a named header field, unless a previous
//! statement matches the protocol. A field is therefore named only after such a statement.

use crate::Family;
use crate::expr::{MetaKey, PayloadBase};
use crate::expression::{Expression, Term};
use crate::language::bitfield::{self, BitField};
use crate::language::header::{HeaderField, Layer, VLAN_BYTES, name_with_ports};

/// `ARPHRD_ETHER`
const ETHERNET: [u8; 2] = 1_u16.to_ne_bytes();

/// The known protocols of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// Family of the table, if it is known.
    family: Option<Family>,
    ethernet: bool,
    /// Number of VLAN headers that previous statements match.
    vlans: u32,
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
            vlans: 0,
            network,
            transport: None,
        }
    }

    pub(crate) fn family(&self) -> Option<Family> {
        self.family
    }

    /// Returns the transport protocol that a previous statement matches.
    pub(crate) fn transport(&self) -> Option<u8> {
        self.transport
    }

    pub(crate) fn network(&self) -> Option<Family> {
        self.network
    }

    /// Returns the expression for bytes of the packet.
    pub(crate) fn payload(&self, base: PayloadBase, offset: u32, len: u32) -> Expression {
        match self.field_at(base, offset, len) {
            Some(field) => Expression::of(Term::Header(field)),
            None => Expression::of(Term::Payload { base, offset, len }),
        }
    }

    /// Returns the named field at a location. Prefers fields of a matched protocol.
    fn field_at(&self, base: PayloadBase, offset: u32, len: u32) -> Option<&'static HeaderField> {
        if let Some(field) = self.vlan_type_at(base, offset, len) {
            return Some(field);
        }
        let fields = || HeaderField::at(base, offset, len).filter(|field| self.has(field));
        let of_protocol = fields().find(|field| field.layer != Layer::Any);
        of_protocol.or_else(|| fields().next())
    }

    /// Returns the type in the last VLAN header if it is at the location.
    fn vlan_type_at(
        &self,
        base: PayloadBase,
        offset: u32,
        len: u32,
    ) -> Option<&'static HeaderField> {
        let offset = offset.checked_sub(self.distance(Layer::Vlan)? / 8)?;
        HeaderField::at(base, offset, len).find(|field| field.layer == Layer::Vlan)
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

    /// Returns the field that an expression masks, if it has a name.
    fn masked_field(&self, expression: &Expression) -> Option<BitField> {
        let Term::Bits { of, mask, xor } = &expression.0 else {
            return None;
        };
        if xor.iter().any(|byte| *byte != 0) {
            return None;
        }
        match &of.0 {
            Term::Payload { base, offset, .. } => {
                bitfield::in_header(*base, *offset, mask, |layer| self.distance(layer))
            }
            Term::Load(load) => bitfield::in_extension(load, mask),
            _ => None,
        }
    }

    /// Names the bits of a header field that an expression masks, if all `values` have
    /// bits of the field only.
    pub(crate) fn name_bits(&self, left: Expression, values: &[&[u8]]) -> Expression {
        let field = self.masked_field(&left);
        match field.filter(|field| values.iter().all(|value| field.contains(value))) {
            Some(field) => Expression::of(Term::BitField(field)),
            None => left,
        }
    }

    /// Names the bits of header fields at the end of their bytes, also in concatenations.
    ///
    /// Values of such a field are equal with and without the name.
    pub(crate) fn name_last_bits(&self, key: Expression) -> Expression {
        if let Term::Concat(parts) = key.0 {
            let parts = parts.into_iter().map(|part| self.name_last_bits(part));
            return Expression::of(Term::Concat(parts.collect()));
        }
        self.shifted_field(&key, 0).unwrap_or(key)
    }

    /// Returns the header field whose value the bits of `of` are after a shift to the
    /// right, if it has a name.
    pub(crate) fn shifted_field(&self, of: &Expression, bits: u32) -> Option<Expression> {
        let field = self.masked_field(of)?;
        let value = Term::BitField(BitField { shift: 0, ..field });
        (field.shift == bits).then_some(Expression::of(value))
    }

    /// Splits bytes into adjacent header fields, if all have names.
    ///
    /// nft joins matches of such fields to one.
    pub(crate) fn split<'a>(
        &self,
        base: PayloadBase,
        offset: u32,
        value: &'a [u8],
    ) -> Option<Vec<(Expression, &'a [u8])>> {
        let is_joined = base == PayloadBase::Link || value.len() <= 4;
        let (mut context, mut parts) = (self.clone(), Vec::new());
        let (mut at, mut rest) = (offset, value);
        while !rest.is_empty() && is_joined {
            let (left, here) = (1..rest.len())
                .rev()
                .find_map(|len| {
                    let left = context.port_or_field(base, at, u32::try_from(len).ok()?)?;
                    Some((left, len))
                })
                .or_else(|| {
                    let len = rest.len();
                    Some((
                        context.port_or_field(base, at, u32::try_from(len).ok()?)?,
                        len,
                    ))
                })?;
            let (first, others) = rest.split_at_checked(here)?;
            context.matched(&left, first);
            at += u32::try_from(here).ok()?;
            parts.push((left, first));
            rest = others;
        }
        (parts.len() > 1).then_some(parts)
    }

    /// Returns the named field at a location.
    fn port_or_field(&self, base: PayloadBase, offset: u32, len: u32) -> Option<Expression> {
        let field = self.field_at(base, offset, len)?;
        Some(
            self.port(field)
                .unwrap_or_else(|| Expression::of(Term::Header(field))),
        )
    }

    /// Returns the port of the matched transport protocol for a port of any protocol.
    pub(crate) fn port(&self, field: &'static HeaderField) -> Option<Expression> {
        let is_port = field.layer == Layer::Any && field.base == PayloadBase::Transport;
        let name = name_with_ports(self.transport?)?;
        is_port.then_some(Expression::of(Term::Port(name, field.name)))
    }

    /// Returns the header field at a location, with the name of the matched protocol.
    pub(crate) fn named(&self, base: PayloadBase, offset: u32, len: u32) -> Option<Expression> {
        self.port_or_field(base, offset, len)
    }

    /// Returns the field of some bits of a header.
    pub(crate) fn bits_field(&self, base: PayloadBase, start: u32, len: u32) -> Option<String> {
        if start.is_multiple_of(8) && len.is_multiple_of(8) {
            return self
                .named(base, start / 8, len / 8)
                .map(|field| field.to_string());
        }
        bitfield::at(base, start, len, |layer| self.distance(layer))
    }

    /// Returns whether packets are known to have the header of a field.
    fn has(&self, field: &HeaderField) -> bool {
        match field.layer {
            Layer::Any => field.base != PayloadBase::Link || self.ethernet,
            layer => self.has_layer(layer),
        }
    }

    fn has_layer(&self, layer: Layer) -> bool {
        match layer {
            Layer::Any => false,
            Layer::Network(family) => match self.network {
                Some(network) => family == network,
                None => self.family.is_none() && family != Family::Arp,
            },
            Layer::Transport(proto) => self.transport == Some(proto),
            Layer::Vlan => false,
        }
    }

    /// Returns the number of bits by which VLAN headers move the header of a layer, if
    /// packets are known to have the header.
    fn distance(&self, layer: Layer) -> Option<u32> {
        match layer {
            Layer::Vlan => Some(self.vlans.checked_sub(1)? * VLAN_BYTES * 8),
            layer => self.has_layer(layer).then_some(0),
        }
    }

    /// Records that an expression equals a value.
    pub(crate) fn matched(&mut self, left: &Expression, value: &[u8]) {
        let is_link = matches!(self.family, Some(Family::Bridge | Family::Netdev));
        let is_frame = is_link || self.ethernet;
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
            (Term::Header(field), _) if is_frame && field.is_frame_type() => {
                self.vlans += u32::from(matches!(value, [0x81, 0x00] | [0x88, 0xa8]));
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
