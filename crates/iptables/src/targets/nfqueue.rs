//! `-j NFQUEUE`: queues of packets for processes.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer, flags};
use crate::options::field::Field;
use crate::options::number::Range;
use crate::options::{Extension, Parsed, Unsupported, Values, set_flag, set_once};

/// Passes packets to a process with a queue: `-j NFQUEUE --queue-num 5`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Nfqueue {
    /// Number of the queue. Default: 0.
    pub queue: Option<u16>,
    /// Queues to which packets are distributed. Excludes `queue`.
    pub balance: Option<Range<u16>>,
    /// Whether packets are accepted if no process listens.
    pub bypass: bool,
    /// Whether the CPU selects the queue of `balance`.
    pub cpu_fanout: bool,
}

impl Nfqueue {
    /// Passes packets to the queue with this number.
    pub fn new(queue: u16) -> Self {
        Self {
            queue: Some(queue),
            ..Self::default()
        }
    }
}

/// Parses two different queues; the last number is reserved.
fn parse_queues(text: &str) -> Option<Range<u16>> {
    let all = Range::from(0..=u16::MAX - 1);
    let range = Range::parse(text, ':', all)?;
    (text.contains(':') && range.first < range.last && range.last < u16::MAX).then_some(range)
}

impl<'a> Extension<'a> for Nfqueue {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &[
            "--queue-num",
            "--queue-balance",
            "--queue-bypass",
            "--queue-cpu-fanout",
        ]
    }

    fn min_options(&self) -> usize {
        let has_both = self.queue.is_some() && self.balance.is_some();
        if has_both || self.cpu_fanout && self.balance.is_none() {
            usize::MAX
        } else {
            0
        }
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--queue-num" if self.balance.is_some() => Err(Unsupported),
            // Queue 0 is the default.
            "--queue-num" => {
                self.queue.fill(option, values)?;
                self.queue = self.queue.filter(|queue| *queue != 0);
                Ok(true)
            }
            "--queue-balance" => set_once(&mut self.balance, values.parse(parse_queues)?),
            "--queue-bypass" => set_flag(&mut self.bypass),
            "--queue-cpu-fanout" => set_flag(&mut self.cpu_fanout),
            _ => Ok(false),
        }
    }
}

impl fmt::Display for Nfqueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-j NFQUEUE")?;
        match self.balance {
            Some(Range { first, last }) => write!(f, " --queue-balance {first}:{last}")?,
            None => write!(f, " --queue-num {}", self.queue.unwrap_or(0))?,
        }
        self.bypass.write("--queue-bypass", f)?;
        self.cpu_fanout.write("--queue-cpu-fanout", f)
    }
}

// Flags of `struct xt_NFQ_info_v3`.
const NFQ_FLAG_BYPASS: u16 = 1;
const NFQ_FLAG_CPU_FANOUT: u16 = 2;

/// `struct xt_NFQ_info_v3`.
impl Structure for Nfqueue {
    const NAME: &'static str = "NFQUEUE";
    const REVISION: u32 = 3;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let (first, count) = match self.balance {
            Some(Range { first, last }) => (first, last.checked_sub(first)?.checked_add(1)?),
            None => (self.queue.unwrap_or(0), 1),
        };
        out.u16(first).u16(count).u16(flags([
            (self.bypass, NFQ_FLAG_BYPASS),
            (self.cpu_fanout, NFQ_FLAG_CPU_FANOUT),
        ]));
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (first, count, flags) = (reader.u16()?, reader.u16()?, reader.u16()?);
        let last = first.checked_add(count.checked_sub(1)?)?;
        let is_single = count == 1;
        Some(Self {
            queue: Some(first).filter(|queue| is_single && *queue != 0),
            balance: (!is_single).then_some(Range { first, last }),
            bypass: flags & NFQ_FLAG_BYPASS != 0,
            cpu_fanout: flags & NFQ_FLAG_CPU_FANOUT != 0,
        })
    }
}
