//! The text of prefix matches of addresses.

use super::display::prefix_len;
use super::listing::Listing;
use super::literal::Literal;
use crate::expr::CtKey;
use crate::expression::{Expression, Term};
use crate::{Bytes, Datatype, Family};

impl Listing {
    /// Returns address and prefix text if the comparison is a prefix match.
    pub(super) fn prefix(&self, left: &Expression, data: &[u8]) -> Option<(Expression, String)> {
        match &left.0 {
            Term::Payload { base, offset, len } => {
                let field = self.context.addr(*base, *offset, *len)?;
                let mut addr = Bytes::from(data);
                addr.extend(&Bytes::repeat(
                    0,
                    usize::from(field.bytes).checked_sub(data.len())?,
                ));
                let addr = Literal::new(field.datatype, &addr, false).to_string();
                Some((
                    Expression::of(Term::Header(field)),
                    format!("{addr}/{}", data.len() * 8),
                ))
            }
            Term::Bits { of, mask, xor } => {
                let is_addr = matches!(of.datatype(), Datatype::Ipv4Addr | Datatype::Ipv6Addr);
                let len = prefix_len(mask)?;
                // nft loads only the bytes of such a prefix of a header field.
                let is_short = len % 8 == 0 && matches!(of.0, Term::Header(_));
                if !is_addr || is_short || xor.iter().any(|byte| *byte != 0) {
                    return None;
                }
                let addr = Literal::new(of.datatype(), data, false).to_string();
                Some(((**of).clone(), format!("{addr}/{len}")))
            }
            // Several fields: only the first of them may be an address.
            Term::Concat(_) => None,
            // A prefix of whole bytes.
            _ => {
                let size = match left.datatype() {
                    _ if self.is_ct_addr6(left) && data.len() < 16 => 16,
                    Datatype::Ipv4Addr if data.len() < 4 => 4,
                    Datatype::Ipv6Addr if data.len() < 16 => 16,
                    // `ct original saddr` of IPv6 in family `inet`.
                    Datatype::Ipv4Addr if (5..16).contains(&data.len()) => 16,
                    _ => return None,
                };
                let mut addr = Bytes::from(data);
                addr.extend(&Bytes::repeat(0, size - data.len()));
                let addr = Literal::new(left.datatype(), &addr, false);
                Some((left.clone(), format!("{addr}/{}", data.len() * 8)))
            }
        }
    }
    /// Returns whether a conntrack address without a family is one of IPv6.
    fn is_ct_addr6(&self, expression: &Expression) -> bool {
        let is_addr = matches!(expression.0, Term::Ct(CtKey::Src | CtKey::Dst, _));
        is_addr && self.family() == Some(Family::Ip6)
    }
}
