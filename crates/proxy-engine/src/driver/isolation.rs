//! Owners of rejected objects.

use std::mem;
use std::sync::Arc;

use vipline_reconcile::{Plan, Rejected, Target};

use super::{Driver, Owner};
use crate::rejected::{RejectedObject, find_owners};
use crate::{Error, Planner};

impl<P: Planner, K: Target<Object = P::Object>> Driver<P, K> {
    /// Finds the Services that own newly rejected objects.
    ///
    /// # Errors
    ///
    /// [`Error::Rejected`] if the kernel rejected an object without which no Service works.
    /// Optional objects of the base are noted like those of Services.
    pub(super) fn note_rejected(&mut self, plan: &Plan<P::Object>) -> Result<(), Error> {
        let changed = mem::take(&mut self.changed);
        self.registry.refresh(&self.reconciler);
        let rejected = self.reconciler.take_new_rejections();
        let changed = (!plan.dumped).then_some(&*changed);
        let owners = match rejected.is_empty() {
            true => Vec::new(),
            false => find_owners(&self.ledger, &self.former, &rejected, changed),
        };
        self.former.clear();
        let mut of_base = Vec::new();
        for (rejected, owner) in rejected.into_iter().zip(owners) {
            let Rejected { object, reason, .. } = &rejected;
            let (text, reason) = (P::text(object), reason.clone());
            let is_of_all = matches!(owner, Some(Owner::Base));
            let owner = match owner {
                Some(Owner::Base) if !rejected.is_removal && !P::is_optional(object) => {
                    of_base.push(Error::Rejected {
                        object: text,
                        reason,
                    });
                    self.reconciler.forget_rejected(object);
                    continue;
                }
                Some(Owner::Port(_, name)) => Some(Arc::clone(name.name())),
                Some(Owner::Base | Owner::OnDemand(_)) | None => None,
            };
            let described = Arc::new(RejectedObject {
                owner,
                object: text,
                is_removal: rejected.is_removal,
                is_of_all,
                reason,
            });
            self.newly_rejected.push(Arc::clone(&described));
            self.registry.insert(rejected.object, described);
        }
        of_base.into_iter().next().map_or(Ok(()), Err)
    }
}
