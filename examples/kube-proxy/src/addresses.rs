//! Monitoring of the interface addresses of this node.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result};
use vipline_netlink::{Listener, Protocol};

use crate::interfaces::{self, Scope};

/// `RTNLGRP_IPV4_IFADDR` and `RTNLGRP_IPV6_IFADDR` of linux/rtnetlink.h.
const GROUPS: [u32; 2] = [5, 9];

/// The addresses of the node's interfaces, read again after rtnetlink
/// notifications.
///
/// Without a notification the kernel is not asked.
#[derive(Debug, Default)]
pub struct Addresses {
    /// Notification socket. `None` before the first poll and after an error.
    listener: Option<Listener>,
    /// Whether the addresses are unchanged since the last read.
    is_known: bool,
}

impl Addresses {
    /// Returns the addresses if they changed, or may have changed, since the
    /// last call.
    ///
    /// # Errors
    ///
    /// The notification socket or the dump failed. The next poll tries again.
    pub fn poll(&mut self) -> Result<Option<Vec<IpAddr>>> {
        // Listening before reading misses no change.
        let mut listener = match self.listener.take() {
            Some(listener) => listener,
            None => listen().context("subscribe to address changes of interfaces")?,
        };
        let is_known = &mut self.is_known;
        if let Err(error) = listener.read(|_| *is_known = false) {
            *is_known = false;
            return Err(error).context("receive address changes of interfaces");
        }
        self.listener = Some(listener);
        if self.is_known {
            return Ok(None);
        }
        let addresses = interfaces::addresses(Scope::All)?;
        self.is_known = true;
        Ok(Some(addresses))
    }

    /// Returns the descriptor that becomes readable after a change.
    pub fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }
}

fn listen() -> Result<Listener, vipline_netlink::Error> {
    let mut listener = Listener::open(Protocol::Route)?;
    for group in GROUPS {
        listener.join(group)?;
    }
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use testkit::netns::Netns;

    use super::*;
    use crate::wait;

    /// Runs `ip` with the arguments in `line`.
    fn ip(line: &str) {
        let status = Command::new("ip").args(line.split(' ')).status().unwrap();
        assert!(status.success(), "ip {line}");
    }

    /// Returns whether a notification arrives within a time.
    fn is_notified(addresses: &Addresses, within: Duration) -> bool {
        let fd = addresses.readable().unwrap();
        wait::readable(fd, &[], Some(within)).unwrap()
    }

    fn parsed(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// Timeout of expected notifications.
    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn addresses_are_read_once_and_after_each_change() {
        Netns::new().unwrap().run(|| {
            let mut addresses = Addresses::default();
            let loopback = ["127.0.0.1", "::1"];
            assert_eq!(addresses.poll().unwrap(), Some(parsed(&loopback)));
            assert_eq!(addresses.poll().unwrap(), None);
            assert!(!is_notified(&addresses, Duration::ZERO));
            for (change, expected) in [
                (
                    "address add 192.0.2.7/24 dev lo",
                    &["127.0.0.1", "192.0.2.7", "::1"][..],
                ),
                (
                    "address add 2001:db8::7/64 dev lo nodad",
                    &["127.0.0.1", "192.0.2.7", "::1", "2001:db8::7"],
                ),
                (
                    "address delete 192.0.2.7/24 dev lo",
                    &["127.0.0.1", "::1", "2001:db8::7"],
                ),
            ] {
                ip(change);
                assert!(is_notified(&addresses, SOON), "{change}");
                let mut read = addresses.poll().unwrap().unwrap();
                read.sort_unstable();
                assert_eq!(read, parsed(expected), "{change}");
                assert_eq!(addresses.poll().unwrap(), None);
            }
            ip("route add 198.51.100.0/24 dev lo");
            assert!(
                !is_notified(&addresses, Duration::ZERO),
                "route changes are ignored"
            );
        });
    }

    #[test]
    fn link_local_addresses_are_included() {
        Netns::new().unwrap().run(|| {
            ip("address add 169.254.7.7/16 dev lo");
            let read = Addresses::default().poll().unwrap().unwrap();
            assert!(read.contains(&IpAddr::from([169, 254, 7, 7])), "{read:?}");
        });
    }

    #[test]
    fn addresses_that_mode_ipvs_made_for_services_are_left_out() {
        Netns::new().unwrap().run(|| {
            // A veth, because not every kernel has the dummy driver.
            ip("link add kube-ipvs0 type veth peer name other");
            ip("address add 10.96.0.20/32 dev kube-ipvs0");
            ip("address add 192.0.2.7/32 dev other");
            let read = Addresses::default().poll().unwrap().unwrap();
            assert_eq!(read, parsed(&["127.0.0.1", "::1", "192.0.2.7"]));
        });
    }

    #[test]
    fn addresses_are_read_again_after_lost_notifications() {
        Netns::new().unwrap().run(|| {
            let mut addresses = Addresses::default();
            addresses.poll().unwrap();
            let listener = addresses.listener.as_ref().unwrap();
            listener.set_recv_buffer_size(1).unwrap();
            let batch: String = (1..=200)
                .map(|host| format!("address add 192.0.2.{host}/32 dev lo\n"))
                .collect();
            let folder = testkit::scoped::Directory::new().unwrap();
            folder.write("batch", &batch).unwrap();
            let file = folder.path().join("batch");
            ip(&format!("-batch {}", file.display()));
            let read = addresses.poll().unwrap().unwrap();
            assert_eq!(read.len(), 202, "all addresses are read: {read:?}");
            assert_eq!(addresses.poll().unwrap(), None);
        });
    }
}
