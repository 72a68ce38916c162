//! Property tests: parsed documents print the same bytes, no panics on arbitrary
//! text.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "laws/document.rs"]
mod document;

#[path = "laws/rules.rs"]
mod rules;

#[cfg(feature = "nft")]
#[path = "laws/nft.rs"]
mod nft;

use document::{document, line, lines, soup};
use proptest::prelude::*;
use vipline_iptables::{Line, RuleLine, Tables};

/// Fails if text parses as a document but prints differently.
fn is_kept(text: &str) -> Result<(), TestCaseError> {
    if let Ok(tables) = Tables::parse(text) {
        prop_assert_eq!(tables.to_string(), text);
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_document_prints_as_the_same_bytes(text in document()) {
        let tables = Tables::parse(&text).unwrap();
        let printed = tables.to_string();
        prop_assert_eq!(&printed, &text);
        prop_assert_eq!(Tables::parse(&printed).unwrap(), tables);
    }

    #[test]
    fn a_document_equals_its_lines(lines in lines()) {
        let text = lines.join("\n") + "\n";
        let tables = Tables::parse(&text).unwrap();
        for (line, text) in tables.lines().zip(&lines) {
            prop_assert_eq!(*line, Line::parse(text).unwrap());
        }
        // A single newline is one empty line.
        prop_assert_eq!(tables.lines().count(), lines.len().max(1));
    }

    #[test]
    fn a_line_prints_as_the_same_bytes(text in line()) {
        let line = Line::parse(&text).unwrap();
        prop_assert_eq!(line.to_string(), &*text);
        let ended = format!("{text}\n");
        prop_assert_eq!(Line::parse(&ended).unwrap(), line);
    }

    #[test]
    fn a_chain_has_the_rules_that_name_it(text in document()) {
        for table in &Tables::parse(&text).unwrap() {
            let declared = table.chains().map(|chain| chain.name());
            let chains = declared.chain(table.rules().map(RuleLine::chain));
            for chain in chains {
                let rules = table.rules().filter(|rule| rule.chain() == chain);
                prop_assert!(table.rules_of(chain).eq(rules), "{chain}");
                let declared = table.chains().filter(|line| line.name() == chain);
                prop_assert_eq!(table.chain(chain), declared.last());
            }
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>(), soup in soup()) {
        is_kept(&text)?;
        is_kept(&soup)?;
        let _ = Line::parse(&text);
        let _ = Line::parse(&soup);
    }

    #[test]
    fn no_truncated_or_changed_document_makes_the_parser_panic(
        text in document(),
        cut in any::<prop::sample::Index>(),
        with in any::<char>(),
    ) {
        let mut at = cut.index(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let (before, after) = text.split_at(at);
        is_kept(before)?;
        is_kept(&format!("{before}{with}{after}"))?;
    }
}
