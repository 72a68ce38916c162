//! Host name, kernel release, interface addresses and IP families of this machine.

use std::fs;
use std::net::IpAddr;

use anyhow::{Context, Result};
use vipline_netlink::attr::Attrs;
use vipline_netlink::{DecodeError, Dump, Error, Protocol, Socket};
use vipline_rtnl::{Client, Name};
use vipline_service_model::{Family, SpecialAddress};

/// `RTM_GETADDR` of linux/rtnetlink.h.
const RTM_GETADDR: u16 = 22;
/// `struct ifaddrmsg` of linux/if_addr.h: family, prefix length, flags, scope, index.
const HEADER: usize = 8;
/// `IFA_ADDRESS` and `IFA_LOCAL` of linux/if_addr.h.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// `RT_SCOPE_UNIVERSE` of linux/rtnetlink.h.
const RT_SCOPE_UNIVERSE: u8 = 0;
/// Maximum attempts of a dump that the kernel reports as interrupted.
const ATTEMPTS: usize = 5;

/// Returns the host name.
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

/// The interface addresses to list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// Addresses that other hosts can reach: of scope universe, and neither
    /// loopback nor link-local.
    Global,
    /// All addresses except link-local ones. Loopback is included.
    Host,
    /// All addresses. Link-local ones are included.
    All,
}

/// Returns the addresses of the interfaces, in the order of the interfaces.
///
/// Addresses on `kube-ipvs0` are left out: mode ipvs added them for Services.
///
/// # Errors
///
/// The rtnetlink request fails.
pub fn addresses(scope: Scope) -> Result<Vec<IpAddr>> {
    list(match scope {
        Scope::Global => Found::is_global,
        Scope::Host => Found::is_host,
        Scope::All => |_| true,
    })
}

/// Returns the name of the link that mode ipvs adds addresses to.
fn ipvs_link() -> Name {
    Name::new("kube-ipvs0").expect("a valid name")
}

fn list(is_wanted: fn(&Found) -> bool) -> Result<Vec<IpAddr>> {
    let context = "list the addresses of the interfaces";
    let mut client = Client::open().context(context)?;
    let link = client.link(&ipvs_link()).context(context)?;
    let ipvs_link = link.map(|link| link.index);
    let mut socket = Socket::open(Protocol::Route).context(context)?;
    let start = Vec::new;
    let listed = socket.dump(
        RTM_GETADDR,
        &[0; HEADER],
        ATTEMPTS,
        start,
        |all, message| {
            let found = read(message.payload)?.filter(is_wanted);
            all.extend(found.filter(|found| Some(found.interface) != ipvs_link));
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
    /// Returns whether other hosts can reach the address.
    fn is_global(&self) -> bool {
        self.scope == RT_SCOPE_UNIVERSE && SpecialAddress::of(self.address).is_none()
    }

    /// Returns whether the address is not link-local.
    fn is_host(&self) -> bool {
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
    // On a point-to-point link, IFA_ADDRESS is the peer's address.
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

/// Returns the IP families that the kernel supports. IPv6 may be absent or disabled.
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

    /// A reply of Linux 6.18, with selected attributes.
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
        let (is_global, is_host) = (found.is_global(), found.is_host());
        (found.interface, found.address, is_global, is_host)
    }

    #[test]
    fn addresses_are_decoded_with_their_scope() {
        let ends: [(u16, &[u8]); 2] = [(IFA_ADDRESS, &[10, 0, 0, 2]), (IFA_LOCAL, &[10, 0, 0, 1])];
        let own = (7, [10, 0, 0, 1].into(), true, true);
        assert_eq!(found(&payload(RT_SCOPE_UNIVERSE, 7, &ends)), own);
        let global = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let v6 = (2, global.into(), true, true);
        assert_eq!(
            found(&payload(RT_SCOPE_UNIVERSE, 2, &[(IFA_ADDRESS, &global)])),
            v6
        );
        let scoped = (2, [10, 0, 0, 1].into(), false, true);
        assert_eq!(
            found(&payload(253, 2, &[(IFA_LOCAL, &[10, 0, 0, 1])])),
            scoped
        );
        let loopback = (1, [127, 0, 0, 1].into(), false, true);
        assert_eq!(
            found(&payload(
                RT_SCOPE_UNIVERSE,
                1,
                &[(IFA_LOCAL, &[127, 0, 0, 1])]
            )),
            loopback
        );
        let link = (2, [169, 254, 0, 1].into(), false, false);
        assert_eq!(
            found(&payload(
                RT_SCOPE_UNIVERSE,
                2,
                &[(IFA_LOCAL, &[169, 254, 0, 1])]
            )),
            link
        );
        assert_eq!(read(&[2, 24, 0]).unwrap(), None);
    }

    #[test]
    fn the_machine_has_a_host_name_and_ipv4() {
        assert!(!hostname().is_empty());
        let own = IpAddr::from([127, 0, 0, 1]);
        assert!(addresses(Scope::Host).unwrap().contains(&own));
        assert!(!addresses(Scope::Global).unwrap().contains(&own));
        assert_eq!(families().first(), Some(&Family::V4));
    }
}
