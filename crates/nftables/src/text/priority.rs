//! The names of standard priorities.

use crate::{BaseChain, Family, Hook};

/// Maximum distance of a priority from the named one: `filter + 10`.
const REACH: i32 = 10;

/// Standard priorities: `enum nf_ip_hook_priorities` of `linux/netfilter_ipv4.h`.
const STANDARD: &[(i32, &str)] = &[
    (-300, "raw"),
    (-150, "mangle"),
    (-100, "dstnat"),
    (0, "filter"),
    (50, "security"),
    (100, "srcnat"),
];
/// Standard priorities of family `bridge`: `enum nf_br_hook_priorities` of
/// `linux/netfilter_bridge.h`.
const BRIDGE: &[(i32, &str)] = &[
    (-300, "dstnat"),
    (-200, "filter"),
    (100, "out"),
    (300, "srcnat"),
];

impl BaseChain {
    /// Returns the declaration of the chain in a table of a family. Names standard
    /// priorities of the family and the hook: `priority filter + 10`.
    pub(super) fn named(&self, family: Family) -> String {
        let number = format!("priority {};", self.priority);
        match name(family, self.hook, self.priority) {
            Some(name) => self.to_string().replacen(&number, &name, 1),
            None => self.to_string(),
        }
    }
}

fn name(family: Family, hook: Hook, priority: i32) -> Option<String> {
    let names = match family {
        Family::Bridge => BRIDGE,
        _ => STANDARD,
    };
    let is_near = |(of, _): &&(i32, &str)| priority.abs_diff(*of) <= REACH.unsigned_abs();
    let (of, name) = names.iter().find(is_near)?;
    if !has_name(family, hook, name) {
        return None;
    }
    let sign = if priority < *of { '-' } else { '+' };
    Some(match priority.abs_diff(*of) {
        0 => format!("priority {name};"),
        offset => format!("priority {name} {sign} {offset};"),
    })
}

/// Returns whether nft knows the name for a family and a hook.
fn has_name(family: Family, hook: Hook, name: &str) -> bool {
    let is_ip = matches!(family, Family::Inet | Family::Ip | Family::Ip6);
    let is_ip_or_bridge = is_ip || family == Family::Bridge;
    match name {
        "filter" => true,
        "dstnat" => is_ip_or_bridge && hook == Hook::Prerouting,
        "srcnat" => is_ip_or_bridge && hook == Hook::Postrouting,
        "out" => hook == Hook::Output,
        _ => is_ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_near_a_standard_one_have_its_name() {
        for (family, hook, priority, text) in [
            (Family::Ip, Hook::Input, 0, "filter"),
            (Family::Ip, Hook::Input, 10, "filter + 10"),
            (Family::Ip6, Hook::Prerouting, -101, "dstnat - 1"),
            (Family::Inet, Hook::Postrouting, 100, "srcnat"),
            (Family::Bridge, Hook::Output, 98, "out - 2"),
            (Family::Netdev, Hook::Ingress, -10, "filter - 10"),
        ] {
            let expected = Some(format!("priority {text};"));
            assert_eq!(name(family, hook, priority), expected);
        }
        for (family, hook, priority) in [
            (Family::Ip, Hook::Input, 11),
            (Family::Ip, Hook::Output, -100),
            (Family::Arp, Hook::Input, -300),
            (Family::Bridge, Hook::Input, 0),
            (Family::Ip, Hook::Input, i32::MIN),
        ] {
            assert_eq!(name(family, hook, priority), None);
        }
    }
}
