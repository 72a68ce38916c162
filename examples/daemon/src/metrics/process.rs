//! Metrics of the process.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};

use super::exposition::{Page, Type, float};

/// Adds process metrics from `/proc`.
pub fn add_to(page: &mut Page) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
    let stat = Stat::parse(&stat);
    let open = fs::read_dir("/proc/self/fd").map(Iterator::count).ok();
    let ticks = float(clock_ticks_per_second());
    let since_boot = stat.map(|stat| float(stat.start) / ticks);
    for (name, kind, help, value) in [
        (
            "process_cpu_seconds_total",
            Type::Counter,
            "CPU time of the process in seconds.",
            stat.map(|stat| float(stat.processor) / ticks),
        ),
        (
            "process_max_fds",
            Type::Gauge,
            "Maximum number of open file descriptors.",
            limit(&limits, "Max open files"),
        ),
        (
            "process_open_fds",
            Type::Gauge,
            "Number of open file descriptors.",
            open.map(float),
        ),
        (
            "process_resident_memory_bytes",
            Type::Gauge,
            "Resident memory in bytes.",
            stat.map(|stat| float(stat.resident) * float(page_size())),
        ),
        (
            "process_start_time_seconds",
            Type::Gauge,
            "Start time of the process in seconds since 1970.",
            since_boot.and_then(|passed| Some(boot_time(&boot)? + passed)),
        ),
        (
            "process_virtual_memory_bytes",
            Type::Gauge,
            "Virtual memory in bytes.",
            stat.map(|stat| float(stat.size)),
        ),
        (
            "process_virtual_memory_max_bytes",
            Type::Gauge,
            "Maximum virtual memory in bytes.",
            limit(&limits, "Max address space"),
        ),
    ] {
        if let Some(value) = value {
            page.add(name, kind, help).value(&[], value);
        }
    }
}

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stat {
    /// CPU time in ticks.
    processor: u64,
    /// Start time of the process, in ticks since boot.
    start: u64,
    /// Virtual memory in bytes.
    size: u64,
    /// Resident memory in pages.
    resident: u64,
}

impl Stat {
    /// Parses the fields by their numbers in proc_pid_stat(5).
    fn parse(text: &str) -> Option<Self> {
        // The second field is a name that may contain any character.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            processor: field(14)? + field(15)?,
            start: field(22)?,
            size: field(23)?,
            resident: field(24)?,
        })
    }
}

/// Returns the boot time in seconds since 1970.
fn boot_time(text: &str) -> Option<f64> {
    let time = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    time.trim().parse().ok()
}

/// Returns the soft limit in a line of `/proc/PID/limits`.
fn limit(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(float(u64::MAX)),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 90 0 0 0 11 22 0 0 20 0 3 0 5000 4096000 77 18446744073709551615";
        let expected = Stat {
            processor: 33,
            start: 5000,
            size: 4_096_000,
            resident: 77,
        };
        assert_eq!(Stat::parse(stat), Some(expected));
        assert_eq!(Stat::parse("7 (a) S 1"), None);
        assert_eq!(
            boot_time("cpu 1\nbtime 1763742812\n"),
            Some(1_763_742_812.0)
        );
        let limits = "Limit  Soft Limit  Hard Limit  Units\n\
                      Max open files            1024                 524288               files\n\
                      Max address space         unlimited            unlimited            bytes\n";
        assert_eq!(limit(limits, "Max open files"), Some(1024.0));
        assert_eq!(limit(limits, "Max address space"), Some(2_f64.powi(64)));
    }

    #[test]
    fn process_metrics_of_this_process_exist() {
        let mut page = Page::default();
        add_to(&mut page);
        let page = page.finish();
        for name in [
            "cpu_seconds_total",
            "open_fds",
            "resident_memory_bytes",
            "start_time_seconds",
        ] {
            let start = format!("\nprocess_{name} ");
            let line = page
                .split(&start)
                .nth(1)
                .and_then(|rest| rest.lines().next());
            let value: f64 = line.unwrap().parse().unwrap();
            assert!(value >= 0.0, "{name}: {value}");
        }
    }
}
