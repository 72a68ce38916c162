//! Plans carried out: what was read may be old, and then all is planned anew.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::SystemTime;

use vipline_service_ip::{AddressRange, parse_address};

use crate::client::Unreadable;
use crate::default_cidr::{self, Problem};
use crate::finding::Finding;
use crate::repair::{self, Action};
use crate::{Cause, Client, Error, Service, lifecycle};

/// How often a plan is made anew when others are faster.
const ATTEMPTS: usize = 4;

/// Whether a plan was carried out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Carried {
    /// All of it.
    Out,
    /// Not what somebody else has changed meanwhile.
    InPart,
}

impl Client {
    /// Makes the default ServiceCIDR, with one range or one of each family, and
    /// says that it is ready; returns what is odd about the one there is.
    ///
    /// It is called when a control plane begins, and now and then.
    ///
    /// # Errors
    ///
    /// [`Error`]; what was done stays done.
    pub fn reconcile_default_cidr(
        &self,
        ranges: &[AddressRange],
        now: SystemTime,
    ) -> Result<Option<Problem>, Error> {
        // What is done one after the other counts as well: made, or given a
        // second range, and said to be ready.
        for _ in 0..2 + ATTEMPTS {
            let listed = self.service_cidrs()?;
            let mut cidrs = listed.objects.iter();
            let existing = cidrs.find(|cidr| *cidr.name == *default_cidr::NAME);
            let mut unreadable = listed.unreadable.into_iter();
            if existing.is_none()
                && let Some(object) = unreadable.find(|one| *one.name == *default_cidr::NAME)
            {
                return Err(object.error);
            }
            let made = match default_cidr::plan(existing, ranges, now) {
                default_cidr::Plan::Nothing => return Ok(None),
                default_cidr::Plan::Report(odd) => return Ok(Some(odd)),
                default_cidr::Plan::Create => self.create_default(ranges),
                default_cidr::Plan::Edit(edit) => self.edit(&edit),
            };
            won(made)?;
        }
        Err(contended("change", "the default ServiceCIDR"))
    }

    /// Does what is to be done for all ServiceCIDRs, and returns when to look
    /// again at the latest.
    ///
    /// It is called when a ServiceCIDR or an IPAddress has changed, and at the
    /// time that it returned; see [`lifecycle`].
    /// `tell` receives a finding for each object that cannot be read; the others
    /// are kept all the same.
    ///
    /// # Errors
    ///
    /// [`Error`]; what was done stays done.
    /// After a change that the server refuses, the others are made, and the first
    /// refusal is returned.
    pub fn reconcile_cidrs(
        &self,
        now: SystemTime,
        tell: &mut dyn FnMut(&Finding),
    ) -> Result<Option<SystemTime>, Error> {
        let mut told = Told::new(tell);
        for _ in 0..ATTEMPTS {
            let cidrs = self.service_cidrs()?;
            told.unreadable(&cidrs.unreadable);
            let cidrs = cidrs.objects;
            // What is said of one that stays depends on no address.
            let mut addresses = Vec::new();
            if cidrs.iter().any(|cidr| cidr.deleted.is_some()) {
                let listed = self.addresses(None)?;
                told.unreadable(&listed.unreadable);
                addresses = listed.objects;
            }
            let plan = lifecycle::plan(&cidrs, &addresses, now);
            let done = plan.edits.iter().map(|edit| self.edit(edit));
            if carried(done)? == Carried::Out {
                return Ok(plan.requeue_at);
            }
        }
        Err(contended("change", "ServiceCIDRs"))
    }

