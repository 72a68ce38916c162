//! Tables of the legacy variant, as the kernel lists them.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::fs;
use std::io::{self, ErrorKind};

use vipline_nftables::{Client, HookEntry};
use vipline_service_model::Family;

use crate::evaluate::read_functions;

/// All loaded modules, one per line, for every user. Without the file the kernel has no modules.
const MODULES: &str = "/proc/modules";

/// Returns the names of the tables of a family in the network namespace of the calling
/// thread. A program of the legacy variant creates a table when it reads it.
pub(super) fn legacy_tables(family: Family) -> io::Result<Vec<String>> {
    match fs::read_to_string(names_path(family)) {
        Ok(names) => Ok(names.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Returns the file with the names of the tables. Only root of the network namespace may read
/// it (mode 0440), whatever capabilities another user has.
pub(super) fn names_path(family: Family) -> &'static str {
    match family {
        Family::V4 => "/proc/thread-self/net/ip_tables_names",
        Family::V6 => "/proc/thread-self/net/ip6_tables_names",
    }
}

/// Returns whether tables of a family may exist in the network namespace of the calling thread,
/// by what a process with `CAP_NET_ADMIN` sees that may not read [`legacy_tables`].
pub(super) fn may_have_tables(family: Family) -> bool {
    let modules = fs::read_to_string(MODULES).unwrap_or_default();
    may_have(family, &modules, functions(family).as_deref())
}

/// Returns what the kernel runs at its hooks. `None`: it does not list that.
fn functions(family: Family) -> Option<Vec<HookEntry>> {
    read_functions(&mut Client::open().ok()?, family.into()).ok()?
}

/// Decides by the loaded modules, and by the functions at the hooks.
///
/// Each table is a module, such as `iptable_filter`, that needs module `ip_tables`: if the latter
/// is no part of the kernel, no table is. A module may be loaded for another network namespace, so
/// the hooks decide. They do not show table `nat`, because one function of `nf_nat` runs it and
/// the chains of type `nat` of nf_tables.
fn may_have(family: Family, modules: &str, functions: Option<&[HookEntry]>) -> bool {
    // Since Linux 5.16, the function of all tables is that of the core.
    let (core, prefix, walk) = match family {
        Family::V4 => ("ip_tables", "iptable_", "ipt_do_table"),
        Family::V6 => ("ip6_tables", "ip6table_", "ip6t_do_table"),
    };
    let loaded = || modules.lines().filter_map(|line| line.split(' ').next());
    let is_module = loaded().any(|name| name == core);
    let is_possible = |table: &str| !is_module || loaded().any(|name| name == table);
    if is_module && !loaded().any(|name| name.starts_with(prefix)) {
        return false;
    }
    let Some(functions) = functions else {
        return true;
    };
    let may_have_nat = is_possible(&format!("{prefix}nat"));
    functions
        .iter()
        .filter(|entry| entry.chain.is_none())
        .any(|entry| match entry.function.as_deref() {
            // A kernel without symbols.
            None => true,
            Some(name) if name == walk || name.starts_with(prefix) => true,
            Some(name) => may_have_nat && name.starts_with("nf_nat_"),
        })
}

#[cfg(test)]
mod tests {
    use vipline_nftables as nftables;

    use super::*;

    const MODULE: &str = "ip_tables 36864 1 iptable_filter, Live 0x0000000000000000\n";

    fn at_hook(function: &str) -> HookEntry {
        HookEntry {
            family: nftables::Family::Ip,
            hook: nftables::Hook::Forward,
            priority: 0,
            chain: None,
            function: Some(function.into()),
            module: None,
        }
    }

    #[test]
    fn loaded_modules_and_functions_at_hooks_tell_whether_tables_may_exist() {
        let filter = "iptable_filter 16384 1 - Live 0x0000000000000000\n";
        let nat = "iptable_nat 16384 1 - Live 0x0000000000000000\n";
        let conntrack = at_hook("ipv4_conntrack_in");
        let translation = at_hook("nf_nat_ipv4_local_in");
        let mut unnamed = at_hook("");
        unnamed.function = None;
        let mut chain = unnamed.clone();
        let table = nftables::TableId::new(nftables::Family::Ip, nftables::Name::new("a").unwrap());
        chain.chain = Some((table, nftables::Name::new("b").unwrap()));
        let only = |entry: &HookEntry| Some(vec![entry.clone()]);
        for (modules, functions, expected) in [
            (vec![MODULE], None, false),
            (vec![MODULE, "ip6table_filter 16384 1 -\n"], None, false),
            (vec![MODULE, filter], None, true),
            (vec![], None, true),
            (vec![MODULE, filter], only(&conntrack), false),
            (vec![], only(&conntrack), false),
            (vec![], only(&chain), false),
            (vec![], only(&unnamed), true),
            (vec![MODULE, filter], only(&translation), false),
            (vec![MODULE, nat], only(&translation), true),
            (vec![], only(&translation), true),
            (vec![MODULE, filter], only(&at_hook("ipt_do_table")), true),
            (vec![], only(&at_hook("iptable_mangle_hook")), true),
        ] {
            let found = may_have(Family::V4, &modules.concat(), functions.as_deref());
            assert_eq!(found, expected, "{modules:?} {functions:?}");
        }
    }
}
