//! The extension `skbinfo`.

/// Values that the iptables target `SET --map-set` writes to matching packets.
///
/// A kernel omits values of 0 in dumps.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct SkbInfo {
    /// Packet mark and mask. The bits of the mask are replaced.
    pub mark: Option<(u32, u32)>,
    /// Packet priority, a traffic class: major number in the upper 16 bits, minor
    /// number in the lower 16 bits.
    pub priority: Option<u32>,
    /// Number of the hardware queue.
    pub queue: Option<u16>,
}

impl SkbInfo {
    /// Creates an extension that writes no value.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the packet mark and the mask of the bits to replace.
    #[must_use]
    pub fn with_mark(mut self, mark: u32, mask: u32) -> Self {
        self.mark = Some((mark, mask));
        self
    }

    /// Sets the packet priority: the major and minor number of a traffic class.
    #[must_use]
    pub fn with_priority(mut self, major: u16, minor: u16) -> Self {
        self.priority = Some(u32::from(major) << 16 | u32::from(minor));
        self
    }

    /// Sets the number of the hardware queue.
    #[must_use]
    pub fn with_queue(mut self, queue: u16) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Returns whether both write the same values. A missing value equals 0.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let values = |it: &Self| {
            (
                it.mark.unwrap_or_default(),
                it.priority.unwrap_or_default(),
                it.queue.unwrap_or_default(),
            )
        };
        values(self) == values(other)
    }

    /// Returns the value of `IPSET_ATTR_SKBMARK`: the mark, then the mask.
    pub(crate) fn wire_mark(&self) -> Option<u64> {
        self.mark
            .map(|(mark, mask)| u64::from(mark) << 32 | u64::from(mask))
    }

    /// Sets the mark from the value of `IPSET_ATTR_SKBMARK`.
    pub(crate) fn set_wire_mark(&mut self, value: u64) {
        let [a, b, c, d, e, f, g, h] = value.to_be_bytes();
        let halves = [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes);
        self.mark = Some((halves[0], halves[1]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_in_the_upper_half() {
        let info = SkbInfo::default().with_mark(1, 0xff);
        assert_eq!(info.wire_mark(), Some(0x1_0000_00ff));
        let mut again = SkbInfo::default();
        again.set_wire_mark(0x1_0000_00ff);
        assert_eq!(again, info);
        assert!(info.is_equivalent(&again.with_queue(0)));
        assert!(!info.is_equivalent(&again.with_queue(1)));
        assert_eq!(info.with_priority(1, 16).priority, Some(0x1_0010));
    }
}
