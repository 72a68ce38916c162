//! Flags that are written as names with commas.

use std::fmt;

use bitflags::Flags;

/// Reads names with commas between them, in whatever case.
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

/// Writes the names with commas between them, or `none` for no flags.
pub(crate) fn write<F: Flags + Copy>(
    flags: F,
    none: &str,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    if flags.is_empty() {
        return f.write_str(none);
    }
    let mut separator = "";
    for flag in F::FLAGS {
        if flags.contains(*flag.value()) {
            f.write_str(separator)?;
            f.write_str(flag.name())?;
            separator = ",";
        }
    }
    Ok(())
}
