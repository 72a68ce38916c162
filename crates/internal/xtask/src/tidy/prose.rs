//! Sentences that a reader of kernel or Kubernetes documentation stumbles over.
//!
//! Checks comments, Markdown, help texts and error messages against a list of
//! patterns, and limits the number of hits per 1,000 lines of prose.
//! `allow-prose` silences the line that contains it.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use regex::Regex;

use super::Text;

/// Highest number of hits per 1,000 lines in a crate.
const CRATE_LIMIT: usize = 8;

/// Highest number of hits per 1,000 lines in the whole tree.
const TREE_LIMIT: usize = 5;

/// Highest number of words in a sentence.
const SENTENCE_WORDS: usize = 30;

/// Name of the rule that limits the length of sentences.
const LONG_SENTENCE: &str = "sentence over 30 words";

/// Silences a line that contains it.
const ALLOW: &str = "allow-prose";

/// Files and folders with prose.
const ROOTS: [&str; 9] = [
    "crates/",
    "examples/",
    "bin/",
    "dev/",
    "benches/",
    "fuzz/",
    "docs/",
    "README.md",
    "CHANGELOG.md",
];

/// Rules: name, pattern, and a pattern of following text that excuses a match.
const RULES: [(&str, &str, &str); 11] = [
    (
        "free relative as subject",
        r"(?:^|[.:] )(?:What|Which|Who|Whom|Whoever|Whatever|Whose|Those (?:who|that|of)|That which)\b",
        r"^[^.]*\?",
    ),
    (
        "tell/hear/say for return, report, notify",
        r"\b(?:tells?|told|telling|hears?|heard|hearing)\b",
        NEVER,
    ),
    (
        "the kernel/it says",
        r"\b(?:kernel|it|config(?:uration)?|file|object|node|flag|caller|API|server) (?:says?|said)\b",
        NEVER,
    ),
    (
        "who for a thing or program",
        r"\b(?:who|whom|whoever)\b",
        NEVER,
    ),
    (
        "nobody/somebody/anybody",
        r"\b(?:no|some|any)(?:body|one)(?: else)?\b",
        NEVER,
    ),
    ("but for (except)", r"\bbut for\b", NEVER),
    (
        "is to be / are to be",
        r"\b(?:is|are|was|were) to (?:be|have|get|come)\b",
        NEVER,
    ),
    ("is meant", r"\b(?:is|are) meant\b", NEVER),
    (
        "there is, as filler",
        r"\b(?:that|as) there (?:is|are)\b|\bwhat there (?:is|are)\b",
        NEVER,
    ),
    (
        "archaic",
        r"\b(?:heed|anew|hence|thereof|lest|betimes|for want of|in want of|begun by|by and by|at hand|makes? known|made known|as long as|other ones)\b",
        NEVER,
    ),
    (
        "of + pronoun",
        r"\bof (?:it|that|them|those|these|which all)\b",
        r"^ (?:size|kind|type|name)",
    ),
];

/// Matches nothing.
const NEVER: &str = r"[^\s\S]";

/// Result of the check.
#[derive(Debug, Default)]
pub(super) struct Prose {
    /// Hits in order of files and lines.
    pub(super) hits: Vec<Hit>,
    /// Counts by folder of the crate.
    crates: BTreeMap<String, Count>,
}

/// A line that breaks a rule.
#[derive(Debug)]
pub(super) struct Hit {
    /// Folder of the crate.
    folder: String,
    /// Path of the file, from the root.
    path: String,
    /// Number of the line, from 1.
    line: usize,
    /// Name of the rule.
    rule: &'static str,
    /// Text of the line.
    text: String,
}

/// Number of hits and lines of prose.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    hits: usize,
    lines: usize,
}

/// Patterns compiled from [`RULES`].
struct Rules {
    patterns: Vec<(&'static str, Regex, Regex)>,
    code: Regex,
    messages: [Regex; 2],
}

/// Checks the prose of all files.
pub(super) fn check(files: &[Text]) -> Prose {
    let rules = Rules::new();
    let mut prose = Prose::default();
    for file in files {
        if !ROOTS.iter().any(|root| file.path.starts_with(root)) {
            continue;
        }
        let folder = crate_folder(files, &file.path);
        for (line, text) in rules.lines(file) {
            let hits = rules.broken_by(&text);
            let count = prose.crates.entry(folder.to_owned()).or_default();
            count.lines += 1;
            count.hits += hits.len();
            prose.hits.extend(hits.into_iter().map(|rule| Hit {
                folder: folder.to_owned(),
                path: file.path.clone(),
                line,
                rule,
                text: text.clone(),
            }));
        }
    }
    prose
}

impl Prose {
    /// Returns the hits of crates above the limit, or all hits if the tree is above
    /// its own.
    pub(super) fn findings(&self) -> Vec<String> {
        let whole_tree = self.total().is_above(TREE_LIMIT);
        let hits = self.hits.iter().filter(|hit| {
            whole_tree
                || self
                    .crates
                    .get(&hit.folder)
                    .is_some_and(|count| count.is_above(CRATE_LIMIT))
        });
        hits.map(Hit::to_string).collect()
    }

