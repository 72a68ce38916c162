//! What the machine knows of itself: its name, addresses and families.

use std::fs;
use std::net::IpAddr;

use anyhow::{Context, Result};
use vipline_netlink::attr::Attrs;
use vipline_netlink::{DecodeError, Dump, Error, Protocol, Socket};
use vipline_rtnl::Client;
use vipline_service_model::{Family, SpecialAddress};

use crate::cleanup::names;

/// `RTM_GETADDR` of linux/rtnetlink.h.
const GET_ADDRESS: u16 = 22;
/// `struct ifaddrmsg` of linux/if_addr.h: family, prefix length, flags, scope, index.
const HEADER: usize = 8;
/// `IFA_ADDRESS` and `IFA_LOCAL` of linux/if_addr.h.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// `RT_SCOPE_UNIVERSE` of linux/rtnetlink.h.
const EVERYWHERE: u8 = 0;
/// How often a list that changes while it is read is begun again.
const ATTEMPTS: usize = 5;

/// Returns the machine's name.
pub fn hostname() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Returns the release of the kernel.
pub fn release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

/// Returns the addresses of all interfaces that others may reach, in the order
/// of the interfaces.
///
/// # Errors
///
/// The kernel does not tell.
pub fn addresses() -> Result<Vec<IpAddr>> {
    list(Found::is_reached)
}

/// Returns the addresses of all interfaces that mean this machine wherever it
/// asks, those of loopback among them, in the order of the interfaces.
///
/// # Errors
///
/// The kernel does not tell.
pub fn all_addresses() -> Result<Vec<IpAddr>> {
    list(Found::is_unique)
}

/// Returns the addresses of all interfaces, those of a link alone among them, in
/// the order of the interfaces.
///
/// Addresses that mode ipvs has made for Services are those of no interface, here
/// and above.
///
/// # Errors
///
/// The kernel does not tell.
pub fn every_address() -> Result<Vec<IpAddr>> {
    list(|_| true)
}

fn list(is_wanted: fn(&Found) -> bool) -> Result<Vec<IpAddr>> {
    let context = "list the addresses of the interfaces";
    let mut client = Client::open().context(context)?;
    let of_services = client.link(&names::link()).context(context)?;
    let of_services = of_services.map(|link| link.index);
    let mut socket = Socket::open(Protocol::Route).context(context)?;
    let start = Vec::new;
    let listed = socket.dump(
        GET_ADDRESS,
        &[0; HEADER],
        ATTEMPTS,
        start,
        |all, message| {
            let found = read(message.payload)?.filter(is_wanted);
            all.extend(found.filter(|found| Some(found.interface) != of_services));
            Ok::<(), Error>(())
        },
    );
    let (Dump::Complete(mut all) | Dump::Interrupted(mut all)) = listed.context(context)?;
    all.sort_by_key(|found| found.interface);
    Ok(all.into_iter().map(|found| found.address).collect())
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Found {
    interface: u32,
    scope: u8,
    address: IpAddr,
}

impl Found {
    /// Tells whether others may reach it.
    fn is_reached(&self) -> bool {
        self.scope == EVERYWHERE && SpecialAddress::of(self.address).is_none()
    }

    /// Tells whether it is not of a link alone.
    fn is_unique(&self) -> bool {
        SpecialAddress::of(self.address) != Some(SpecialAddress::LinkLocal)
    }
}

/// Reads `struct ifaddrmsg` with its attributes.
fn read(payload: &[u8]) -> Result<Option<Found>, DecodeError> {
    let Some((&[_, _, _, scope, index @ ..], attributes)) = payload.split_first_chunk::<HEADER>()
    else {
        return Ok(None);
    };
    let (mut address, mut local) = (None, None);
    for attribute in Attrs::new(attributes) {
        let attribute = attribute?;
        match attribute.kind {
            IFA_ADDRESS => address = ip(attribute.value),
            IFA_LOCAL => local = ip(attribute.value),
            _ => {}
        }
    }
    // Where a link has two ends, IFA_ADDRESS is the other one.
    Ok(local.or(address).map(|address| Found {
        interface: u32::from_ne_bytes(index),
        scope,
        address,
    }))
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

/// Returns the families that the kernel has: IPv6 may be absent or turned off.
pub fn families() -> Vec<Family> {
    let turned_off = fs::read_to_string("/proc/sys/net/ipv6/conf/all/disable_ipv6")
        .is_ok_and(|text| text.trim() == "1");
    let absent = fs::metadata("/proc/net/if_inet6").is_err();
    match turned_off || absent {
        true => vec![Family::V4],
        false => Family::ALL.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer as Linux 6.18 gives it, with its attributes in short.
    fn payload(scope: u8, index: u32, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut payload = vec![2, 24, 0, scope];
        payload.extend(index.to_ne_bytes());
        for &(kind, value) in attributes {
            vipline_netlink::attr::put(&mut payload, kind, value);
        }
        payload
    }

    fn found(payload: &[u8]) -> (u32, IpAddr, bool, bool) {
        let found = read(payload).unwrap().unwrap();
        let (is_reached, is_unique) = (found.is_reached(), found.is_unique());
        (found.interface, found.address, is_reached, is_unique)
    }

    #[test]
    fn addresses_are_read_and_told_apart() {
        let ends: [(u16, &[u8]); 2] = [(IFA_ADDRESS, &[10, 0, 0, 2]), (IFA_LOCAL, &[10, 0, 0, 1])];
        let own = (7, [10, 0, 0, 1].into(), true, true);
        assert_eq!(found(&payload(EVERYWHERE, 7, &ends)), own);
        let global = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let v6 = (2, global.into(), true, true);
        assert_eq!(
            found(&payload(EVERYWHERE, 2, &[(IFA_ADDRESS, &global)])),
            v6
        );
        let scoped = (2, [10, 0, 0, 1].into(), false, true);
        assert_eq!(
            found(&payload(253, 2, &[(IFA_LOCAL, &[10, 0, 0, 1])])),
            scoped
        );
        let loopback = (1, [127, 0, 0, 1].into(), false, true);
        assert_eq!(
            found(&payload(EVERYWHERE, 1, &[(IFA_LOCAL, &[127, 0, 0, 1])])),
            loopback
        );
        let link = (2, [169, 254, 0, 1].into(), false, false);
        assert_eq!(
            found(&payload(EVERYWHERE, 2, &[(IFA_LOCAL, &[169, 254, 0, 1])])),
            link
        );
        assert_eq!(read(&[2, 24, 0]).unwrap(), None);
    }

    #[test]
    fn this_machine_has_a_name_and_ipv4() {
        assert!(!hostname().is_empty());
        let own = IpAddr::from([127, 0, 0, 1]);
        assert!(all_addresses().unwrap().contains(&own));
        assert!(!addresses().unwrap().contains(&own));
        assert_eq!(families().first(), Some(&Family::V4));
    }
}
