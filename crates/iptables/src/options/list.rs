//! Comma-separated flag names.

use std::fmt::{self, Write};

use bitflags::Flags;

/// Parses comma-separated names, ignoring case.
pub(crate) fn parse<F: Flags + Copy>(text: &str) -> Option<F> {
    let mut all = F::empty();
    for name in text.split(',') {
        let flag = F::FLAGS
            .iter()
            .find(|flag| flag.name().eq_ignore_ascii_case(name))?;
        all.insert(*flag.value());
    }
    Some(all)
}

/// Parses comma-separated names or their beginnings, ignoring case.
pub(crate) fn parse_abbreviated<F: Flags + Copy>(text: &str) -> Option<F> {
    let mut all = F::empty();
    for name in text.split(',') {
        let is_it = |known: &str| {
            let start = known.get(..name.len());
            !name.is_empty() && start.is_some_and(|start| start.eq_ignore_ascii_case(name))
        };
        let flag = F::FLAGS.iter().find(|flag| is_it(flag.name()))?;
        all.insert(*flag.value());
    }
    Some(all)
}

/// Writes the comma-separated names, or `none` for no flags.
pub(crate) fn write<F: Flags + Copy>(
    flags: F,
    none: &str,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    if flags.is_empty() {
        return f.write_str(none);
    }
    let mut separator = "";
    for name in names(flags) {
        f.write_str(separator)?;
        f.write_str(name)?;
        separator = ",";
    }
    Ok(())
}

/// Writes the comma-separated names in lower case.
pub(crate) fn write_small<F: Flags + Copy>(flags: F, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut separator = "";
    for name in names(flags) {
        f.write_str(separator)?;
        for letter in name.chars() {
            f.write_char(letter.to_ascii_lowercase())?;
        }
        separator = ",";
    }
    Ok(())
}

fn names<F: Flags + Copy>(flags: F) -> impl Iterator<Item = &'static str> {
    let set = F::FLAGS
        .iter()
        .filter(move |flag| flags.contains(*flag.value()));
    set.map(|flag| flag.name())
}
