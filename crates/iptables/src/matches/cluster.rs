//! `-m cluster`: distribution of connections to the nodes of a cluster.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::{Value, extension};
use crate::options::negatable::Negatable;
use crate::options::number;
use crate::options::{Unsupported, Values};

extension! {
    /// Matches the share of connections of some nodes: `-m cluster --cluster-total-nodes 2
    /// --cluster-local-node 1 --cluster-hash-seed 0xdeadbeef`.
    ///
    /// iptables requires all options.
    pub struct Cluster = "-m cluster" {
        /// Nodes whose connections match.
        local: Option<Negatable<ClusterNodes>> = "--cluster-local-nodemask" | "--cluster-local-node",
        /// Number of nodes, 1 to 32.
        total: Option<u32> = "--cluster-total-nodes",
        /// Seed of the hash.
        seed: Option<HashSeed> = "--cluster-hash-seed",
    }
    complete |it| match (it.local, it.total) {
        (Some(local), Some(total @ 1..=32)) => {
            it.seed.is_some() && u64::from(local.value().0) < 1 << total
        }
        _ => false,
    };
}

/// A bit set of nodes, printed as `0x00000003`. Bit 0 is node 1.
///
/// Exhaustive: the nodes are bits of one number.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ClusterNodes(pub u32);

/// A seed of a hash, printed as `0x00000003`.
///
/// Exhaustive: a seed is one number.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct HashSeed(pub u32);

impl Value<'_> for ClusterNodes {
    fn take(option: &str, values: &mut Values<'_, '_>) -> Result<Self, Unsupported> {
        let number: u32 = values.parse(number::parse_as)?;
        if option.ends_with("mask") {
            return Ok(Self(number));
        }
        let node = number.checked_sub(1).and_then(|bit| 1_u32.checked_shl(bit));
        node.map(Self).ok_or(Unsupported)
    }

    fn write(&self, option: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {option} {:#010x}", self.0)
    }
}

impl Value<'_> for HashSeed {
    fn take(_: &str, values: &mut Values<'_, '_>) -> Result<Self, Unsupported> {
        values.parse(number::parse_as).map(Self)
    }

    fn write(&self, option: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {option} {:#010x}", self.0)
    }
}

const XT_CLUSTER_F_INV: u32 = 1;

/// `struct xt_cluster_match_info`.
impl Structure for Cluster {
    const NAME: &'static str = "cluster";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let local = self.local?;
        out.u32(self.total?).u32(local.value().0).u32(self.seed?.0);
        out.u32(if local.is_negated() {
            XT_CLUSTER_F_INV
        } else {
            0
        });
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (total, local) = (reader.u32()?, ClusterNodes(reader.u32()?));
        let (seed, flags) = (HashSeed(reader.u32()?), reader.u32()?);
        Some(Self {
            local: Some(Negatable::new(flags & XT_CLUSTER_F_INV != 0, local)),
            total: Some(total),
            seed: Some(seed),
        })
    }
}
