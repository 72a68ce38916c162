//! Short byte strings that need no allocation.

use std::ops::Deref;

use smallvec::SmallVec;

/// A byte string that is kept in place up to 32 bytes.
///
/// Keys and data of elements and the operands of expressions are such strings:
/// each field padded to four bytes, as the kernel's registers hold it.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Bytes(SmallVec<[u8; 32]>);

impl Bytes {
    /// Returns an empty string.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns so many times this byte.
    pub fn repeat(byte: u8, len: usize) -> Self {
        Self(SmallVec::from_elem(byte, len))
    }

    /// Appends bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends zero bytes until the length is a multiple of four.
    pub(crate) fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Returns the bytes to change them in place.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }
}

impl<const N: usize> From<[u8; N]> for Bytes {
    fn from(bytes: [u8; N]) -> Self {
        Self(SmallVec::from_slice(&bytes))
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
}
