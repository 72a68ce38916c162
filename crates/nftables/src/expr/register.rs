//! Registers: they pass values from one kernel expression to the next.

/// A register, by the kernel's number (`enum nft_registers`).
///
/// There are 16 words of 4 bytes. Every fourth word also has the number of a legacy
/// 16-byte register, which the kernel uses in dumps.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Register(u32);

impl Register {
    /// The verdict register.
    #[doc(alias = "NFT_REG_VERDICT")]
    pub const VERDICT: Self = Self(0);

    /// Returns the register that starts at this 4-byte word, 0 to 15.
    #[doc(alias = "NFT_REG32_00")]
    pub const fn word(word: u8) -> Self {
        if word.is_multiple_of(4) {
            Self(word as u32 / 4 + 1)
        } else {
            Self(word as u32 + 8)
        }
    }

    /// Returns the register with this number.
    pub const fn from_number(number: u32) -> Self {
        match number {
            8..=23 => Self::word((number - 8) as u8),
            number => Self(number),
        }
    }

    /// Returns the number of the register.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns the first word, or `None` for the verdict and for invalid numbers.
    pub const fn start(self) -> Option<u8> {
        match self.0 {
            number @ 1..=4 => Some((number as u8 - 1) * 4),
            number @ 8..=23 => Some(number as u8 - 8),
            _ => None,
        }
    }
}

/// Load into or store from a register.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Access {
    /// Loads into this register.
    Load(Register),
    /// Stores from this register.
    Store(Register),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fourth_word_has_a_legacy_number() {
        assert_eq!(Register::word(0).number(), 1);
        assert_eq!(Register::word(1).number(), 9);
        assert_eq!(Register::word(4).number(), 2);
        assert_eq!(Register::word(11).number(), 19);
        assert_eq!(Register::from_number(8), Register::word(0));
    }

    #[test]
    fn a_register_returns_its_word() {
        for word in 0..16 {
            assert_eq!(Register::word(word).start(), Some(word));
        }
        assert_eq!(Register::VERDICT.start(), None);
        assert_eq!(Register::from_number(77).start(), None);
    }
}
