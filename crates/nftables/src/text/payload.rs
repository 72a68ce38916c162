//! The text of loads and stores of packet bytes.

use super::expr::List;
use super::listing::Listing;
use crate::expr::{Payload, PayloadAccess, PayloadBase, Register};
use crate::expression::{Expression, Term};
use crate::language::bitfield;
use crate::language::header::Checksum;

fn checksum_of(field: &str) -> Checksum {
    let (protocol, name) = field.split_once(' ').unwrap_or((field, ""));
    Checksum::of(protocol, name)
}

impl List for Payload {
    fn list(&self, listing: &mut Listing) {
        match self.access {
            PayloadAccess::Load(register) => {
                let expression = listing.context.payload(self.base, self.offset, self.len);
                listing.load(register, expression);
            }
            PayloadAccess::Store {
                source,
                checksum,
                checksum_offset,
                checksum_flags,
            } => {
                let checksum = Checksum {
                    kind: checksum,
                    offset: checksum_offset,
                    flags: checksum_flags,
                };
                listing.store(self, source, checksum);
            }
        }
    }
}

impl Listing {
    /// Appends a store.
    ///
    /// nft updates a checksum only if the field has a name, and then loads and stores
    /// a single byte with its neighbor.
    fn store(&mut self, payload: &Payload, source: Register, checksum: Checksum) {
        let (base, offset, len) = (payload.base, payload.offset, payload.len);
        let is_direct = |expected: Checksum| {
            expected == checksum && (expected == Checksum::default() || len.is_multiple_of(2))
        };
        let named = self.context.named(base, offset, len);
        if let Some(field) = named.filter(|field| is_direct(checksum_of(&field.to_string()))) {
            let typed = self.context.payload(base, offset, len);
            return self.set_as(field, &typed, source);
        }
        let of_raw = Checksum {
            flags: match base {
                PayloadBase::Other(_) => Checksum::PSEUDO_HEADER,
                _ => 0,
            },
            ..Checksum::default()
        };
        if is_direct(of_raw) {
            return self.set(Expression::of(Term::Payload { base, offset, len }), source);
        }
        match self.replaced_field(payload, source) {
            Some((field, value)) if checksum_of(&field) == checksum => {
                self.push(format_args!("{field} set {value}"));
            }
            _ => self.unknown("payload with checksum", &[]),
        }
    }

    /// Returns the field that is replaced in the bytes of a register, and its new value.
    fn replaced_field(&self, payload: &Payload, source: Register) -> Option<(String, u64)> {
        let (base, offset, len) = (payload.base, payload.offset, payload.len);
        let Term::Bits { of, mask, xor } = self.read(source, 0).0 else {
            return None;
        };
        let is_same = *of == self.context.payload(base, offset, len);
        let (before, len, value) = bitfield::replaced(&mask, &xor).filter(|_| is_same)?;
        let start = offset.checked_mul(8)?.checked_add(before)?;
        Some((self.context.bits_field(base, start, len)?, value))
    }
}
