//! Tables of the legacy variant, as the kernel lists them.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::fs;
use std::io::{self, ErrorKind};

use vipline_service_model::Family;

/// Returns the names of the tables of a family in the network namespace of the calling
/// thread. A program of the legacy variant creates a table when it reads it.
pub(super) fn legacy_tables(family: Family) -> io::Result<Vec<String>> {
    let path = match family {
        Family::V4 => "/proc/thread-self/net/ip_tables_names",
        Family::V6 => "/proc/thread-self/net/ip6_tables_names",
    };
    match fs::read_to_string(path) {
        Ok(names) => Ok(names.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
