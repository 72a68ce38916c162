//! A store for IPAddress objects.

use std::collections::BTreeMap;
use std::net::IpAddr;

use vipline_service_ip::{
    AddressRange, AsyncStore, Change, Cidrs, CommitError, Family, OwnerRef, Pool, Snapshot,
    StoreError, Version, parse_address,
};

use crate::client::Listed;
use crate::error::chain;
use crate::ip_address::MANAGER;
use crate::watched::Watched;
use crate::{Cause, Client, Error, Event, IpAddress, ServiceCidr};

/// Number of consecutive conflicts after which all objects are listed again.
const MAX_CONFLICTS: usize = 8;

/// Default manager of the addresses of other objects than Services.
const DEFAULT_MANAGER: &str = "vipline-service-ip";

/// A store for the IPAddresses and ServiceCIDRs of one family.
///
/// One allocation is one request.
/// [`blocking::Kube`](crate::blocking::Kube) is the same for threads without an async
/// runtime.
/// Other processes may allocate concurrently: the name of an IPAddress is its address,
/// so that only one creation succeeds.
#[derive(Debug)]
pub struct Kube {
    client: Client,
    family: Family,
    /// Manager of the addresses of other objects than Services.
    manager: Box<str>,
    version: u64,
    /// Known IPAddresses.
    known: BTreeMap<IpAddr, Known>,
    /// Number of consecutive conflicts.
    conflicts: usize,
    /// Errors of the objects that the last load could not parse.
    unreadable: Vec<Error>,
    /// Objects of the caller's watches, if it has any.
    watched: Option<Watched>,
}

/// A known IPAddress.
#[derive(Debug)]
struct Known {
    uid: Box<str>,
    state: State,
}

/// Whether an IPAddress may be deleted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Managed,
    NotManaged,
    Unreadable,
}

/// An applied step of a change.
#[derive(Debug)]
enum Step {
    Created(IpAddr),
    /// With the former owner.
    Deleted(IpAddr, Option<OwnerRef>),
}

/// Error of a step.
#[derive(Debug)]
enum Failure {
    /// The address belongs to another owner.
    Taken(IpAddr),
    /// The IPAddress has changed since it was read.
    Changed(IpAddr),
    /// The request failed.
    Error(Error),
}

impl Kube {
    /// Returns the store of a family. Does not send a request.
    #[must_use]
    pub fn new(client: Client, family: Family) -> Self {
        Self {
            client,
            family,
            manager: DEFAULT_MANAGER.into(),
            version: 0,
            known: BTreeMap::new(),
            conflicts: 0,
            unreadable: Vec::new(),
            watched: None,
        }
    }

    /// Sets the manager of the addresses of other objects than Services, such as Gateways.
    ///
    /// The manager is the value of the label `ipaddress.kubernetes.io/managed-by`.
    /// Kubernetes releases addresses of its own manager that no Service has. The store
    /// releases addresses of this manager and of `ipallocator.k8s.io` only.
    /// Default: `vipline-service-ip`.
    #[must_use]
    pub fn with_manager(mut self, manager: &str) -> Self {
        self.manager = manager.into();
        self
    }

    /// Returns the errors of the objects that the last load could not parse.
    ///
    /// An invalid range of a ServiceCIDR is not used for allocation.
    /// An IPAddress that cannot be parsed counts as allocated to an unknown Service if its
    /// name is an address.
    #[must_use]
    pub fn unreadable(&self) -> &[Error] {
        &self.unreadable
    }

    /// Records an event of the caller's watches.
    ///
    /// After the first [`Event::Listed`] the store sends no list requests: a load returns
    /// the watched objects and the changes of this store.
    pub fn watch(&mut self, event: Event) {
        // The next change must not use a ServiceCIDR that is in deletion.
        self.version += u64::from(event.changes_ranges());
        match (&mut self.watched, event) {
            (watched, Event::Listed { cidrs, addresses }) => {
                *watched = Some(Watched::new(cidrs, addresses));
            }
            (Some(watched), event) => watched.apply(event),
            (None, _) => {}
        }
    }

