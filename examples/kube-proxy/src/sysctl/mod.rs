//! Sysctls that the modes read and set.

use std::path::Path;
use std::{fs, io};

use crate::failure::Failure;

pub mod conntrack;

/// Root of the sysctls. Those below `net` belong to the network namespace of
/// the process.
const ROOT: &str = "/proc/sys";

/// Whether conntrack accepts out-of-window TCP packets as part of their
/// connection.
const TCP_BE_LIBERAL: &str = "net/netfilter/nf_conntrack_tcp_be_liberal";

/// A required value of a sysctl.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sysctl {
    name: &'static str,
    value: &'static str,
    /// The reason, for error messages.
    reason: &'static str,
    /// A flag that removes the requirement, if any.
    disable_flag: Option<&'static str>,
}

/// Routes packets from and to loopback addresses.
pub const ROUTE_LOCALNET: Sysctl = Sysctl {
    name: "net/ipv4/conf/all/route_localnet",
    value: "1",
    reason: "as required by node ports on 127.0.0.0/8",
    disable_flag: Some("--iptables-localhost-nodeports=false"),
};

/// Sysctls that mode ipvs always needs.
const IPVS: [Sysctl; 4] = [
    // Makes packets of virtual servers visible to conntrack, for masquerading.
    for_ipvs("net/ipv4/vs/conntrack", "1"),
    // Ends connections together with their real server.
    for_ipvs("net/ipv4/vs/expire_nodest_conn", "1"),
    // Ends persistence together with the real server.
    for_ipvs("net/ipv4/vs/expire_quiescent_template", "1"),
    for_ipvs("net/ipv4/ip_forward", "1"),
];

/// From this kernel version on, [`CONN_REUSE`] may stay on. Earlier kernels
/// lose packets of connections that reuse a port.
const CONN_REUSE_FIXED: (u32, u32) = (5, 9);
/// Kernels before this version do not have [`CONN_REUSE`].
const CONN_REUSE_ADDED: (u32, u32) = (4, 1);
/// Keeps a connection that reuses a source port on its former real server.
const CONN_REUSE: Sysctl = for_ipvs("net/ipv4/vs/conn_reuse_mode", "0");

/// Restricts ARP replies to addresses of the receiving interface.
const STRICT_ARP: [Sysctl; 2] = [
    strict_arp("net/ipv4/conf/all/arp_ignore", "1"),
    strict_arp("net/ipv4/conf/all/arp_announce", "2"),
];

const fn for_ipvs(name: &'static str, value: &'static str) -> Sysctl {
    Sysctl {
        name,
        value,
        reason: "as required by mode ipvs",
        disable_flag: None,
    }
}

const fn strict_arp(name: &'static str, value: &'static str) -> Sysctl {
    Sysctl {
        name,
        value,
        reason: "as required by --ipvs-strict-arp",
        disable_flag: Some("--ipvs-strict-arp=false"),
    }
}

/// Returns the sysctls that mode ipvs needs on a kernel release such as
/// `6.1.0-13-amd64`.
pub fn ipvs(release: &str, strict_arp: bool) -> Vec<Sysctl> {
    let needs_conn_reuse = version(release)
        .is_some_and(|version| (CONN_REUSE_ADDED..CONN_REUSE_FIXED).contains(&version));
    let mut sysctls = IPVS.to_vec();
    sysctls.extend(needs_conn_reuse.then_some(CONN_REUSE));
    sysctls.extend(STRICT_ARP.iter().filter(|_| strict_arp));
    sysctls
}

/// Parses the first two numbers of a kernel release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Returns whether conntrack accepts out-of-window TCP packets. Otherwise rules
/// drop packets in state INVALID.
pub fn is_liberal() -> bool {
    is_set(Path::new(ROOT))
}

/// Sets sysctls. Writes only values that differ.
///
/// # Errors
///
/// Names the first sysctl that cannot be written, and the remedy.
pub fn set(sysctls: &[Sysctl]) -> Result<(), Failure> {
    let root = Path::new(ROOT);
    sysctls.iter().try_for_each(|sysctl| sysctl.set(root))
}

fn is_set(root: &Path) -> bool {
    // Without conntrack the file does not exist, and there is nothing to drop.
    fs::read_to_string(root.join(TCP_BE_LIBERAL)).is_ok_and(|value| value.trim() != "0")
}

/// Sets a sysctl, unless it has the value already.
fn write(root: &Path, name: &str, value: &str) -> io::Result<()> {
    let path = root.join(name);
    match fs::read_to_string(&path) {
        Ok(present) if present.trim() == value => Ok(()),
        _ => fs::write(&path, value),
    }
}

