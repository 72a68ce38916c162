//! Plans carried out: what was read may be old, and then all is planned anew.

use std::collections::BTreeSet;
use std::time::SystemTime;

use vipline_service_ip::AddressRange;

use crate::default_cidr::{self, Odd};
use crate::finding::Finding;
use crate::repair::{self, Action};
use crate::{Cause, Client, Error, lifecycle};

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
    pub fn keep_default(
        &self,
        ranges: &[AddressRange],
        now: SystemTime,
    ) -> Result<Option<Odd>, Error> {
        // What is done one after the other counts as well: made, or given a
        // second range, and said to be ready.
        for _ in 0..2 + ATTEMPTS {
            let cidrs = self.service_cidrs()?;
            let existing = cidrs.iter().find(|cidr| *cidr.name == *default_cidr::NAME);
            let made = match default_cidr::plan(existing, ranges, now) {
                default_cidr::Plan::Nothing => return Ok(None),
                default_cidr::Plan::Leave(odd) => return Ok(Some(odd)),
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
    ///
    /// # Errors
    ///
    /// [`Error`]; what was done stays done.
    pub fn keep_cidrs(&self, now: SystemTime) -> Result<Option<SystemTime>, Error> {
        for _ in 0..ATTEMPTS {
            let cidrs = self.service_cidrs()?;
            // What is said of one that stays depends on no address.
            let addresses = if cidrs.iter().any(|cidr| cidr.deleted.is_some()) {
                self.addresses(None)?
            } else {
                Vec::new()
            };
            let plan = lifecycle::plan(&cidrs, &addresses, now);
            let mut carried = Carried::Out;
            for edit in &plan.edits {
                carried = carried.and(won(self.edit(edit))?);
            }
            if carried == Carried::Out {
                return Ok(plan.again);
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
    ///
    /// # Errors
    ///
    /// [`Error`]; what was done stays done.
    pub fn repair(
        &self,
        now: SystemTime,
        tell: &mut dyn FnMut(&Finding),
    ) -> Result<Option<SystemTime>, Error> {
        let mut told = BTreeSet::new();
        for _ in 0..ATTEMPTS {
            // In this order: an address is made before its Service.
            let addresses = self.addresses(None)?;
            let services = self.services()?;
            let cidrs = self.service_cidrs()?;
            let plan = repair::plan(&services, &addresses, &cidrs, now);
            for finding in plan.findings {
                if !told.contains(&finding) {
                    tell(&finding);
                    told.insert(finding);
                }
            }
            let mut carried = Carried::Out;
            for action in &plan.actions {
                carried = carried.and(won(self.carry_out(action))?);
            }
            if carried == Carried::Out {
                return Ok(plan.again);
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

impl Carried {
    const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Out, Self::Out) => Self::Out,
            _ => Self::InPart,
        }
    }
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
