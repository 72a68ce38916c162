//! The text of loads and stores of packet bytes.

use super::expr::List;
use super::listing::Listing;
use crate::bitfield;
use crate::expr::{Payload, PayloadAccess, PayloadBase, Register};
use crate::expression::{Expression, Term};

/// Protocols whose checksum nft updates when it stores a named field.
const WITH_CHECKSUM: [&str; 7] = ["ip", "tcp", "udp", "sctp", "icmp", "igmp", "icmpv6"];

impl List for Payload {
    fn list(&self, listing: &mut Listing) {
        match self.access {
            PayloadAccess::Load(register) => {
                let expression = listing.context.payload(self.base, self.offset, self.len);
                listing.load(register, expression);
            }
            PayloadAccess::Store {
                source, checksum, ..
            } => listing.store(self, source, checksum != 0),
        }
    }
}

impl Listing {
    /// Appends a store.
    ///
    /// nft updates a checksum only if the field has a name.
    fn store(&mut self, payload: &Payload, source: Register, has_checksum: bool) {
        let (base, offset, len) = (payload.base, payload.offset, payload.len);
        let raw = Expression(Term::Payload { base, offset, len });
        let named = self.context.named(base, offset, len);
        match named.filter(|field| updates_checksum(&field.to_string()) == has_checksum) {
            Some(field) => {
                let typed = self.context.payload(base, offset, len);
                return self.set_as(field, &typed, source);
            }
            None if !has_checksum => return self.set(raw, source),
            None => {}
        }
        match self.replaced_field(base, offset, len, source) {
            Some((field, value)) => self.push(format_args!("{field} set {value}")),
            None => self.unknown("payload with checksum", &[]),
        }
    }

    /// Returns the field that is replaced in the bytes of a register, and its new value.
    fn replaced_field(
        &self,
        base: PayloadBase,
        offset: u32,
        len: u32,
        source: Register,
    ) -> Option<(String, u64)> {
        let Term::Bits { of, mask, xor } = self.read(source, 0).0 else {
            return None;
        };
        let is_same = *of == self.context.payload(base, offset, len);
        let (before, len, value) = bitfield::replaced(&mask, &xor).filter(|_| is_same)?;
        let start = offset.checked_mul(8)?.checked_add(before)?;
        let field = self.context.bits_field(base, start, len)?;
        updates_checksum(&field).then_some((field, value))
    }
}

/// Returns whether nft updates a checksum when it stores a field.
fn updates_checksum(field: &str) -> bool {
    let protocol = field.split(' ').next();
    protocol.is_some_and(|protocol| WITH_CHECKSUM.contains(&protocol))
}