impl Sysctl {
    fn set(&self, root: &Path) -> Result<(), Failure> {
        let Self {
            name,
            value,
            reason,
            disable_flag,
        } = self;
        write(root, name, value).map_err(|error| {
            let path = root.join(name);
            let path = path.display();
            let or = disable_flag.map_or_else(String::new, |flag| {
                format!(", or disable the feature with {flag}")
            });
            Failure::machine(format_args!(
                "{path} cannot be set to {value}, {reason}: {error}; run kube-proxy --init-only \
                 first, with the privilege to write sysctls{or}"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::SystemTime;

    use testkit::netns::Netns;
    use testkit::scoped::Directory;

    use super::*;

    /// Creates a directory like `/proc/sys` with one sysctl.
    fn folder(name: &str, value: &str) -> (Directory, PathBuf) {
        let folder = Directory::new().unwrap();
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, value).unwrap();
        (folder, file)
    }

    #[test]
    fn route_localnet_is_set_in_the_current_network_namespace() {
        let path = Path::new(ROOT).join(ROUTE_LOCALNET.name);
        let value = || fs::read_to_string(&path).unwrap();
        let (one, other) = (Netns::new().unwrap(), Netns::new().unwrap());
        assert_eq!(one.run(value), "0\n");
        for _ in 0..2 {
            one.run(|| set(&[ROUTE_LOCALNET])).unwrap();
            assert_eq!(one.run(value), "1\n");
        }
        assert_eq!(other.run(value), "0\n");
    }

    #[test]
    fn an_equal_value_is_not_written() {
        let (folder, file) = folder(ROUTE_LOCALNET.name, "1\n");
        fs::File::options()
            .append(true)
            .open(&file)
            .unwrap()
            .set_modified(SystemTime::UNIX_EPOCH)
            .unwrap();
        ROUTE_LOCALNET.set(folder.path()).unwrap();
        let written = fs::metadata(&file).unwrap().modified().unwrap();
        assert_eq!(written, SystemTime::UNIX_EPOCH);
        assert_eq!(fs::read_to_string(&file).unwrap(), "1\n");
    }

    #[test]
    fn an_error_names_the_sysctl_and_the_remedy() {
        let folder = Directory::new().unwrap();
        let error = ROUTE_LOCALNET.set(folder.path()).unwrap_err().to_string();
        for words in [
            "net/ipv4/conf/all/route_localnet cannot be set to 1",
            "os error 2",
            "--init-only",
            "--iptables-localhost-nodeports=false",
        ] {
            assert!(error.contains(words), "{words}: {error}");
        }
        assert_eq!(error.lines().count(), 1, "{error}");
        let error = CONN_REUSE.set(folder.path()).unwrap_err().to_string();
        let words = "conn_reuse_mode cannot be set to 0, as required by mode ipvs: ";
        assert!(error.contains(words), "{error}");
        assert!(
            error.ends_with("with the privilege to write sysctls"),
            "{error}"
        );
    }

    #[test]
    fn a_different_value_is_written() {
        for sysctl in ipvs("5.4.0", true) {
            let (folder, file) = folder(sysctl.name, "7\n");
            sysctl.set(folder.path()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), sysctl.value);
        }
    }

    #[test]
    fn mode_ipvs_needs_more_sysctls_on_some_kernels_and_with_strict_arp() {
        let shown = |release, strict_arp| {
            let sysctls = ipvs(release, strict_arp).into_iter();
            let lines = sysctls.map(|sysctl| format!("{}={}", sysctl.name, sysctl.value));
            lines.collect::<Vec<_>>()
        };
        let always = [
            "net/ipv4/vs/conntrack=1",
            "net/ipv4/vs/expire_nodest_conn=1",
            "net/ipv4/vs/expire_quiescent_template=1",
            "net/ipv4/ip_forward=1",
        ];
        let arp = [
            "net/ipv4/conf/all/arp_ignore=1",
            "net/ipv4/conf/all/arp_announce=2",
        ];
        for release in [
            "6.18.0",
            "5.10.0-8-amd64",
            "5.9",
            "4.0.9",
            "3.10.0-957.el7",
            "x",
        ] {
            assert_eq!(shown(release, false), always, "{release}");
        }
        for release in ["4.1.0", "4.19.0-21-amd64", "5.8.18+"] {
            let all = [&always[..], &["net/ipv4/vs/conn_reuse_mode=0"], &arp].concat();
            assert_eq!(shown(release, true), all, "{release}");
        }
    }

    #[test]
    fn conntrack_is_liberal_if_its_sysctl_is_set() {
        for (value, expected) in [("0\n", false), ("1\n", true), ("2\n", true)] {
            let (folder, _) = folder(TCP_BE_LIBERAL, value);
            assert_eq!(is_set(folder.path()), expected, "{value:?}");
        }
        let (folder, _) = folder("net/other", "1\n");
        assert!(!is_set(folder.path()), "the kernel does not have it");
    }

    #[test]
    fn the_sysctl_is_read_in_the_current_network_namespace() {
        let netns = Netns::new().unwrap();
        let path = Path::new(ROOT).join(TCP_BE_LIBERAL);
        let (before, after) = netns.run(|| {
            let before = is_liberal();
            fs::write(&path, "1").unwrap();
            (before, is_liberal())
        });
        assert_eq!((before, after), (false, true));
    }
}
