//! The node, with the lists of match `recent` that packets have changed.

use std::collections::BTreeSet;
use std::net::IpAddr;

use vipline_evaluate::{
    Environment, Host, Interface, Limited, ListUpdate, Question, Route, RouteQuery,
};
use vipline_nftables::expr::AddrType;

/// A node with lists.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    host: Host,
    /// Names of lists with addresses. All addresses are recent.
    recent: BTreeSet<(String, IpAddr)>,
}

impl Lists {
    /// Creates a node with empty lists.
    pub(super) fn new(host: Host) -> Self {
        Self {
            host,
            recent: BTreeSet::new(),
        }
    }

    /// Applies the updates of a packet.
    pub(super) fn update(&mut self, updates: &[ListUpdate]) {
        for update in updates {
            if let ListUpdate::Recent { name, addr, .. } = update {
                self.recent.insert((name.clone(), *addr));
            }
        }
    }
}

impl Environment for Lists {
    fn route(&self, query: &RouteQuery<'_>) -> Option<Route> {
        self.host.route(query)
    }

    fn addr_type(&self, addr: IpAddr, interface: Option<&Interface>) -> Option<AddrType> {
        self.host.addr_type(addr, interface)
    }

    fn interface_addr(&self, interface: &Interface, destination: IpAddr) -> Option<IpAddr> {
        self.host.interface_addr(interface, destination)
    }

    fn is_over(&self, limited: Limited<'_>) -> Option<bool> {
        self.host.is_over(limited)
    }

    fn answer(&self, question: &Question<'_>) -> Option<bool> {
        match question {
            Question::Recent(lookup) => {
                let is_listed =
                    |(name, addr): &(String, IpAddr)| name == lookup.name && *addr == lookup.addr;
                Some(self.recent.iter().any(is_listed))
            }
            // Counts packets, and matches all.
            Question::Match { text, .. } if text.starts_with("-m nfacct ") => Some(true),
            other => self.host.answer(other),
        }
    }
}
