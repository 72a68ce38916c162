//! Registers, which values pass through from one expression to the next.

/// A register, by the kernel's number (`enum nft_registers`).
///
/// Sixteen words of four bytes; each fourth word also has the old name of a
/// register of sixteen bytes, which the kernel prefers when it dumps.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Register(u32);

impl Register {
    /// The register of the verdict.
    #[doc(alias = "NFT_REG_VERDICT")]
    pub const VERDICT: Self = Self(0);

    /// Returns the register that starts at this word of four bytes.
    #[doc(alias = "NFT_REG32_00")]
    pub const fn word(word: u8) -> Self {
        if word % 4 == 0 {
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

    /// Returns the word it starts at; none for the verdict and for nonsense.
    pub const fn start(self) -> Option<u8> {
        match self.0 {
            number @ 1..=4 => Some((number as u8 - 1) * 4),
            number @ 8..=23 => Some(number as u8 - 8),
            _ => None,
        }
    }
}

/// Whether an expression reads something into a register or sets it from one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Access {
    /// Reads it into this register.
    Load(Register),
    /// Sets it from this register.
    Store(Register),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fourth_word_has_the_old_name() {
        assert_eq!(Register::word(0).number(), 1);
        assert_eq!(Register::word(1).number(), 9);
        assert_eq!(Register::word(4).number(), 2);
        assert_eq!(Register::word(11).number(), 19);
        assert_eq!(Register::from_number(8), Register::word(0));
    }

    #[test]
    fn a_register_knows_its_word() {
        for word in 0..16 {
            assert_eq!(Register::word(word).start(), Some(word));
        }
        assert_eq!(Register::VERDICT.start(), None);
        assert_eq!(Register::from_number(77).start(), None);
    }
}
