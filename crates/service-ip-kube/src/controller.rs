//! Execution of plans. After a conflict, all objects are read and planned again.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::SystemTime;

use vipline_service_ip::{AddressRange, parse_address};

use crate::client::Unreadable;
use crate::default_cidr::{self, Problem};
use crate::finding::Finding;
use crate::ip_address::MANAGER;
use crate::repair::{self, Action};
use crate::{Cause, Client, Error, Service, lifecycle};

/// Maximum number of attempts of a plan after conflicts.
const ATTEMPTS: usize = 4;

/// Result of the execution of a plan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Execution {
    /// All actions were applied.
    Complete,
    /// Some actions failed with a conflict.
    Conflict,
}

impl Client {
    /// Creates or updates the default ServiceCIDR and sets its condition `Ready`.
    ///
    /// `ranges` holds one range, or one of each family.
    /// Returns a problem that requires an operator, if any.
    /// Call this method at the start of a control plane, and periodically.
    ///
    /// # Errors
    ///
    /// An [`Error`] with the failed request. Earlier changes are kept.
    /// [`Cause::Contended`]: every attempt failed with a conflict.
    /// [`Cause::Unreadable`]: the existing object cannot be parsed.
    pub async fn reconcile_default_cidr(
        &self,
        ranges: &[AddressRange],
        now: SystemTime,
    ) -> Result<Option<Problem>, Error> {
        // Two more iterations: create or add a second range, then set `Ready`.
        for _ in 0..2 + ATTEMPTS {
            let listed = self.service_cidrs().await?;
            let mut cidrs = listed.objects.iter();
            let existing = cidrs.find(|cidr| *cidr.name == *default_cidr::NAME);
            let mut unreadable = listed.unreadable.into_iter();
            if existing.is_none()
                && let Some(object) = unreadable.find(|one| *one.name == *default_cidr::NAME)
            {
                return Err(object.error);
            }
            let applied = match default_cidr::plan(existing, ranges, now) {
                default_cidr::Plan::Nothing => return Ok(None),
                default_cidr::Plan::Report(odd) => return Ok(Some(odd)),
                default_cidr::Plan::Create => self.create_default_cidr(ranges).await,
                default_cidr::Plan::Edit(edit) => self.edit(&edit).await,
            };
            execution(applied)?;
        }
        Err(contended("change", "the default ServiceCIDR"))
    }

    /// Reconciles finalizers and conditions of all ServiceCIDRs, see [`lifecycle`].
    ///
    /// Returns the latest time of the next call.
    /// Call this method when a ServiceCIDR or an IPAddress has changed, and at the
    /// returned time.
    /// `report` receives a finding for each object that cannot be parsed. All other
    /// objects are reconciled.
    ///
    /// # Errors
    ///
    /// An [`Error`] with the failed request. Earlier changes are kept.
    /// If the server rejects a change, all other changes are applied and the first
    /// rejection is returned.
    /// [`Cause::Contended`]: every attempt failed with a conflict.
    pub async fn reconcile_cidrs(
        &self,
        now: SystemTime,
        report: &mut (dyn FnMut(&Finding) + Send),
    ) -> Result<Option<SystemTime>, Error> {
        let mut reporter = Reporter::new(report);
        for _ in 0..ATTEMPTS {
            let cidrs = self.service_cidrs().await?;
            reporter.unreadable(&cidrs.unreadable);
            let cidrs = cidrs.objects;
            // Only ServiceCIDRs with a deletion timestamp depend on addresses.
            let mut addresses = Vec::new();
            if cidrs.iter().any(|cidr| cidr.deleted.is_some()) {
                let listed = self.addresses(None).await?;
                reporter.unreadable(&listed.unreadable);
                addresses = listed.objects;
            }
            let plan = lifecycle::plan(&cidrs, &addresses, now);
            let mut outcome = Outcome::default();
            for edit in &plan.edits {
                outcome.add(self.edit(edit).await)?;
            }
            if outcome.end()? == Execution::Complete {
                return Ok(plan.requeue_at);
            }
        }
        Err(contended("change", "ServiceCIDRs"))
    }

