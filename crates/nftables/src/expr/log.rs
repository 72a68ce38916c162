//! `log`: packet logs.

use bitflags::bitflags;
use vipline_netlink::DecodeError;
use vipline_netlink::attr::{Attrs, put_be16, put_be32};

use super::{ExprType, name, put_name};
use crate::Name;

// enum nft_log_attributes
const NFTA_LOG_GROUP: u16 = 1;
const NFTA_LOG_PREFIX: u16 = 2;
const NFTA_LOG_SNAPLEN: u16 = 3;
const NFTA_LOG_QTHRESHOLD: u16 = 4;
const NFTA_LOG_LEVEL: u16 = 5;
const NFTA_LOG_FLAGS: u16 = 6;
// linux/netfilter/nf_log.h
const NF_LOG_TCPSEQ: u32 = 1 << 0;
const NF_LOG_TCPOPT: u32 = 1 << 1;
const NF_LOG_IPOPT: u32 = 1 << 2;
const NF_LOG_UID: u32 = 1 << 3;
const NF_LOG_MACDECODE: u32 = 1 << 5;

/// The `log` expression: logs the packet to the kernel log or to an nfnetlink_log group.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Log {
    /// Prefix of the entry; at most 127 bytes.
    pub prefix: Option<Name>,
    /// nfnetlink_log group; `None` for the kernel log.
    pub group: Option<u16>,
    /// Number of packet bytes copied to a group.
    pub snaplen: Option<u32>,
    /// Number of packets queued before they are sent to a group.
    pub queue_threshold: Option<u16>,
    /// Log level; kernel log only. `None` is `warn`, also in dumps.
    pub level: Option<LogLevel>,
    /// Additional content; kernel log only.
    pub flags: LogFlags,
}

bitflags! {
    /// Additional log content: `NF_LOG_*` of `linux/netfilter/nf_log.h`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct LogFlags: u32 {
        /// TCP sequence numbers.
        const TCP_SEQUENCE = NF_LOG_TCPSEQ;
        /// TCP options.
        const TCP_OPTIONS = NF_LOG_TCPOPT;
        /// IP options.
        const IP_OPTIONS = NF_LOG_IPOPT;
        /// The user ID of the sending socket.
        const UID = NF_LOG_UID;
        /// The link-layer header.
        const LINK = NF_LOG_MACDECODE;
        /// Unknown flags are preserved.
        const _ = !0;
    }
}

/// A log level: `enum nft_log_level`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[expect(missing_docs, reason = "the names are those of syslog")]
pub enum LogLevel {
    Emergency,
    Alert,
    Critical,
    Error,
    Warning,
    Notice,
    Info,
    Debug,
    Audit,
}

impl LogLevel {
    const ALL: [(Self, &'static str); 9] = [
        (Self::Emergency, "emerg"),
        (Self::Alert, "alert"),
        (Self::Critical, "crit"),
        (Self::Error, "err"),
        (Self::Warning, "warn"),
        (Self::Notice, "notice"),
        (Self::Info, "info"),
        (Self::Debug, "debug"),
        (Self::Audit, "audit"),
    ];

    pub(crate) fn as_str(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(level, _)| *level == self)
            .map_or("warn", |(_, text)| text)
    }
}

impl ExprType for Log {
    const NAME: &'static str = "log";

    fn encode(&self, out: &mut Vec<u8>) {
        put_name(out, NFTA_LOG_PREFIX, self.prefix.as_ref());
        if let Some(group) = self.group {
            put_be16(out, NFTA_LOG_GROUP, group);
        }
        if let Some(snaplen) = self.snaplen {
            put_be32(out, NFTA_LOG_SNAPLEN, snaplen);
        }
        if let Some(threshold) = self.queue_threshold {
            put_be16(out, NFTA_LOG_QTHRESHOLD, threshold);
        }
        if let Some(level) = self.level {
            put_be32(out, NFTA_LOG_LEVEL, level as u32);
        }
        if !self.flags.is_empty() {
            put_be32(out, NFTA_LOG_FLAGS, self.flags.bits());
        }
    }

    fn decode(attrs: Attrs<'_>) -> Result<Option<Self>, DecodeError> {
        let mut log = Self::default();
        for attr in attrs {
            let attr = attr?;
            match attr.kind {
                NFTA_LOG_PREFIX if attr.str()?.is_empty() => {}
                NFTA_LOG_PREFIX => log.prefix = Some(name(&attr)?),
                NFTA_LOG_GROUP => log.group = Some(attr.be16()?),
                NFTA_LOG_SNAPLEN => log.snaplen = Some(attr.be32()?),
                NFTA_LOG_QTHRESHOLD => log.queue_threshold = Some(attr.be16()?),
                NFTA_LOG_LEVEL => match LogLevel::ALL.get(attr.be32()? as usize) {
                    Some((level, _)) => log.level = Some(*level),
                    None => return Ok(None),
                },
                NFTA_LOG_FLAGS => log.flags = LogFlags::from_bits_retain(attr.be32()?),
                _ => return Ok(None),
            }
        }
        // The kernel dumps its default level even if none was given.
        log.level = log.level.filter(|level| *level != LogLevel::Warning);
        Ok(Some(log))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::tests::assert_identity;

    #[test]
    fn logs_round_trip() {
        assert_identity(Log::default());
        assert_identity(Log {
            prefix: Some(Name::new("x: ").unwrap()),
            group: Some(5),
            snaplen: Some(10),
            queue_threshold: Some(4),
            ..Log::default()
        });
        let (level, flags) = (Some(LogLevel::Audit), LogFlags::UID);
        assert_identity(Log {
            level,
            flags,
            ..Log::default()
        });
    }
}
