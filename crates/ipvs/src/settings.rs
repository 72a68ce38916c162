//! What holds for all of IPVS in a network namespace.

use std::time::Duration;

/// How long connections are kept without packets, in whole seconds.
///
/// To set zero is to leave a timeout as it is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Timeouts {
    /// Established connections of TCP.
    pub tcp: Duration,
    /// Connections of TCP that one end has closed.
    pub tcp_fin: Duration,
    /// Connections of UDP.
    pub udp: Duration,
}

/// What the kernel says of its IPVS.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Info {
    /// The version: three numbers.
    pub version: [u8; 3],
    /// How many buckets the table of connections has.
    pub table_size: u32,
}
