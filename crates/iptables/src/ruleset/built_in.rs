//! Tables and built-in chains.

/// Tables of iptables, in the order of packets.
pub(crate) const TABLES: [&str; 5] = ["raw", "mangle", "nat", "filter", "security"];

/// Returns the built-in chains of a table, in the order of the hooks. Returns nothing for
/// a table that iptables does not have.
pub(crate) fn chains(table: &str) -> &'static [&'static str] {
    match table {
        "filter" | "security" => &["INPUT", "FORWARD", "OUTPUT"],
        "mangle" => &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
        "nat" => &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
        "raw" => &["PREROUTING", "OUTPUT"],
        _ => &[],
    }
}

#[cfg(all(test, feature = "nft"))]
mod tests {
    use super::*;
    use crate::{TableName, nft};

    #[test]
    fn built_in_chains_are_the_base_chains_of_the_nft_variant() {
        for table in TABLES.into_iter().chain(["other"]) {
            let bases = nft::base_chains(TableName::new(table).unwrap());
            let names: Vec<_> = bases.map(|(name, _)| name.as_str().to_owned()).collect();
            assert_eq!(names, chains(table), "{table}");
        }
    }
}
