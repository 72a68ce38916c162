//! The kernel of one family: sets, rules, virtual servers and addresses.
//!
//! Mode ipvs writes to four subsystems that know nothing of each other. Two questions follow:
//!
//! *In which order?* There is no transaction over all four, so each step must leave a state that
//! works. For a new Service `10.96.0.20:80` these are: the entry in an ipset, the rules, the
//! virtual server with its real servers, and last the address on `kube-ipvs0`. `Steps` has the
//! order and its reasons.
//!
//! *Which virtual servers are ours?* IPVS has no place for an owner, and other programs have
//! virtual servers in the same list. So ours are those whose address is on `kube-ipvs0`, or whose
//! address and port are in one of our sets (`Ownership`). That is why a dump reads these two first.
//!
//! What must stay true:
//!
//! - A removal comes only for a virtual server that a dump took for ours, or that was planned.
//! - What `installed` records is what the kernel has: without rejected edits, and with the default
//!   scheduler where it replaces another (`installed.rs`).
//! - After an error the record is forgotten, because some steps were done and others not.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;
use vipline_ipset as ipset;
use vipline_iptables as iptables;
use vipline_ipvs::{self as ipvs, Command, Scheduler, ServiceKey, VirtualServer};
use vipline_netlink::Counters;
use vipline_reconcile::{Edit, Rejection, Target as _};
use vipline_rtnl as rtnl;
use vipline_service_model::Family;

use super::Shared;
use super::capacity::Capacities;
use super::drain::Drain;
use super::installed::Installed;
use super::links::Removed;
use super::rejections::Rejections;
use super::schedulers::{Missing, Schedulers};
use crate::backend::iptables as rules;
use crate::backend::ipvs::plan::layout::LAYOUT;
use crate::backend::ipvs::plan::names;
use crate::backend::ipvs::plan::object::Object;
use crate::backend::ipvs::plan::ownership::{Ownership, is_excluded};
use crate::backend::ipvs::plan::steps::Steps;
use crate::{Error, IptablesBackend, Ipvs};

/// The state of mode ipvs in the kernel for one family.
#[derive(Debug)]
pub struct Kernel {
    family: Family,
    rules: rules::Kernel,
    sets: ipset::Client,
    servers: ipvs::Client,
    links: rtnl::Client,
    /// Networks whose virtual servers belong to other programs.
    excluded: Vec<IpNet>,
    /// Virtual servers that were planned at some time. They are ours even if another
    /// process created them: the addition fails with EEXIST, and the next dump must show the
    /// server, so that it is corrected.
    claimed: HashSet<ServiceKey>,
    /// Real servers that are draining.
    drain: Shared<Drain>,
    /// What the last commit left, with which the watch compares the kernel.
    installed: Shared<Installed>,
    /// Addresses that this process removes, for the watch.
    removed: Shared<Removed>,
    /// Which schedulers the kernel has, and which virtual servers got the default instead.
    schedulers: Schedulers,
    /// Sizes of the sets: a set that would be too small is replaced by a larger one.
    capacities: Capacities,
}

impl Kernel {
    /// Opens clients for the network namespace of the calling thread. Rules are read and
    /// written by the programs of iptables.
    ///
    /// # Errors
    ///
    /// [`Error::Permanent`] if the kernel lacks IPVS, the default scheduler or ip_set or denies
    /// access, or if a program of iptables is missing or too old. Other errors of the clients
    /// are [`Error::Temporary`].
    pub fn open(family: Family, config: &Ipvs) -> Result<Self, Error> {
        Self::open_with(family, IptablesBackend::Programs, config)
    }

    /// Opens clients, with a backend for rules. [`IptablesBackend::Auto`] counts as the
    /// programs.
    ///
    /// # Errors
    ///
    /// The same as [`open`](Self::open).
    pub fn open_with(
        family: Family,
        backend: IptablesBackend,
        config: &Ipvs,
    ) -> Result<Self, Error> {
        let rules = rules::Kernel::open_with(family, backend)?.of_layout(LAYOUT);
        Self::with(family, rules, config, Shared::default(), Shared::default())
    }

    /// Opens clients next to `rules`. Shares removed addresses and missing schedulers
    /// with the watch.
    pub(super) fn with(
        family: Family,
        rules: rules::Kernel,
        config: &Ipvs,
        removed: Shared<Removed>,
        missing: Shared<Missing>,
    ) -> Result<Self, Error> {
        let mut servers = ipvs::Client::open()?;
        let default = config.scheduler;
        probe_scheduler(&mut servers, default)?;
        Ok(Self {
            family,
            rules,
            sets: ipset::Client::open()?,
            servers,
            links: rtnl::Client::open().map_err(of_links)?,
            excluded: config.excluded.clone(),
            claimed: HashSet::new(),
            drain: Shared::default(),
            installed: Shared::default(),
            removed,
            schedulers: Schedulers::new(default, missing),
            capacities: Capacities::default(),
        })
    }

