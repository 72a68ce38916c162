//! The sysctls that mode iptables reads and writes.

use std::fs;
use std::path::Path;

use crate::failure::Failure;

/// Where the kernel shows its sysctls: those of the network are of the network
/// namespace of whoever asks.
const ROOT: &str = "/proc/sys";

/// Whether conntrack takes late packets of TCP for part of their connection.
const LIBERAL: &str = "net/netfilter/nf_conntrack_tcp_be_liberal";

/// Whether packets from and to loopback addresses are routed like others.
const ROUTE_LOCALNET: &str = "net/ipv4/conf/all/route_localnet";

/// Tells whether conntrack takes late packets of TCP for part of their
/// connection, so that those it takes for invalid really are.
pub fn is_liberal() -> bool {
    is_set(Path::new(ROOT))
}

/// Lets the kernel route packets to loopback addresses, as node ports on those
/// need; writes only what is not so already.
///
/// # Errors
///
/// The file cannot be written: with what to do then.
pub fn route_localnet() -> Result<(), Failure> {
    turn_on(Path::new(ROOT))
}

fn is_set(root: &Path) -> bool {
    // Without connection tracking there is no such file, and nothing to drop.
    fs::read_to_string(root.join(LIBERAL)).is_ok_and(|value| value.trim() != "0")
}

fn turn_on(root: &Path) -> Result<(), Failure> {
    let path = root.join(ROUTE_LOCALNET);
    if fs::read_to_string(&path).is_ok_and(|value| value.trim() == "1") {
        return Ok(());
    }
    fs::write(&path, "1").map_err(|error| {
        let path = path.display();
        let instead = "run kube-proxy --init-only before, with the privilege to write it, or \
                       go without by --iptables-localhost-nodeports=false";
        Failure::machine(format_args!(
            "{path} cannot be set to 1, as node ports on 127.0.0.0/8 need: {error}; {instead}"
        ))
    })
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
        let path = Path::new(ROOT).join(ROUTE_LOCALNET);
        let value = || fs::read_to_string(&path).unwrap();
        let (one, other) = (Netns::new().unwrap(), Netns::new().unwrap());
        assert_eq!(one.run(value), "0\n");
        for _ in 0..2 {
            one.run(route_localnet).unwrap();
            assert_eq!(one.run(value), "1\n");
        }
        assert_eq!(other.run(value), "0\n");
    }

    #[test]
    fn what_is_so_already_is_not_written() {
        let (folder, file) = folder(ROUTE_LOCALNET, "1\n");
        fs::File::options()
            .append(true)
            .open(&file)
            .unwrap()
            .set_modified(SystemTime::UNIX_EPOCH)
            .unwrap();
        turn_on(folder.path()).unwrap();
        let written = fs::metadata(&file).unwrap().modified().unwrap();
        assert_eq!(written, SystemTime::UNIX_EPOCH);
        assert_eq!(fs::read_to_string(&file).unwrap(), "1\n");
    }

    #[test]
    fn what_cannot_be_written_is_told_with_what_to_do() {
        let folder = Directory::new().unwrap();
        let told = turn_on(folder.path()).unwrap_err().to_string();
        for words in [
            "net/ipv4/conf/all/route_localnet cannot be set to 1",
            "os error 2",
            "--init-only",
            "--iptables-localhost-nodeports=false",
        ] {
            assert!(told.contains(words), "{words}: {told}");
        }
        assert_eq!(told.lines().count(), 1, "{told}");
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
