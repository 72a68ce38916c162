//! Table and chain names.

use vipline_inet::{Inline, kernel_name};

/// Maximum length of a name: `XT_EXTENSION_MAXNAMELEN` of linux/netfilter/x_tables.h
/// is 29 bytes with the NUL byte.
pub(crate) const MAX_NAME: usize = 28;

kernel_name! {
    /// A table name, such as `filter`, `nat`, `mangle`, `raw` or `security`.
    ///
    /// A name has 1 to 28 bytes without white space, control characters and quotes.
    #[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub struct TableName(Inline<MAX_NAME>);
    kind: "table or chain name",
    max: MAX_NAME,
    without: "white space and quotes",
    refuses: is_quoted,
}

kernel_name! {
    /// A chain name.
    ///
    /// A name has 1 to 28 bytes without white space, control characters and quotes, and
    /// does not begin with `-` or `!`.
    ///
    /// ```
    /// use vipline_iptables::ChainName;
    ///
    /// assert_eq!(ChainName::new("KUBE-SERVICES")?.as_str(), "KUBE-SERVICES");
    /// assert!(ChainName::new("longer than twenty-eight bytes").is_err());
    /// # Ok::<(), vipline_iptables::InvalidName>(())
    /// ```
    #[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub struct ChainName(Inline<MAX_NAME>);
    kind: "table or chain name",
    max: MAX_NAME,
    without: "white space and quotes",
    refuses: is_no_chain,
}

/// The built-in tables, which the kernel creates.
impl TableName {
    /// Accepts and drops packets: `filter`.
    pub const FILTER: Self = Self(Inline::constant("filter"));
    /// Translates addresses: `nat`.
    pub const NAT: Self = Self(Inline::constant("nat"));
    /// Changes packets: `mangle`.
    pub const MANGLE: Self = Self(Inline::constant("mangle"));
    /// Precedes connection tracking: `raw`.
    pub const RAW: Self = Self(Inline::constant("raw"));
    /// Marks packets for mandatory access control, such as SELinux: `security`.
    pub const SECURITY: Self = Self(Inline::constant("security"));
}

/// The built-in chains, one per hook of Netfilter.
impl ChainName {
    /// Packets as they arrive, before routing: `PREROUTING`.
    pub const PREROUTING: Self = Self(Inline::constant("PREROUTING"));
    /// Packets to this host: `INPUT`.
    pub const INPUT: Self = Self(Inline::constant("INPUT"));
    /// Packets that this host routes: `FORWARD`.
    pub const FORWARD: Self = Self(Inline::constant("FORWARD"));
    /// Packets of this host: `OUTPUT`.
    pub const OUTPUT: Self = Self(Inline::constant("OUTPUT"));
    /// Packets as they leave, after routing: `POSTROUTING`.
    pub const POSTROUTING: Self = Self(Inline::constant("POSTROUTING"));
}

/// Returns whether a word of a document cannot be the text without quotes.
fn is_quoted(text: &str) -> bool {
    text.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\''))
}

/// Returns whether the programs read the text as an option or a negation, or quoted.
fn is_no_chain(text: &str) -> bool {
    text.starts_with(['-', '!']) || is_quoted(text)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn names_have_1_to_28_bytes_without_white_space_and_quotes() {
        assert!(ChainName::new("KUBE-SVC-67NZLRHBNDSAWJRO").is_ok());
        assert!(ChainName::new(&"c".repeat(28)).is_ok());
        assert!(TableName::new("nat").is_ok());
        for text in ["", &"c".repeat(29), "a b", "a\"b", "a\nb", "-a", "!a"] {
            assert!(ChainName::new(text).is_err(), "{text:?}");
        }
        assert_eq!(
            ChainName::new("a b").unwrap_err().to_string(),
            r#"invalid table or chain name "a b": expected 1 to 28 bytes without white space and quotes"#
        );
    }

    #[test]
    fn constants_are_the_checked_names() {
        for table in [
            TableName::FILTER,
            TableName::NAT,
            TableName::MANGLE,
            TableName::RAW,
            TableName::SECURITY,
        ] {
            assert_eq!(TableName::new(table.as_str()), Ok(table));
        }
        for chain in [
            ChainName::PREROUTING,
            ChainName::INPUT,
            ChainName::FORWARD,
            ChainName::OUTPUT,
            ChainName::POSTROUTING,
        ] {
            assert_eq!(ChainName::new(chain.as_str()), Ok(chain));
        }
        assert_eq!(ChainName::INPUT.to_string(), "INPUT");
    }

    #[test]
    fn names_sort_and_hash_like_their_text() {
        let name = |text| ChainName::new(text).unwrap();
        let mut names = [name("b"), name("ab"), name("a")];
        names.sort();
        assert_eq!(names, [name("a"), name("ab"), name("b")]);
        let map = HashMap::from([(name("a"), 1)]);
        assert_eq!(map.get("a"), Some(&1));
    }
}
