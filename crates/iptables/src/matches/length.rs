//! `-m length`, `-m tcpmss` and `-m quota`: numbers of bytes.

use crate::field::extension;
use crate::negatable::Negatable;
use crate::number::Range;

extension! {
    /// Matches the packet length: `-m length --length 0:1500`.
    pub struct Length = "-m length" {
        /// Length in bytes, with the IPv4 header or without the IPv6 header.
        length: Option<Negatable<Range<u16>>> = "--length",
    }
}

extension! {
    /// Matches the maximum segment size of TCP: `-p tcp -m tcpmss --mss 1400:1500`.
    pub struct Tcpmss = "-m tcpmss" {
        /// Maximum segment size in bytes.
        mss: Option<Negatable<Range<u16>>> = "--mss",
    }
}

extension! {
    /// Matches until a number of bytes has passed: `-m quota --quota 1000000`.
    pub struct Quota = "-m quota" {
        /// Number of bytes.
        quota: Option<Negatable<u64>> = "--quota",
    }
}
