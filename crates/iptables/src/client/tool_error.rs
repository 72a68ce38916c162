//! Parser of the error messages of the iptables programs.

/// Maximum number of lines in a message.
const SHOWN: usize = 3;

/// A parsed error message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ToolError {
    pub(crate) cause: Cause,
    /// Line number of the restore document.
    pub(crate) line: Option<usize>,
    /// The message without program names and hints to the manual.
    pub(crate) message: String,
}

/// The cause of an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cause {
    /// A capability is missing.
    Denied,
    /// Another program holds the xtables lock.
    Locked,
    /// The document, the rules, or another cause.
    Other,
    /// The kernel lacks the table or the variant.
    Unsupported,
}

impl ToolError {
    /// Parses the error output of a program.
    pub(crate) fn new(printed: &str) -> Self {
        let lines: Vec<&str> = printed
            .lines()
            .map(without_program)
            .filter(|w| !w.is_empty())
            .collect();
        // The last line number of the parser, or the first one of the kernel.
        let line = lines
            .iter()
            .rev()
            .find_map(|line| line.strip_prefix("Error occurred at line: "))
            .map(number)
            .unwrap_or_else(|| lines.iter().find_map(|line| failed_line(line)));
        let mut messages = lines
            .iter()
            .filter(|line| !line.starts_with("Error occurred at line: "))
            .map(|text| without_number(text, line));
        let mut message = messages.by_ref().take(SHOWN).collect::<Vec<_>>().join("; ");
        let more = messages.count();
        if more > 0 {
            message += &format!("; and {more} more");
        }
        Self {
            cause: cause(printed),
            line: line.filter(|number| *number > 0),
            message,
        }
    }
}

/// Returns the extensions that the kernel lacks, in warnings of the form
/// `Warning: Extension statistic revision 0 not supported, missing kernel module?`.
///
/// Both variants of 1.8.9 print one for each use. Each extension is returned once.
pub(crate) fn missing_extensions(printed: &str) -> Vec<Box<str>> {
    let mut names: Vec<Box<str>> = Vec::new();
    for line in printed.lines() {
        let warning = line.trim().strip_prefix("Warning: Extension ");
        let warning = warning.filter(|rest| rest.contains(" not supported"));
        let Some(name) = warning.and_then(|rest| rest.split(' ').next()) else {
            continue;
        };
        if !names.iter().any(|known| **known == *name) {
            names.push(name.into());
        }
    }
    names
}

/// Returns a line without the program name.
fn without_program(line: &str) -> &str {
    let mut line = line.trim();
    if line.starts_with("Try `") || line.starts_with("# ") {
        return "";
    }
    // Some lines contain the program name twice.
    for _ in 0..2 {
        let (name, rest) = line.split_once(':').unwrap_or((line, ""));
        let is_program = name.contains("-restore") || name.contains("-save");
        if name.contains("tables") && is_program || is_single(name) {
            line = rest.trim_start();
        }
    }
    line
}

/// Returns whether a name is that of a program for single commands, with or without
/// version: `iptables`, `ip6tables v1.8.9 (nf_tables)`.
fn is_single(name: &str) -> bool {
    let word = name.split(' ').next().unwrap_or_default();
    let is_name = |program: &str| word == program || word.starts_with(&format!("{program}-"));
    let version = name.strip_prefix(word).unwrap_or_default();
    (is_name("iptables") || is_name("ip6tables"))
        && (version.is_empty() || version.starts_with(" v"))
}

/// Returns the line number in a parse error.
fn failed_line(words: &str) -> Option<usize> {
    words
        .strip_prefix("line ")
        .or_else(|| words.strip_prefix("COMMIT expected at line "))
        .and_then(number)
}

/// Removes the line number, which is reported separately.
fn without_number(words: &str, line: Option<usize>) -> &str {
    words
        .strip_prefix("line ")
        .filter(|rest| line.is_some() && number(rest) == line)
        .map_or(words, |rest| {
            rest.trim_start_matches(|c: char| c.is_ascii_digit())
                .trim_start_matches([':', ' '])
        })
}

/// Parses the leading digits of a text.
fn number(text: &str) -> Option<usize> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

fn cause(printed: &str) -> Cause {
    let has = |words| printed.contains(words);
    if has("holding the xtables lock") {
        Cause::Locked
    } else if has("Permission denied (you must be root)")
        || has("can't open lock file") && has("Permission denied")
    {
        Cause::Denied
    } else if has("Cannot initialize: Table does not exist")
        || has("Failed to initialize nft: ")
        || has("Could not fetch rule set generation id: ")
        || has("Table `") && has("' does not exist")
    {
        Cause::Unsupported
    } else {
        Cause::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPTURES: [&str; 2] = [
        include_str!("../../tests/tool_errors/legacy.txt"),
        include_str!("../../tests/tool_errors/nft.txt"),
    ];

    /// Returns the command, its output and the expected result.
    fn captured(block: &str) -> (&str, String, &str) {
        let (mut printed, mut meaning) = (String::new(), "");
        let mut lines = block.lines();
        let command = lines.next().unwrap().strip_prefix("$ ").unwrap();
        for line in lines {
            match line.split_once(' ').unwrap_or((line, "")) {
                (">", words) => printed += &format!("{words}\n"),
                ("=>", _) => {}
                ("#", words) => meaning = words,
                _ => panic!("{line}"),
            }
        }
        (command, printed, meaning)
    }

    #[test]
    fn warnings_name_the_extensions_that_the_kernel_lacks() {
        let printed = "Warning: Extension statistic revision 0 not supported, missing kernel \
                       module?\nWarning: Extension statistic revision 0 not supported, missing \
                       kernel module?\nWarning: Extension MASQUERADE revision 0 not supported, \
                       missing kernel module?\n# Warning: iptables-legacy tables present, use \
                       iptables-legacy to see them\n";
        let names = missing_extensions(printed);
        assert_eq!(names, ["statistic", "MASQUERADE"].map(Box::from));
        assert!(missing_extensions("").is_empty());
    }

    #[test]
    fn recorded_error_messages_are_parsed() {
        let blocks: Vec<_> = CAPTURES
            .iter()
            .flat_map(|text| text.split("\n\n"))
            .collect();
        assert_eq!(blocks.len(), 48);
        for block in blocks {
            let (command, printed, meaning) = captured(block.trim_start());
            let ToolError {
                cause,
                line,
                message,
            } = ToolError::new(&printed);
            let line = line
                .map(|line| format!(" at line {line}"))
                .unwrap_or_default();
            assert_eq!(format!("{cause:?}{line}: {message}"), meaning, "{command}");
        }
    }
}
