//! Names and comments of kernel objects.

use std::fmt;
use std::sync::Arc;

use vipline_inet::{kernel_name, kernel_text};

kernel_name! {
    /// The name of a table, chain, set, device or other kernel object.
    ///
    /// 1 to 255 bytes without a NUL byte: `NFT_NAME_MAXLEN` is 256 with one. Clones share the
    /// text.
    ///
    /// ```
    /// use vipline_nftables::Name;
    ///
    /// assert_eq!(Name::new("service-ips")?.as_str(), "service-ips");
    /// assert!(Name::new("").is_err());
    /// # Ok::<(), vipline_nftables::InvalidName>(())
    /// ```
    #[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub struct Name(Arc<str>);
    kind: "name",
    max: 255,
    without: "NUL bytes",
    refuses: has_nul,
}

fn has_nul(text: &str) -> bool {
    text.contains('\0')
}

kernel_text! {
    /// A comment on a table, chain, rule, set or element.
    ///
    /// The kernel stores a comment as opaque user data; `nft` lists it.
    /// 1 to 128 bytes without NUL bytes, newlines and double quotes, which nft cannot print.
    /// nft lists no longer ones.
    #[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub struct Comment(Arc<str>);
    kind: "comment",
    max: 128,
    without: "NUL bytes, newlines and double quotes",
    refuses: is_unprintable,
}

fn is_unprintable(text: &str) -> bool {
    text.contains(['\0', '\n', '"'])
}

impl fmt::Display for Comment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "comment \"{}\"", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_to_255_bytes_and_no_nul() {
        assert!(Name::new("a").is_ok());
        assert!(Name::new(&"a".repeat(255)).is_ok());
        assert!(Name::new(&"a".repeat(256)).is_err());
        assert!(Name::new("a\0b").is_err());
        assert!(Name::new("").is_err());
    }

    #[test]
    fn a_comment_contains_only_characters_that_nft_can_parse() {
        assert_eq!(Comment::new("x y").unwrap().to_string(), "comment \"x y\"");
        assert!(Comment::new("say \"x\"").is_err());
        assert!(Comment::new("two\nlines").is_err());
        assert!(Comment::new(&"c".repeat(129)).is_err());
    }
}
