//! Results of iptables' extension tests are those of the installed programs.

#[path = "../suite/cases.rs"]
pub(crate) mod cases;

use std::collections::{BTreeMap, BTreeSet};

use cases::cases;
use vipline_iptables::Variant;

use crate::rules::saved;

/// Rules with another result in iptables 1.8.9 or on this host.
const VERSIONS: &str = include_str!("../suite/versions");

/// Extensions that the kernel of the host lacks, or that require other objects.
const LACKING: [&str; 4] = ["ipvs", "LED", "rateest", "nfacct"];

#[test]
fn rules_of_the_suite_are_saved_like_their_saved_form() {
    let others: BTreeSet<_> = VERSIONS.lines().collect();
    let mut tables: BTreeMap<_, (Vec<_>, Vec<_>)> = BTreeMap::new();
    for case in cases() {
        let Some(form) = case.saved else { continue };
        assert!(!case.chains.is_empty(), "{}", case.text);
        if !others.contains(case.text) && !LACKING.contains(&case.extension) {
            let (texts, forms) = tables
                .entry((case.family.to_string(), case.table))
                .or_default();
            texts.push(case);
            forms.push(form);
        }
    }
    for ((_, table), (cases, forms)) in tables {
        let texts: Vec<_> = cases.iter().map(|case| case.text).collect();
        for variant in Variant::ALL {
            let family = cases[0].family;
            let saved = saved(family, variant, table, &texts);
            for ((saved, form), text) in saved.iter().zip(&forms).zip(&texts) {
                assert_eq!(saved, form, "{family} {variant}: {text}");
            }
            assert_eq!(saved.len(), forms.len(), "{family} {variant} {table}");
        }
    }
}
