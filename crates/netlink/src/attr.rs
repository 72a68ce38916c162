//! Encoding and decoding of attributes.
//!
//! An attribute is a `u16` length that includes the header of four bytes, a `u16`
//! type whose two upper bits are flags, the value, and padding to four bytes
//! (`struct nlattr` of `linux/netlink.h`).
//!
//! The `put_*` functions append to a vector; they cannot fail and cannot panic.
//! The length has 16 bits: the caller must ensure that no value, including nested
//! attributes, is longer than [`MAX_VALUE`] bytes.

use netlink_packet_core::{NLA_ALIGNTO, NLA_HEADER_SIZE, NLA_TYPE_MASK};

use crate::DecodeError;

/// `NLA_F_NESTED`: flag of a type whose value is attributes. The kernel does not set it in all
/// messages.
pub const NLA_F_NESTED: u16 = netlink_packet_core::NLA_F_NESTED;

/// `NLA_F_NET_BYTEORDER`: flag of a type whose value is a number in network byte order.
pub const NLA_F_NET_BYTEORDER: u16 = netlink_packet_core::NLA_F_NET_BYTEORDER;

/// Maximum length of the value of an attribute, in bytes.
pub const MAX_VALUE: usize = u16::MAX as usize - NLA_HEADER_SIZE;

/// Appends an attribute of the type `kind`, which may include flags (`NLA_F_*`).
pub fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    put_header(out, length(NLA_HEADER_SIZE + value.len()), kind);
    out.extend_from_slice(value);
    pad(out);
}

/// Appends an attribute with a `u8`.
pub fn put_u8(out: &mut Vec<u8>, kind: u16, value: u8) {
    put(out, kind, &[value]);
}

/// Appends an attribute with a `u16` in host byte order.
pub fn put_u16(out: &mut Vec<u8>, kind: u16, value: u16) {
    put(out, kind, &value.to_ne_bytes());
}

/// Appends an attribute with a `u32` in host byte order.
pub fn put_u32(out: &mut Vec<u8>, kind: u16, value: u32) {
    put(out, kind, &value.to_ne_bytes());
}

/// Appends an attribute with a `u64` in host byte order.
pub fn put_u64(out: &mut Vec<u8>, kind: u16, value: u64) {
    put(out, kind, &value.to_ne_bytes());
}

/// Appends an attribute with a `u16` in network byte order.
pub fn put_be16(out: &mut Vec<u8>, kind: u16, value: u16) {
    put(out, kind, &value.to_be_bytes());
}

/// Appends an attribute with a `u32` in network byte order.
pub fn put_be32(out: &mut Vec<u8>, kind: u16, value: u32) {
    put(out, kind, &value.to_be_bytes());
}

/// Appends an attribute with a `u64` in network byte order.
pub fn put_be64(out: &mut Vec<u8>, kind: u16, value: u64) {
    put(out, kind, &value.to_be_bytes());
}

/// Appends an attribute with a NUL-terminated string.
pub fn put_str(out: &mut Vec<u8>, kind: u16, value: &str) {
    let start = begin(out, kind);
    out.extend_from_slice(value.as_bytes());
    out.push(0);
    end(out, start);
}

/// Appends an attribute with `NLA_F_NESTED` that contains the attributes that `body`
/// appends.
///
/// ```
/// use vipline_netlink::attr::{Attrs, nest, put_be32};
///
/// let mut out = Vec::new();
/// nest(&mut out, 1, |out| put_be32(out, 7, 80));
/// let outer = Attrs::new(&out).next().expect("one attribute")?;
/// let inner = outer.attrs().next().expect("one attribute inside")?;
/// assert_eq!((outer.kind, inner.kind, inner.be32()?), (1, 7, 80));
/// # Ok::<(), vipline_netlink::DecodeError>(())
/// ```
pub fn nest(out: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = begin(out, kind | NLA_F_NESTED);
    body(out);
    end(out, start);
}

/// An iterator of the attributes in a slice.
///
/// After a malformed attribute the iterator returns an error, then ends.
#[derive(Clone, Copy, Debug)]
pub struct Attrs<'a> {
    rest: &'a [u8],
}

impl<'a> Attrs<'a> {
    /// Creates an iterator of all attributes in `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Result<Attr<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some((attr, rest)) = Attr::split_first(self.rest) else {
            self.rest = &[];
            return Some(Err(DecodeError::new("attribute header", 0, 0)));
        };
        self.rest = rest;
        Some(Ok(attr))
    }
}

