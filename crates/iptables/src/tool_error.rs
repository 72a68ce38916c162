//! What the programs print when they fail.

/// How many lines of a complaint are repeated.
const SHOWN: usize = 3;

/// A complaint, understood.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ToolError {
    pub(crate) cause: Cause,
    /// The line of the document that it is about.
    pub(crate) line: Option<usize>,
    /// The words, without the names of programs and hints to their manuals.
    pub(crate) message: String,
}

/// What a complaint is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cause {
    /// The caller may not do it.
    Denied,
    /// Another program has the lock.
    Locked,
    /// The document, the rules, or something else.
    Other,
    /// The kernel lacks the table or the variant.
    Unsupported,
}

impl ToolError {
    /// Understands what a program printed.
    pub(crate) fn new(printed: &str) -> Self {
        let lines: Vec<&str> = printed
            .lines()
            .map(words)
            .filter(|w| !w.is_empty())
            .collect();
        // The last words of the parser, or the first ones of the kernel.
        let line = lines
            .iter()
            .rev()
            .find_map(|line| line.strip_prefix("Error occurred at line: "))
            .map(number)
            .unwrap_or_else(|| lines.iter().find_map(|line| failed_line(line)));
        let mut told = lines
            .iter()
            .filter(|line| !line.starts_with("Error occurred at line: "))
            .map(|text| without_number(text, line));
        let mut message = told.by_ref().take(SHOWN).collect::<Vec<_>>().join("; ");
        let more = told.count();
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

/// Returns what a line says, without the name of the program before it.
fn words(line: &str) -> &str {
    let mut line = line.trim();
    if line.starts_with("Try `") || line.starts_with("# ") {
        return "";
    }
    // Some lines name the program twice.
    for _ in 0..2 {
        let (name, rest) = line.split_once(':').unwrap_or((line, ""));
        if name.contains("tables") && (name.contains("-restore") || name.contains("-save")) {
            line = rest.trim_start();
        }
    }
    line
}

/// Returns the number of the line that was being read when something failed.
fn failed_line(words: &str) -> Option<usize> {
    words
        .strip_prefix("line ")
        .or_else(|| words.strip_prefix("COMMIT expected at line "))
        .and_then(number)
}

/// Leaves out the number of the line, which is told elsewhere.
fn without_number(words: &str, line: Option<usize>) -> &str {
    words
        .strip_prefix("line ")
        .filter(|rest| line.is_some() && number(rest) == line)
        .map_or(words, |rest| {
            rest.trim_start_matches(|c: char| c.is_ascii_digit())
                .trim_start_matches([':', ' '])
        })
}

/// Reads the digits that a text begins with.
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
        include_str!("../tests/tool_errors/legacy.txt"),
        include_str!("../tests/tool_errors/nft.txt"),
    ];

    /// A command, what it printed, and what that means.
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
    fn what_the_programs_print_is_understood() {
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
