//! Ownership of the chains of mode ipvs.

use super::{base, names};
use crate::backend::iptables::plan::layout::{Layout, is_about};

/// Layout of the chains of this mode.
pub(in crate::backend) const LAYOUT: Layout = Layout {
    tables: &[names::FILTER, names::NAT],
    kind: names::kind,
    place_of_jump: base::place_of_jump,
    is_about_us: |touched| is_about(names::kind, touched),
    canary: (names::NAT, names::SERVICES),
};
