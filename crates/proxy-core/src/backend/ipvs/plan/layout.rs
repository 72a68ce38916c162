//! Ownership of the chains of mode ipvs.

use super::{base, names};
use crate::Mode;
use crate::backend::iptables::plan::layout::{Layout, is_about, is_known_jump};

/// Layout of the chains of this mode.
pub(in crate::backend) const LAYOUT: Layout = Layout {
    tables: &[names::FILTER, names::NAT],
    kind: names::kind,
    is_jump: |table, from, rule| {
        base::place_of_jump(table, from, rule).is_some()
            || is_known_jump(Mode::Ipvs, table, from, rule)
    },
    is_about_us: |touched| is_about(names::kind, touched),
    canary: (names::NAT, names::SERVICES),
};
