//! Detection of changes by other processes, and removal of drained real servers.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use vipline_ipset as ipset;
use vipline_ipvs::{self as ipvs, Commands, Object, ServiceKey};
use vipline_service_model::Family;

use super::Shared;
use super::drain::Drain;
use super::installed::Installed;
use super::kernel::Kernel;
use super::links::{Links, Removed};
use super::schedulers::Missing;
use crate::backend::iptables::apply::watch::Watch as RulesWatch;
use crate::backend::ipvs::plan::layout::LAYOUT;
use crate::{Drift, Error, IptablesBackend, Ipvs, MissingFeature};

/// Watches rules and addresses for changes by other processes, and removes drained real
/// servers.
///
/// The kernel sends no notifications about virtual servers and sets, so the watch polls
/// some at intervals.
#[derive(Debug)]
pub(crate) struct Watch {
    rules: RulesWatch,
    sets: ipset::Client,
    servers: ipvs::Client,
    watched: Vec<Watched>,
    /// Netlink port IDs of the sockets that change our addresses.
    ports: Vec<u32>,
    removed: Shared<Removed>,
    missing: Shared<Missing>,
    /// `None` until the watch of addresses starts.
    links: Option<Links>,
    /// Polling interval.
    period: Duration,
    /// Time of the next poll; `None` if the watch does not poll.
    next: Option<Duration>,
}

/// The kernel of a family.
#[derive(Debug)]
struct Watched {
    family: Family,
    drain: Shared<Drain>,
    installed: Shared<Installed>,
}

impl Watch {
    /// Creates a watch that polls every `period` if the kernel sends no notifications.
    ///
    /// # Errors
    ///
    /// [`Error::Permanent`] if the kernel lacks IPVS or ipset.
    pub(crate) fn new(period: Duration) -> Result<Self, Error> {
        Ok(Self {
            rules: RulesWatch::of_layout(LAYOUT, period),
            sets: ipset::Client::open()?,
            servers: ipvs::Client::open()?,
            watched: Vec::new(),
            ports: Vec::new(),
            removed: Shared::default(),
            missing: Shared::default(),
            links: None,
            period,
            next: None,
        })
    }

    /// Opens a kernel and adds it to the watch.
    pub(crate) fn open(
        &mut self,
        family: Family,
        backend: IptablesBackend,
        config: &Ipvs,
    ) -> Result<Kernel, Error> {
        let rules = self.rules.open(family, backend)?;
        let (removed, missing) = (self.removed.clone(), self.missing.clone());
        let kernel = Kernel::with(family, rules, config, removed, missing)?;
        self.watched.push(Watched {
            family,
            drain: kernel.draining(),
            installed: kernel.installed(),
        });
        self.ports.push(kernel.port_of_links());
        Ok(kernel)
    }

    /// Starts to watch addresses. Call it before the first dump, so that no change is
    /// missed.
    ///
    /// # Errors
    ///
    /// The error of vipline-rtnl if the netlink socket cannot be opened.
    pub(crate) fn listen_to_links(&mut self) -> Result<(), Error> {
        self.links = Some(Links::listen(&self.ports, self.removed.clone())?);
        Ok(())
    }

    /// Removes real servers without connections.
    ///
    /// Virtual servers that cannot be read are checked again later. A real server that
    /// cannot be removed no longer counts as draining, so [`inspect`](Self::inspect) finds it
    /// as a change.
    fn sweep(&mut self, now: Duration) {
        for Watched { drain, .. } in &self.watched {
            let mut finished = Vec::new();
            let due = drain.lock().due(now);
            for service in due {
                if let Ok(reals) = self.servers.destinations(&service) {
                    finished.extend(drain.lock().finished(service, &reals, now));
                }
            }
            if !finished.is_empty() {
                let commands: Commands = finished.into_iter().collect();
                let _ = self.servers.commit(&commands);
            }
        }
    }

    /// Polls the sizes of sets and some virtual servers, and returns the changes.
    ///
    /// Objects that cannot be read are polled again later.
    fn inspect(&mut self, now: Duration) -> Vec<(Family, Drift)> {
        if self.next.is_none_or(|next| now < next) {
            return Vec::new();
        }
        self.next = Some(now + self.period);
        let headers = self.sets.headers().ok();
        let mut found = Vec::new();
        for watched in &self.watched {
            let mut installed = watched.installed.lock();
            let mut changes = headers.as_ref().map_or(0, |it| installed.changed_sets(it));
            for service in installed.next() {
                let Ok(mut objects) = objects(&mut self.servers, &service) else {
                    continue;
                };
                let drain = watched.drain.lock();
                objects.retain(|object| match object {
                    Object::Destination(service, real) => !drain.is_draining(service, real),
                    Object::VirtualServer(_) => true,
                });
                changes += usize::from(installed.is_changed(&service, &objects));
            }
            if changes > 0 {
                found.push((watched.family, Drift::new(changes, true)));
            }
        }
        found
    }
}

/// Reads a virtual server and its real servers. Returns nothing if it does not exist.
fn objects(client: &mut ipvs::Client, service: &ServiceKey) -> Result<Vec<Object>, ipvs::Error> {
    let server = match client.server(service) {
        Ok((server, _)) => server,
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let reals = client.destinations(service)?.into_iter();
    let reals = reals.map(|real| Object::Destination(*service, real.server));
    Ok([server.into()].into_iter().chain(reals).collect())
}

impl crate::Watch for Watch {
    fn start(&mut self) -> Result<Vec<Family>, Error> {
        self.next.get_or_insert(Duration::ZERO);
        // The engine calls this function after each sync, because this watch never
        // reports that it is active.
        let has_started = !self.rules.fds().is_empty() || self.rules.next_poll().is_some();
        match has_started {
            true => Ok(Vec::new()),
            false => self.rules.start(),
        }
    }

    /// Always `false`, because polling does not detect all changes of sets and virtual
    /// servers.
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

    fn next_poll(&self) -> Option<Duration> {
        let watched = self.watched.iter();
        let sweep = watched.filter_map(|it| it.drain.lock().next_poll()).min();
        let looks = [sweep, self.next, self.rules.next_poll()];
        looks.into_iter().flatten().min()
    }

    fn poll(&mut self, now: Duration) -> Vec<(Family, Drift)> {
        self.sweep(now);
        let mut found = self.inspect(now);
        found.extend(self.rules.poll(now));
        found
    }

    fn take_missing_features(&mut self) -> Vec<MissingFeature> {
        let missing = std::mem::take(&mut *self.missing.lock());
        missing.into_iter().map(MissingFeature::Scheduler).collect()
    }
}
