//! Structures of xtables: fields in order, in host byte order unless stated.

use std::net::IpAddr;

use vipline_nftables::Bytes;

use crate::Family;

/// Alignment of structures: `XT_ALIGN`.
const ALIGN: usize = 8;

/// Writer of a structure.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// Appends bytes.
    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends zero bytes.
    pub(super) fn zeros(mut self, count: usize) -> Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    /// Appends bytes and zeros up to a length. Returns `None` if the bytes are longer.
    pub(super) fn padded(mut self, bytes: &[u8], len: usize) -> Option<Self> {
        let rest = len.checked_sub(bytes.len())?;
        self.0.reserve(len);
        Some(self.bytes(bytes).zeros(rest))
    }

    /// Appends a string with at least one NUL byte in `len` bytes. Returns `None` if
    /// the string is longer or contains a NUL byte.
    pub(super) fn text(self, text: &str, len: usize) -> Option<Self> {
        if text.len() >= len || text.contains('\0') {
            return None;
        }
        self.padded(text.as_bytes(), len)
    }

    /// Appends one byte.
    pub(super) fn u8(self, value: u8) -> Self {
        self.bytes(&[value])
    }

    /// Appends two bytes in host byte order.
    pub(super) fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    /// Appends two bytes in network byte order.
    pub(super) fn be16(self, value: u16) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends four bytes in host byte order.
    pub(super) fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    /// Appends eight bytes in host byte order.
    pub(super) fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    /// Appends `union nf_inet_addr`. Returns `None` for an address of another family.
    pub(super) fn address(self, address: IpAddr, family: Family) -> Option<Self> {
        match (address, family) {
            (IpAddr::V4(address), Family::V4) => Some(self.bytes(&address.octets()).zeros(12)),
            (IpAddr::V6(address), Family::V6) => Some(self.bytes(&address.octets())),
            _ => None,
        }
    }

    /// Returns the structure, padded to the alignment.
    pub(super) fn finish(mut self) -> Bytes {
        self.0.resize(self.0.len().next_multiple_of(ALIGN), 0);
        Bytes::from(self.0)
    }
}

/// Reader of a structure. Methods return `None` beyond its end.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Reads `len` bytes.
    pub(super) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    /// Reads `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    /// Reads a string of `len` bytes, which ends at the first NUL byte.
    pub(super) fn text(&mut self, len: usize) -> Option<&'a str> {
        let bytes = self.bytes(len)?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        str::from_utf8(bytes.get(..end)?).ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_ne_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(super) fn be16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    /// Reads `union nf_inet_addr`.
    pub(super) fn address(&mut self, family: Family) -> Option<IpAddr> {
        Some(address_of(self.array()?, family))
    }
}

/// Returns the address in `union nf_inet_addr`.
pub(super) fn address_of(bytes: [u8; 16], family: Family) -> IpAddr {
    match family {
        Family::V4 => {
            let [a, b, c, d, ..] = bytes;
            [a, b, c, d].into()
        }
        Family::V6 => bytes.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_structure_is_padded_to_eight_bytes() {
        let bytes = Writer::default().u8(1).u16(2).be16(3).u32(4).finish();
        assert_eq!(bytes.len(), 16);
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.u8(), reader.u16()), (Some(1), Some(2)));
        assert_eq!((reader.be16(), reader.u32()), (Some(3), Some(4)));
        assert_eq!(
            (reader.bytes(7).map(<[u8]>::len), reader.u8()),
            (Some(7), None)
        );
    }

    #[test]
    fn a_string_has_a_final_nul_byte() {
        assert!(Writer::default().text("abcd", 4).is_none());
        assert!(Writer::default().text("a\0b", 4).is_none());
        let bytes = Writer::default().text("abc", 4).unwrap().finish();
        assert_eq!(&*bytes, b"abc\0\0\0\0\0");
        assert_eq!(Reader::new(&bytes).text(4), Some("abc"));
        assert_eq!(Reader::new(b"abcd").text(4), None);
    }
}
