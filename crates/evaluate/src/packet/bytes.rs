//! Bytes of a packet, as `payload` expressions read and write them.

use std::net::IpAddr;

use vipline_nftables::Bytes;
use vipline_nftables::expr::PayloadBase;

use super::{ICMP, ICMPV6, Packet, TCP, UDP};
use crate::cause::Cause;

/// `NFT_PAYLOAD_INNER_HEADER`
const INNER: u32 = 3;

/// Protocols with ports in the first four bytes: TCP, UDP, DCCP, SCTP and UDP-Lite.
const WITH_PORTS: [u8; 5] = [TCP, UDP, 33, 132, 136];

impl Packet {
    /// Returns whether the transport header starts with ports: TCP, UDP, DCCP, SCTP and UDP-Lite.
    pub fn has_ports(&self) -> bool {
        WITH_PORTS.contains(&self.protocol)
    }

    fn is_icmp(&self) -> bool {
        [ICMP, ICMPV6].contains(&self.protocol)
    }

    pub(super) fn source_port_offset(&self) -> Option<usize> {
        match () {
            () if self.is_later_fragment => None,
            () if self.has_ports() => Some(0),
            () if self.is_icmp() => Some(4),
            () => None,
        }
    }

    pub(super) fn destination_port_offset(&self) -> Option<usize> {
        match () {
            () if self.is_later_fragment => None,
            () if self.has_ports() => Some(2),
            () if self.is_icmp() => Some(0),
            () => None,
        }
    }

    /// Returns the length of the packet from the network header on, if it is known.
    pub fn total_len(&self) -> Option<u32> {
        let len = self.network.len() + self.transport.len();
        self.is_complete
            .then(|| u32::try_from(len).unwrap_or(u32::MAX))
    }

    /// Decrements the TTL or hop limit, if it is known. Returns false if it is exhausted.
    pub(crate) fn decrement_ttl(&mut self) -> bool {
        let at = if self.is_v6 { 7 } else { 8 };
        let Some(ttl) = self.network.get(at) else {
            return true;
        };
        if !self.is_v6 {
            self.network.forget(10, 2);
        }
        self.network.set(at, &[ttl.saturating_sub(1)]);
        ttl > 1
    }

    /// Changes the source address.
    pub(crate) fn set_source(&mut self, addr: IpAddr) {
        self.set_addr(addr, 12, 8);
    }

    /// Changes the destination address.
    pub(crate) fn set_destination(&mut self, addr: IpAddr) {
        self.set_addr(addr, 16, 24);
    }

    fn set_addr(&mut self, addr: IpAddr, v4: usize, v6: usize) {
        match addr {
            IpAddr::V4(addr) => self.network.set(v4, &addr.octets()),
            IpAddr::V6(addr) => self.network.set(v6, &addr.octets()),
        }
        self.forget_checksums();
    }

    /// Changes the source port or the ICMP identifier. `None`: an unknown port.
    pub(crate) fn set_source_port(&mut self, port: Option<u16>) {
        self.set_port(self.source_port_offset(), port);
    }

    /// Changes the destination port. `None`: an unknown port.
    pub(crate) fn set_destination_port(&mut self, port: Option<u16>) {
        self.set_port(self.destination_port_offset(), port);
    }

    fn set_port(&mut self, at: Option<usize>, port: Option<u16>) {
        let Some(at) = at else {
            return;
        };
        match port {
            Some(port) => self.transport.set(at, &port.to_be_bytes()),
            None => self.transport.forget(at, 2),
        }
        self.forget_checksums();
    }

    /// Makes checksums unknown: those of a changed packet are not computed.
    fn forget_checksums(&mut self) {
        if !self.is_v6 {
            self.network.forget(10, 2);
        }
        match self.protocol {
            TCP => self.transport.forget(16, 2),
            UDP => self.transport.forget(6, 2),
            ICMP | ICMPV6 => self.transport.forget(2, 2),
            _ => {}
        }
    }

    /// Reads bytes. Returns `None` beyond the end of the packet.
    ///
    /// # Errors
    ///
    /// [`Cause::Unknown`] if a byte is unknown.
    pub fn read(&self, base: PayloadBase, offset: u32, len: u32) -> Result<Option<Bytes>, Cause> {
        if base == PayloadBase::Link {
            return self.read_link(offset, len);
        }
        let Some(start) = self.start(base)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        for number in offset..offset.saturating_add(len) {
            let at = start + number as usize;
            if at >= self.network.len() + self.transport.len() && self.is_complete {
                return Ok(None);
            }
            let unknown = || Cause::unknown(format_args!("byte {number} of the {}", name(base)));
            let byte = match at.checked_sub(self.network.len()) {
                Some(at) => self.transport.get(at),
                None => self.network.get(at),
            };
            bytes.push(byte.ok_or_else(unknown)?);
        }
        Ok(Some(bytes.into()))
    }

    fn read_link(&self, offset: u32, len: u32) -> Result<Option<Bytes>, Cause> {
        let Some(link) = &self.link else {
            // A packet of a local process has no link-layer header yet.
            return match &self.input {
                None => Ok(None),
                Some(_) => Err(Cause::unknown("link-layer header")),
            };
        };
        let (from, len) = (offset as usize, len as usize);
        Ok(link.get(from..from.saturating_add(len)).map(Bytes::from))
    }

    /// Returns the offset of a header from the network header.
    ///
    /// `None`: the packet has no such header.
    fn start(&self, base: PayloadBase) -> Result<Option<usize>, Cause> {
        match base {
            PayloadBase::Network => Ok(Some(0)),
            _ if self.is_later_fragment => Ok(None),
            PayloadBase::Transport => Ok(Some(self.network.len())),
            PayloadBase::Other(INNER) => self.inner_start(),
            PayloadBase::Link => Err(Cause::unsupported("a change of the link-layer header")),
            PayloadBase::Other(number) => {
                Err(Cause::unsupported(format_args!("payload base {number}")))
            }
        }
    }

    /// Returns the offset of the payload after the transport header.
    fn inner_start(&self) -> Result<Option<usize>, Cause> {
        let header = match self.protocol {
            UDP => 8,
            TCP => {
                let offset = self.transport.get(12);
                let offset = offset.ok_or_else(|| Cause::unknown("length of the TCP header"))?;
                usize::from(offset >> 4) * 4
            }
            _ => return Ok(None),
        };
        Ok(Some(self.network.len() + header))
    }

    /// Overwrites bytes. Returns false if they are beyond the end of the packet.
    pub(crate) fn overwrite(
        &mut self,
        base: PayloadBase,
        offset: u32,
        bytes: &[u8],
    ) -> Result<bool, Cause> {
        let Some(start) = self.start(base)? else {
            return Ok(false);
        };
        let (first, end) = (start + offset as usize, bytes.len());
        if first + end > self.network.len() + self.transport.len() {
            return match self.is_complete {
                true => Ok(false),
                false => Err(Cause::unknown("length of the packet")),
            };
        }
        self.forget_checksums();
        for (at, byte) in (first..).zip(bytes) {
            match at.checked_sub(self.network.len()) {
                Some(at) => self.transport.set(at, &[*byte]),
                None => self.network.set(at, &[*byte]),
            }
        }
        Ok(true)
    }
}

fn name(base: PayloadBase) -> &'static str {
    match base {
        PayloadBase::Link => "link-layer header",
        PayloadBase::Network => "network header",
        PayloadBase::Transport => "transport header",
        PayloadBase::Other(_) => "payload",
    }
}
