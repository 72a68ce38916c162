//! Reading of interface addresses and IP families from the kernel.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::fs;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use vipline_netlink::{Dump, Listener, Protocol};
use vipline_rtnl::{self as rtnl, Client};
use vipline_service_model::Family;

use super::{Scope, service_link};
use crate::{Error, sysctl};

/// `RTNLGRP_IPV4_IFADDR` and `RTNLGRP_IPV6_IFADDR` of linux/rtnetlink.h.
const GROUPS: [u32; 2] = [5, 9];

/// Returns the addresses of the interfaces in the network namespace of the calling
/// thread, in the order of the interfaces.
///
/// Addresses on `kube-ipvs0` are left out: mode ipvs added them for Services. Blocks
/// until the kernel has replied.
///
/// # Errors
///
/// The rtnetlink request fails.
pub fn addresses(scope: Scope) -> Result<Vec<IpAddr>, Error> {
    let read = || -> Result<_, rtnl::Error> {
        let mut client = Client::open()?;
        let service_link = client.link(&service_link())?.map(|link| link.index);
        Ok((service_link, client.dump_addresses()?))
    };
    let (service_link, dump) = read().map_err(failed("list the addresses of the interfaces"))?;
    // Addresses that change all the time are better than none.
    let (Dump::Complete(mut all) | Dump::Interrupted(mut all)) = dump;
    all.retain(|found| scope.includes(found) && Some(found.index) != service_link);
    all.sort_by_key(|found| found.index);
    Ok(all.into_iter().map(|found| found.net.addr()).collect())
}

/// Returns the IP families that the kernel supports. IPv6 may be absent or disabled.
pub fn families() -> Vec<Family> {
    let is_disabled = sysctl::read("net/ipv6/conf/all/disable_ipv6").as_deref() == Some("1");
    let is_absent = fs::metadata("/proc/net/if_inet6").is_err();
    match is_disabled || is_absent {
        true => vec![Family::V4],
        false => Family::ALL.to_vec(),
    }
}

/// The addresses of the node's interfaces, read again after rtnetlink
/// notifications.
///
/// Without a notification the kernel is not asked.
#[derive(Debug, Default)]
pub struct AddressWatch {
    /// Notification socket. `None` before the first poll and after an error.
    listener: Option<Listener>,
    /// Whether the addresses are unchanged since the last read.
    is_known: bool,
}

impl AddressWatch {
    /// Returns all addresses if they changed, or may have changed, since the last call.
    /// Does not wait for changes.
    ///
    /// The first call subscribes in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// The notification socket or the dump failed. The next poll tries again.
    pub fn poll(&mut self) -> Result<Option<Vec<IpAddr>>, Error> {
        // Listening before reading misses no change.
        let mut listener = match self.listener.take() {
            Some(listener) => listener,
            None => listen().map_err(failed("subscribe to address changes of interfaces"))?,
        };
        let is_known = &mut self.is_known;
        if let Err(error) = listener.read(|_| *is_known = false) {
            *is_known = false;
            return Err(failed("receive address changes of interfaces")(error));
        }
        self.listener = Some(listener);
        if self.is_known {
            return Ok(None);
        }
        let addresses = addresses(Scope::All)?;
        self.is_known = true;
        Ok(Some(addresses))
    }

    /// Returns the descriptor that becomes readable after a change.
    pub fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }
}

/// Adds an operation to an error of rtnetlink.
fn failed<E: Into<rtnl::Error>>(operation: &'static str) -> impl FnOnce(E) -> Error {
    move |error| Error::of::<rtnl::Error>(operation)(error.into())
}

fn listen() -> Result<Listener, vipline_netlink::Error> {
    let mut listener = Listener::open(Protocol::ROUTE)?;
    for group in GROUPS {
        listener.join(group)?;
    }
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use testkit::link::set_sysctl;
    use testkit::netns::Netns;

    use super::*;

    /// Runs `ip` with the arguments in `line`.
    fn ip(line: &str) {
        let status = Command::new("ip").args(line.split(' ')).status().unwrap();
        assert!(status.success(), "ip {line}");
    }

    /// Returns whether a notification arrives within a time.
    fn is_notified(addresses: &AddressWatch, within: Duration) -> bool {
        let fd = addresses.readable().unwrap();
        let timeout = Timespec::try_from(within).unwrap();
        poll(
            &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
            Some(&timeout),
        )
        .unwrap()
            > 0
    }

    fn parsed(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// Timeout of expected notifications.
    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn addresses_are_read_once_and_after_each_change() {
        Netns::new().unwrap().run(|| {
            let mut addresses = AddressWatch::default();
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
            let read = AddressWatch::default().poll().unwrap().unwrap();
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
            let read = AddressWatch::default().poll().unwrap().unwrap();
            assert_eq!(read, parsed(&["127.0.0.1", "::1", "192.0.2.7"]));
        });
    }

    #[test]
    fn addresses_are_read_again_after_lost_notifications() {
        Netns::new().unwrap().run(|| {
            let mut addresses = AddressWatch::default();
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

    #[test]
    fn the_machine_has_ipv4() {
        let own = IpAddr::from([127, 0, 0, 1]);
        assert!(addresses(Scope::Host).unwrap().contains(&own));
        assert!(!addresses(Scope::Global).unwrap().contains(&own));
        assert_eq!(families().first(), Some(&Family::V4));
    }

    #[test]
    fn disabled_ipv6_is_not_supported() {
        Netns::new().unwrap().run(|| {
            let families_with = |is_disabled| {
                set_sysctl("ipv6/conf/all/disable_ipv6", is_disabled).unwrap();
                families()
            };
            assert_eq!(families_with("1"), [Family::V4]);
            assert_eq!(families_with("0"), Family::ALL);
        });
    }
}
