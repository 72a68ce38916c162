//! Reading and writing of sysctls.

use std::path::Path;
use std::{fs, io};

use proxy_core::Sysctl;

use crate::failure::Failure;

pub mod conntrack;

/// Root of the sysctls. Those below `net` belong to the network namespace of
/// the process.
const ROOT: &str = "/proc/sys";

/// Whether conntrack accepts out-of-window TCP packets as part of their
/// connection.
const TCP_BE_LIBERAL: &str = "net/netfilter/nf_conntrack_tcp_be_liberal";

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
    sysctls.iter().try_for_each(|sysctl| require(sysctl, root))
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

/// Sets a sysctl below `root`.
fn require(sysctl: &Sysctl, root: &Path) -> Result<(), Failure> {
    write(root, sysctl.name, sysctl.value).map_err(|error| {
        let path = root.join(sysctl.name);
        let (path, value, reason) = (path.display(), sysctl.value, sysctl.reason);
        let or = sysctl.disable_flag.map_or_else(String::new, |flag| {
            format!(", or disable the feature with {flag}")
        });
        Failure::machine(format_args!(
            "{path} cannot be set to {value}, {reason}: {error}; run kube-proxy --init-only \
             first, with the privilege to write sysctls{or}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::SystemTime;

    use testkit::netns::Netns;
    use testkit::scoped::Directory;

    use proxy_core::{Config, Ipvs, Mode};
    use vipline_service_model::NodePortAddresses;

    use super::*;

    /// Returns the sysctl of mode iptables.
    fn route_localnet() -> Sysctl {
        let config = Config::default().with_node_port_addresses(NodePortAddresses::All);
        let [sysctl] = *Mode::Iptables.sysctls(&config, "6.1.0") else {
            panic!("mode iptables requires one sysctl");
        };
        sysctl
    }

    /// Returns the sysctls of mode ipvs on a kernel that requires all of them.
    fn ipvs() -> Vec<Sysctl> {
        let mut ipvs = Ipvs::default();
        ipvs.strict_arp = true;
        Mode::Ipvs.sysctls(&Config::default().with_ipvs(ipvs), "5.4.0")
    }

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
        let path = Path::new(ROOT).join(route_localnet().name);
        let value = || fs::read_to_string(&path).unwrap();
        let (one, other) = (Netns::new().unwrap(), Netns::new().unwrap());
        assert_eq!(one.run(value), "0\n");
        for _ in 0..2 {
            one.run(|| set(&[route_localnet()])).unwrap();
            assert_eq!(one.run(value), "1\n");
        }
        assert_eq!(other.run(value), "0\n");
    }

    #[test]
    fn an_equal_value_is_not_written() {
        let (folder, file) = folder(route_localnet().name, "1\n");
        fs::File::options()
            .append(true)
            .open(&file)
            .unwrap()
            .set_modified(SystemTime::UNIX_EPOCH)
            .unwrap();
        require(&route_localnet(), folder.path()).unwrap();
        let written = fs::metadata(&file).unwrap().modified().unwrap();
        assert_eq!(written, SystemTime::UNIX_EPOCH);
        assert_eq!(fs::read_to_string(&file).unwrap(), "1\n");
    }

    #[test]
    fn an_error_names_the_sysctl_and_the_remedy() {
        let folder = Directory::new().unwrap();
        let error = require(&route_localnet(), folder.path())
            .unwrap_err()
            .to_string();
        for words in [
            "net/ipv4/conf/all/route_localnet cannot be set to 1",
            "os error 2",
            "--init-only",
            "--iptables-localhost-nodeports=false",
        ] {
            assert!(error.contains(words), "{words}: {error}");
        }
        assert_eq!(error.lines().count(), 1, "{error}");
        let ipvs = ipvs();
        let conn_reuse = ipvs.iter().find(|it| it.name.ends_with("conn_reuse_mode"));
        let error = require(conn_reuse.unwrap(), folder.path());
        let error = error.unwrap_err().to_string();
        let words = "conn_reuse_mode cannot be set to 0, as required by mode ipvs: ";
        assert!(error.contains(words), "{error}");
        assert!(
            error.ends_with("with the privilege to write sysctls"),
            "{error}"
        );
    }

    #[test]
    fn a_different_value_is_written() {
        for sysctl in ipvs() {
            let (folder, file) = folder(sysctl.name, "7\n");
            require(&sysctl, folder.path()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), sysctl.value);
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
