//! Detection of changes to the link with the addresses of Services.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

use vipline_netlink::{Event, Listener, Protocol};
use vipline_rtnl::wire::Reply;
use vipline_rtnl::{Client, Error};
use vipline_service_model::Family;

use super::Shared;
use crate::Drift;
use crate::backend::ipvs::plan::names;

/// `RTNLGRP_LINK`, `RTNLGRP_IPV4_IFADDR` and `RTNLGRP_IPV6_IFADDR` of
/// `linux/rtnetlink.h`.
const GROUPS: [u32; 3] = [1, 5, 9];

/// `RTM_DELLINK` and `RTM_DELADDR` of `linux/rtnetlink.h`.
const DELETE_LINK: u16 = 17;
const DELETE_ADDRESS: u16 = 21;

/// IPv6 addresses that this process removes.
///
/// For IPv4 the kernel reports the port ID of the process that removed the address.
pub(super) type Removed = BTreeSet<Ipv6Addr>;

/// Watches links and addresses.
///
/// For IPv6 only removals count, because the kernel does not report all additions.
#[derive(Debug)]
pub(super) struct Links {
    client: Client,
    /// `None` after a failure.
    listener: Option<Listener>,
    /// Interface index of the link, if known.
    index: Option<u32>,
    removed: Shared<Removed>,
}

impl Links {
    /// Starts to watch. Ignores changes by sockets with these port IDs, and removals of
    /// the addresses in `removed`.
    pub(super) fn listen(ports: &[u32], removed: Shared<Removed>) -> Result<Self, Error> {
        let mut listener = Listener::open(Protocol::ROUTE)?;
        listener.ignore_port_ids(ports)?;
        for group in GROUPS {
            listener.join(group)?;
        }
        Ok(Self {
            client: Client::open()?,
            listener: Some(listener),
            index: None,
            removed,
        })
    }

    /// Returns the descriptor that becomes readable when notifications arrive.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// Returns the changes since the last call.
    pub(super) fn read(&mut self) -> Vec<(Family, Drift)> {
        let (mut answers, mut is_lost) = (Vec::new(), false);
        let Some(listener) = &mut self.listener else {
            return Vec::new();
        };
        let read = listener.read(|event| match event {
            Event::Message(message) => {
                let answer = Reply::decode(message.ty, message.payload);
                answers.extend(answer.map(|answer| (message.ty, answer)));
            }
            _ => is_lost = true,
        });
        if read.is_err() {
            self.listener = None;
            is_lost = true;
        }
        let mut changes = [0, 0];
        for (ty, answer) in answers {
            let concerned = self.concerned(ty, &answer);
            for (family, changes) in Family::ALL.into_iter().zip(&mut changes) {
                *changes += usize::from(concerned.contains(&family));
            }
        }
        let drifts = Family::ALL.into_iter().zip(changes);
        let drifts = drifts.filter(|(_, changes)| is_lost || *changes > 0);
        drifts
            .map(|(family, changes)| (family, Drift::new(changes, is_lost)))
            .collect()
    }

    /// Returns the families for which the link or an address on it changed.
    fn concerned(&mut self, ty: u16, answer: &Reply) -> &'static [Family] {
        match answer {
            Reply::Link(link) if link.name == names::link() => {
                self.index = Some(link.index).filter(|_| ty != DELETE_LINK);
                match ty {
                    DELETE_LINK => &Family::ALL,
                    _ => &[],
                }
            }
            Reply::Address(address) if Some(address.index) == self.index() => {
                match address.net.addr() {
                    IpAddr::V4(_) => &[Family::V4],
                    IpAddr::V6(ip) if ty == DELETE_ADDRESS && !self.removed.lock().remove(&ip) => {
                        &[Family::V6]
                    }
                    IpAddr::V6(_) => &[],
                }
            }
            _ => &[],
        }
    }

    /// Returns the index of the link. Queries the kernel if it is unknown.
    fn index(&mut self) -> Option<u32> {
        if self.index.is_none() {
            let link = self.client.link(&names::link());
            self.index = link.ok().flatten().map(|link| link.index);
        }
        self.index
    }
}

#[cfg(test)]
mod tests {
    use testkit::link;
    use testkit::netns::Netns;
    use vipline_reconcile::Edit;
    use vipline_rtnl::{Address, Commands, Name, Object};

    use super::*;

    fn commit(client: &mut Client, edit: Edit<Object>) {
        client.commit(&Commands::from_edits(&[edit])).unwrap();
    }

    fn address(interface: &str, net: &str) -> Object {
        let name = Name::new(interface).unwrap();
        Address::new(name, net.parse().unwrap()).into()
    }

    #[test]
    fn only_changes_by_other_processes_to_service_addresses_are_reported() {
        let (netns, other) = (Netns::new().unwrap(), Netns::new().unwrap());
        netns.run(|| {
            // Any link with that name serves the test.
            link::add_pair("kube-ipvs0", "eth0", other.as_fd()).unwrap();
            let (mut ours, mut theirs) = (Client::open().unwrap(), Client::open().unwrap());
            let removed = Shared::<Removed>::default();
            let mut links = Links::listen(&[ours.port_id()], removed.clone()).unwrap();
            let nets = ["10.96.0.1/32", "fd00::1/128"];
            for net in nets {
                commit(&mut ours, Edit::Add(address("kube-ipvs0", net)));
            }
            commit(&mut theirs, Edit::Add(address("lo", "10.96.0.2/32")));
            assert!(links.read().is_empty());
            for net in nets {
                removed.lock().extend("fd00::1".parse::<Ipv6Addr>());
                commit(&mut ours, Edit::Remove(address("kube-ipvs0", net)));
                commit(&mut ours, Edit::Add(address("kube-ipvs0", net)));
            }
            assert!(links.read().is_empty());

            for net in nets {
                commit(&mut theirs, Edit::Remove(address("kube-ipvs0", net)));
            }
            let drifts = links.read();
            let families: Vec<_> = drifts.iter().map(|(family, _)| *family).collect();
            assert_eq!(families, Family::ALL, "{drifts:?}");
            assert!(links.read().is_empty());

            let name = Name::new("kube-ipvs0").unwrap();
            let gone = theirs.link(&name).unwrap().expect("the link exists");
            commit(&mut theirs, Edit::Remove(gone.into()));
            assert_eq!(links.read().len(), 2);
        });
    }
}
