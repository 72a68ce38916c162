//! Mapping of rejected commands to objects.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use vipline_netlink::Errno;
use vipline_reconcile::{Cause, Edit, Keyed, Reason, Rejection};
use {vipline_ipset as ipset, vipline_ipvs as ipvs, vipline_rtnl as rtnl};

use crate::backend::ipvs::plan::object::Object;

/// Objects whose commands were rejected.
#[derive(Debug, Default)]
pub(super) struct Rejections(Vec<(Object, Reason)>);

impl Rejections {
    /// Adds rejected commands about sets. Fails if a command is not about a single entry
    /// or removed set.
    pub(super) fn add_sets(
        &mut self,
        refused: Vec<ipset::RejectedCommand>,
    ) -> Result<(), ipset::Error> {
        for refused in refused {
            let object = match &refused.request.command {
                ipset::Command::Add(entry, _) | ipset::Command::Delete(entry, _) => {
                    ipset::Object::from((**entry).clone())
                }
                _ => return Err(ipset::Error::from_rejected(vec![refused])),
            };
            let reason = refused.request.reason;
            let errno = reason.errno().map(|errno| errno.0);
            let cause = match reason {
                ipset::Reason::Exists | ipset::Reason::Missing => Cause::Conflict,
                _ => Cause::Rejected,
            };
            let reason = Reason::rejected(errno, reason).with_cause(cause);
            self.0.push((object.into(), reason));
        }
        Ok(())
    }

    /// Adds chains and rules that were rejected.
    pub(super) fn add_rules(
        &mut self,
        edits: &[Edit<vipline_iptables::Object>],
        rejections: Vec<Rejection>,
    ) {
        let rejected = rejections.into_iter().filter_map(|rejection| {
            let edit = edits.get(rejection.index)?;
            Some((Object::from(edit.object().clone()), rejection.reason))
        });
        self.0.extend(rejected);
    }

    /// Adds rejected commands about virtual and real servers.
    ///
    /// Real servers of a rejected virtual server depend on it.
    pub(super) fn add_servers(&mut self, refused: Vec<ipvs::RejectedCommand>) {
        let is_added = |it: &&ipvs::RejectedCommand| matches!(it.request, ipvs::Command::Add(_));
        let missing = refused.iter().filter(is_added);
        let missing: HashSet<_> = missing.map(|it| service(&it.request)).collect();
        self.0.extend(refused.iter().map(|it| {
            let is_real = matches!(object(&it.request), ipvs::Object::Destination(..));
            let cause = match it.errno {
                Errno::SRCH if is_real && missing.contains(&service(&it.request)) => {
                    Cause::Dependent
                }
                _ if it.request.is_scheduler_missing(it.errno) => Cause::Rejected,
                Errno::EXIST | Errno::NOENT | Errno::SRCH => Cause::Conflict,
                _ => Cause::Rejected,
            };
            let reason = Reason::rejected(Some(it.errno.0), it.errno).with_cause(cause);
            (object(&it.request).into(), reason)
        }));
    }

    /// Adds rejected commands about addresses. Fails if a command is about a link.
    pub(super) fn add_addresses(
        &mut self,
        rejected: Vec<rtnl::RejectedCommand>,
    ) -> Result<(), rtnl::Error> {
        for it in &rejected {
            let (rtnl::Command::AddAddress(address) | rtnl::Command::RemoveAddress(address)) =
                &it.request
            else {
                return Err(rtnl::Error::from_rejected(rejected));
            };
            let cause = match it.errno {
                Errno::EXIST | Errno::NODEV | Errno::ADDRNOTAVAIL => Cause::Conflict,
                _ => Cause::Rejected,
            };
            let reason = Reason::rejected(Some(it.errno.0), it.reason()).with_cause(cause);
            let address = rtnl::Object::from(*address);
            self.0.push((address.into(), reason));
        }
        Ok(())
    }

    /// Returns the edits whose objects were not rejected.
    pub(super) fn accepted<'a, T: Keyed>(&self, edits: &'a [Edit<T>]) -> Cow<'a, [Edit<T>]>
    where
        Object: From<T>,
    {
        if self.0.is_empty() {
            return Cow::Borrowed(edits);
        }
        let objects = edits.iter().map(|edit| Object::from(edit.object().clone()));
        let objects: Vec<_> = objects.collect();
        let refused: HashSet<_> = self.0.iter().map(|(object, _)| object.key()).collect();
        let edits = edits.iter().zip(&objects);
        let accepted = edits.filter(|(_, object)| !refused.contains(&object.key()));
        accepted.map(|(edit, _)| edit.clone()).collect()
    }

    /// Returns the edits whose objects were rejected.
    pub(super) fn into_rejections(self, edits: &[Edit<Object>]) -> Vec<Rejection> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let places: HashMap<_, _> = edits.iter().map(Edit::key).zip(0..).collect();
        // A changed address has two commands.
        let mut seen = HashSet::new();
        let rejections = self.0.iter().filter_map(|(object, reason)| {
            let index = *places.get(&object.key())?;
            let reason = reason.clone();
            seen.insert(index).then(|| Rejection::new(index, reason))
        });
        rejections.collect()
    }
}

fn service(command: &ipvs::Command) -> ipvs::ServiceKey {
    object(command).service()
}

/// Returns an object with the key of the object of a command.
fn object(command: &ipvs::Command) -> ipvs::Object {
    match *command {
        ipvs::Command::Add(server) | ipvs::Command::Edit(server) => server.into(),
        ipvs::Command::Remove(service) => {
            ipvs::VirtualServer::new(service, ipvs::Scheduler::RoundRobin).into()
        }
        ipvs::Command::AddDestination(service, real)
        | ipvs::Command::EditDestination(service, real) => ipvs::Object::Destination(service, real),
        ipvs::Command::RemoveDestination(service, endpoint) => {
            let real = ipvs::RealServer::new(endpoint.ip(), endpoint.port());
            ipvs::Object::Destination(service, real)
        }
    }
}

#[cfg(test)]
mod tests;
