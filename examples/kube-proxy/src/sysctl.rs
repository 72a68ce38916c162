//! Conntrack sysctls of the configuration, and remedies for sysctls that cannot be set.

use std::path::Path;
use std::{fs, thread};

use proxy_core::Sysctl;
use proxy_core::sysctl::{CONNTRACK_TCP_BE_LIBERAL, Error, ROOT, read_in};
use tracing::warn;

use crate::config::Conntrack;
use crate::failure::chain;

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

/// Formats an error with the remedy, in one line.
pub fn with_remedy(error: &Error) -> String {
    let or = error.sysctl.disable_flag.map_or_else(String::new, |flag| {
        format!(", or disable the feature with {flag}")
    });
    let reason = chain(error);
    format!("{reason}; run kube-proxy --init-only first, with the privilege to write sysctls{or}")
}

/// Sets the configured conntrack sysctls. Logs a warning for each sysctl that cannot be set.
pub fn set_conntrack(conntrack: &Conntrack) {
    for error in set_in(Path::new(ROOT), conntrack, cpus()) {
        warn!("{}", with_remedy(&error));
    }
}

/// Sets the configured sysctls and returns an error for each failure.
fn set_in(root: &Path, conntrack: &Conntrack, cpus: u64) -> Vec<Error> {
    let seconds = |name, value: daemon::duration::GoDuration| (name, value.positive().as_secs());
    let max = max(conntrack, cpus);
    let wanted = [
        (MAX, max),
        (BUCKETS, buckets(root, max)),
        seconds(TCP_ESTABLISHED, conntrack.tcp_established_timeout),
        seconds(TCP_CLOSE_WAIT, conntrack.tcp_close_wait_timeout),
        (CONNTRACK_TCP_BE_LIBERAL, conntrack.tcp_be_liberal.into()),
        seconds(UDP, conntrack.udp_timeout),
        seconds(UDP_STREAM, conntrack.udp_stream_timeout),
    ];
    // Zero leaves a sysctl unchanged.
    let wanted = wanted.into_iter().filter(|(_, value)| *value > 0);
    let failed = wanted.filter_map(|(name, value)| {
        let sysctl = Sysctl::new(name, value.to_string().into(), "as configured");
        sysctl.apply_in(root).err()
    });
    failed.collect()
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
    let present = read_in(root, BUCKETS).and_then(|text| text.parse().ok());
    match present {
        Some(present) if wanted > present => wanted,
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

    use proxy_core::{Config, Ipvs, Mode};
    use testkit::netns::Netns;
    use testkit::scoped::Directory;
    use vipline_service_model::NodePortAddresses;

    use super::*;
    use daemon::duration::GoDuration;

    const ALL: [&str; 7] = [
        MAX,
        BUCKETS,
        TCP_ESTABLISHED,
        TCP_CLOSE_WAIT,
        CONNTRACK_TCP_BE_LIBERAL,
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
        assert!(set_in(folder.path(), &usual, 2).is_empty());
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
        assert!(set_in(folder.path(), &other, 2).is_empty());
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
        let error: Vec<_> = Netns::new().unwrap().run(|| {
            let errors = set_in(Path::new(ROOT), &conntrack, 1);
            assert_eq!(read(TCP_ESTABLISHED), "86400\n");
            errors.iter().map(with_remedy).collect()
        });
        let expected = format!("{MAX} cannot be set to {more}, as configured: ");
        assert!(error[0].contains(&expected), "{error:?}");
        assert!(error.len() <= 2, "{error:?}");
    }

    #[test]
    fn an_error_names_the_sysctl_and_the_remedy() {
        let folder = Directory::new().unwrap();
        let config = Config::default().with_node_port_addresses(NodePortAddresses::All);
        let route_localnet = Mode::Iptables.sysctls(&config, "6.1.0").remove(0);
        let error = with_remedy(&route_localnet.apply_in(folder.path()).unwrap_err());
        for words in [
            "net/ipv4/conf/all/route_localnet cannot be set to 1",
            "os error 2",
            "--init-only",
            "--iptables-localhost-nodeports=false",
        ] {
            assert!(error.contains(words), "{words}: {error}");
        }
        assert_eq!(error.lines().count(), 1, "{error}");
        let config = Config::default().with_ipvs(Ipvs::default());
        let ipvs = Mode::Ipvs.sysctls(&config, "5.4.0");
        let conn_reuse = ipvs.iter().find(|it| it.name.ends_with("conn_reuse_mode"));
        let error = with_remedy(&conn_reuse.unwrap().apply_in(folder.path()).unwrap_err());
        let words = "conn_reuse_mode cannot be set to 0, as required by mode ipvs: ";
        assert!(error.contains(words), "{error}");
        assert!(
            error.ends_with("with the privilege to write sysctls"),
            "{error}"
        );
    }
}
