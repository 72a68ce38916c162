//! The sysctls that modes read and set.

use std::path::Path;
use std::{fs, io};

use crate::failure::Failure;

pub mod conntrack;

/// Where the kernel shows its sysctls: those of the network are of the network
/// namespace of whoever asks.
const ROOT: &str = "/proc/sys";

/// Whether conntrack takes late packets of TCP for part of their connection.
const LIBERAL: &str = "net/netfilter/nf_conntrack_tcp_be_liberal";

/// A sysctl that has to have a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sysctl {
    name: &'static str,
    value: &'static str,
    /// For whom it has to.
    needed: &'static str,
    /// The flag that does without it, if one does.
    without: Option<&'static str>,
}

/// Packets from and to loopback addresses are routed like others.
pub const ROUTE_LOCALNET: Sysctl = Sysctl {
    name: "net/ipv4/conf/all/route_localnet",
    value: "1",
    needed: "as node ports on 127.0.0.0/8 need",
    without: Some("--iptables-localhost-nodeports=false"),
};

/// What mode ipvs always needs.
const OF_IPVS: [Sysctl; 4] = [
    // Rules see packets of virtual servers, to masquerade them.
    of_ipvs("net/ipv4/vs/conntrack", "1"),
    // Connections end with their real server.
    of_ipvs("net/ipv4/vs/expire_nodest_conn", "1"),
    // Persistence, too.
    of_ipvs("net/ipv4/vs/expire_quiescent_template", "1"),
    of_ipvs("net/ipv4/ip_forward", "1"),
];

/// Kernels of this version and later can do without [`REUSE`] being off, and
/// earlier ones lose packets of connections whose port is used again.
const REUSES: (u32, u32) = (5, 9);
/// Kernels before this version do not have [`REUSE`].
const HAS_REUSE: (u32, u32) = (4, 1);
/// A port that is used again soon means the real server that it meant before.
const REUSE: Sysctl = of_ipvs("net/ipv4/vs/conn_reuse_mode", "0");

/// ARP is answered for an interface's own addresses only.
const STRICT_ARP: [Sysctl; 2] = [
    strict_arp("net/ipv4/conf/all/arp_ignore", "1"),
    strict_arp("net/ipv4/conf/all/arp_announce", "2"),
];

const fn of_ipvs(name: &'static str, value: &'static str) -> Sysctl {
    Sysctl {
        name,
        value,
        needed: "as mode ipvs needs",
        without: None,
    }
}

const fn strict_arp(name: &'static str, value: &'static str) -> Sysctl {
    Sysctl {
        name,
        value,
        needed: "as --ipvs-strict-arp wants",
        without: Some("--ipvs-strict-arp=false"),
    }
}

/// Returns what mode ipvs needs of a kernel with this release, such as
/// `6.1.0-13-amd64`.
pub fn ipvs(release: &str, is_arp_strict: bool) -> Vec<Sysctl> {
    let has_to = version(release).is_some_and(|version| (HAS_REUSE..REUSES).contains(&version));
    let mut sysctls = OF_IPVS.to_vec();
    sysctls.extend(has_to.then_some(REUSE));
    sysctls.extend(STRICT_ARP.iter().filter(|_| is_arp_strict));
    sysctls
}

/// Reads the first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Tells whether conntrack takes late packets of TCP for part of their
/// connection, so that those it takes for invalid really are.
pub fn is_liberal() -> bool {
    is_set(Path::new(ROOT))
}

/// Sets sysctls; writes only those that have another value.
///
/// # Errors
///
/// The first that cannot be written: with what to do then.
pub fn set(sysctls: &[Sysctl]) -> Result<(), Failure> {
    let root = Path::new(ROOT);
    sysctls.iter().try_for_each(|sysctl| sysctl.set(root))
}

fn is_set(root: &Path) -> bool {
    // Without connection tracking there is no such file, and nothing to drop.
    fs::read_to_string(root.join(LIBERAL)).is_ok_and(|value| value.trim() != "0")
}

/// Gives a sysctl a value, unless it has it.
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
            needed,
            without,
        } = self;
        write(root, name, value).map_err(|error| {
            let path = root.join(name);
            let path = path.display();
            let or = without.map_or_else(String::new, |flag| format!(", or go without by {flag}"));
            Failure::machine(format_args!(
                "{path} cannot be set to {value}, {needed}: {error}; run kube-proxy --init-only \
                 before, with the privilege to write it{or}"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::SystemTime;

    use testkit::leftovers::Directory;
    use testkit::netns::Netns;

    use super::*;

    /// Returns a folder like the kernel's, with a sysctl in it.
    fn folder(name: &str, value: &str) -> (Directory, PathBuf) {
        let folder = Directory::new().unwrap();
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, value).unwrap();
        (folder, file)
    }

    #[test]
    fn packets_are_routed_to_loopback_in_the_namespace_that_asks_for_it() {
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
    fn what_is_so_already_is_not_written() {
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
    fn what_cannot_be_written_is_told_with_what_to_do() {
        let folder = Directory::new().unwrap();
        let told = ROUTE_LOCALNET.set(folder.path()).unwrap_err().to_string();
        for words in [
            "net/ipv4/conf/all/route_localnet cannot be set to 1",
            "os error 2",
            "--init-only",
            "--iptables-localhost-nodeports=false",
        ] {
            assert!(told.contains(words), "{words}: {told}");
        }
        assert_eq!(told.lines().count(), 1, "{told}");
        let told = REUSE.set(folder.path()).unwrap_err().to_string();
        let words = "conn_reuse_mode cannot be set to 0, as mode ipvs needs: ";
        assert!(told.contains(words), "{told}");
        assert!(told.ends_with("with the privilege to write it"), "{told}");
    }

    #[test]
    fn what_has_another_value_is_written() {
        for sysctl in ipvs("5.4.0", true) {
            let (folder, file) = folder(sysctl.name, "7\n");
            sysctl.set(folder.path()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), sysctl.value);
        }
    }

    #[test]
    fn mode_ipvs_needs_more_of_some_kernels_and_with_strict_arp() {
        let shown = |release, is_arp_strict| {
            let sysctls = ipvs(release, is_arp_strict).into_iter();
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
    fn conntrack_is_liberal_if_it_says_so() {
        for (value, expected) in [("0\n", false), ("1\n", true), ("2\n", true)] {
            let (folder, _) = folder(LIBERAL, value);
            assert_eq!(is_set(folder.path()), expected, "{value:?}");
        }
        let (folder, _) = folder("net/other", "1\n");
        assert!(!is_set(folder.path()), "the kernel does not have it");
    }

    #[test]
    fn conntrack_of_the_namespace_is_asked() {
        let netns = Netns::new().unwrap();
        let path = Path::new(ROOT).join(LIBERAL);
        let (before, after) = netns.run(|| {
            let before = is_liberal();
            fs::write(&path, "1").unwrap();
            (before, is_liberal())
        });
        assert_eq!((before, after), (false, true));
    }
}
