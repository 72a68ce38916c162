//! `-j NFLOG`: messages to a netlink multicast group.

use crate::extensions::structure::Structure;
use crate::options::field::{Text, extension};

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

/// Rules contain the expression `log` of nf_tables, not a structure.
impl Structure for Nflog<'_> {
    const NAME: &'static str = "NFLOG";
}
