//! Conntrack sysctls of the configuration, and remedies for sysctls that cannot be set.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::{fs, thread};

use proxy_core::sysctl::{CONNTRACK_TCP_BE_LIBERAL, Error, ROOT, read_in};
use proxy_core::{Sysctl, conntrack};
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

/// What the program is doing when a sysctl cannot be set. The advice depends on it: to run
/// `--init-only` first helps a proxy, and not `--init-only` itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    /// `--init-only`.
    Init,
    /// The start of a proxy, or `--oneshot`.
    Start,
}

/// Formats an error in one line, with what is missing and the remedy.
pub fn with_remedy(error: &Error, stage: Stage) -> String {
    let mut text = chain(error);
    if let Some(remedy) = remedy(error, stage) {
        text = format!("{text}; {remedy}");
    }
    if let Some(flag) = error.sysctl.disable_flag {
        text = format!("{text}, or do without it: {flag}");
    }
    text
}

/// Returns what is missing, and what to do about it.
///
/// Each cause needs another remedy. Below `net`, CAP_NET_ADMIN is as good as root, so an
/// unprivileged container with this capability lacks only a writable `/proc/sys`.
fn remedy(error: &Error, stage: Stage) -> Option<String> {
    let text = match error.source.kind() {
        // No container helps, privileged or not.
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied
            if is_read_only(&error.path) =>
        {
            "only the first network namespace of the machine can change it: set it there".to_owned()
        }
        ErrorKind::ReadOnlyFilesystem => match stage {
            Stage::Init => {
                "/proc/sys is read-only in this container: make the container privileged".to_owned()
            }
            Stage::Start => "/proc/sys is read-only in this container: run kube-proxy --init-only \
                             first, in a privileged container"
                .to_owned(),
        },
        ErrorKind::PermissionDenied => match stage {
            Stage::Init => {
                "CAP_NET_ADMIN is missing: run as root or with this capability".to_owned()
            }
            Stage::Start => {
                "CAP_NET_ADMIN is missing: run kube-proxy --init-only first, as root or \
                             with this capability"
                    .to_owned()
            }
        },
        ErrorKind::NotFound => match module(error.sysctl.name) {
            Some(module) => format!("the kernel does not have it: load the module {module}"),
            None => "the kernel does not have it".to_owned(),
        },
        _ => return None,
    };
    Some(text)
}

/// Returns whether nobody may write a file. Sysctls that belong to the whole machine, such
/// as the size of the conntrack table, have mode 0444 in all network namespaces except the
/// first, and even root gets EACCES.
fn is_read_only(path: &Path) -> bool {
    let mode = fs::metadata(path).map(|metadata| metadata.permissions().mode());
    mode.is_ok_and(|mode| mode & 0o222 == 0)
}

/// Returns the module that creates a sysctl.
fn module(name: &str) -> Option<&'static str> {
    let modules = [
        ("net/netfilter/nf_conntrack", "nf_conntrack"),
        ("net/ipv4/vs/", "ip_vs"),
    ];
    let mut modules = modules.into_iter();
    let found = modules.find(|(prefix, _)| name.starts_with(prefix));
    found.map(|(_, module)| module)
}

/// Sets the configured conntrack sysctls. Logs a warning for each sysctl that cannot be set.
pub fn set_conntrack(conntrack: &Conntrack, stage: Stage) {
    let root = Path::new(ROOT);
    load_if_absent(root, || {
        // The kernel loads the module for the request. If it cannot, the sysctls stay absent,
        // and the warnings say so.
        let _ = conntrack::Client::open().and_then(|mut client| client.usage());
    });
    for error in set_in(root, conntrack, cpus()) {
        warn!(
            "{}; {}",
            with_remedy(&error, stage),
            what_stays(root, &error)
        );
    }
}

/// Loads the module of connection tracking with `load` unless it is loaded.
///
/// On a node that has just booted nothing has used connection tracking yet, and its sysctls
/// do not exist. They get the kernel's defaults when the first rule loads the module, and
/// the proxy, which may not write sysctls, could not correct them any more.
fn load_if_absent(root: &Path, load: impl FnOnce()) {
    if read_in(root, TCP_ESTABLISHED).is_none() {
        load();
    }
}

/// Returns what holds instead of the configured value, for a warning.
fn what_stays(root: &Path, error: &Error) -> String {
    match read_in(root, error.sysctl.name) {
        Some(value) => format!("it stays {value}"),
        None => "continuing without it".to_owned(),
    }
}

