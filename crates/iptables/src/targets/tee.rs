//! `-j TEE`: copies of packets.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::extensions::structure::{IFNAMSIZ, Reader, Structure, Writer};
use crate::options::field::extension;

extension! {
    /// Sends a copy of each packet to a host: `-j TEE --gateway 10.0.0.1`.
    pub struct Tee<'a> = "-j TEE" {
        /// Address of the host; iptables requires one.
        gateway: Option<IpAddr> = "--gateway",
        /// Output interface.
        out_interface: Option<Cow<'a, str>> = "--oif",
    }
    complete |it| it.gateway.is_some();
}

/// `struct xt_tee_tginfo`.
impl Structure for Tee<'_> {
    const NAME: &'static str = "TEE";
    const REVISION: u32 = 1;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let name = self.out_interface.as_deref().unwrap_or_default();
        out.address(self.gateway?)?.text(name, IFNAMSIZ)?.pointer();
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let gateway = Some(reader.address()?);
        let name = reader.text(IFNAMSIZ)?;
        Some(Self {
            gateway,
            out_interface: (!name.is_empty()).then(|| name.into()),
        })
    }
}