/// An attribute.
///
/// The methods that return a number require a value of exactly that size, and
/// [`str`](Self::str) requires UTF-8. Otherwise they return a [`DecodeError`].
///
/// Exhaustive: an attribute is a type and a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Attr<'a> {
    /// Type without flags.
    pub kind: u16,
    /// Value without padding.
    pub value: &'a [u8],
}

impl<'a> Attr<'a> {
    /// Returns the first attribute and the bytes after its padding. Returns `None` if the
    /// length in its header is invalid.
    #[inline]
    fn split_first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let [first, second, kind @ ..]: [u8; NLA_HEADER_SIZE] = *bytes.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([first, second]));
        let value = bytes.get(NLA_HEADER_SIZE..length)?;
        let kind = u16::from_ne_bytes(kind) & NLA_TYPE_MASK;
        // As `NLA_ALIGN`. `next_multiple_of` divides, which is a quarter of the time that it
        // takes to decode a flow.
        let rest = bytes.get((length + NLA_ALIGNTO - 1) & !(NLA_ALIGNTO - 1)..);
        Some((Self { kind, value }, rest.unwrap_or_default()))
    }

    /// Returns the value as a `u8`.
    #[inline]
    pub fn u8(&self) -> Result<u8, DecodeError> {
        self.array("u8").map(u8::from_ne_bytes)
    }

    /// Returns the value as a `u16` in host byte order.
    #[inline]
    pub fn u16(&self) -> Result<u16, DecodeError> {
        self.array("u16").map(u16::from_ne_bytes)
    }

    /// Returns the value as a `u32` in host byte order.
    #[inline]
    pub fn u32(&self) -> Result<u32, DecodeError> {
        self.array("u32").map(u32::from_ne_bytes)
    }

    /// Returns the value as a `u64` in host byte order.
    #[inline]
    pub fn u64(&self) -> Result<u64, DecodeError> {
        self.array("u64").map(u64::from_ne_bytes)
    }

    /// Returns the value as a `u16` in network byte order.
    #[inline]
    pub fn be16(&self) -> Result<u16, DecodeError> {
        self.array("big-endian u16").map(u16::from_be_bytes)
    }

    /// Returns the value as a `u32` in network byte order.
    #[inline]
    pub fn be32(&self) -> Result<u32, DecodeError> {
        self.array("big-endian u32").map(u32::from_be_bytes)
    }

    /// Returns the value as a `u64` in network byte order.
    #[inline]
    pub fn be64(&self) -> Result<u64, DecodeError> {
        self.array("big-endian u64").map(u64::from_be_bytes)
    }

    /// Returns the value up to the first NUL byte as a string.
    pub fn str(&self) -> Result<&'a str, DecodeError> {
        let end = self.value.iter().position(|byte| *byte == 0);
        let text = end.map_or(Some(self.value), |end| self.value.get(..end));
        text.and_then(|text| std::str::from_utf8(text).ok())
            .ok_or_else(|| self.error("string"))
    }

    /// Returns the attributes nested in the value.
    #[inline]
    pub fn attrs(&self) -> Attrs<'a> {
        Attrs::new(self.value)
    }

    /// Creates the error of an attribute whose value is not a valid `expected`.
    #[cold]
    pub fn error(&self, expected: &'static str) -> DecodeError {
        DecodeError::new(expected, self.kind, self.value.len())
    }

    #[inline]
    fn array<const N: usize>(&self, expected: &'static str) -> Result<[u8; N], DecodeError> {
        self.value.try_into().map_err(|_| self.error(expected))
    }
}

/// Appends a header without its length, and returns its position.
fn begin(out: &mut Vec<u8>, kind: u16) -> usize {
    let start = out.len();
    put_header(out, 0, kind);
    start
}

fn put_header(out: &mut Vec<u8>, length: u16, kind: u16) {
    let ([a, b], [c, d]) = (length.to_ne_bytes(), kind.to_ne_bytes());
    out.extend_from_slice(&[a, b, c, d]);
}

