//! Modes: the rules of a world, installed in memory and evaluated.

mod environment;

mod iptables;

mod ipvs;

mod nftables;

use std::net::SocketAddr;
use std::time::Duration;

use proxy_core::Mode;
use vipline_evaluate::{Disposition, Outcome, Probability};

use crate::fate::{Fate, Fates};
use crate::fixtures::{MemoryKernels, ModePlanner, apply, sync};
use crate::flow::{Flow, SOURCE_PORT};
use crate::world::World;

/// One possible end of a packet, and the state that it leaves for later packets.
#[derive(Clone, Debug)]
pub(crate) struct Seen<U> {
    pub(crate) fate: Fate,
    probability: Probability,
    updates: Vec<U>,
}

/// The rules of a mode in a world.
pub(crate) trait Rules: Sized {
    /// The mode.
    const MODE: Mode;

    /// Maximum difference of probabilities.
    const TOLERANCE: f64;

    /// A change of the state by a packet.
    type Update;

    /// Plans and installs the rules.
    fn install(world: &World) -> Self;

    /// Returns all possible ends of a packet.
    fn evaluate(&self, flow: &Flow) -> Result<Vec<Seen<Self::Update>>, String>;

    /// Returns the rules after a packet came to an end.
    fn after(&self, flow: &Flow, seen: &Seen<Self::Update>) -> Self;
}

pub(crate) use iptables::Iptables;
pub(crate) use ipvs::Ipvs;
pub(crate) use nftables::Nftables;

/// Returns the probabilities of all ends.
pub(crate) fn fates<U>(seen: &[Seen<U>]) -> Fates {
    let pairs = seen.iter().map(|it| (it.fate, it.probability.clone()));
    pairs.collect()
}

/// Returns the end of an outcome.
fn fate(flow: &Flow, outcome: &Outcome) -> Result<Fate, String> {
    let packet = &outcome.packet;
    Ok(match &outcome.disposition {
        Disposition::Delivered | Disposition::Sent(_) => {
            let port = packet.destination_port().ok_or("an unknown port")?;
            let is_source = packet.source() == flow.source;
            Fate::Passed {
                destination: SocketAddr::new(packet.destination(), port),
                is_masqueraded: !is_source || packet.source_port() != Some(SOURCE_PORT),
            }
        }
        Disposition::Rejected(_) => Fate::Rejected,
        Disposition::Dropped => Fate::Dropped,
        other => return Err(format!("{packet} {other}")),
    })
}

/// Installs the rules of a world by an engine over kernels in memory.
fn installed<P: ModePlanner>(world: &World) -> MemoryKernels<P::Object>
where
    P::Object: Send + Sync + 'static,
{
    let kernels = MemoryKernels::default();
    let mut engine = kernels.engine_of::<P>(world.config.clone());
    engine.set_addresses(world.node.addresses());
    apply(&mut engine, world.events());
    let report = sync(&mut engine, &mut Duration::default());
    assert!(report.is_success(), "{report}");
    kernels
}
