//! `immediate`: constants and verdicts.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be32};

use super::{ExprType, Register};
use crate::{Data, Verdict};

// enum nft_immediate_attributes
pub(crate) const NFTA_IMMEDIATE_DREG: u16 = 1;
pub(crate) const NFTA_IMMEDIATE_DATA: u16 = 2;

/// The `immediate` expression: loads a constant or returns a verdict.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Immediate {
    /// Destination register: [`Register::VERDICT`] for a verdict.
    pub destination: Register,
    /// Constant or verdict.
    pub data: Data,
}

impl From<Verdict> for Immediate {
    fn from(verdict: Verdict) -> Self {
        Self {
            destination: Register::VERDICT,
            data: Data::Verdict(verdict),
        }
    }
}

impl ExprType for Immediate {
    const NAME: &'static str = "immediate";

    fn encode(&self, out: &mut Vec<u8>) {
        put_be32(out, NFTA_IMMEDIATE_DREG, self.destination.number());
        self.data.encode(out, NFTA_IMMEDIATE_DATA);
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut destination, mut data) = (None, None);
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_IMMEDIATE_DREG => destination = Some(Register::from_number(attr.be32()?)),
                NFTA_IMMEDIATE_DATA => data = Some(Data::decode(&attr)?),
                _ => return Ok(None),
            }
        }
        let (Some(destination), Some(data)) = (destination, data) else {
            return Ok(None);
        };
        Ok(Some(Self { destination, data }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;
    use crate::{Bytes, Name};

    #[test]
    fn constants_and_verdicts_round_trip() {
        let data = Data::Value(Bytes::from([10, 0, 0, 1]));
        assert_identity(Immediate {
            destination: Register::word(0),
            data,
        });
        assert_identity(Immediate::from(Verdict::Jump(Name::new("c").unwrap())));
    }
}