/// Returns a length for a header.
///
/// A length of more than 16 bits becomes the maximum, so the kernel rejects the
/// message.
fn length(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

fn pad(out: &mut Vec<u8>) {
    let padded = out.len().next_multiple_of(4);
    if padded > out.len() {
        out.resize(padded, 0);
    }
}

/// Writes the length into the header at `start`, and appends padding.
fn end(out: &mut Vec<u8>, start: usize) {
    let length = length(out.len() - start);
    if let Some(field) = out.get_mut(start..start + 2) {
        field.copy_from_slice(&length.to_ne_bytes());
    }
    pad(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_an_attribute_excludes_its_padding() {
        let mut out = Vec::new();
        put_str(&mut out, 1, "lo");
        put_u8(&mut out, 2, 7);
        assert_eq!(out.len(), 16);
        let attrs: Vec<_> = Attrs::new(&out).map(Result::unwrap).collect();
        assert_eq!(attrs[0].value, b"lo\0");
        assert_eq!(attrs[0].str(), Ok("lo"));
        assert_eq!(attrs[1].u8(), Ok(7));
    }

    #[test]
    fn numbers_are_decoded_in_the_byte_order_of_their_encoding() {
        let mut out = Vec::new();
        put_u16(&mut out, 1, 0x0102);
        put_u32(&mut out, 2, 0x0102_0304);
        put_u64(&mut out, 3, 0x0102_0304_0506_0708);
        put_be16(&mut out, 4, 0x0102);
        put_be32(&mut out, 5, 0x0102_0304);
        put_be64(&mut out, 6, 0x0102_0304_0506_0708);
        let attrs: Vec<_> = Attrs::new(&out).map(Result::unwrap).collect();
        assert_eq!(attrs[0].u16(), Ok(0x0102));
        assert_eq!(attrs[1].u32(), Ok(0x0102_0304));
        assert_eq!(attrs[2].u64(), Ok(0x0102_0304_0506_0708));
        assert_eq!(attrs[3].value, [1, 2]);
        assert_eq!(attrs[3].be16(), Ok(0x0102));
        assert_eq!(attrs[4].be32(), Ok(0x0102_0304));
        assert_eq!(attrs[5].be64(), Ok(0x0102_0304_0506_0708));
    }

    #[test]
    fn a_value_of_the_wrong_size_is_an_error_that_names_the_attribute() {
        let attr = Attr {
            kind: 9,
            value: &[1, 2, 3],
        };
        let error = attr.be32().unwrap_err();
        assert_eq!(error, DecodeError::new("big-endian u32", 9, 3));
        assert_eq!(
            error.to_string(),
            "expected big-endian u32, found type 9 with 3 bytes"
        );
    }

    #[test]
    fn the_decoded_type_has_no_flags() {
        let mut out = Vec::new();
        put(&mut out, 0xc003, &[]);
        assert_eq!(Attrs::new(&out).next().unwrap().unwrap().kind, 3);
    }

    #[test]
    fn an_attribute_longer_than_its_slice_ends_the_iteration() {
        let mut out = Vec::new();
        put_u32(&mut out, 1, 1);
        out.extend_from_slice(&[9, 0, 2, 0, 1]);
        let mut attrs = Attrs::new(&out);
        assert!(attrs.next().unwrap().is_ok());
        assert!(attrs.next().unwrap().is_err());
        assert!(attrs.next().is_none());
    }

    #[test]
    fn a_truncated_header_and_a_length_shorter_than_the_header_are_errors() {
        for bytes in [&[4, 0, 1][..], &[3, 0, 1, 0], &[0, 0, 0, 0]] {
            let mut attrs = Attrs::new(bytes);
            assert!(attrs.next().unwrap().is_err(), "{bytes:?}");
            assert!(attrs.next().is_none());
        }
    }

    #[test]
    fn the_last_attribute_needs_no_padding() {
        let mut attrs = Attrs::new(&[5, 0, 1, 0, 7]);
        assert_eq!(attrs.next().unwrap().unwrap().u8(), Ok(7));
        assert!(attrs.next().is_none());
    }

    #[test]
    fn a_value_above_the_maximum_length_is_truncated_to_it() {
        let mut out = Vec::new();
        put(&mut out, 1, &vec![5; MAX_VALUE]);
        let attr = Attrs::new(&out).next().unwrap().unwrap();
        assert_eq!(attr.value.len(), MAX_VALUE);

        let mut out = Vec::new();
        put(&mut out, 1, &vec![5; MAX_VALUE + 1]);
        let attr = Attrs::new(&out).next().unwrap().unwrap();
        assert_eq!(attr.value.len(), MAX_VALUE);
    }
}
