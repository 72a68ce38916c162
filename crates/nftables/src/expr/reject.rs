//! `reject`: packets answered with an error.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{Expression, List, put_byte};
use crate::Family;
use crate::text::Listing;

// enum nft_reject_attributes
const NFTA_REJECT_TYPE: u16 = 1;
const NFTA_REJECT_ICMP_CODE: u16 = 2;

/// Throws the packet away and answers with an error.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Reject {
    /// What the answer is.
    pub kind: RejectKind,
}

/// What an answer is: `enum nft_reject_types`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RejectKind {
    /// An ICMP message of the packet's family with this code.
    Icmp(u8),
    /// A TCP reset.
    TcpReset,
    /// An ICMP message with this code of `enum nft_reject_inet_code`.
    Icmpx(u8),
}

impl Reject {
    /// Returns the rejection that says that nobody listens to the port.
    pub fn port_unreachable(family: Family) -> Self {
        Self {
            kind: match family {
                Family::Ip => RejectKind::Icmp(3),
                Family::Ip6 => RejectKind::Icmp(4),
                _ => RejectKind::Icmpx(1),
            },
        }
    }
}

impl Expression for Reject {
    const NAME: &'static str = "reject";

    fn encode(&self, out: &mut Vec<u8>) {
        let (kind, code) = match self.kind {
            RejectKind::Icmp(code) => (0, code),
            RejectKind::TcpReset => (1, 0),
            RejectKind::Icmpx(code) => (2, code),
        };
        put_be32(out, NFTA_REJECT_TYPE, kind);
        put_byte(out, NFTA_REJECT_ICMP_CODE, code);
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut kind, mut code) = (None, 0);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_REJECT_TYPE => kind = Some(attr.be32()?),
                NFTA_REJECT_ICMP_CODE => code = attr.u8()?,
                _ => return Ok(None),
            }
        }
        let kind = match kind {
            Some(0) => RejectKind::Icmp(code),
            Some(1) => RejectKind::TcpReset,
            Some(2) => RejectKind::Icmpx(code),
            _ => return Ok(None),
        };
        Ok(Some(Self { kind }))
    }
}

impl List for Reject {
    fn list(&self, listing: &mut Listing) {
        match (self.kind, listing.family()) {
            (RejectKind::TcpReset, _) => listing.say("reject with tcp reset"),
            (RejectKind::Icmpx(1), None | Some(Family::Inet | Family::Bridge))
            | (RejectKind::Icmp(3), None | Some(Family::Ip))
            | (RejectKind::Icmp(4), None | Some(Family::Ip6)) => listing.say("reject"),
            (RejectKind::Icmpx(code), _) => listing.say(format_args!("reject with icmpx {code}")),
            (RejectKind::Icmp(code), Some(Family::Ip6)) => {
                listing.say(format_args!("reject with icmpv6 {code}"));
            }
            (RejectKind::Icmp(code), _) => listing.say(format_args!("reject with icmp {code}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn every_answer_comes_back() {
        for kind in [
            RejectKind::Icmp(3),
            RejectKind::TcpReset,
            RejectKind::Icmpx(1),
        ] {
            assert_identity(Reject { kind });
        }
    }
}
