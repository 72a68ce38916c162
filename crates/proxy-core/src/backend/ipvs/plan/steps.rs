//! The order of edits of the four kernel subsystems.

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

/// Edits in the order of commits.
///
/// Sets are created before rules that use them, and removed after those rules. A set
/// entry that marks a virtual server as ours is added before the server, and removed
/// after it. The address of a virtual server is added after it and removed before it, so
/// that other programs never receive its packets.
#[derive(Debug, Default)]
pub(in crate::backend) struct Steps {
    /// Sets and entries to add or change.
    pub(in crate::backend) sets: Vec<Edit<ipset::Object>>,
    /// Chains and rules.
    pub(in crate::backend) rules: Vec<Edit<iptables::Object>>,
    /// Addresses and links to remove.
    pub(in crate::backend) removed_addresses: Vec<Edit<rtnl::Object>>,
    /// Virtual and real servers.
    pub(in crate::backend) servers: Vec<Edit<ipvs::Object>>,
    /// Addresses and links to add or change.
    pub(in crate::backend) addresses: Vec<Edit<rtnl::Object>>,
    /// Sets and entries to remove.
    pub(in crate::backend) removed_sets: Vec<Edit<ipset::Object>>,
}

impl Steps {
    /// Assigns edits to their steps.
    pub(in crate::backend) fn of<'a>(edits: impl IntoIterator<Item = &'a Edit<Object>>) -> Self {
        let mut steps = Self::default();
        for edit in edits {
            steps.push(edit);
        }
        steps.rules.sort_by_cached_key(|edit| place(edit.object()));
        steps
    }

    fn push(&mut self, edit: &Edit<Object>) {
        let is_lost = matches!(edit, Edit::Remove(_));
        match edit.object() {
            Object::Set(_) => {
                let step = match is_lost {
                    true => &mut self.removed_sets,
                    false => &mut self.sets,
                };
                step.extend(edit_of(edit, Object::set));
            }
            Object::Rule(_) => self.rules.extend(edit_of(edit, Object::rule)),
            Object::Server(_) => self.servers.extend(edit_of(edit, Object::server)),
            Object::Address(_) => {
                let step = match is_lost {
                    true => &mut self.removed_addresses,
                    false => &mut self.addresses,
                };
                step.extend(edit_of(edit, Object::address));
            }
        }
    }

    /// Returns the edits as input of each subsystem's tool. A comment line names the
    /// tool.
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
            ("ip -batch -", links(&*self.removed_addresses)),
            (
                "ipvsadm -R",
                ipvs::Commands::from_edits(&self.servers).to_string(),
            ),
            ("ip -batch -", links(&*self.addresses)),
            ("ipset restore", set_commands(&*self.removed_sets)),
        ] {
            if !text.is_empty() {
                write!(script, "# {tool}\n{text}").expect("writing to a String cannot fail");
            }
        }
        script
    }
}

/// Returns the edit of an object of one kernel subsystem.
///
/// Objects with equal keys belong to the same subsystem.
fn edit_of<T: Clone>(edit: &Edit<Object>, of: fn(&Object) -> Option<&T>) -> Option<Edit<T>> {
    Some(match edit {
        Edit::Add(new) => Edit::Add(of(new)?.clone()),
        Edit::Change { old, new } => Edit::Change {
            old: of(old)?.clone(),
            new: of(new)?.clone(),
        },
        Edit::Remove(old) => Edit::Remove(of(old)?.clone()),
    })
}

/// Returns the sort key of an iptables object. Jumps come in the order in which they must
/// be inserted.
pub(super) fn place(object: &iptables::Object) -> usize {
    let place = match object {
        iptables::Object::Chain(_) => Some(0),
        iptables::Object::SharedRule(entry) => {
            let place = place_of_jump(entry.table.as_str(), entry.chain.as_str(), &entry.rule);
            place.map(|place| place + 1)
        }
    };
    place.unwrap_or(usize::MAX)
}
