//! The addresses of the node's interfaces, followed as they change.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result};
use vipline_netlink::{Listener, Protocol};

use crate::interfaces::{self, Scope};

/// `RTNLGRP_IPV4_IFADDR` and `RTNLGRP_IPV6_IFADDR` of linux/rtnetlink.h.
const GROUPS: [u32; 2] = [5, 9];

/// The addresses of the node's interfaces, followed as they change.
///
/// They are read when the kernel tells that one came or went, and at no other
/// time.
#[derive(Debug, Default)]
pub struct Addresses {
    /// Hears of changes; there is none before the first poll, and after a failure.
    listener: Option<Listener>,
    /// Whether they did not change since they were read.
    is_known: bool,
}

impl Addresses {
    /// Returns the addresses if they are others than the last time, or may be.
    ///
    /// # Errors
    ///
    /// The kernel does not tell; the next poll asks again.
    pub fn poll(&mut self) -> Result<Option<Vec<IpAddr>>> {
        // Whoever listens first and reads then misses nothing.
        let mut listener = match self.listener.take() {
            Some(listener) => listener,
            None => listen().context("listen to changes of the interfaces' addresses")?,
        };
        let is_known = &mut self.is_known;
        if let Err(error) = listener.read(|_| *is_known = false) {
            *is_known = false;
            return Err(error).context("hear of changes of the interfaces' addresses");
        }
        self.listener = Some(listener);
        if self.is_known {
            return Ok(None);
        }
        let addresses = interfaces::addresses(Scope::All)?;
        self.is_known = true;
        Ok(Some(addresses))
    }

    /// Returns what becomes readable when an address came or went.
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

    /// Runs `ip` with words.
    fn ip(line: &str) {
        let status = Command::new("ip").args(line.split(' ')).status().unwrap();
        assert!(status.success(), "ip {line}");
    }

    /// Tells whether something is heard of within a time.
    fn is_told(addresses: &Addresses, within: Duration) -> bool {
        let fd = addresses.readable().unwrap();
        wait::readable(fd, &[], Some(within)).unwrap()
    }

    fn parsed(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// How long the kernel may take to tell.
    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn addresses_are_read_once_and_whenever_one_comes_or_goes() {
        Netns::new().unwrap().run(|| {
            let mut addresses = Addresses::default();
            let loopback = ["127.0.0.1", "::1"];
            assert_eq!(addresses.poll().unwrap(), Some(parsed(&loopback)));
            assert_eq!(addresses.poll().unwrap(), None);
            assert!(!is_told(&addresses, Duration::ZERO));
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
                assert!(is_told(&addresses, SOON), "{change}");
                let mut read = addresses.poll().unwrap().unwrap();
                read.sort_unstable();
                assert_eq!(read, parsed(expected), "{change}");
                assert_eq!(addresses.poll().unwrap(), None);
            }
            ip("route add 198.51.100.0/24 dev lo");
            assert!(!is_told(&addresses, Duration::ZERO), "routes are not heard");
        });
    }

    #[test]
    fn of_a_link_alone_counts_too() {
        Netns::new().unwrap().run(|| {
            ip("address add 169.254.7.7/16 dev lo");
            let read = Addresses::default().poll().unwrap().unwrap();
            assert!(read.contains(&IpAddr::from([169, 254, 7, 7])), "{read:?}");
        });
    }

    #[test]
    fn those_that_mode_ipvs_made_for_services_do_not() {
        Netns::new().unwrap().run(|| {
            // Of another type, for not every kernel has dummies.
            ip("link add kube-ipvs0 type veth peer name other");
            ip("address add 10.96.0.20/32 dev kube-ipvs0");
            ip("address add 192.0.2.7/32 dev other");
            let read = Addresses::default().poll().unwrap().unwrap();
            assert_eq!(read, parsed(&["127.0.0.1", "::1", "192.0.2.7"]));
        });
    }

    #[test]
    fn when_notices_are_lost_the_addresses_are_read_again() {
        Netns::new().unwrap().run(|| {
            let mut addresses = Addresses::default();
            addresses.poll().unwrap();
            let listener = addresses.listener.as_ref().unwrap();
            listener.set_room(1).unwrap();
            let batch: String = (1..=200)
                .map(|host| format!("address add 192.0.2.{host}/32 dev lo\n"))
                .collect();
            let folder = testkit::leftovers::Directory::new().unwrap();
            folder.write("batch", &batch).unwrap();
            let file = folder.path().join("batch");
            ip(&format!("-batch {}", file.display()));
            let read = addresses.poll().unwrap().unwrap();
            assert_eq!(read.len(), 202, "all but none are there: {read:?}");
            assert_eq!(addresses.poll().unwrap(), None);
        });
    }
}
