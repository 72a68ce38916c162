//! Byte strings with inline storage for short values.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// Maximum length of inline storage.
const INLINE_LEN: usize = 30;

/// A byte string. Up to 30 bytes are stored inline, without an allocation.
///
/// Holds keys and data of elements and operands of expressions, in the layout of
/// the kernel's registers: each field is padded to four bytes.
#[derive(Clone)]
pub struct Bytes(Repr);

#[derive(Clone)]
enum Repr {
    /// Length and bytes.
    ///
    /// Invariant: bytes beyond the length are zero.
    Inline(u8, [u8; INLINE_LEN]),
    Heap(Vec<u8>),
}

const _: () = assert!(size_of::<Bytes>() <= 32);

impl Bytes {
    /// Returns an empty string.
    #[inline]
    pub fn new() -> Self {
        Self(Repr::Inline(0, [0; INLINE_LEN]))
    }

    /// Returns `len` copies of `byte`.
    pub fn repeat(byte: u8, len: usize) -> Self {
        Self::from(&*vec![byte; len])
    }

    /// Appends bytes.
    #[inline]
    pub fn extend(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Repr::Inline(len, kept) => {
                let start = usize::from(*len);
                let end = start + bytes.len();
                match kept.get_mut(start..end) {
                    Some(room) => {
                        room.copy_from_slice(bytes);
                        *len = end as u8;
                    }
                    None => self.0 = Repr::Heap([&**self, bytes].concat()),
                }
            }
            Repr::Heap(kept) => kept.extend_from_slice(bytes),
        }
    }

    /// Appends a number of bytes that is known to the compiler, which is faster.
    #[inline]
    pub(crate) fn push<const N: usize>(&mut self, bytes: [u8; N]) {
        if let Repr::Inline(len, kept) = &mut self.0
            && let start = usize::from(*len)
            && let Some(room) = kept.get_mut(start..start + N)
        {
            room.copy_from_slice(&bytes);
            *len += N as u8;
            return;
        }
        self.extend(&bytes);
    }

    /// Returns the inline storage: the length, and the bytes with zeros after them.
    #[inline]
    pub(crate) fn inline(&self) -> Option<(u8, &[u8; INLINE_LEN])> {
        match &self.0 {
            Repr::Inline(len, bytes) => Some((*len, bytes)),
            Repr::Heap(_) => None,
        }
    }

    /// Appends zero bytes until the length is a multiple of four.
    #[inline]
    pub(crate) fn pad(&mut self) {
        const ZEROS: [u8; 3] = [0; 3];
        let padded = self.len().next_multiple_of(4);
        match &mut self.0 {
            // The unused bytes are already zero.
            Repr::Inline(len, _) if padded <= INLINE_LEN => *len = padded as u8,
            _ => self.extend(ZEROS.get(..padded - self.len()).unwrap_or_default()),
        }
    }

    /// Returns the bytes as a mutable slice.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Repr::Inline(len, kept) => kept.get_mut(..usize::from(*len)).unwrap_or_default(),
            Repr::Heap(kept) => kept,
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline(len, kept) => kept.get(..usize::from(*len)).unwrap_or_default(),
            Repr::Heap(kept) => kept,
        }
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Eq for Bytes {}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Ord for Bytes {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl PartialOrd for Bytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Bytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        let mut kept = Self::new();
        kept.extend(bytes);
        kept
    }
}

impl From<Vec<u8>> for Bytes {
    /// Keeps the allocation of bytes that are not stored inline.
    fn from(bytes: Vec<u8>) -> Self {
        match bytes.len() {
            0..=INLINE_LEN => Self::from(&*bytes),
            _ => Self(Repr::Heap(bytes)),
        }
    }
}

impl<const N: usize> From<[u8; N]> for Bytes {
    fn from(bytes: [u8; N]) -> Self {
        Self::from(&bytes[..])
    }
}

/// Combines two byte strings bytewise, up to the length of the shorter one.
pub(crate) fn zip(one: &[u8], other: &[u8], join: impl Fn(u8, u8) -> u8) -> Bytes {
    let mut joined = Bytes::new();
    for (a, b) in one.iter().zip(other) {
        joined.extend(&[join(*a, *b)]);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_fills_the_last_register() {
        let mut bytes = Bytes::from([1, 2, 3, 4, 5]);
        bytes.pad();
        assert_eq!(&*bytes, [1, 2, 3, 4, 5, 0, 0, 0]);
        bytes.pad();
        assert_eq!(bytes.len(), 8);
    }

    #[test]
    fn a_vector_becomes_the_same_string_as_its_slice() {
        for len in [0, 1, INLINE_LEN, INLINE_LEN + 1, 300] {
            let bytes = vec![7; len];
            assert_eq!(Bytes::from(bytes.clone()), Bytes::from(&*bytes));
        }
    }

    #[test]
    fn a_string_that_outgrows_inline_storage_keeps_its_content() {
        let mut bytes = Bytes::new();
        let mut expected = Vec::new();
        for byte in 0..40 {
            bytes.extend(&[byte]);
            expected.push(byte);
            assert_eq!(*bytes, *expected);
            assert_eq!(bytes, Bytes::from(&*expected));
            bytes.as_mut_slice().reverse();
            expected.reverse();
        }
        bytes.extend(&[1]);
        bytes.pad();
        assert_eq!((bytes.len(), &bytes[40..]), (44, &[1, 0, 0, 0][..]));
    }
}