/// Sets the configured sysctls and returns an error for each failure.
fn set_in(root: &Path, conntrack: &Conntrack, cpus: u64) -> Vec<Error> {
    let seconds = |value: daemon::duration::GoDuration| value.positive().as_secs();
    let max = max(conntrack, cpus);
    let keep_size = "--conntrack-max-per-core=0 (maxPerCore: 0 in section conntrack)";
    let wanted = [
        (MAX, at_least(root, MAX, max), Some(keep_size)),
        (
            BUCKETS,
            at_least(root, BUCKETS, max / CONNECTIONS_PER_BUCKET),
            Some(keep_size),
        ),
        (
            TCP_ESTABLISHED,
            seconds(conntrack.tcp_established_timeout),
            None,
        ),
        (
            TCP_CLOSE_WAIT,
            seconds(conntrack.tcp_close_wait_timeout),
            None,
        ),
        (
            CONNTRACK_TCP_BE_LIBERAL,
            conntrack.tcp_be_liberal.into(),
            None,
        ),
        (UDP, seconds(conntrack.udp_timeout), None),
        (UDP_STREAM, seconds(conntrack.udp_stream_timeout), None),
    ];
    // Zero leaves a sysctl unchanged.
    let wanted = wanted.into_iter().filter(|(_, value, _)| *value > 0);
    let failed = wanted.filter_map(|(name, value, disable_flag)| {
        let mut sysctl = Sysctl::new(name, value.to_string().into(), "as configured");
        sysctl.disable_flag = disable_flag;
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

/// Returns `wanted`, or 0 if the present value is as large.
///
/// The table never shrinks. Who gave the machine a larger one needs it, and a node that is a
/// container may read its size and not write it. Upstream 1.36 sets a lower limit as well, and
/// does not start on such nodes; kubernetes#142035 changes that.
fn at_least(root: &Path, name: &str, wanted: u64) -> u64 {
    let present = read_in(root, name).and_then(|text| text.parse().ok());
    match present {
        Some(present) if wanted <= present => 0,
        _ => wanted,
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
    fn the_table_never_shrinks_and_timeouts_do() {
        let folder = folder([262_144, 65_536, 432_000, 7200, 0, 300, 300]);
        assert!(set_in(folder.path(), &Conntrack::default(), 4).is_empty());
        let expected = [262_144, 65_536, 86_400, 3600, 0, 300, 300];
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
            let text = |error| with_remedy(error, Stage::Init);
            errors.iter().map(text).collect()
        });
        let expected = format!("{MAX} cannot be set to {more}, as configured: ");
        assert!(error[0].contains(&expected), "{error:?}");
        let words = "only the first network namespace of the machine can change it";
        assert!(error[0].contains(words), "{error:?}");
        assert!(error[0].contains("--conntrack-max-per-core=0"), "{error:?}");
        assert!(error.len() <= 2, "{error:?}");
    }

    #[test]
    fn an_error_names_the_sysctl_and_what_is_missing() {
        let folder = Directory::new().unwrap();
        let config = Config::default().with_node_port_addresses(NodePortAddresses::All);
        let route_localnet = Mode::Iptables.sysctls(&config, "6.1.0").remove(0);
        let error = route_localnet.apply_in(folder.path()).unwrap_err();
        let text = with_remedy(&error, Stage::Start);
        for words in [
            "net/ipv4/conf/all/route_localnet cannot be set to 1",
            "os error 2); the kernel does not have it",
            "--iptables-localhost-nodeports=false",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(text.lines().count(), 1, "{text}");
        let config = Config::default().with_ipvs(Ipvs::default());
        let ipvs = Mode::Ipvs.sysctls(&config, "5.4.0");
        let conn_reuse = ipvs.iter().find(|it| it.name.ends_with("conn_reuse_mode"));
        let error = conn_reuse.unwrap().apply_in(folder.path()).unwrap_err();
        let text = with_remedy(&error, Stage::Start);
        let words = "conn_reuse_mode cannot be set to 0, as required by mode ipvs: ";
        assert!(text.contains(words), "{text}");
        assert!(text.ends_with("load the module ip_vs"), "{text}");
    }

    #[test]
    fn the_remedy_follows_the_cause_and_is_never_what_was_just_done() {
        let folder = folder([0; 7]);
        let text = |kind: ErrorKind, stage| {
            let error = Sysctl::new(UDP, "30".into(), "as configured");
            let mut error = error.apply_in(Path::new("/nonexistent")).unwrap_err();
            error.path = folder.path().join(UDP);
            error.source = kind.into();
            with_remedy(&error, stage)
        };
        for (kind, cause) in [
            (ErrorKind::ReadOnlyFilesystem, "/proc/sys is read-only"),
            (ErrorKind::PermissionDenied, "CAP_NET_ADMIN is missing"),
            (ErrorKind::NotFound, "load the module nf_conntrack"),
        ] {
            for stage in [Stage::Init, Stage::Start] {
                let text = text(kind, stage);
                assert!(text.contains(cause), "{text}");
                let is_advised = text.contains("--init-only");
                let would_help = stage == Stage::Start && kind != ErrorKind::NotFound;
                assert_eq!(is_advised, would_help, "{text}");
            }
        }
        let other = text(ErrorKind::InvalidInput, Stage::Start);
        assert!(!other.contains(';'), "{other}");
        let file = folder.path().join(UDP);
        fs::set_permissions(file, fs::Permissions::from_mode(0o444)).unwrap();
        for kind in [ErrorKind::ReadOnlyFilesystem, ErrorKind::PermissionDenied] {
            let text = text(kind, Stage::Start);
            assert!(text.contains("only the first network namespace"), "{text}");
            assert!(!text.contains("--init-only"), "{text}");
        }
    }

    #[test]
    fn the_module_is_loaded_before_absent_sysctls_are_set() {
        let empty = Directory::new().unwrap();
        let present = folder([0; 7]);
        for (root, expected) in [(empty.path(), true), (present.path(), false)] {
            let mut is_loaded = false;
            load_if_absent(root, || is_loaded = true);
            assert_eq!(is_loaded, expected);
        }
    }

    #[test]
    fn a_warning_ends_with_the_value_that_stays() {
        let (empty, present) = (Directory::new().unwrap(), folder([0, 0, 0, 60, 0, 0, 0]));
        let error = |root: &Path| {
            let sysctl = Sysctl::new(TCP_CLOSE_WAIT, "3600".into(), "as configured");
            let mut error = sysctl.apply_in(Path::new("/nonexistent")).unwrap_err();
            error.path = root.join(TCP_CLOSE_WAIT);
            what_stays(root, &error)
        };
        assert_eq!(error(present.path()), "it stays 60");
        assert_eq!(error(empty.path()), "continuing without it");
    }
}
