//! Hearing of what others do to rules and addresses, and looking after real
//! servers on their way out.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use vipline_ipvs::{self as ipvs, Commands};
use vipline_service_model::Family;

use super::kernel::{Draining, Kernel};
use super::links::{Links, Removed};
use super::{base, names};
use crate::backend::iptables;
use crate::backend::iptables::layout::{Layout, is_about};
use crate::{Drift, Error, Ipvs, watch};

/// The chains of the mode, among those of iptables.
const LAYOUT: Layout = Layout {
    tables: &[names::FILTER, names::NAT],
    kind: names::kind,
    place_of_jump: base::place_of_jump,
    is_about_us: |touched| is_about(names::kind, touched),
    canary: (names::NAT, names::SERVICES),
};

/// Hears what others do to rules and addresses, and removes real servers without
/// connections.
///
/// Nobody tells of changes to virtual servers and sets.
#[derive(Debug)]
pub(crate) struct Watch {
    rules: iptables::Watch,
    servers: ipvs::Client,
    draining: Vec<Draining>,
    /// The ports by which addresses of ours are changed.
    ports: Vec<u32>,
    removed: Removed,
    /// None until it listens.
    links: Option<Links>,
}

impl Watch {
    /// Returns who looks after rules that far apart, where it cannot hear.
    ///
    /// # Errors
    ///
    /// The kernel has no IPVS.
    pub(crate) fn new(period: Duration) -> Result<Self, Error> {
        Ok(Self {
            rules: iptables::Watch::of_layout(LAYOUT, period),
            servers: ipvs::Client::open()?,
            draining: Vec::new(),
            ports: Vec::new(),
            removed: Removed::default(),
            links: None,
        })
    }

    /// Opens a kernel that is watched.
    pub(crate) fn open(&mut self, family: Family, config: &Ipvs) -> Result<Kernel, Error> {
        let rules = self.rules.open(family)?;
        let kernel = Kernel::open(family, rules, config, self.removed.clone())?;
        self.draining.push(kernel.draining());
        self.ports.push(kernel.port_of_links());
        Ok(kernel)
    }

    /// Hears from now on what is done to addresses: nothing that follows the
    /// first dump is missed.
    ///
    /// # Errors
    ///
    /// The kernel does not let us listen.
    pub(crate) fn listen_to_links(&mut self) -> Result<(), Error> {
        self.links = Some(Links::listen(&self.ports, self.removed.clone())?);
        Ok(())
    }

    /// Removes real servers that have no connections left.
    ///
    /// What cannot be asked or removed now is tried again at the next look.
    fn sweep(&mut self, now: Duration) {
        for draining in &self.draining {
            let due = draining.lock().due(now);
            for service in due {
                let Ok(reals) = self.servers.reals(&service) else {
                    continue;
                };
                let finished = draining.lock().finished(service, &reals, now);
                let commands: Commands = finished.into_iter().collect();
                if !commands.is_empty() {
                    let _ = self.servers.commit(&commands);
                }
            }
        }
    }
}

impl watch::Watch for Watch {
    fn begin(&mut self) -> Result<Vec<Family>, Error> {
        // Whoever never hears of everything is asked to begin after each sync.
        let has_begun = !self.rules.fds().is_empty() || self.rules.next_look().is_some();
        match has_begun {
            true => Ok(Vec::new()),
            false => self.rules.begin(),
        }
    }

    /// Changes of sets and virtual servers are found by a dump only.
    fn is_listening(&self) -> bool {
        false
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let links = self.links.iter().filter_map(Links::fd);
        self.rules.fds().into_iter().chain(links).collect()
    }

    fn read(&mut self) -> Vec<(Family, Drift)> {
        let links = self.links.iter_mut().flat_map(Links::read);
        self.rules.read().into_iter().chain(links).collect()
    }

    fn next_look(&self) -> Option<Duration> {
        let draining = self.draining.iter();
        let sweep = draining.filter_map(|each| each.lock().next_look()).min();
        [sweep, self.rules.next_look()].into_iter().flatten().min()
    }

    fn look(&mut self, now: Duration) -> Vec<(Family, Drift)> {
        self.sweep(now);
        self.rules.look(now)
    }
}
