//! Tables and base chains of iptables-nft.

use vipline_nftables::{BaseChain, ChainType, Hook, Name, TableId};

use crate::{Family, TableName};

/// A hook and the name of its base chain.
const HOOKS: [(Hook, &str); 5] = [
    (Hook::Prerouting, "PREROUTING"),
    (Hook::Input, "INPUT"),
    (Hook::Forward, "FORWARD"),
    (Hook::Output, "OUTPUT"),
    (Hook::Postrouting, "POSTROUTING"),
];

// enum nf_ip_hook_priorities of linux/netfilter_ipv4.h
const NF_IP_PRI_RAW: i32 = -300;
const NF_IP_PRI_MANGLE: i32 = -150;
const NF_IP_PRI_NAT_DST: i32 = -100;
const NF_IP_PRI_FILTER: i32 = 0;
const NF_IP_PRI_SECURITY: i32 = 50;
const NF_IP_PRI_NAT_SRC: i32 = 100;

/// Returns the table of nf_tables that holds a table of the nft variant.
pub fn table_id(family: Family, table: TableName) -> TableId {
    let name = Name::new(table.as_str()).expect("table names are short");
    TableId::new(family.into(), name)
}

/// Returns the names of the built-in chains of a table, and their base chains with
/// policy `ACCEPT` and a counter.
///
/// Returns nothing for a table that iptables does not have.
pub fn base_chains(table: TableName) -> impl Iterator<Item = (Name, BaseChain)> {
    let name = table.as_str().to_owned();
    HOOKS.into_iter().filter_map(move |(hook, chain)| {
        let (kind, priority) = place(&name, hook)?;
        let base = BaseChain::new(kind, hook, priority).with_counter();
        Some((Name::new(chain).ok()?, base))
    })
}

/// Returns type and priority of the base chain of a hook, if the table has one.
fn place(table: &str, hook: Hook) -> Option<(ChainType, i32)> {
    let is_local = matches!(hook, Hook::Input | Hook::Forward | Hook::Output);
    Some(match (table, hook) {
        ("filter", _) if is_local => (ChainType::Filter, NF_IP_PRI_FILTER),
        ("security", _) if is_local => (ChainType::Filter, NF_IP_PRI_SECURITY),
        ("raw", Hook::Prerouting | Hook::Output) => (ChainType::Filter, NF_IP_PRI_RAW),
        // Packets are routed again after a change.
        ("mangle", Hook::Output) => (ChainType::Route, NF_IP_PRI_MANGLE),
        ("mangle", _) => (ChainType::Filter, NF_IP_PRI_MANGLE),
        ("nat", Hook::Prerouting | Hook::Output) => (ChainType::Nat, NF_IP_PRI_NAT_DST),
        ("nat", Hook::Input | Hook::Postrouting) => (ChainType::Nat, NF_IP_PRI_NAT_SRC),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_its_built_in_chains() {
        let chains = |table| {
            let table = TableName::new(table).unwrap();
            let names = base_chains(table).map(|(name, base)| format!("{name} {}", base.priority));
            names.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(chains("filter"), "INPUT 0, FORWARD 0, OUTPUT 0");
        assert_eq!(
            chains("nat"),
            "PREROUTING -100, INPUT 100, OUTPUT -100, POSTROUTING 100"
        );
        assert_eq!(chains("raw"), "PREROUTING -300, OUTPUT -300");
        assert_eq!(chains("mangle").matches("-150").count(), 5);
        assert_eq!(chains("other"), "");
    }
}
