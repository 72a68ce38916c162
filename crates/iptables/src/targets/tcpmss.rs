//! `-j TCPMSS`: maximum segment size of TCP.

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::extension;

extension! {
    /// Changes the maximum segment size: `-p tcp -j TCPMSS --clamp-mss-to-pmtu`.
    ///
    /// iptables requires exactly one option.
    pub struct Tcpmss = "-j TCPMSS" {
        /// Maximum segment size in bytes.
        set: Option<u16> = "--set-mss",
        /// Whether the size follows the MTU of the path.
        clamp_to_pmtu: bool = "--clamp-mss-to-pmtu",
    }
    complete |it| it.set.is_some() != it.clamp_to_pmtu;
}

/// The size follows the MTU of the path.
const XT_TCPMSS_CLAMP_PMTU: u16 = 0xffff;

/// `struct xt_tcpmss_info`.
impl Structure for Tcpmss {
    const NAME: &'static str = "TCPMSS";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.u16(match self.clamp_to_pmtu {
            true => XT_TCPMSS_CLAMP_PMTU,
            false => self.set?,
        });
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let size = reader.u16()?;
        let clamp_to_pmtu = size == XT_TCPMSS_CLAMP_PMTU;
        Some(Self {
            set: (!clamp_to_pmtu).then_some(size),
            clamp_to_pmtu,
        })
    }
}
