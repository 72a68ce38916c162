//! Conntrack sysctls of the configuration.

use std::path::Path;
use std::{fs, thread};

use tracing::warn;

use super::{ROOT, TCP_BE_LIBERAL, write};
use crate::config::Conntrack;

const MAX: &str = "net/netfilter/nf_conntrack_max";
const BUCKETS: &str = "net/netfilter/nf_conntrack_buckets";
const TCP_ESTABLISHED: &str = "net/netfilter/nf_conntrack_tcp_timeout_established";
const TCP_CLOSE_WAIT: &str = "net/netfilter/nf_conntrack_tcp_timeout_close_wait";
const UDP: &str = "net/netfilter/nf_conntrack_udp_timeout";
const UDP_STREAM: &str = "net/netfilter/nf_conntrack_udp_timeout_stream";

/// List of online CPUs, as ranges.
const CPUS: &str = "/sys/devices/system/cpu/online";

/// Maximum number of tracked connections that results from `maxPerCore`.
const MAX_BY_CPUS: u64 = 1 << 20;
/// Tracked connections per hash bucket.
const CONNECTIONS_PER_BUCKET: u64 = 4;

/// Sets the configured sysctls. Logs a warning for each sysctl that cannot be
/// set.
pub fn set(conntrack: &Conntrack) {
    for reason in set_in(Path::new(ROOT), conntrack, cpus()) {
        warn!("{reason}; run kube-proxy --init-only first, with the privilege to write sysctls");
    }
}

/// Sets the configured sysctls and returns an error for each failure.
fn set_in(root: &Path, conntrack: &Conntrack, cpus: u64) -> Vec<String> {
    let seconds = |name, value: crate::duration::GoDuration| (name, value.positive().as_secs());
    let max = max(conntrack, cpus);
    let wanted = [
        (MAX, max),
        (BUCKETS, buckets(root, max)),
        seconds(TCP_ESTABLISHED, conntrack.tcp_established_timeout),
        seconds(TCP_CLOSE_WAIT, conntrack.tcp_close_wait_timeout),
        (TCP_BE_LIBERAL, conntrack.tcp_be_liberal.into()),
        seconds(UDP, conntrack.udp_timeout),
        seconds(UDP_STREAM, conntrack.udp_stream_timeout),
    ];
    // Zero leaves a sysctl unchanged.
    let wanted = wanted.into_iter().filter(|(_, value)| *value > 0);
    let set = wanted.filter_map(|(name, value)| {
        let error = write(root, name, &value.to_string()).err()?;
        let path = root.join(name);
        let path = path.display();
        Some(format!(
            "{path} cannot be set to {value}, as configured: {error}"
        ))
    });
    set.collect()
}

/// Returns the configured `nf_conntrack_max`; 0 leaves it unchanged.
///
/// The limit by CPUs also applies if the configured minimum is higher.
fn max(conntrack: &Conntrack, cpus: u64) -> u64 {
    let (per_core, min) = (conntrack.max_per_core, conntrack.min);
    let [per_core, min] = [per_core, min].map(|number| u64::try_from(number).unwrap_or(0));
    match per_core.saturating_mul(cpus) {
        0 => 0,
        scaled if scaled > MAX_BY_CPUS => MAX_BY_CPUS,
        scaled => scaled.max(min),
    }
}

/// Returns the number of hash buckets for `max` connections; 0 if the table is
/// large enough.
fn buckets(root: &Path, max: u64) -> u64 {
    let wanted = max / CONNECTIONS_PER_BUCKET;
    let present = fs::read_to_string(root.join(BUCKETS));
    let present: Option<u64> = present.ok().and_then(|text| text.trim().parse().ok());
    match present {
        Some(present) if present < wanted => wanted,
        _ => 0,
    }
}

/// Returns the number of online CPUs, regardless of the affinity of this
/// process.
fn cpus() -> u64 {
    let online = fs::read_to_string(CPUS).ok();
    let count = online.and_then(|ranges| count(ranges.trim()));
    count.unwrap_or_else(|| thread::available_parallelism().map_or(1, |count| count.get() as u64))
}

