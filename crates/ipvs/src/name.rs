//! Names of schedulers and persistence engines.

use vipline_inet::{Inline, kernel_name};

kernel_name! {
    /// The name of a scheduler or a persistence engine.
    ///
    /// A name has 1 to 15 printable ASCII characters without spaces: `IP_VS_SCHEDNAME_MAXLEN`
    /// is 16 with the NUL byte.
    ///
    /// ```
    /// use vipline_ipvs::Name;
    ///
    /// assert_eq!(Name::new("rr")?.as_str(), "rr");
    /// assert!(Name::new("round robin").is_err());
    /// # Ok::<(), vipline_ipvs::InvalidName>(())
    /// ```
    #[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub struct Name(Inline<15>);
    kind: "name of a scheduler or persistence engine",
    max: 15,
    without: "spaces and characters that are not ASCII",
    refuses: is_unprintable,
}

fn is_unprintable(text: &str) -> bool {
    !text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_1_to_15_printable_characters() {
        assert_eq!(
            Name::new("fifteen-letters").unwrap().as_str(),
            "fifteen-letters"
        );
        for bad in ["", "sixteen--letters", "two words", "nul\0", "\u{e9}"] {
            assert!(Name::new(bad).is_err(), "{bad}");
        }
    }
}
