//! What is allocated, as IPAddress objects.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use vipline_service_ip::{
    AddressRange, Change, Cidrs, CommitError, Family, Pool, ServiceRef, Snapshot, Store,
    StoreError, Version, parse_address,
};

use crate::error::words;
use crate::{Cause, Client, Error, IpAddress};

/// How often in a row an address may turn out to be another's until all are
/// read anew: what is known is too old then.
const MISSES: usize = 8;

/// The IPAddresses of one family, and the ServiceCIDRs that they are of.
///
/// One allocation is one request.
/// Others may allocate at the same time: an address is created under its own
/// name, which the API server lets happen once.
#[derive(Debug)]
pub struct Kube {
    client: Arc<Client>,
    family: Family,
    version: u64,
    /// Which objects the addresses are that are known to be taken.
    known: BTreeMap<IpAddr, Known>,
    /// How many addresses in a row were another's.
    misses: usize,
    /// Errors of the objects that the last load could not read.
    unreadable: Vec<Error>,
}

/// An IPAddress that is known.
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

/// A part of a change that is made.
#[derive(Debug)]
enum Step {
    Created(IpAddr),
    /// With who had it.
    Deleted(IpAddr, Option<ServiceRef>),
}

/// Why a part of a change is not made.
#[derive(Debug)]
enum Failure {
    /// The address is another's.
    Taken(IpAddr),
    /// The address is not any more what it was.
    Changed(IpAddr),
    /// The server refuses, or cannot be asked, or does not say.
    Error(Error),
}

impl Kube {
    /// Returns the store of a family; nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`Cause::Configuration`], as [`Client::open`].
    pub fn open(kubeconfig: Option<&Path>, family: Family) -> Result<Self, Error> {
        Ok(Self::new(Arc::new(Client::open(kubeconfig)?), family))
    }

    /// Returns the store of a family, with a client that others may use as well.
    #[must_use]
    pub const fn new(client: Arc<Client>, family: Family) -> Self {
        Self {
            client,
            family,
            version: 0,
            known: BTreeMap::new(),
            misses: 0,
            unreadable: Vec::new(),
        }
    }

    /// Returns the objects that could not be read the last time that all were
    /// read, and why.
    ///
    /// A ServiceCIDR gives no addresses of a range that cannot be read.
    /// An IPAddress that cannot be read is taken if its name is an address; its
    /// Service is unknown.
    #[must_use]
    pub fn unreadable(&self) -> &[Error] {
        &self.unreadable
    }

    /// Makes a change, and says which parts of it are made.
    fn make(&mut self, change: &Change<IpAddr>, made: &mut Vec<Step>) -> Result<(), Failure> {
        let is_freed = |ip: &IpAddr| change.freed.contains_key(ip);
        let new = change.taken.iter().filter(|(ip, _)| !is_freed(ip));
        for (ip, owner) in new {
            self.create(*ip, owner)?;
            made.push(Step::Created(*ip));
        }
        for (ip, former) in &change.freed {
            self.delete(*ip)?;
            made.push(Step::Deleted(*ip, former.clone()));
            if let Some(owner) = change.taken.get(ip) {
                self.create(*ip, owner)?;
                made.push(Step::Created(*ip));
            }
        }
        Ok(())
    }

    /// Undoes what is made of a change, the last part first.
    fn undo(&mut self, made: Vec<Step>) -> Result<(), Failure> {
        for step in made.into_iter().rev() {
            match step {
                Step::Created(ip) => match self.delete(ip) {
                    // What was made is gone, whoever did that.
                    Ok(()) | Err(Failure::Changed(_)) => {}
                    Err(failure) => return Err(failure),
                },
                Step::Deleted(ip, Some(former)) => self.create(ip, &former)?,
                // It cannot be made again for whom nobody knows.
                Step::Deleted(ip, None) => return Err(Failure::Changed(ip)),
            }
        }
        Ok(())
    }

