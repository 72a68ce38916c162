//! Parts of nf_tables that some kernels lack: queues, metadata of bridges, flowtables, lists
//! of hooks and resets.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

#[path = "vm/flowtables.rs"]
mod flowtables;

#[path = "expressions/groups.rs"]
mod groups;

#[path = "vm/hooks.rs"]
mod hooks;

#[path = "rulesets/raw.rs"]
mod raw;

#[path = "vm/resets.rs"]
mod resets;

use groups::Group;

#[test]
fn every_rule_of_a_guest_is_typed_copied_and_written_as_text() {
    let groups = Group::all();
    let of_guest = |group: &&Group| group.name.starts_with("guest: ");
    let groups: Vec<&Group> = groups.iter().filter(of_guest).collect();
    assert_eq!(groups.len(), 2);
    for group in groups {
        let problems = groups::problems(group);
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}