    fn total(&self) -> Count {
        let add = |sum: Count, count: &Count| Count {
            hits: sum.hits + count.hits,
            lines: sum.lines + count.lines,
        };
        self.crates.values().fold(Count::default(), add)
    }
}

/// Prints a table of the crates that have hits, and the total.
impl Display for Prose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (folder, count) in self.crates.iter().filter(|(_, count)| count.hits > 0) {
            let mark = if count.is_above(CRATE_LIMIT) {
                format!(", more than {CRATE_LIMIT}")
            } else {
                String::new()
            };
            writeln!(f, "prose: {folder}: {count}{mark}")?;
        }
        write!(f, "prose: total: {}", self.total())
    }
}

impl Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            self.path, self.line, self.rule, self.text
        )
    }
}

impl Count {
    fn is_above(self, limit: usize) -> bool {
        self.hits * 1000 > self.lines * limit
    }
}

impl Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.hits * 1000 / self.lines.max(1);
        write!(
            f,
            "{} hits in {} lines of prose ({rate} per 1,000)",
            self.hits, self.lines
        )
    }
}

impl Rules {
    fn new() -> Self {
        let compile = |pattern| Regex::new(pattern).expect("a valid pattern");
        Self {
            patterns: RULES
                .map(|(name, pattern, excuse)| (name, compile(pattern), compile(excuse)))
                .into(),
            code: compile("`[^`]*`"),
            messages: [
                compile(r#"#\[error\("((?:[^"\\]|\\.)*)""#),
                compile(r#"(?:help|about|long_help) = "((?:[^"\\]|\\.)*)""#),
            ],
        }
    }

    /// Returns the numbers and texts of the lines of prose in a file.
    fn lines(&self, file: &Text) -> Vec<(usize, String)> {
        let mut lines = if file.path.ends_with(".md") {
            markdown(&file.text)
        } else if file.path.ends_with(".rs") {
            self.rust(&file.text)
        } else {
            Vec::new()
        };
        lines.retain(|(_, line)| !line.is_empty());
        lines
    }

    /// Returns comments, error messages and help texts, without code examples.
    fn rust(&self, text: &str) -> Vec<(usize, String)> {
        let mut lines = Vec::new();
        let mut in_example = false;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if let Some(comment) = line.strip_prefix("//") {
                let comment = comment.strip_prefix(['/', '!']).unwrap_or(comment);
                let comment = comment.strip_prefix(' ').unwrap_or(comment);
                if comment.starts_with("```") {
                    in_example = !in_example;
                } else if !in_example {
                    lines.push((number, comment.to_owned()));
                }
                continue;
            }
            in_example = false;
            for pattern in &self.messages {
                let texts = pattern.captures_iter(line);
                lines.extend(texts.map(|texts| (number, texts[1].to_owned())));
            }
        }
        lines
    }

    /// Returns the names of the rules that a line breaks.
    fn broken_by(&self, line: &str) -> Vec<&'static str> {
        if line.contains(ALLOW) {
            return Vec::new();
        }
        let line = self.code.replace_all(line, "`x`");
        let mut broken: Vec<_> = self
            .patterns
            .iter()
            .filter(|(_, pattern, excuse)| {
                pattern
                    .find_iter(&line)
                    .any(|found| !excuse.is_match(&line[found.end()..]))
            })
            .map(|(name, ..)| *name)
            .collect();
        if !line.contains('|') && longest_sentence(&line) > SENTENCE_WORDS {
            broken.push(LONG_SENTENCE);
        }
        broken
    }
}

/// Returns the lines of a Markdown file that are neither code nor rulers of tables.
fn markdown(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut in_example = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            in_example = !in_example;
        } else if !in_example && !["    ", "|--", "#!"].iter().any(|no| line.starts_with(no)) {
            lines.push((number, line.trim().to_owned()));
        }
    }
    lines
}

/// Returns the number of words of the longest sentence; `:` and `;` end one, too.
fn longest_sentence(line: &str) -> usize {
    let (mut longest, mut words) = (0, 0);
    for word in line.split_whitespace() {
        words += 1;
        longest = longest.max(words);
        if word.ends_with(['.', ':', ';']) {
            words = 0;
        }
    }
    longest
}