    /// Applies a change and records the applied steps.
    async fn apply(
        &mut self,
        change: &Change<IpAddr>,
        applied: &mut Vec<Step>,
    ) -> Result<(), Failure> {
        let is_freed = |ip: &IpAddr| change.freed.contains_key(ip);
        let new = change.taken.iter().filter(|(ip, _)| !is_freed(ip));
        for (ip, owner) in new {
            self.create(*ip, owner).await?;
            applied.push(Step::Created(*ip));
        }
        for (ip, former) in &change.freed {
            self.delete(*ip).await?;
            applied.push(Step::Deleted(*ip, former.clone()));
            if let Some(owner) = change.taken.get(ip) {
                self.create(*ip, owner).await?;
                applied.push(Step::Created(*ip));
            }
        }
        Ok(())
    }

    /// Reverts applied steps in reverse order.
    async fn roll_back(&mut self, applied: Vec<Step>) -> Result<(), Failure> {
        for step in applied.into_iter().rev() {
            match step {
                Step::Created(ip) => match self.delete(ip).await {
                    // The created object no longer exists or has changed.
                    Ok(()) | Err(Failure::Changed(_)) => {}
                    Err(failure) => return Err(failure),
                },
                Step::Deleted(ip, Some(former)) => self.create(ip, &former).await?,
                // The object cannot be created again without its owner.
                Step::Deleted(ip, None) => return Err(Failure::Changed(ip)),
            }
        }
        Ok(())
    }

    async fn create(&mut self, ip: IpAddr, owner: &OwnerRef) -> Result<(), Failure> {
        let manager = match owner.is_service() {
            true => MANAGER,
            false => &*self.manager,
        };
        let created = self.client.create_address(ip, owner, manager).await;
        let uid = created.map_err(|error| {
            if error.is_already_exists() {
                Failure::Taken(ip)
            } else if error.is_conflict() {
                Failure::Changed(ip)
            } else {
                Failure::Error(error)
            }
        })?;
        if let Some(watched) = &mut self.watched {
            watched.created(ip, &uid, owner, manager);
        }
        let state = State::Managed;
        self.known.insert(ip, Known { uid, state });
        Ok(())
    }

    /// Returns the reason why an address must not be deleted, if any.
    fn reason_to_keep(&self, ip: IpAddr) -> Option<Error> {
        let cause = match self.known.get(&ip)?.state {
            State::Managed => return None,
            State::NotManaged => Cause::NotManaged,
            State::Unreadable => Cause::Unreadable("the owner is unknown".into()),
        };
        Some(Error::new("delete", format!("IPAddress {ip}"), cause))
    }

    async fn delete(&mut self, ip: IpAddr) -> Result<(), Failure> {
        let Some(known) = self.known.get(&ip) else {
            return Err(Failure::Changed(ip));
        };
        match self.client.delete_address(ip, &known.uid, None).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) if error.is_conflict() => return Err(Failure::Changed(ip)),
            Err(error) => return Err(Failure::Error(error)),
        }
        self.known.remove(&ip);
        if let Some(watched) = &mut self.watched {
            watched.deleted(ip);
        }
        Ok(())
    }

    /// Returns the error of a change that was rolled back.
    fn commit_error(
        &mut self,
        failure: Failure,
        change: &Change<IpAddr>,
        after: &Snapshot<Cidrs>,
    ) -> CommitError<Cidrs> {
        match failure {
            Failure::Error(error) if error.is_unknown() => CommitError::Unknown(error.into()),
            Failure::Error(error) => CommitError::Failed(error.into()),
            Failure::Changed(_) => CommitError::Conflict { now: None },
            Failure::Taken(ip) => {
                self.conflicts += 1;
                let now =
                    (self.conflicts < MAX_CONFLICTS).then(|| Box::new(without(after, change, ip)));
                CommitError::Conflict { now }
            }
        }
    }
}

impl Kube {
    /// Returns the watched objects, or lists them.
    async fn objects(&self) -> Result<(Listed<ServiceCidr>, Listed<IpAddress>), Error> {
        if let Some(watched) = &self.watched {
            return Ok((watched.cidrs(), watched.addresses(self.family)));
        }
        let cidrs = self.client.service_cidrs().await?;
        let addresses = self.client.addresses(Some(self.family)).await?;
        Ok((cidrs, addresses))
    }
}

