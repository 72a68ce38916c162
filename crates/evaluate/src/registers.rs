//! Registers with values.

use vipline_nftables::Bytes;
use vipline_nftables::expr::Register;

use super::cause::Cause;

/// Number of bytes of all registers.
const LEN: usize = 64;
/// Number of bytes of a register word.
const WORD: usize = 4;

/// The registers of a rule.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    bytes: [u8; LEN],
    is_written: [bool; LEN],
}

impl Registers {
    pub(super) fn new() -> Self {
        Self {
            bytes: [0; LEN],
            is_written: [false; LEN],
        }
    }

    /// Writes a value, padded with zeros to whole words, as the kernel does.
    pub(super) fn write(&mut self, register: Register, value: &[u8]) -> Result<(), Cause> {
        let start = start(register)?;
        let end = start + value.len().next_multiple_of(WORD);
        let (Some(bytes), Some(written)) = (
            self.bytes.get_mut(start..end),
            self.is_written.get_mut(start..end),
        ) else {
            return Err(Cause::Register);
        };
        bytes.fill(0);
        written.fill(true);
        for (byte, value) in bytes.iter_mut().zip(value) {
            *byte = *value;
        }
        Ok(())
    }

    /// Writes a number in host byte order.
    pub(super) fn write_u32(&mut self, register: Register, value: u32) -> Result<(), Cause> {
        self.write(register, &value.to_ne_bytes())
    }

    /// Reads a value of `len` bytes.
    pub(super) fn read(&self, register: Register, len: usize) -> Result<Bytes, Cause> {
        let start = start(register)?;
        let end = start + len;
        let written = self.is_written.get(start..end).ok_or(Cause::Register)?;
        if !written.iter().all(|written| *written) {
            return Err(Cause::Register);
        }
        self.bytes
            .get(start..end)
            .map(Bytes::from)
            .ok_or(Cause::Register)
    }
}

/// Returns the first byte of a register.
fn start(register: Register) -> Result<usize, Cause> {
    let word = register.start().ok_or(Cause::Register)?;
    Ok(usize::from(word) * WORD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_padded_to_whole_words() {
        let mut registers = Registers::new();
        registers.write(Register::word(1), &[0xff; 8]).unwrap();
        registers
            .write(Register::word(1), &[1, 2, 3, 4, 5])
            .unwrap();
        let value = registers.read(Register::word(1), 8).unwrap();
        assert_eq!(&*value, [1, 2, 3, 4, 5, 0, 0, 0]);
    }

    #[test]
    fn a_register_that_no_expression_wrote_is_an_error() {
        let mut registers = Registers::new();
        registers.write(Register::word(0), &[1]).unwrap();
        assert_eq!(registers.read(Register::word(0), 8), Err(Cause::Register));
        assert_eq!(registers.read(Register::word(15), 8), Err(Cause::Register));
        assert_eq!(
            registers.write(Register::VERDICT, &[1]),
            Err(Cause::Register)
        );
    }
}
