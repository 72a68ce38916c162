//! Targets that pass packets to processes: `-j NFLOG`, `-j NFQUEUE` and `-j AUDIT`.

use std::fmt;

use crate::field::{Field, Text, extension, names};
use crate::number::Range;
use crate::options::{Extension, Parsed, Unsupported, Values, set_flag, set_once};

extension! {
    /// Logs to a netlink multicast group: `-j NFLOG --nflog-group 5`.
    pub struct Nflog<'a> = "-j NFLOG" {
        /// Prefix of messages, at most 63 bytes.
        prefix: Option<Text<'a>> = "--nflog-prefix",
        /// Group. Default: 0.
        group: Option<u16> = "--nflog-group",
        /// Number of bytes to copy, which the kernel ignores.
        range: Option<u32> = "--nflog-range",
        /// Number of bytes to copy.
        size: Option<u32> = "--nflog-size",
        /// Number of packets to collect before they are sent. Default: 0.
        threshold: Option<u16> = "--nflog-threshold",
    }
    complete |it| it.range.is_none() || it.size.is_none();
    normalize |it| {
        it.group = it.group.filter(|group| *group != 0);
        it.threshold = it.threshold.filter(|threshold| *threshold != 0);
        if let Some(Text(prefix)) = &mut it.prefix
            && prefix.len() > MAX_PREFIX
        {
            let fits = |(at, letter): &(usize, char)| at + letter.len_utf8() <= MAX_PREFIX;
            let kept: String = prefix.char_indices().take_while(fits).map(|(_, it)| it).collect();
            *prefix = kept.into();
        }
    };
}

/// Maximum length of a prefix, to which iptables cuts it.
const MAX_PREFIX: usize = 63;

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

extension! {
    /// Creates audit records: `-j AUDIT --type drop`.
    pub struct Audit = "-j AUDIT" {
        /// Type of the record; iptables requires one.
        ty: Option<AuditType> = "--type",
    }
}

names! {
    /// Types of audit records.
    pub enum AuditType by str::eq_ignore_ascii_case {
        /// The packet is accepted.
        Accept = "accept",
        /// The packet is dropped.
        Drop = "drop",
        /// The packet is rejected.
        Reject = "reject",
    }
}
