//! `notrack`: exclusion from connection tracking.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::Attrs;

use super::{ExprType, List};
use crate::text::Listing;

/// The `notrack` expression: disables connection tracking for the packet.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Notrack;

impl ExprType for Notrack {
    const NAME: &'static str = "notrack";

    fn encode(&self, _out: &mut Vec<u8>) {}

    fn decode(mut attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let first = attrs.next().transpose()?;
        Ok(first.is_none().then_some(Self))
    }
}

impl List for Notrack {
    fn list(&self, listing: &mut Listing) {
        listing.push("notrack");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn notrack_round_trips() {
        assert_identity(Notrack);
    }
}