/// Counts the CPUs of a list such as `0-3,8`.
fn count(ranges: &str) -> Option<u64> {
    let mut sum = 0;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let [first, last] = [first, last].map(|number| number.parse::<u64>().ok());
        sum += last?.checked_sub(first?)? + 1;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use testkit::netns::Netns;
    use testkit::scoped::Directory;

    use super::*;
    use crate::duration::GoDuration;

    const ALL: [&str; 7] = [
        MAX,
        BUCKETS,
        TCP_ESTABLISHED,
        TCP_CLOSE_WAIT,
        TCP_BE_LIBERAL,
        UDP,
        UDP_STREAM,
    ];

    /// Creates a directory like `/proc/sys` with these values.
    fn folder(values: [u64; 7]) -> Directory {
        let folder = Directory::new().unwrap();
        fs::create_dir_all(folder.path().join("net/netfilter")).unwrap();
        for (name, value) in ALL.into_iter().zip(values) {
            fs::write(folder.path().join(name), format!("{value}\n")).unwrap();
        }
        folder
    }

    fn values(folder: &Directory) -> [u64; 7] {
        ALL.map(|name| {
            let text = fs::read_to_string(folder.path().join(name)).unwrap();
            text.trim().parse().unwrap()
        })
    }

    #[test]
    fn only_configured_sysctls_are_set() {
        let folder = folder([1, 1, 432_000, 60, 0, 30, 120]);
        let usual = Conntrack::default();
        assert_eq!(set_in(folder.path(), &usual, 2), Vec::<String>::new());
        let expected = [131_072, 32_768, 86_400, 3600, 0, 30, 120];
        assert_eq!(values(&folder), expected);

        let other = Conntrack {
            max_per_core: 0,
            tcp_established_timeout: GoDuration::ZERO,
            tcp_be_liberal: true,
            udp_timeout: GoDuration::from_secs(10),
            udp_stream_timeout: GoDuration::from_secs(50),
            ..usual.clone()
        };
        assert_eq!(set_in(folder.path(), &other, 2), Vec::<String>::new());
        let expected = [131_072, 32_768, 86_400, 3600, 1, 10, 50];
        assert_eq!(values(&folder), expected);
        // The liberal setting is never unset.
        set_in(folder.path(), &usual, 2);
        assert_eq!(values(&folder), expected);
    }

    #[test]
    fn equal_values_are_not_written() {
        let folder = folder([131_072, 65_536, 86_400, 3600, 0, 30, 120]);
        for name in ALL {
            let file = fs::File::options()
                .append(true)
                .open(folder.path().join(name));
            file.unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        assert!(set_in(folder.path(), &Conntrack::default(), 4).is_empty());
        for name in ALL {
            let written = fs::metadata(folder.path().join(name)).unwrap().modified();
            assert_eq!(written.unwrap(), SystemTime::UNIX_EPOCH, "{name}");
        }
    }

    #[test]
    fn the_limit_follows_the_cpus_up_to_a_million() {
        let usual = Conntrack::default();
        for (cpus, expected) in [
            (1, 131_072),
            (4, 131_072),
            (8, 262_144),
            (32, 1_048_576),
            (64, 1_048_576),
        ] {
            assert_eq!(max(&usual, cpus), expected, "{cpus}");
        }
        let of = |max_per_core, min| Conntrack {
            max_per_core,
            min,
            ..usual.clone()
        };
        assert_eq!(max(&of(0, 5_000_000), 8), 0);
        assert_eq!(max(&of(-1, 5), 8), 0);
        assert_eq!(max(&of(1, 5_000_000), 8), 5_000_000);
        assert_eq!(max(&of(1_000_000, 5_000_000), 8), MAX_BY_CPUS);
    }

    #[test]
    fn cpus_are_counted_in_the_kernels_list_format() {
        for (list, expected) in [
            ("0", Some(1)),
            ("0-3", Some(4)),
            ("0-3,8,10-11", Some(7)),
            ("", None),
            ("3-0", None),
            ("x", None),
        ] {
            assert_eq!(count(list), expected, "{list}");
        }
        assert!(cpus() > 0);
    }

    #[test]
    fn a_failure_is_reported_and_the_other_sysctls_are_set() {
        // The table size is global: a network namespace cannot change it.
        let read = |name| fs::read_to_string(Path::new(ROOT).join(name)).unwrap();
        let more: u64 = read(MAX).trim().parse::<u64>().unwrap() + 4;
        let conntrack = Conntrack {
            max_per_core: 1,
            min: i32::try_from(more).unwrap(),
            ..Conntrack::default()
        };
        let error = Netns::new().unwrap().run(|| {
            let error = set_in(Path::new(ROOT), &conntrack, 1);
            assert_eq!(read(TCP_ESTABLISHED), "86400\n");
            error
        });
        let expected = format!("{MAX} cannot be set to {more}, as configured: ");
        assert!(error[0].contains(&expected), "{error:?}");
        assert!(error.len() <= 2, "{error:?}");
    }
}
