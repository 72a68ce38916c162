//! `-m bpf`: BPF programs.

use std::borrow::Cow;
use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::{extension, word_values};

extension! {
    /// Matches packets by a BPF program: `-m bpf --object-pinned /sys/fs/bpf/filter`.
    ///
    /// iptables requires exactly one option.
    pub struct Bpf<'a> = "-m bpf" {
        /// Instructions of classic BPF.
        bytecode: Option<Bytecode> = "--bytecode",
        /// Path of a pinned program of extended BPF.
        object_pinned: Option<Cow<'a, str>> = "--object-pinned",
    }
    complete |it| it.bytecode.is_some() != it.object_pinned.is_some();
}

/// Instructions of classic BPF, printed as `"1,6 0 0 1"`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Bytecode(Vec<BpfInstruction>);

/// An instruction of classic BPF: `struct sock_filter`.
///
/// Exhaustive: the fields of the structure.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct BpfInstruction {
    /// Code of the operation.
    pub code: u16,
    /// Number of instructions to skip if the comparison is true.
    pub jump_true: u8,
    /// Number of instructions to skip if the comparison is false.
    pub jump_false: u8,
    /// Operand.
    pub operand: u32,
}

impl Bytecode {
    /// Maximum number of instructions: `XT_BPF_MAX_NUM_INSTR`.
    const MAX: usize = 64;

    /// Creates a program of 1 to 64 instructions, otherwise returns `None`.
    pub fn new(instructions: impl Into<Vec<BpfInstruction>>) -> Option<Self> {
        let instructions = instructions.into();
        (1..=Self::MAX)
            .contains(&instructions.len())
            .then_some(Self(instructions))
    }

    /// Returns the instructions.
    pub fn get(&self) -> &[BpfInstruction] {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let (count, rest) = text.split_once(',')?;
        let count: usize = count.parse().ok()?;
        let instruction = |text: &str| {
            let mut words = text.split_ascii_whitespace();
            let instruction = BpfInstruction {
                code: words.next()?.parse().ok()?,
                jump_true: words.next()?.parse().ok()?,
                jump_false: words.next()?.parse().ok()?,
                operand: words.next()?.parse().ok()?,
            };
            words.next().is_none().then_some(instruction)
        };
        let rest = rest.strip_suffix(',').unwrap_or(rest);
        let all: Option<Vec<_>> = rest.split(',').map(instruction).collect();
        Self::new(all.filter(|all| all.len() == count)?)
    }
}

impl fmt::Display for Bytecode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}", self.0.len())?;
        for it in &self.0 {
            write!(
                f,
                ",{} {} {} {}",
                it.code, it.jump_true, it.jump_false, it.operand
            )?;
        }
        f.write_str("\"")
    }
}

word_values! { Bytecode = Bytecode::parse, }

const XT_BPF_MODE_BYTECODE: u16 = 0;

/// `struct xt_bpf_info_v1`. A pinned program has no encoding: the structure contains a file
/// descriptor.
impl Structure for Bpf<'_> {
    const NAME: &'static str = "bpf";
    const REVISION: u32 = 1;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let program = self.bytecode.as_ref()?.get();
        let unused = Bytecode::MAX.checked_sub(program.len())?;
        out.u16(XT_BPF_MODE_BYTECODE)
            .u16(program.len().try_into().ok()?);
        // The file descriptor.
        out.zeros(4);
        for one in program {
            out.u16(one.code).u8(one.jump_true).u8(one.jump_false);
            out.u32(one.operand);
        }
        out.zeros(unused * 8).pointer();
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (mode, count) = (reader.u16()?, reader.u16()?);
        reader.bytes(4)?;
        if mode != XT_BPF_MODE_BYTECODE {
            return None;
        }
        let mut instruction = || {
            let code = reader.u16()?;
            let [jump_true, jump_false] = reader.array()?;
            Some(BpfInstruction {
                code,
                jump_true,
                jump_false,
                operand: reader.u32()?,
            })
        };
        let program: Option<Vec<_>> = (0..count).map(|_| instruction()).collect();
        Some(Self {
            bytecode: Some(Bytecode::new(program?)?),
            object_pinned: None,
        })
    }
}
