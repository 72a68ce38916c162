//! Memory and descriptors of a process.

use std::fs;

/// Returns the resident memory of a process, in KiB.
pub(crate) fn memory(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.unwrap().split_whitespace().next().unwrap();
    number.parse().unwrap()
}

/// Returns the number of open descriptors of a process.
pub(crate) fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// Returns the median.
pub(crate) fn median(values: &[usize]) -> usize {
    let mut values = values.to_vec();
    values.sort_unstable();
    values[values.len() / 2]
}
