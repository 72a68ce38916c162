//! Reading and writing of sysctls.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::fs;
use std::path::Path;

use super::{Error, Sysctl};

/// Directory of the sysctls.
pub const ROOT: &str = "/proc/sys";

/// Name of the sysctl that makes conntrack accept out-of-window TCP packets as part of
/// their connection.
pub const CONNTRACK_TCP_BE_LIBERAL: &str = "net/netfilter/nf_conntrack_tcp_be_liberal";

impl Sysctl {
    /// Sets the sysctl, unless it has the value already. Returns whether it was written.
    ///
    /// # Errors
    ///
    /// [`Error`] if the sysctl cannot be written: the kernel lacks the sysctl or rejects
    /// the value, `/proc/sys` is read-only, or a privilege is missing.
    pub fn apply(&self) -> Result<bool, Error> {
        self.apply_in(Path::new(ROOT))
    }

    /// Sets the sysctl below `root`, as [`apply`](Self::apply) does below [`ROOT`].
    ///
    /// # Errors
    ///
    /// See [`apply`](Self::apply).
    pub fn apply_in(&self, root: &Path) -> Result<bool, Error> {
        if read_in(root, self.name).as_deref() == Some(&*self.value) {
            return Ok(false);
        }
        let path = root.join(self.name);
        match fs::write(&path, &*self.value) {
            Ok(()) => Ok(true),
            Err(source) => Err(Error {
                path,
                sysctl: self.clone(),
                source,
            }),
        }
    }
}

/// Returns the value of a sysctl without the final newline. `None` if the kernel lacks the
/// sysctl or it cannot be read.
///
/// `name` is a path below `/proc/sys`, such as `net/ipv4/ip_forward`.
pub fn read(name: &str) -> Option<String> {
    read_in(Path::new(ROOT), name)
}

/// Returns the value of a sysctl below `root`, as [`read`] does below [`ROOT`].
pub fn read_in(root: &Path, name: &str) -> Option<String> {
    let value = fs::read_to_string(root.join(name)).ok()?;
    Some(value.trim().to_owned())
}

/// Returns whether conntrack accepts out-of-window TCP packets
/// (`nf_conntrack_tcp_be_liberal`). `false` without conntrack.
///
/// If conntrack does not accept them, rules of mode iptables must drop packets in state
/// INVALID: [`Iptables::drop_invalid`](crate::Iptables::drop_invalid).
pub fn is_conntrack_liberal() -> bool {
    is_conntrack_liberal_in(Path::new(ROOT))
}

fn is_conntrack_liberal_in(root: &Path) -> bool {
    read_in(root, CONNTRACK_TCP_BE_LIBERAL).is_some_and(|value| value != "0")
}

#[cfg(all(test, feature = "ipvs"))]
mod tests {
    use std::path::PathBuf;
    use std::time::SystemTime;

    use testkit::netns::Netns;
    use testkit::scoped::Directory;
    use vipline_service_model::NodePortAddresses;

    use super::*;
    use crate::{Config, Ipvs, Mode};

    /// Returns the sysctl of mode iptables.
    fn route_localnet() -> Sysctl {
        let config = Config::default().with_node_port_addresses(NodePortAddresses::All);
        let sysctls = Mode::Iptables.sysctls(&config, "6.1.0");
        assert_eq!(sysctls.len(), 1);
        sysctls[0].clone()
    }

    /// Returns all sysctls of mode ipvs. Kernel 5.4 requires each.
    fn ipvs() -> Vec<Sysctl> {
        let ipvs = Ipvs {
            strict_arp: true,
            ..Ipvs::default()
        };
        Mode::Ipvs.sysctls(&Config::default().with_ipvs(ipvs), "5.4.0")
    }

    /// Creates a directory like `/proc/sys` with one sysctl.
    fn folder(name: &str, value: &str) -> (Directory, PathBuf) {
        let folder = Directory::new().expect("a directory");
        let file = folder.path().join(name);
        let parent = file.parent().expect("a file has a folder");
        fs::create_dir_all(parent).expect("a new folder");
        fs::write(&file, value).expect("a new file");
        (folder, file)
    }

    #[test]
    fn route_localnet_is_set_in_the_current_network_namespace() {
        let path = Path::new(ROOT).join(route_localnet().name);
        let value = || fs::read_to_string(&path).unwrap();
        let (one, other) = (Netns::new().unwrap(), Netns::new().unwrap());
        assert_eq!(one.run(value), "0\n");
        for is_written in [true, false] {
            let applied = one.run(|| route_localnet().apply());
            assert_eq!(applied.unwrap(), is_written);
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
        assert!(!route_localnet().apply_in(folder.path()).unwrap());
        let written = fs::metadata(&file).unwrap().modified().unwrap();
        assert_eq!(written, SystemTime::UNIX_EPOCH);
        assert_eq!(fs::read_to_string(&file).unwrap(), "1\n");
    }

    #[test]
    fn an_error_names_the_sysctl_and_the_value() {
        let folder = Directory::new().unwrap();
        let error = route_localnet().apply_in(folder.path()).unwrap_err();
        assert_eq!(error.source.raw_os_error(), Some(2));
        let expected = format!(
            "{}/net/ipv4/conf/all/route_localnet cannot be set to 1, as required by node ports \
             on 127.0.0.0/8",
            folder.path().display()
        );
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_different_value_is_written() {
        for sysctl in ipvs() {
            let (folder, file) = folder(sysctl.name, "7\n");
            assert!(sysctl.apply_in(folder.path()).unwrap());
            assert_eq!(fs::read_to_string(&file).unwrap(), sysctl.value);
        }
    }

    #[test]
    fn conntrack_is_liberal_if_its_sysctl_is_set() {
        for (value, expected) in [("0\n", false), ("1\n", true), ("2\n", true)] {
            let (folder, _) = folder(CONNTRACK_TCP_BE_LIBERAL, value);
            assert_eq!(
                is_conntrack_liberal_in(folder.path()),
                expected,
                "{value:?}"
            );
        }
        let (folder, _) = folder("net/other", "1\n");
        let is_liberal = is_conntrack_liberal_in(folder.path());
        assert!(!is_liberal, "the kernel does not have it");
    }

    #[test]
    fn the_sysctl_is_read_in_the_current_network_namespace() {
        let netns = Netns::new().unwrap();
        let path = Path::new(ROOT).join(CONNTRACK_TCP_BE_LIBERAL);
        let (before, after) = netns.run(|| {
            let before = is_conntrack_liberal();
            fs::write(&path, "1").unwrap();
            (before, is_conntrack_liberal())
        });
        assert_eq!((before, after), (false, true));
    }
}
