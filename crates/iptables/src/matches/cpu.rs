//! `-m cpu`: the CPU that processes the packet.

use crate::field::extension;
use crate::negatable::Negatable;

extension! {
    /// Matches the CPU that processes the packet: `-m cpu --cpu 0`.
    pub struct Cpu = "-m cpu" {
        /// Number of the CPU.
        cpu: Option<Negatable<u32>> = "--cpu",
    }
}