/// Returns the innermost folder with a manifest that a file is in, `.` for the root.
fn crate_folder<'a>(files: &[Text], path: &'a str) -> &'a str {
    let mut folder = path;
    while let Some((parent, _)) = folder.rsplit_once('/') {
        let manifest = format!("{parent}/Cargo.toml");
        if files.iter().any(|file| file.path == manifest) {
            return parent;
        }
        folder = parent;
    }
    "."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> Text {
        Text {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn broken_by(line: &str) -> Vec<&'static str> {
        Rules::new().broken_by(line)
    }

    #[test]
    fn each_rule_has_a_line_that_breaks_it() {
        let long = "word ".repeat(SENTENCE_WORDS + 1);
        let lines = [
            "Done. What few flows have",
            "it tells the caller",
            "the kernel says that",
            "a program who asks",
            "taken by nobody else",
            "all but for one",
            "the rule is to be added",
            "the first one is meant",
            "all that there is",
            "added anew",
            "the first of them",
            long.as_str(),
        ];
        let names = RULES.iter().map(|(name, ..)| *name).chain([LONG_SENTENCE]);
        for (name, line) in names.zip(lines) {
            assert_eq!(broken_by(line), [name], "{line}");
        }
    }

    #[test]
    fn a_line_may_break_several_rules() {
        let expected = [
            "free relative as subject",
            "tell/hear/say for return, report, notify",
            "the kernel/it says",
            "of + pronoun",
        ];
        assert_eq!(broken_by("Who of them heard it says no"), expected);
    }

    #[test]
    fn excused_lines_break_no_rule() {
        let long = ["word"; SENTENCE_WORDS].join(" ");
        for line in [
            "Which chain is first? The oldest.",
            "chains of that name",
            "the code `of them` and `who`",
            "taken by nobody <!-- allow-prose -->",
            &format!("{long}. {long}"),
            &format!("| {long} | {long} |"),
        ] {
            assert_eq!(broken_by(line), Vec::<&str>::new(), "{line}");
        }
    }

    #[test]
    fn comments_messages_and_help_texts_are_prose_and_code_is_not() {
        let text = "//! One\n//!\n/// two\n/// ```\n/// who();\n/// ```\n\
            fn who() {} // three\n  // four\n\
            #[error(\"five \\\"{0}\\\"\")]\n#[arg(help = \"six\")]\n\"who\"\n";
        let lines = Rules::new().lines(&file("crates/a/src/lib.rs", text));
        let texts: Vec<&str> = lines.iter().map(|(_, text)| &**text).collect();
        assert_eq!(texts, ["One", "two", "four", "five \\\"{0}\\\"", "six"]);
        assert_eq!(lines[1].0, 3);
    }

    #[test]
    fn examples_and_rulers_of_markdown_are_not_prose() {
        let text = "# One\n\n```\nwho\n```\n    who\n| two |\n|--|\n";
        let lines = Rules::new().lines(&file("README.md", text));
        let expected = [(1, "# One".to_owned()), (7, "| two |".to_owned())];
        assert_eq!(lines, expected);
        assert!(
            Rules::new()
                .lines(&file("crates/a/a.toml", "who"))
                .is_empty()
        );
    }

    #[test]
    fn hits_are_counted_by_crate_and_limited_there_and_in_the_tree() {
        let fine = "// fine\n".repeat(1000);
        let files = [
            file("crates/a/Cargo.toml", ""),
            file("crates/a/src/lib.rs", &(fine.repeat(9) + "// who\n")),
            file("crates/a/b/Cargo.toml", ""),
            file("crates/a/b/src/lib.rs", "// fine\n// nobody\n"),
            file("README.md", "fine\n"),
            file("other/README.md", "who\n"),
        ];
        let mut prose = check(&files);
        let expected = ["crates/a/b/src/lib.rs:2: nobody/somebody/anybody: nobody"];
        assert_eq!(prose.findings(), expected);
        assert_eq!(
            prose.to_string(),
            "prose: crates/a: 1 hits in 9001 lines of prose (0 per 1,000)\n\
            prose: crates/a/b: 1 hits in 2 lines of prose (500 per 1,000), more than 8\n\
            prose: total: 2 hits in 9004 lines of prose (0 per 1,000)"
        );
        prose
            .crates
            .insert("c".to_owned(), Count { hits: 50, lines: 1 });
        assert_eq!(prose.findings().len(), 2);
    }
}
