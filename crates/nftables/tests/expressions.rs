//! Expressions of rules that `nft` loads: decoded with a type, copied without a loss,
//! and written as text that `nft` loads to the same rule.
//!
//! `vm.rs` checks the groups of rules that require other kernels.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[path = "expressions/groups.rs"]
mod groups;

use groups::Group;

#[test]
fn every_rule_is_typed_copied_and_written_as_text() {
    let mut problems = Vec::new();
    for group in Group::all() {
        if !group.name.starts_with("guest: ") {
            let of_group = groups::problems(&group);
            problems.extend(
                of_group
                    .iter()
                    .map(|text| format!("{}: {text}", group.name)),
            );
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