    /// Returns the counters of messages and bytes of the IPVS socket.
    pub fn counters(&self) -> Counters {
        self.servers.counters()
    }

    /// Returns whether iptables supports `--random-fully`.
    pub(crate) fn has_random_fully(&self) -> bool {
        self.rules.has_random_fully()
    }

    /// Returns the netlink port ID of the socket that changes addresses.
    pub(super) fn port_of_links(&self) -> u32 {
        self.links.port_id()
    }

    /// Returns the draining real servers.
    pub(super) fn draining(&self) -> Shared<Drain> {
        self.drain.clone()
    }

    /// Returns the state that the last commit left.
    pub(super) fn installed(&self) -> Shared<Installed> {
        self.installed.clone()
    }

    /// Reads our virtual servers with their real servers, except for those that are
    /// draining.
    fn dump_servers(&mut self, ours: &Ownership) -> Result<Vec<ipvs::Object>, Error> {
        let mut found = Vec::new();
        // The kernel lists the virtual servers of both families and of other programs, which takes
        // long with many. None of them can be ours.
        if ours.is_empty() && self.claimed.is_empty() {
            return Ok(self.drain.lock().without(found));
        }
        for (server, _) in self.servers.servers()? {
            let service = server.service;
            // What was planned is ours also in an excluded network.
            let is_ours = self.claimed.contains(&service)
                || ours.owns(&service) && !is_excluded(&service, &self.excluded);
            // Both families have the same node ports.
            if service.family() != self.family || !is_ours {
                continue;
            }
            found.push(server.into());
            let reals = self.servers.destinations(&service)?.into_iter();
            found.extend(reals.map(|real| ipvs::Object::Destination(service, real.server)));
        }
        Ok(self.drain.lock().without(found))
    }

    fn commit_sets(
        &mut self,
        edits: &[Edit<ipset::Object>],
        to: &mut Rejections,
    ) -> Result<(), Error> {
        if edits.is_empty() {
            return Ok(());
        }
        let refused = self.sets.commit_each(&ipset::Commands::from_edits(edits))?;
        to.add_sets(refused)?;
        // Rejected edits changed nothing in the kernel.
        let accepted = to.accepted(edits);
        self.installed.lock().record_sets(&accepted);
        self.capacities.wrote(&accepted);
        Ok(())
    }

    fn commit_rules(
        &mut self,
        edits: &[Edit<iptables::Object>],
        to: &mut Rejections,
    ) -> Result<(), Error> {
        if !edits.is_empty() {
            to.add_rules(edits, self.rules.commit(edits)?);
        }
        Ok(())
    }

    fn commit_addresses(
        &mut self,
        edits: &[Edit<rtnl::Object>],
        to: &mut Rejections,
    ) -> Result<(), Error> {
        if edits.is_empty() {
            return Ok(());
        }
        let done = match self.links.commit(&rtnl::Commands::from_edits(edits)) {
            Err(rtnl::Error::Rejected { rejected, .. }) => to.add_addresses(rejected),
            done => done,
        };
        done.map_err(of_links)
    }

    /// Records own removals, so that the watch does not report them as drift. Only of IPv6: for
    /// IPv4 the kernel reports by whose socket an address was removed.
    fn note_removed(&self, edits: &[Edit<rtnl::Object>]) {
        let lost = edits.iter().filter_map(|edit| match edit.object() {
            rtnl::Object::Address(address) => match address.ip() {
                IpAddr::V6(ip) => Some(ip),
                IpAddr::V4(_) => None,
            },
            rtnl::Object::Link(_) => None,
        });
        self.removed.lock().extend(lost);
    }

    fn commit_servers(
        &mut self,
        mut edits: Vec<Edit<ipvs::Object>>,
        to: &mut Rejections,
    ) -> Result<(), Error> {
        let servers = &mut self.servers;
        self.schedulers
            .replace_missing(&mut edits, |scheduler| has_scheduler(servers, scheduler))?;
        let added = edits.iter().filter_map(|edit| match edit {
            Edit::Add(ipvs::Object::VirtualServer(server)) => Some(server.service),
            _ => None,
        });
        // Before the commit, which may fail because they exist.
        self.claimed.extend(added);
        let mut drain = self.drain.lock();
        // Without the copy where there is no need: a first sync adds thousands.
        let commands = if drain.is_unaffected(&edits) {
            ipvs::Commands::from_edits(&edits)
        } else {
            ipvs::Commands::from_edits(&drain.start(edits.clone()))
        };
        drop(drain);
        if !commands.is_empty() {
            match self.servers.commit(&commands) {
                Err(ipvs::Error::Rejected { rejected, .. }) => to.add_servers(rejected),
                done => done?,
            }
        }
        // Not the edits that `drain` made of them: a draining real server counts as removed.
        let accepted = to.accepted(&edits);
        self.installed.lock().record_servers(&accepted);
        for edit in &*accepted {
            if let Edit::Remove(ipvs::Object::VirtualServer(server)) = edit {
                self.claimed.remove(&server.service);
            }
        }
        Ok(())
    }