    /// Makes IPAddresses what Services say they have, tells what was wrong, and
    /// returns when to look again at the latest.
    ///
    /// It is called when a Service or an IPAddress has changed, at the time that
    /// it returned, and now and then; see [`repair`](mod@repair).
    /// What is told stays true if an error follows.
    /// An IPAddress that cannot be read is reported and stays; a ServiceCIDR that
    /// cannot be read is reported and left out.
    ///
    /// # Errors
    ///
    /// [`Error`]; what was done stays done.
    /// After a change that the server refuses, the others are made, and the first
    /// refusal is returned.
    /// A Service that cannot be read is [`Cause::Unreadable`], and nothing
    /// changes: its addresses would look as if they had leaked.
    pub fn repair(
        &self,
        now: SystemTime,
        tell: &mut dyn FnMut(&Finding),
    ) -> Result<Option<SystemTime>, Error> {
        let mut told = Told::new(tell);
        for _ in 0..ATTEMPTS {
            // In this order: an address is made before its Service.
            let addresses = self.addresses(None)?;
            let mut services = self.services()?;
            let cidrs = self.service_cidrs()?;
            told.unreadable(&addresses.unreadable);
            told.unreadable(&cidrs.unreadable);
            let names = addresses.unreadable.iter().map(|one| &*one.name);
            leave_alone(&mut services, &names.filter_map(parse_address).collect());
            let plan = repair::plan(&services, &addresses.objects, &cidrs.objects, now);
            for finding in plan.findings {
                told.tell(finding);
            }
            let done = plan.actions.iter().map(|action| self.carry_out(action));
            if carried(done)? == Carried::Out {
                return Ok(plan.requeue_at);
            }
        }
        Err(contended("repair", "IPAddresses"))
    }

    fn carry_out(&self, action: &Action) -> Result<(), Error> {
        match action {
            Action::Create { ip, owner } => self.create_address(*ip, owner).map(drop),
            Action::Delete { ip, uid, version } => self.delete_address(*ip, uid, Some(version)),
            Action::Label { ip, version } => self.label_address(*ip, version),
            Action::Recreate {
                ip,
                uid,
                version,
                owner,
            } => {
                self.delete_address(*ip, uid, Some(version))?;
                self.create_address(*ip, owner).map(drop)
            }
        }
    }
}

/// Findings, each of which is reported once.
struct Told<'a> {
    tell: &'a mut dyn FnMut(&Finding),
    told: BTreeSet<Finding>,
}

impl<'a> Told<'a> {
    fn new(tell: &'a mut dyn FnMut(&Finding)) -> Self {
        let told = BTreeSet::new();
        Self { tell, told }
    }

    fn tell(&mut self, finding: Finding) {
        if !self.told.contains(&finding) {
            (self.tell)(&finding);
            self.told.insert(finding);
        }
    }

    fn unreadable(&mut self, objects: &[Unreadable]) {
        for object in objects {
            self.tell(Finding::unreadable(&object.error));
        }
    }
}

/// Removes addresses from Services: it is unknown whose they are.
fn leave_alone(services: &mut [Service], unknown: &BTreeSet<IpAddr>) {
    let is_known = |text: &str| parse_address(text).is_none_or(|ip| !unknown.contains(&ip));
    for service in services {
        service.cluster_ips.retain(|text| is_known(text));
    }
}

/// Returns whether all was done, or another process was faster with a part.
///
/// After a change that the server refuses, the others are made.
fn carried(done: impl Iterator<Item = Result<(), Error>>) -> Result<Carried, Error> {
    let (mut carried, mut refused) = (Carried::Out, None);
    for done in done {
        match won(done) {
            Ok(Carried::Out) => {}
            Ok(Carried::InPart) => carried = Carried::InPart,
            Err(error) if error.is_refused() => {
                refused.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    refused.map_or(Ok(carried), Err)
}

/// Tells whether something was done, or somebody else was faster.
fn won(done: Result<(), Error>) -> Result<Carried, Error> {
    match done {
        Ok(()) => Ok(Carried::Out),
        Err(error) if error.is_race() => Ok(Carried::InPart),
        Err(error) => Err(error),
    }
}

fn contended(operation: &'static str, object: &str) -> Error {
    let attempts = ATTEMPTS;
    Error::new(operation, object, Cause::Contended { attempts })
}
