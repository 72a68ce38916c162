//! Addresses of the interfaces of this node, and the IP families that its kernel supports.
//!
//! - [`addresses`]: reads the addresses once;
//! - [`AddressWatch`]: reads them again after rtnetlink notifications, for
//!   [`Engine::set_addresses`](crate::Engine::set_addresses);
//! - [`families`]: the IP families of the kernel.
//!
//! No function requires a capability.

mod kernel;

use vipline_rtnl::wire::IndexedAddress;
use vipline_rtnl::{self as rtnl, Name};
use vipline_service_model::SpecialAddress;

pub use self::kernel::{AddressWatch, addresses, families};

/// The link to which a kube-proxy in mode ipvs adds the addresses of Services. Addresses of the
/// node are those of all other links.
pub const SERVICE_LINK: &str = "kube-ipvs0";

/// Returns the name of [`SERVICE_LINK`].
pub(crate) fn service_link() -> Name {
    Name::new(SERVICE_LINK).expect("the name is valid")
}

/// The interface addresses to list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Scope {
    /// Addresses that other hosts can reach: of scope universe, and neither
    /// loopback nor link-local.
    Global,
    /// All addresses except link-local ones. Loopback is included.
    Host,
    /// All addresses. Link-local ones are included.
    All,
}

impl Scope {
    /// Returns whether an address is in the scope.
    fn includes(self, address: &IndexedAddress) -> bool {
        let special = SpecialAddress::of(address.net.addr());
        match self {
            Self::Global => address.scope == rtnl::Scope::Global && special.is_none(),
            Self::Host => special != Some(SpecialAddress::LinkLocal),
            Self::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use vipline_rtnl::wire::Reply;

    use super::*;

    /// `RTM_NEWADDR`, and `RT_SCOPE_UNIVERSE` of linux/rtnetlink.h.
    const RTM_NEWADDR: u16 = 20;
    const RT_SCOPE_UNIVERSE: u8 = 0;
    /// `IFA_ADDRESS` and `IFA_LOCAL` of linux/if_addr.h.
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;

    /// A reply of Linux 6.18, with selected attributes.
    fn payload(scope: u8, index: u32, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let is_v4 = attributes.iter().all(|(_, value)| value.len() == 4);
        let mut payload = vec![if is_v4 { 2 } else { 10 }, 24, 0, scope];
        payload.extend(index.to_ne_bytes());
        for &(kind, value) in attributes {
            vipline_netlink::attr::put(&mut payload, kind, value);
        }
        payload
    }

    fn found(payload: &[u8]) -> (u32, IpAddr, bool, bool) {
        let Reply::Address(found) = Reply::decode(RTM_NEWADDR, payload).unwrap() else {
            panic!("{payload:?} is no address")
        };
        let is_within = |scope: Scope| scope.includes(&found);
        let (is_global, is_host) = (is_within(Scope::Global), is_within(Scope::Host));
        (found.index, found.net.addr(), is_global, is_host)
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
        assert!(Reply::decode(RTM_NEWADDR, &[2, 24, 0]).is_err());
    }
}
