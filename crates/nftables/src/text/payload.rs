//! The text of loads and stores of packet bytes.

use super::expr::List;
use super::listing::Listing;
use crate::bitfield;
use crate::expr::{Payload, PayloadAccess, PayloadBase, Register};
use crate::expression::{Expression, Term};

/// Type and offset of a checksum, and flags: `enum nft_payload_csum_types` and
/// `nft_payload_csum_flags`.
type Checksum = (u32, u32, u32);

/// Flag: the bytes are part of the pseudo-header of the transport protocol's checksum.
const PSEUDO_HEADER: u32 = 1;

/// Returns the checksum that nft updates when it stores a field.
fn checksum_of(field: &str) -> Checksum {
    let (protocol, name) = field.split_once(' ').unwrap_or((field, ""));
    let flags = match (protocol, name) {
        ("ip", "saddr" | "daddr" | "protocol" | "length")
        | ("ip6", "saddr" | "daddr" | "nexthdr" | "length") => PSEUDO_HEADER,
        _ => 0,
    };
    let (kind, offset) = match protocol {
        "ip" => (1, 10),
        "tcp" => (1, 16),
        "udp" => (1, 6),
        "icmp" | "igmp" | "icmpv6" => (1, 2),
        "sctp" => (2, 8),
        _ => (0, 0),
    };
    (kind, offset, flags)
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
            } => listing.store(self, source, (checksum, checksum_offset, checksum_flags)),
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
        let is_direct =
            |expected| expected == checksum && (expected == (0, 0, 0) || len.is_multiple_of(2));
        let named = self.context.named(base, offset, len);
        if let Some(field) = named.filter(|field| is_direct(checksum_of(&field.to_string()))) {
            let typed = self.context.payload(base, offset, len);
            return self.set_as(field, &typed, source);
        }
        let of_raw = match base {
            PayloadBase::Other(_) => (0, 0, PSEUDO_HEADER),
            _ => (0, 0, 0),
        };
        if is_direct(of_raw) {
            return self.set(Expression(Term::Payload { base, offset, len }), source);
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
