//! Targets of TCP: `-j TCPMSS`, `-j TCPOPTSTRIP` and `-j SYNPROXY`.

use std::fmt;

use crate::field::{extension, word_values};
use crate::number;

extension! {
    /// Changes the maximum segment size: `-p tcp -j TCPMSS --clamp-mss-to-pmtu`.
    ///
    /// iptables requires exactly one option.
    pub struct Tcpmss = "-j TCPMSS" {
        /// Maximum segment size in bytes.
        set: Option<u16> = "--set-mss",
        /// Whether the size follows the MTU of the path.
        clamp_to_pmtu: bool = "--clamp-mss-to-pmtu",
    }
    complete |it| it.set.is_some() != it.clamp_to_pmtu;
}

extension! {
    /// Replaces TCP options by no operation: `-p tcp -j TCPOPTSTRIP --strip-options 2`.
    pub struct Tcpoptstrip = "-j TCPOPTSTRIP" {
        /// Numbers of options.
        options: Option<TcpOptions> = "--strip-options",
    }
    complete |_| true;
}

extension! {
    /// Completes TCP handshakes before a connection is tracked: `-p tcp -j SYNPROXY --mss
    /// 1460`.
    pub struct Synproxy = "-j SYNPROXY" {
        /// Whether selective acknowledgements are sent.
        sack_perm: bool = "--sack-perm",
        /// Whether timestamps are sent.
        timestamp: bool = "--timestamp",
        /// Window scale, 0 to 14.
        wscale: Option<u8> = "--wscale",
        /// Maximum segment size in bytes.
        mss: Option<u16> = "--mss",
        /// Whether explicit congestion notification is supported.
        ecn: bool = "--ecn",
    }
    complete |it| it.wscale.is_none_or(|wscale| wscale < 15);
}

/// Numbers of TCP options, printed as `2,3`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct TcpOptions(Vec<u8>);

/// Names of TCP options.
const NAMES: [(&str, u8); 6] = [
    ("wscale", 3),
    ("mss", 2),
    ("sack-permitted", 4),
    ("sack", 5),
    ("timestamp", 8),
    ("md5", 19),
];

impl TcpOptions {
    /// Creates a list. Returns `None` for the numbers 0 and 1, which are no options, for
    /// a repeated number and for an empty list.
    pub fn new(options: impl Into<Vec<u8>>) -> Option<Self> {
        let mut options = options.into();
        options.sort_unstable();
        let is_twice = options.windows(2).any(|pair| pair[0] == pair[1]);
        (*options.first()? > 1 && !is_twice).then_some(Self(options))
    }

    /// Returns the numbers in ascending order.
    pub fn get(&self) -> &[u8] {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let option = |text: &str| match NAMES.iter().find(|(name, _)| *name == text) {
            Some((_, option)) => Some(*option),
            None => number::parse_as(text),
        };
        Self::new(text.split(',').map(option).collect::<Option<Vec<_>>>()?)
    }
}

impl fmt::Display for TcpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, option) in self.0.iter().enumerate() {
            write!(f, "{}{option}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

word_values! { TcpOptions = TcpOptions::parse, }
