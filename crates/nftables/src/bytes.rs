//! Short byte strings that need no allocation.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// The length up to which a string is kept in place.
const SHORT: usize = 30;

/// A byte string that is kept in place up to 30 bytes.
///
/// Keys and data of elements and the operands of expressions are such strings:
/// each field padded to four bytes, as the kernel's registers hold it.
#[derive(Clone)]
pub struct Bytes(Kept);

#[derive(Clone)]
enum Kept {
    /// The length, and the bytes.
    ///
    /// Invariant: bytes beyond the length are zero.
    Here(u8, [u8; SHORT]),
    Elsewhere(Vec<u8>),
}

const _: () = assert!(size_of::<Bytes>() <= 32);

impl Bytes {
    /// Returns an empty string.
    #[inline]
    pub fn new() -> Self {
        Self(Kept::Here(0, [0; SHORT]))
    }

    /// Returns so many times this byte.
    pub fn repeat(byte: u8, len: usize) -> Self {
        Self::from(&*vec![byte; len])
    }

    /// Appends bytes.
    #[inline]
    pub fn extend(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Kept::Here(len, kept) => {
                let start = usize::from(*len);
                let end = start + bytes.len();
                match kept.get_mut(start..end) {
                    Some(room) => {
                        room.copy_from_slice(bytes);
                        *len = end as u8;
                    }
                    None => self.0 = Kept::Elsewhere([&**self, bytes].concat()),
                }
            }
            Kept::Elsewhere(kept) => kept.extend_from_slice(bytes),
        }
    }

    /// Appends zero bytes until the length is a multiple of four.
    #[inline]
    pub(crate) fn pad(&mut self) {
        const ZEROS: [u8; 3] = [0; 3];
        let padded = self.len().next_multiple_of(4);
        match &mut self.0 {
            // They are there already.
            Kept::Here(len, _) if padded <= SHORT => *len = padded as u8,
            _ => self.extend(ZEROS.get(..padded - self.len()).unwrap_or_default()),
        }
    }

    /// Returns the bytes to change them in place.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Kept::Here(len, kept) => kept.get_mut(..usize::from(*len)).unwrap_or_default(),
            Kept::Elsewhere(kept) => kept,
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kept::Here(len, kept) => kept.get(..usize::from(*len)).unwrap_or_default(),
            Kept::Elsewhere(kept) => kept,
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

impl<const N: usize> From<[u8; N]> for Bytes {
    fn from(bytes: [u8; N]) -> Self {
        Self::from(&bytes[..])
    }
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
    fn a_string_that_outgrows_its_place_stays_the_same_string() {
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