    fn create(&mut self, ip: IpAddr, owner: &ServiceRef) -> Result<(), Failure> {
        let uid = self.client.create_address(ip, owner).map_err(|error| {
            if error.is_already_exists() {
                Failure::Taken(ip)
            } else if error.is_conflict() {
                Failure::Changed(ip)
            } else {
                Failure::Error(error)
            }
        })?;
        let state = State::Managed;
        self.known.insert(ip, Known { uid, state });
        Ok(())
    }

    /// Returns why an address must not be deleted, if that is so.
    fn reason_to_keep(&self, ip: IpAddr) -> Option<Error> {
        let cause = match self.known.get(&ip)?.state {
            State::Managed => return None,
            State::NotManaged => Cause::NotManaged,
            State::Unreadable => Cause::Unreadable("it is unknown whose it is".into()),
        };
        Some(Error::new("delete", format!("IPAddress {ip}"), cause))
    }

    fn delete(&mut self, ip: IpAddr) -> Result<(), Failure> {
        let Some(known) = self.known.get(&ip) else {
            return Err(Failure::Changed(ip));
        };
        match self.client.delete_address(ip, &known.uid, None) {
            Ok(()) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) if error.is_conflict() => return Err(Failure::Changed(ip)),
            Err(error) => return Err(Failure::Error(error)),
        }
        self.known.remove(&ip);
        Ok(())
    }

    /// Says what is the case after a change was not made.
    fn refuse(
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
                self.misses += 1;
                let now = (self.misses < MISSES).then(|| Box::new(without(after, change, ip)));
                CommitError::Conflict { now }
            }
        }
    }
}

impl Store<Cidrs> for Kube {
    fn load(&mut self) -> Result<Snapshot<Cidrs>, StoreError> {
        let cidrs = self.client.service_cidrs()?;
        let addresses = self.client.addresses(Some(self.family))?;
        let mut pool = Cidrs::of(self.family);
        let mut unreadable = cidrs.unreadable;
        for cidr in &cidrs.objects {
            let mut ranges = cidr.ranges.iter();
            let is_ours = |range: &&AddressRange| Family::of(range.network().addr()) == self.family;
            if let Some(range) = ranges.find(is_ours) {
                let inserted = pool.insert(&cidr.name, *range, cidr.is_ready());
                inserted.map_err(|error| {
                    let object = format!("ServiceCIDR {}", cidr.name);
                    Error::new("read", object, Cause::Unreadable(words(&error)))
                })?;
            }
        }
        let mut owners = BTreeMap::new();
        self.known.clear();
        for address in addresses.objects {
            // What is labelled with the wrong family is of no range.
            if pool.mark_allocated(address.ip).is_err() {
                continue;
            }
            if let Some(owner) = address.parent.owner() {
                owners.insert(address.ip, owner);
            }
            self.known.insert(address.ip, Known::new(address));
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
        self.misses = 0;
        Ok(Snapshot {
            pool,
            owners,
            version: Version(self.version),
            repair_reason: None,
        })
    }

    fn commit(
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
        let mut made = Vec::new();
        let Err(failure) = self.make(change, &mut made) else {
            self.version += 1;
            self.misses = 0;
            return Ok(Version(self.version));
        };
        if let Err(failure) = self.undo(made) {
            return Err(CommitError::Unknown(stuck(failure).into()));
        }
        Err(self.refuse(failure, change, after))
    }
}

impl Known {
    fn new(address: IpAddress) -> Self {
        Self {
            state: match address.is_managed() {
                true => State::Managed,
                false => State::NotManaged,
            },
            uid: address.uid,
        }
    }

    fn unreadable() -> Self {
        Self {
            uid: "".into(),
            state: State::Unreadable,
        }
    }
}

/// Returns what is the case without a change, where an address turned out to be
/// another's.
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
    debug_assert!(occupied.is_ok(), "it was in this pool");
}

/// Returns why a part of a change could not be undone.
fn stuck(failure: Failure) -> Error {
    match failure {
        Failure::Error(error) => error,
        Failure::Taken(ip) | Failure::Changed(ip) => Error::new(
            "undo the change of",
            format!("IPAddress {ip}"),
            Cause::RollbackFailed,
        ),
    }
}