impl AsyncStore<Cidrs> for Kube {
    async fn load(&mut self) -> Result<Snapshot<Cidrs>, StoreError> {
        let (cidrs, addresses) = self.objects().await?;
        let mut pool = Cidrs::of(self.family);
        let mut unreadable = cidrs.unreadable;
        for cidr in &cidrs.objects {
            let mut ranges = cidr.ranges.iter();
            let is_ours = |range: &&AddressRange| Family::of(range.network().addr()) == self.family;
            if let Some(range) = ranges.find(is_ours) {
                let inserted = pool.insert(&cidr.name, *range, cidr.is_ready());
                inserted.map_err(|error| {
                    let object = format!("ServiceCIDR {}", cidr.name);
                    Error::new("read", object, Cause::Unreadable(chain(&error)))
                })?;
            }
        }
        let mut owners = BTreeMap::new();
        self.known.clear();
        for address in addresses.objects {
            // An address with a wrong family label is in no range.
            if pool.mark_allocated(address.ip).is_err() {
                continue;
            }
            owners.insert(address.ip, address.owner.clone());
            let known = Known::new(address.uid, address.manager.as_deref(), &self.manager);
            self.known.insert(address.ip, known);
        }
        for address in &addresses.unreadable {
            if let Some(ip) = parse_address(&address.name)
                && pool.mark_allocated(ip).is_ok()
            {
                self.known.insert(ip, Known::unreadable());
            }
        }
        unreadable.extend(addresses.unreadable);
        self.unreadable = unreadable.into_iter().map(|object| object.error).collect();
        self.version += 1;
        self.conflicts = 0;
        let mut snapshot = Snapshot::new(pool, Version(self.version));
        snapshot.owners = owners;
        Ok(snapshot)
    }

    async fn commit(
        &mut self,
        base: Version,
        change: &Change<IpAddr>,
        after: &Snapshot<Cidrs>,
    ) -> Result<Version, CommitError<Cidrs>> {
        if base != Version(self.version) {
            return Err(CommitError::Conflict { now: None });
        }
        let mut kept = change
            .freed
            .keys()
            .filter_map(|ip| self.reason_to_keep(*ip));
        if let Some(error) = kept.next() {
            return Err(CommitError::Failed(error.into()));
        }
        let mut applied = Vec::new();
        let Err(failure) = self.apply(change, &mut applied).await else {
            self.version += 1;
            self.conflicts = 0;
            return Ok(Version(self.version));
        };
        if let Err(failure) = self.roll_back(applied).await {
            return Err(CommitError::Unknown(rollback_error(failure).into()));
        }
        Err(self.commit_error(failure, change, after))
    }
}

impl Known {
    /// Returns the state of an address with a manager, for a store with the manager
    /// `ours`.
    fn new(uid: Box<str>, manager: Option<&str>, ours: &str) -> Self {
        let state = match manager {
            Some(manager) if manager == MANAGER || manager == ours => State::Managed,
            _ => State::NotManaged,
        };
        Self { uid, state }
    }

    fn unreadable() -> Self {
        Self {
            uid: "".into(),
            state: State::Unreadable,
        }
    }
}

/// Returns the state before a change, with a conflicting address marked as allocated.
fn without(after: &Snapshot<Cidrs>, change: &Change<IpAddr>, taken: IpAddr) -> Snapshot<Cidrs> {
    let mut now = after.clone();
    for ip in change.taken.keys() {
        now.pool.release(*ip);
        now.owners.remove(ip);
    }
    for (ip, former) in &change.freed {
        mark_allocated(&mut now.pool, *ip);
        if let Some(owner) = former {
            now.owners.insert(*ip, owner.clone());
        }
    }
    mark_allocated(&mut now.pool, taken);
    now
}

fn mark_allocated(pool: &mut Cidrs, ip: IpAddr) {
    let occupied = pool.mark_allocated(ip);
    debug_assert!(occupied.is_ok(), "the address is of the family of the pool");
}

/// Returns the error of a failed rollback.
fn rollback_error(failure: Failure) -> Error {
    match failure {
        Failure::Error(error) => error,
        Failure::Taken(ip) | Failure::Changed(ip) => Error::new(
            "roll back the change of",
            format!("IPAddress {ip}"),
            Cause::RollbackFailed,
        ),
    }
}
