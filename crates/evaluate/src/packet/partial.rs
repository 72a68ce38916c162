//! Bytes of which only some are known.

/// A byte string with unknown bytes.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct PartialBytes(Vec<Option<u8>>);

impl PartialBytes {
    /// Returns `len` unknown bytes.
    pub(super) fn unknown(len: usize) -> Self {
        Self(vec![None; len])
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<u8> {
        self.0.get(at).copied().flatten()
    }

    /// Returns a big-endian number of two bytes, if both are known.
    pub(super) fn u16(&self, at: usize) -> Option<u16> {
        Some(u16::from_be_bytes([self.get(at)?, self.get(at + 1)?]))
    }

    /// Returns an array, if all its bytes are known.
    pub(super) fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let mut array = [0; N];
        for (offset, byte) in array.iter_mut().enumerate() {
            *byte = self.get(at + offset)?;
        }
        Some(array)
    }

    /// Sets bytes within the length.
    pub(super) fn set(&mut self, at: usize, bytes: &[u8]) {
        for (place, byte) in self.0.iter_mut().skip(at).zip(bytes) {
            *place = Some(*byte);
        }
    }

    /// Makes bytes unknown.
    pub(super) fn forget(&mut self, at: usize, len: usize) {
        for place in self.0.iter_mut().skip(at).take(len) {
            *place = None;
        }
    }

    /// Appends known bytes.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.0.extend(bytes.iter().map(|byte| Some(*byte)));
    }

    /// Removes all bytes from `len` on.
    pub(super) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }
}

impl From<&[u8]> for PartialBytes {
    fn from(bytes: &[u8]) -> Self {
        let mut partial = Self::default();
        partial.extend(bytes);
        partial
    }
}
