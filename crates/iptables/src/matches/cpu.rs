//! `-m cpu`: the CPU that processes the packet.

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::extension;
use crate::options::negatable::Negatable;

extension! {
    /// Matches the CPU that processes the packet: `-m cpu --cpu 0`.
    pub struct Cpu = "-m cpu" {
        /// Number of the CPU.
        cpu: Option<Negatable<u32>> = "--cpu",
    }
}

/// `struct xt_cpu_info`.
impl Structure for Cpu {
    const NAME: &'static str = "cpu";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let cpu = self.cpu?;
        out.u32(*cpu.value()).u32(cpu.is_negated().into());
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let cpu = reader.u32()?;
        let cpu = Some(Negatable::new(reader.u32()? != 0, cpu));
        Some(Self { cpu })
    }
}