    /// Commits the steps in the order of [`Steps`], which has the reasons. An error ends it;
    /// rejected edits do not.
    fn commit_steps(&mut self, mut steps: Steps, to: &mut Rejections) -> Result<(), Error> {
        self.capacities.fit(&mut steps.sets);
        self.commit_sets(&steps.sets, to)?;
        self.commit_rules(&steps.rules, to)?;
        // Before the removal, whose notifications the watch compares with these addresses.
        self.note_removed(&steps.removed_addresses);
        self.commit_addresses(&steps.removed_addresses, to)?;
        self.commit_servers(steps.servers, to)?;
        self.commit_addresses(&steps.addresses, to)?;
        self.commit_sets(&steps.removed_sets, to)
    }
}

/// Returns the error of a request about the link with the addresses of Services. A kernel that
/// does not support it, because it lacks dummy interfaces, serves no Service.
fn of_links(error: rtnl::Error) -> Error {
    match error.is_unsupported() {
        true => Error::custom_permanent(error),
        false => error.into(),
    }
}

/// Address of the scheduler probe: TCP 198.51.100.0:20000, an address for documentation
/// (RFC 5737). Upstream uses the same.
fn probe() -> ServiceKey {
    ServiceKey::new(ipvs::Transport::Tcp, [198, 51, 100, 0].into(), 20_000)
}

/// Probes a scheduler. The kernel loads its module on demand.
///
/// By adding a virtual server, because IPVS has no request for the list of its schedulers.
fn probe_scheduler(client: &mut ipvs::Client, scheduler: Scheduler) -> Result<(), ipvs::Error> {
    let commands = |command| ipvs::Commands::from_iter([command]);
    let add = commands(Command::Add(VirtualServer::new(probe(), scheduler)));
    let remove = commands(Command::Remove(probe()));
    match client.commit(&add) {
        // A killed process left the probe behind.
        Err(error) if error.is_already_exists() => {
            client.commit(&remove)?;
            client.commit(&add)?;
        }
        done => done?,
    }
    client.commit(&remove)
}

/// Returns whether the only reason for a rejection is a missing scheduler.
fn is_scheduler_missing(error: &ipvs::Error) -> bool {
    error.all_rejected(|one| one.request.is_scheduler_missing(one.errno))
}

/// Returns whether the kernel has a scheduler.
fn has_scheduler(client: &mut ipvs::Client, scheduler: Scheduler) -> Result<bool, Error> {
    match probe_scheduler(client, scheduler) {
        Err(error) if is_scheduler_missing(&error) => Ok(false),
        tried => Ok(tried.map(|()| true)?),
    }
}

impl vipline_reconcile::Target for Kernel {
    type Object = Object;
    type Error = Error;

    fn dump(&mut self) -> Result<Vec<Object>, Error> {
        let sets = self.sets.dump(&names::all_sets(self.family))?;
        let addresses = self.links.dump_link_in(&names::link(), self.family);
        let addresses = addresses.map_err(of_links)?;
        let family = self.family;
        let addresses: Vec<_> = addresses
            .into_objects()
            .filter(|object| is_of(family, object))
            .collect();
        let ips = addresses.iter().filter_map(|object| match object {
            rtnl::Object::Address(address) => Some(address.ip()),
            rtnl::Object::Link(_) => None,
        });
        let ours = Ownership::new(&sets, ips);
        let servers = self.dump_servers(&ours)?;
        // Before the default scheduler becomes the planned one: a poll compares with the kernel.
        self.installed.lock().found(&sets, &servers);
        let servers = servers.into_iter().map(|object| match object {
            ipvs::Object::VirtualServer(server) => self.schedulers.as_planned(server).into(),
            real => real,
        });
        let mut objects: Vec<_> = servers.map(Object::from).collect();
        let sets = self.capacities.dumped(sets);
        objects.extend(sets.into_objects().map(Object::from));
        objects.extend(addresses.into_iter().map(Object::from));
        objects.extend(self.rules.dump()?.into_iter().map(Object::from));
        Ok(objects)
    }

    fn commit(&mut self, edits: &[Edit<Object>]) -> Result<Vec<Rejection>, Error> {
        let mut rejections = Rejections::default();
        let done = self.commit_steps(Steps::of(edits), &mut rejections);
        if done.is_err() {
            self.installed.lock().forget();
        }
        done.map(|()| rejections.into_rejections(edits))
    }
}

/// Returns whether a link or an address belongs to a family.
///
/// Both families share the link. The kernel assigns a link-local address to the link when
/// it is set up; that address is not ours.
fn is_of(family: Family, object: &rtnl::Object) -> bool {
    match object {
        rtnl::Object::Link(_) => true,
        rtnl::Object::Address(address) => match address.ip() {
            IpAddr::V4(_) => family == Family::V4,
            IpAddr::V6(ip) => family == Family::V6 && !ip.is_unicast_link_local(),
        },
    }
}
