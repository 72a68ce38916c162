//! `queue`: verdicts of programs.

use bitflags::bitflags;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be16, put_be32};

use super::{ExprType, Register};

// enum nft_queue_attributes
const NFTA_QUEUE_NUM: u16 = 1;
const NFTA_QUEUE_TOTAL: u16 = 2;
const NFTA_QUEUE_FLAGS: u16 = 3;
const NFTA_QUEUE_SREG_QNUM: u16 = 4;
// flags of queues
const NFT_QUEUE_FLAG_BYPASS: u16 = 0x01;
const NFT_QUEUE_FLAG_CPU_FANOUT: u16 = 0x02;

/// The `queue` expression: passes the packet to a program, which returns the verdict.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Queue {
    /// Queue.
    pub target: QueueTarget,
    /// Options.
    pub flags: QueueFlags,
}

/// The queue that gets a packet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum QueueTarget {
    /// One of `total` queues from `first` on, by a hash of the connection.
    Numbers {
        /// First queue.
        first: u16,
        /// Number of queues.
        total: u16,
    },
    /// Register of the queue number: `queue to numgen inc mod 4`.
    Register(Register),
}

bitflags! {
    /// Options of a queue: `NFT_QUEUE_FLAG_*`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct QueueFlags: u16 {
        /// Accepts packets if no program listens: `bypass`.
        const BYPASS = NFT_QUEUE_FLAG_BYPASS;
        /// Chooses the queue by CPU instead of a hash: `fanout`.
        const FANOUT = NFT_QUEUE_FLAG_CPU_FANOUT;
        /// Unknown flags are preserved.
        const _ = !0;
    }
}

impl ExprType for Queue {
    const NAME: &'static str = "queue";

    fn encode(&self, out: &mut Vec<u8>) {
        match self.target {
            QueueTarget::Numbers { first, total } => {
                put_be16(out, NFTA_QUEUE_NUM, first);
                put_be16(out, NFTA_QUEUE_TOTAL, total);
            }
            QueueTarget::Register(register) => {
                put_be32(out, NFTA_QUEUE_SREG_QNUM, register.number());
            }
        }
        if !self.flags.is_empty() {
            put_be16(out, NFTA_QUEUE_FLAGS, self.flags.bits());
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let (mut first, mut total, mut register) = (None, None, None);
        let mut flags = QueueFlags::empty();
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_QUEUE_NUM => first = Some(attr.be16()?),
                NFTA_QUEUE_TOTAL => total = Some(attr.be16()?),
                NFTA_QUEUE_FLAGS => flags = QueueFlags::from_bits_retain(attr.be16()?),
                NFTA_QUEUE_SREG_QNUM => register = Some(Register::from_number(attr.be32()?)),
                _ => return Ok(None),
            }
        }
        let target = match (first, total, register) {
            (Some(first), total, None) => QueueTarget::Numbers {
                first,
                total: total.unwrap_or(1),
            },
            (None, None, Some(register)) => QueueTarget::Register(register),
            _ => return Ok(None),
        };
        Ok(Some(Self { target, flags }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn queues_round_trip() {
        for target in [
            QueueTarget::Numbers { first: 3, total: 1 },
            QueueTarget::Numbers { first: 0, total: 4 },
            QueueTarget::Register(Register::word(0)),
        ] {
            for flags in [QueueFlags::empty(), QueueFlags::all()] {
                assert_identity(Queue { target, flags });
            }
        }
    }
}
