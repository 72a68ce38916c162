//! Numbers in sentences.

use std::fmt;

/// A number of things, for a sentence: `1 entry`, `2 entries`.
///
/// The noun is in the singular, possibly with words before it (`further problem`). Its plural
/// must be regular.
///
/// ```
/// use vipline_service_model::Counted;
///
/// let lines = [0_usize, 1, 2].map(|count| Counted(count, "more address").to_string());
/// assert_eq!(lines, ["0 more addresses", "1 more address", "2 more addresses"]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Counted<N>(pub N, pub &'static str);

impl<N: fmt::Display + PartialEq + From<u8>> fmt::Display for Counted<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, noun) = self;
        let (stem, end) = match noun.strip_suffix('y') {
            _ if *count == N::from(1) => (*noun, ""),
            Some(stem) => (stem, "ies"),
            None if noun.ends_with('s') => (*noun, "es"),
            None => (*noun, "s"),
        };
        write!(f, "{count} {stem}{end}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noun_agrees_with_its_number() {
        for (count, noun, expected) in [
            (0, "chain", "0 chains"),
            (1, "chain", "1 chain"),
            (21, "chain", "21 chains"),
            (1, "entry", "1 entry"),
            (2, "entry", "2 entries"),
            (1, "other address", "1 other address"),
            (2, "other address", "2 other addresses"),
        ] {
            assert_eq!(Counted(count, noun).to_string(), expected);
        }
    }
}
