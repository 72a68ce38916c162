//! The order in which four kernels are told of a change.

use std::fmt::Write as _;

use vipline_iptables::Restore;
use vipline_reconcile::Edit;
use vipline_service_model::Family;
use {
    vipline_ipset as ipset, vipline_iptables as iptables, vipline_ipvs as ipvs,
    vipline_rtnl as rtnl,
};

use super::Object;
use super::base::place_of_jump;

/// A change, in the order in which the kernels are told of it.
///
/// Sets are there before rules that look into them, and go after those. An
/// entry is there before the virtual server that it says is ours, and goes
/// after it. The address of a virtual server comes after it and goes before it,
/// so that nothing else on the node gets its packets.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Sets and entries that come or change.
    pub(super) sets: Vec<Edit<ipset::Object>>,
    /// Chains and rules.
    pub(super) rules: Vec<Edit<iptables::Object>>,
    /// Addresses and links that go.
    pub(super) lost_addresses: Vec<Edit<rtnl::Object>>,
    /// Virtual and real servers.
    pub(super) servers: Vec<Edit<ipvs::Object>>,
    /// Addresses and links that come or change.
    pub(super) addresses: Vec<Edit<rtnl::Object>>,
    /// Sets and entries that go.
    pub(super) lost_sets: Vec<Edit<ipset::Object>>,
}

impl Steps {
    /// Sorts edits by the step that they belong to.
    pub(super) fn of(edits: impl IntoIterator<Item = Edit<Object>>) -> Self {
        let mut steps = Self::default();
        for edit in edits {
            steps.push(edit);
        }
        steps.rules.sort_by_cached_key(|edit| place(edit.object()));
        steps
    }

    fn push(&mut self, edit: Edit<Object>) {
        let is_lost = matches!(edit, Edit::Remove(_));
        let (old, new) = edit.into_sides();
        // What has the key of another object is of the same kernel.
        match old.as_ref().or(new.as_ref()) {
            Some(Object::Set(_)) => {
                let edit = Edit::between(old.and_then(Object::set), new.and_then(Object::set));
                let step = if is_lost {
                    &mut self.lost_sets
                } else {
                    &mut self.sets
                };
                step.extend(edit);
            }
            Some(Object::Rule(_)) => {
                let edit = Edit::between(old.and_then(Object::rule), new.and_then(Object::rule));
                self.rules.extend(edit);
            }
            Some(Object::Server(_)) => {
                let edit =
                    Edit::between(old.and_then(Object::server), new.and_then(Object::server));
                self.servers.extend(edit);
            }
            Some(Object::Address(_)) => {
                let edit =
                    Edit::between(old.and_then(Object::address), new.and_then(Object::address));
                let step = if is_lost {
                    &mut self.lost_addresses
                } else {
                    &mut self.addresses
                };
                step.extend(edit);
            }
            None => {}
        }
    }

    /// Returns the change as what each kernel's tool reads, under lines that say
    /// which tool it is.
    pub(super) fn script(&self, family: Family) -> String {
        let restore = match family {
            Family::V4 => "iptables-restore --noflush",
            Family::V6 => "ip6tables-restore --noflush",
        };
        let set_commands = |edits| ipset::Commands::from_edits(edits).to_string();
        let links = |edits| rtnl::Commands::from_edits(edits).to_string();
        let mut script = String::new();
        for (tool, text) in [
            ("ipset restore", set_commands(&*self.sets)),
            (restore, Restore::from_edits(&self.rules).to_string()),
            ("ip -batch -", links(&*self.lost_addresses)),
            (
                "ipvsadm -R",
                ipvs::Commands::from_edits(&self.servers).to_string(),
            ),
            ("ip -batch -", links(&*self.addresses)),
            ("ipset restore", set_commands(&*self.lost_sets)),
        ] {
            if !text.is_empty() {
                write!(script, "# {tool}\n{text}").expect("memory takes text");
            }
        }
        script
    }
}

/// Returns the place of an object of iptables: jumps as they have to be inserted.
fn place(object: &iptables::Object) -> usize {
    let place = match object {
        iptables::Object::Chain(_) => Some(0),
        iptables::Object::SharedRule(entry) => {
            let place = place_of_jump(entry.table.as_str(), entry.chain.as_str(), &entry.rule);
            place.map(|place| place + 1)
        }
    };
    place.unwrap_or(usize::MAX)
}