    /// Reconciles IPAddresses with the cluster IPs of Services, see
    /// [`repair`](mod@repair).
    ///
    /// Returns the latest time of the next call.
    /// Call this method when a Service or an IPAddress has changed, at the returned time,
    /// and periodically.
    /// `report` receives each finding once, even if an error follows.
    /// An IPAddress that cannot be parsed is reported and kept. A ServiceCIDR that cannot
    /// be parsed is reported and ignored.
    ///
    /// # Errors
    ///
    /// An [`Error`] with the failed request. Earlier changes are kept.
    /// If the server rejects a change, all other changes are applied and the first
    /// rejection is returned.
    /// [`Cause::Contended`]: every attempt failed with a conflict.
    /// A Service that cannot be parsed is [`Cause::Unreadable`], and nothing changes: its
    /// addresses would otherwise be released as leaked.
    pub async fn repair(
        &self,
        now: SystemTime,
        report: &mut (dyn FnMut(&Finding) + Send),
    ) -> Result<Option<SystemTime>, Error> {
        let mut reporter = Reporter::new(report);
        for _ in 0..ATTEMPTS {
            // The order matters: an address is created before its Service.
            let addresses = self.addresses(None).await?;
            let mut services = self.services().await?;
            let cidrs = self.service_cidrs().await?;
            reporter.unreadable(&addresses.unreadable);
            reporter.unreadable(&cidrs.unreadable);
            let names = addresses.unreadable.iter().map(|one| &*one.name);
            ignore_addresses(&mut services, &names.filter_map(parse_address).collect());
            let plan = repair::plan(&services, &addresses.objects, &cidrs.objects, now);
            for finding in plan.findings {
                reporter.report(finding);
            }
            let mut outcome = Outcome::default();
            for action in &plan.actions {
                outcome.add(self.execute(action).await)?;
            }
            if outcome.end()? == Execution::Complete {
                return Ok(plan.requeue_at);
            }
        }
        Err(contended("repair", "IPAddresses"))
    }

    /// Applies an action of a [repair plan](repair::plan).
    ///
    /// # Errors
    ///
    /// An [`Error`] with the failed request. After [`Error::is_conflict`],
    /// [`Error::is_already_exists`] or [`Error::is_not_found`], plan again.
    pub async fn execute(&self, action: &Action) -> Result<(), Error> {
        match action {
            Action::Create { ip, owner } => {
                self.create_address(*ip, owner, MANAGER).await.map(drop)
            }
            Action::Delete { ip, uid, version } => {
                self.delete_address(*ip, uid, Some(version)).await
            }
            Action::Label { ip, version } => self.label_address(*ip, version).await,
            Action::Recreate {
                ip,
                uid,
                version,
                owner,
            } => {
                self.delete_address(*ip, uid, Some(version)).await?;
                self.create_address(*ip, owner, MANAGER).await.map(drop)
            }
        }
    }
}

/// Reports each finding once.
struct Reporter<'a> {
    report: &'a mut (dyn FnMut(&Finding) + Send),
    reported: BTreeSet<Finding>,
}

impl<'a> Reporter<'a> {
    fn new(report: &'a mut (dyn FnMut(&Finding) + Send)) -> Self {
        let reported = BTreeSet::new();
        Self { report, reported }
    }

    fn report(&mut self, finding: Finding) {
        if !self.reported.contains(&finding) {
            (self.report)(&finding);
            self.reported.insert(finding);
        }
    }

    fn unreadable(&mut self, objects: &[Unreadable]) {
        for object in objects {
            self.report(Finding::unreadable(&object.error));
        }
    }
}

/// Removes addresses with unknown owner from Services, so that repair ignores them.
fn ignore_addresses(services: &mut [Service], unknown: &BTreeSet<IpAddr>) {
    let is_known = |text: &str| parse_address(text).is_none_or(|ip| !unknown.contains(&ip));
    for service in services {
        service.cluster_ips.retain(|text| is_known(text));
    }
}

/// The results of several actions.
///
/// A rejected action does not prevent later actions. The first rejection is returned.
#[derive(Default)]
struct Outcome {
    has_conflict: bool,
    rejected: Option<Error>,
}

impl Outcome {
    fn add(&mut self, applied: Result<(), Error>) -> Result<(), Error> {
        match execution(applied) {
            Ok(Execution::Complete) => {}
            Ok(Execution::Conflict) => self.has_conflict = true,
            Err(error) if error.is_rejected() => {
                self.rejected.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn end(self) -> Result<Execution, Error> {
        match (self.rejected, self.has_conflict) {
            (Some(error), _) => Err(error),
            (None, true) => Ok(Execution::Conflict),
            (None, false) => Ok(Execution::Complete),
        }
    }
}

/// Distinguishes a conflict with another process from other errors.
fn execution(applied: Result<(), Error>) -> Result<Execution, Error> {
    match applied {
        Ok(()) => Ok(Execution::Complete),
        Err(error) if error.is_race() => Ok(Execution::Conflict),
        Err(error) => Err(error),
    }
}

fn contended(operation: &'static str, object: &str) -> Error {
    let attempts = ATTEMPTS;
    Error::new(operation, object, Cause::Contended { attempts })
}
