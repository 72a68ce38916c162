//! `flow_offload`: flowtable offload.

use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_str};

use super::{ExprType, name};
use crate::Name;

// enum nft_offload_attributes
const NFTA_FLOW_TABLE_NAME: u16 = 1;

/// The `flow_offload` expression: adds the connection to a flowtable, which bypasses the chains: `flow add @f`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct FlowOffload {
    /// Name of the flowtable.
    pub flowtable: Name,
}

impl ExprType for FlowOffload {
    const NAME: &'static str = "flow_offload";

    fn encode(&self, out: &mut Vec<u8>) {
        put_str(out, NFTA_FLOW_TABLE_NAME, self.flowtable.as_str());
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let mut flowtable = None;
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_FLOW_TABLE_NAME => flowtable = Some(name(&attr)?),
                _ => return Ok(None),
            }
        }
        Ok(flowtable.map(|flowtable| Self { flowtable }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn flow_offload_round_trips() {
        assert_identity(FlowOffload {
            flowtable: Name::new("f").unwrap(),
        });
    }
}
