//! The rules of iptables' extension tests, with the result of each.
//!
//! Each line of `*.rules` is a rule: `= RULE` is saved unchanged, `> RULE => SAVED` in
//! another form, and `! RULE` is refused. A line `[EXTENSION FAMILIES TABLE CHAINS]` is the
//! start of a group. A rule counts once for each family.

use vipline_iptables::Family;

/// Files of the rules.
pub(crate) const FILES: [&str; 4] = [
    include_str!("general.rules"),
    include_str!("matches-a-h.rules"),
    include_str!("matches-i-z.rules"),
    include_str!("targets.rules"),
];

/// A rule and its result with iptables.
pub(crate) struct Case {
    pub(crate) extension: &'static str,
    pub(crate) family: Family,
    pub(crate) table: &'static str,
    pub(crate) chains: Vec<&'static str>,
    pub(crate) text: &'static str,
    /// The saved form, or `None` if iptables refuses the rule.
    pub(crate) saved: Option<&'static str>,
}

/// Returns the rules of all files.
pub(crate) fn cases() -> Vec<Case> {
    FILES.into_iter().flat_map(parse).collect()
}

fn parse(file: &'static str) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut group = ("", Vec::new(), "", Vec::new());
    for line in file.lines() {
        if let Some(head) = line.strip_prefix('[') {
            let words: Vec<_> = head.split(' ').collect();
            let family = |name| match name {
                "v4" => Family::V4,
                "v6" => Family::V6,
                other => panic!("{other}"),
            };
            group = (
                words[0],
                words[1].split(',').map(family).collect(),
                words[2],
                words[3].trim_end_matches(']').split(',').collect(),
            );
            continue;
        }
        let (text, saved) = match line.split_at(2) {
            ("= ", text) => (text, Some(text)),
            ("! ", text) => (text, None),
            ("> ", texts) => {
                let (text, saved) = texts.split_once(" =>").expect("a saved form");
                (text, Some(saved.trim_start()))
            }
            _ => panic!("{line}"),
        };
        let (extension, families, table, chains) = &group;
        cases.extend(families.iter().map(|family| Case {
            extension,
            family: *family,
            table,
            chains: chains.clone(),
            text,
            saved,
        }));
    }
    cases
}
