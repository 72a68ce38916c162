//! The pure part of a mode.

use vipline_reconcile::{Edit, Keyed};
use vipline_service_model::{Family, ServicePort};

#[cfg(feature = "evaluate")]
use crate::evaluate::Rules;
use crate::{Context, PortObjects};

/// The planner of a mode: translates Services to objects of the kernel.
///
/// A planner is a value with the settings of its mode. It has no other state and cannot fail.
pub trait Planner: Clone + PartialEq + Send + 'static {
    /// A kernel object that the mode programs.
    type Object: Keyed + Send + Sync;

    /// Number of edits after which a sync ends, and leaves other changes to the next one.
    /// Default: 4,096, which mode nftables plans and commits in 20 ms.
    ///
    /// A sync has up to twice as many: a Service with fewer objects than a quarter changes as
    /// a whole, and objects that several addresses share come with the first of them. An
    /// address changes as a whole however many endpoints it has.
    const EDITS_PER_SYNC: usize = 4_096;

    /// Returns the number of objects like this one whose addition costs as much as one edit, at
    /// most 64. Default: 1.
    fn additions_per_edit(_object: &Self::Object) -> usize {
        1
    }

    /// Returns the number of objects like this one whose removal costs as much as one edit, at
    /// most 64. Default: 1.
    fn removals_per_edit(_object: &Self::Object) -> usize {
        1
    }

    /// Returns the objects that do not depend on Services.
    fn base(&self, cx: &Context) -> Vec<Self::Object>;

    /// Returns whether a change of context changes the objects of service ports, so that
    /// all ports must be planned again.
    fn requires_replan(&self, before: &Context, after: &Context) -> bool;

    /// Returns the objects of one service port.
    fn port(&self, cx: &Context, port: &ServicePort) -> PortObjects<Self::Object>;

    /// Returns whether an object stays installed for 30 s after its last use. Default:
    /// `false`.
    ///
    /// Several service ports may use such an object. It has no effect while unused, and
    /// objects with equal keys are equal. At most 64 unused objects stay.
    fn is_removal_delayed(_object: &Self::Object) -> bool {
        false
    }

    /// Returns whether an unused object may stay installed without counting as a
    /// difference to the plan. Default: `false`.
    fn tolerates_unused(_object: &Self::Object) -> bool {
        false
    }

    /// Returns whether Services work without an object of [`base`](Self::base), although not
    /// completely. If the kernel rejects such an object, it is reported and retried like an
    /// object of a Service; without any other, the sync fails. Default: `false`.
    fn is_optional(_object: &Self::Object) -> bool {
        false
    }

    /// Returns the table of an object and its number of rules, in modes with rules per
    /// Service. Default: `None`.
    fn rule_count(_object: &Self::Object) -> Option<(&'static str, usize)> {
        None
    }

    /// Returns the name of the link to which the mode adds the addresses of Services, so that
    /// they become addresses of the node. Default: `None`.
    fn service_link() -> Option<&'static str> {
        None
    }

    /// Returns an object as the mode's native tool names it.
    fn text(object: &Self::Object) -> String {
        format!("{:?}", object.key())
    }

    /// Prepares a whole state for the evaluation of packets. Default: `None`, because the
    /// objects are of an unknown form.
    #[cfg(feature = "evaluate")]
    fn rules<'a>(_family: Family, _objects: impl Iterator<Item = &'a Self::Object>) -> Option<Rules>
    where
        Self::Object: 'a,
    {
        None
    }

    /// Returns edits in the format that the mode's native tool applies.
    ///
    /// The edits lead to the `desired` state. If the tool cannot apply the edits one by
    /// one, the script replaces the whole state.
    fn script<'a>(
        family: Family,
        edits: Vec<Edit<Self::Object>>,
        desired: impl Iterator<Item = &'a Self::Object>,
    ) -> String
    where
        Self::Object: 'a;

    /// Returns a whole state in the format that the mode's native tool loads.
    ///
    /// Equal states give equal text, regardless of the order of objects.
    fn listing<'a>(family: Family, objects: impl Iterator<Item = &'a Self::Object>) -> String
    where
        Self::Object: 'a;
}
