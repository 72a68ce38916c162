//! Counter names.

use std::sync::Arc;

use vipline_inet::kernel_name;

kernel_name! {
    /// A counter name: 1 to 31 bytes without NUL bytes. `NFACCT_NAME_MAX` is 32 with one.
    #[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub struct Name(Arc<str>);
    kind: "nfacct counter name",
    max: 31,
    without: "NUL bytes",
    refuses: has_nul,
}

fn has_nul(text: &str) -> bool {
    text.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_1_to_31_bytes() {
        assert_eq!(Name::new("hits").unwrap().to_string(), "hits");
        assert!(Name::new(&"n".repeat(31)).is_ok());
        for text in ["", "a\0b", &"n".repeat(32)] {
            assert!(Name::new(text).is_err(), "{text:?}");
        }
    }
}
